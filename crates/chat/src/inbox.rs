//! The inbox, drawn whole from one answer: one row of `conversations` an entry, and one of `message_status` only where
//! the last message is the reader's own.

use bluetick_protocol::{
    Boundaries, ConversationId, InboxEntry, InboxPage, InboxQuery, StatusAnswer, UserCard, UserId, limits,
};
use bluetick_store::{ConversationRow, InboxPosition};

use crate::{Answer, Node, history::page_limit, wire};

impl Node {
    pub(crate) async fn inbox_page(&self, user: UserId, query: InboxQuery) -> Answer<InboxPage> {
        let InboxQuery { reference, limit, before } = query;
        let limit = page_limit(limit, limits::INBOX_DEFAULT_LIMIT, limits::INBOX_MAX_LIMIT)?;
        let after = before.map(|text| read_position(&text)).transpose()?;
        let (rows, more) =
            self.store.conversations.inbox(&user, after.as_ref(), limit).await.map_err(wire)?;
        let next = rows.last().filter(|_| more).map(write_position);
        let own = |row: &&ConversationRow| row.last_sender == row.user_id;
        let ticked: Vec<_> =
            rows.iter().filter(own).map(|row| (row.peer_id.clone(), row.conversation_id.clone())).collect();
        let statuses = match ticked.is_empty() {
            true => Vec::new(),
            false => self.store.status.statuses(&ticked).await.map_err(wire)?,
        };
        let mut ticks = statuses.into_iter();
        let conversations = rows
            .into_iter()
            .map(|row| {
                let ticked = row.last_sender == row.user_id;
                let status = if ticked { ticks.next() } else { None };
                entry(row, status.map(|status| status.boundaries()).unwrap_or_default())
            })
            .collect();
        Ok(InboxPage { reference, conversations, next })
    }

    pub(crate) async fn status_of(&self, user: UserId, id: ConversationId) -> Answer<StatusAnswer> {
        let side = self.member_of(&user, &id).await?;
        let row = self.store.conversations.conversation(&user, &id).await.map_err(wire)?;
        let own = self.store.status.status(&user, &id).await.map_err(wire)?.boundaries();
        let peer = id.member(side.other());
        let peer = self.store.status.status(&peer, &id).await.map_err(wire)?.boundaries();
        let (last_seq, unread_count) = row.map_or((0, 0), |row| (row.last_seq, row.unread_count));
        Ok(StatusAnswer { reference: None, conversation_id: id, last_seq, unread_count, own, peer })
    }
}

fn entry(row: ConversationRow, peer_status: Boundaries) -> InboxEntry {
    InboxEntry {
        conversation_id: row.conversation_id,
        peer: UserCard { user_id: row.peer_id, name: row.peer_name, avatar_url: row.avatar_url },
        last_message_preview: row.last_message_preview,
        last_message_ts: row.last_message_ts,
        last_seq: row.last_seq,
        last_sender: row.last_sender,
        unread_count: row.unread_count,
        peer_status,
    }
}

/// The opaque `next`: where a page ended.
fn write_position(row: &ConversationRow) -> String {
    format!("{}.{}", row.last_message_ts, row.conversation_id)
}

fn read_position(text: &str) -> Answer<InboxPosition> {
    let wrong = || Node::bad_request("\"before\" must be the \"next\" of the page before");
    let (ts, id) = text.split_once('.').ok_or_else(wrong)?;
    Ok(InboxPosition {
        last_message_ts: ts.parse().map_err(|_| wrong())?,
        conversation_id: ConversationId::new(id).map_err(|_| wrong())?,
    })
}
