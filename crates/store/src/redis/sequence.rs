//! The sequence service: `seq:{conversation}` by INCR. A hint of what the next seq is; the messages table refuses
//! one that was handed out before (R8).

use std::{ops::RangeInclusive, time::Duration};

use bluetick_protocol::{ConversationId, Seq};

use super::{
    Redis,
    scripts::{Call, RAISE_SEQ, RETURN_SEQS, TAKE_SEQ},
};
use crate::Result;

const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Redis {
    /// The next seq, or `None` if there is no counter: then it must be raised to the conversation's maximum first.
    pub async fn take_seq(&self, conversation: &ConversationId) -> Result<Option<Seq>> {
        Ok(self.take_seqs(conversation, 1).await?.map(|seqs| *seqs.end()))
    }

    /// The next `n` seqs, for sends that are committed together.
    pub async fn take_seqs(
        &self,
        conversation: &ConversationId,
        n: u64,
    ) -> Result<Option<RangeInclusive<Seq>>> {
        if n == 0 {
            return Ok(Some(RangeInclusive::new(1, 0)));
        }
        let call = Call::on([self.key("seq", conversation.as_str())]).arg(n).arg(KEPT.as_millis() as u64);
        let last: Option<Seq> = self.eval(&TAKE_SEQ, call).await?;
        Ok(last.map(|last| last.saturating_sub(n) + 1..=last))
    }

    /// Sets the counter to at least `to`, making it if there is none.
    pub async fn raise_seq(&self, conversation: &ConversationId, to: Seq) -> Result<()> {
        let call = Call::on([self.key("seq", conversation.as_str())]).arg(to).arg(KEPT.as_millis() as u64);
        self.eval(&RAISE_SEQ, call).await
    }

    /// Takes back seqs that were handed out and not used, if none after them was handed out: else they stay holes.
    pub async fn return_seqs(&self, conversation: &ConversationId, seqs: RangeInclusive<Seq>) -> Result<()> {
        let call = Call::on([self.key("seq", conversation.as_str())]).arg(*seqs.start()).arg(*seqs.end());
        self.eval::<::redis::Value>(&RETURN_SEQS, call).await.map(drop)
    }
}
