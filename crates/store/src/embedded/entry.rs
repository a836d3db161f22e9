//! A message as the log, the memtable and the engine keep it.

use std::{ops::Range, sync::Arc};

use bluetick_protocol::{ClientMsgId, ConversationId, MessageId, Seq};

use super::bytes::{ByteReader, FORMAT, Malformed, check_format, put_opt, put_str, put_u64, side};
use crate::Message;

/// A message with the unread counters at its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageEntry {
    pub message: Arc<Message>,
    /// For each member, how many messages that count as unread for the other they had written, up
    /// to and including this one. The difference of two entries is an exact unread count, without
    /// reading the messages between them (R11).
    pub counted: [u64; 2],
}

impl MessageEntry {
    /// The same position without content.
    pub(super) fn voided(&self) -> MessageEntry {
        MessageEntry { message: Arc::new(self.message.voided()), counted: self.counted }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let m = &self.message;
        out.push(FORMAT);
        out.push(m.from as u8 | u8::from(m.withheld) << 1 | u8::from(m.void) << 2);
        put_u64(out, m.seq);
        put_u64(out, m.message_id.0);
        put_u64(out, m.ts);
        put_u64(out, self.counted[0]);
        put_u64(out, self.counted[1]);
        put_str(out, m.client_msg_id.as_str());
        put_str(out, &m.body);
        put_opt(out, m.attachment.as_ref().map(|j| j.as_str()));
        put_opt(out, m.meta.as_ref().map(|j| j.as_str()));
    }

    /// The entries of a run (a value of `messages`) with seqs in a range.
    pub(super) fn of_run<'a>(
        id: &'a ConversationId,
        run: &'a [u8],
        seqs: Range<Seq>,
    ) -> impl Iterator<Item = Result<MessageEntry, Malformed>> + 'a {
        let mut r = ByteReader(run);
        std::iter::from_fn(move || {
            while !r.0.is_empty() {
                match MessageEntry::read_if(id, &mut r, |seq| seqs.contains(&seq)) {
                    Ok(Some(entry)) => return Some(Ok(entry)),
                    Ok(None) => {}
                    Err(malformed) => {
                        r.0 = &[];
                        return Some(Err(malformed));
                    }
                }
            }
            None
        })
    }

    pub(super) fn read(id: &ConversationId, r: &mut ByteReader<'_>) -> Result<MessageEntry, Malformed> {
        MessageEntry::read_if(id, r, |_| true)?.ok_or(Malformed("no message"))
    }

    /// Decodes one entry; skips it without allocating if it is not wanted.
    fn read_if(
        id: &ConversationId,
        r: &mut ByteReader<'_>,
        wanted: impl FnOnce(Seq) -> bool,
    ) -> Result<Option<MessageEntry>, Malformed> {
        check_format(r)?;
        let flags = r.u8()?;
        let seq = r.u64()?;
        let message_id = MessageId(r.u64()?);
        let ts = r.u64()?;
        let counted = [r.u64()?, r.u64()?];
        let (client_msg_id, body) = (r.str()?, r.str()?);
        if !wanted(seq) {
            r.opt()?;
            r.opt()?;
            return Ok(None);
        }
        let message = Message {
            conversation_id: id.clone(),
            seq,
            message_id,
            client_msg_id: ClientMsgId::new(client_msg_id).map_err(|_| Malformed("not a client_msg_id"))?,
            from: side(flags & 1),
            body: body.to_owned(),
            ts,
            attachment: r.json()?,
            meta: r.json()?,
            withheld: flags & 2 != 0,
            void: flags & 4 != 0,
        };
        Ok(Some(MessageEntry { message: Arc::new(message), counted }))
    }
}
