//! The sequence service: the counter `seq:{conversation}`. It is a hint: the messages table refuses
//! a seq that is in use (R8).

use std::{ops::RangeInclusive, time::Duration};

use bluetick_protocol::{ConversationId, Seq};

use super::{
    Redis,
    scripts::{RAISE_SEQ, RETURN_SEQS, ScriptCall, TAKE_SEQ},
};
use crate::Result;

const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Redis {
    /// The next seq; `None` if there is no counter, which must then first be raised to the
    /// conversation's maximum.
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
        let call =
            ScriptCall::on([self.key("seq", conversation.as_str())]).arg(n).arg(KEPT.as_millis() as u64);
        let last: Option<Seq> = self.eval(&TAKE_SEQ, call).await?;
        Ok(last.map(|last| last.saturating_sub(n) + 1..=last))
    }

    /// Raises the counter to at least `to`, and creates it if there is none.
    pub async fn raise_seq(&self, conversation: &ConversationId, to: Seq) -> Result<()> {
        let call =
            ScriptCall::on([self.key("seq", conversation.as_str())]).arg(to).arg(KEPT.as_millis() as u64);
        self.eval(&RAISE_SEQ, call).await
    }

    /// Returns unused seqs, if none after them was taken. Otherwise they stay holes.
    pub async fn return_seqs(&self, conversation: &ConversationId, seqs: RangeInclusive<Seq>) -> Result<()> {
        let call =
            ScriptCall::on([self.key("seq", conversation.as_str())]).arg(*seqs.start()).arg(*seqs.end());
        self.eval::<::redis::Value>(&RETURN_SEQS, call).await.map(drop)
    }
}
