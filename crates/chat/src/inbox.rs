//! The inbox, complete in one answer: each entry takes one row of `conversations`, and one of
//! `message_status` only if the last message is the reader's own.

use async_trait::async_trait;
use bluetick_protocol::{
    Boundaries, ConversationId, InboxEntry, InboxPage, InboxQuery, Profile, StatusAnswer, UserCard, UserId,
    json_text_bytes, limits,
};
use bluetick_store::{ConversationRow, InboxPosition};

use crate::{AppResult, ChatService, InboxApi, ProfileRules, history::page_limit, wire};

#[async_trait]
impl InboxApi for ChatService {
    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        let InboxQuery { reference, limit, before } = query;
        let limit = page_limit(limit, limits::INBOX_DEFAULT_LIMIT, limits::INBOX_MAX_LIMIT)?;
        let after = before.map(|text| read_position(&text)).transpose()?;
        let (mut rows, mut more) =
            self.store.conversations.inbox(&user, after.as_ref(), limit).await.map_err(wire)?;
        if let Some(fits) = rows_in_page(&rows) {
            rows.truncate(fits);
            more = true;
        }
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
                let peer_status = status.map(|status| status.boundaries()).unwrap_or_default();
                entry(row, peer_status, &self.config.profiles)
            })
            .collect();
        Ok(InboxPage { reference, conversations, next })
    }

    async fn status(&self, user: UserId, id: ConversationId) -> AppResult<StatusAnswer> {
        let side = self.member_of(&user, &id).await?;
        let row = self.store.conversations.conversation(&user, &id).await.map_err(wire)?;
        let own = self.store.status.status(&user, &id).await.map_err(wire)?.boundaries();
        let peer = id.member(side.other());
        let peer = self.store.status.status(&peer, &id).await.map_err(wire)?.boundaries();
        let (last_seq, unread_count) = row.map_or((0, 0), |row| (row.last_seq, row.unread_count));
        Ok(StatusAnswer { reference: None, conversation_id: id, last_seq, unread_count, own, peer })
    }
}

/// How many rows fit a page on the wire, if not all do. The first always fits.
fn rows_in_page(rows: &[ConversationRow]) -> Option<usize> {
    let mut bytes = 0;
    let beyond = rows.iter().position(|row| {
        bytes += encoded_bytes(row);
        bytes > limits::PAGE_ENCODED_MAX_BYTES
    });
    beyond.map(|fits| fits.max(1)).filter(|&fits| fits < rows.len())
}

/// About how many bytes an entry takes on the wire, and never fewer.
fn encoded_bytes(row: &ConversationRow) -> usize {
    const NAMES_AND_NUMBERS: usize = 512;
    let profile = [&row.peer_name, &row.avatar_url].into_iter().flatten();
    let texts = profile.map(|text| json_text_bytes(text)).sum::<usize>();
    // The peer and the last sender are members of the conversation.
    let ids = 3 * row.conversation_id.as_str().len();
    NAMES_AND_NUMBERS + ids + texts + json_text_bytes(&row.last_message_preview)
}

fn entry(row: ConversationRow, peer_status: Boundaries, rules: &ProfileRules) -> InboxEntry {
    let Profile { name, avatar_url } =
        rules.clean(Profile { name: row.peer_name, avatar_url: row.avatar_url });
    InboxEntry {
        conversation_id: row.conversation_id,
        peer: UserCard { user_id: row.peer_id, name, avatar_url },
        last_message_preview: row.last_message_preview,
        last_message_ts: row.last_message_ts,
        last_seq: row.last_seq,
        last_sender: row.last_sender,
        unread_count: row.unread_count,
        peer_status,
    }
}

/// The opaque `next` token: where a page ended.
fn write_position(row: &ConversationRow) -> String {
    format!("{}.{}", row.last_message_ts, row.conversation_id)
}

fn read_position(text: &str) -> AppResult<InboxPosition> {
    let wrong = || ChatService::bad_request("\"before\" must be the \"next\" of the page before");
    let (ts, id) = text.split_once('.').ok_or_else(wrong)?;
    Ok(InboxPosition {
        last_message_ts: ts.parse().map_err(|_| wrong())?,
        conversation_id: ConversationId::new(id).map_err(|_| wrong())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize, filling: &str) -> ConversationRow {
        let (alice, peer) = (UserId::new("alice").unwrap(), UserId::new(&format!("b{n:063}")).unwrap());
        ConversationRow {
            user_id: alice.clone(),
            conversation_id: ConversationId::between(&alice, &peer).unwrap(),
            peer_id: peer.clone(),
            peer_name: Some(filling.repeat(limits::NAME_MAX_BYTES)),
            avatar_url: Some(filling.repeat(limits::AVATAR_URL_MAX_BYTES)),
            last_message_preview: filling.repeat(limits::PREVIEW_MAX_CHARS),
            last_message_ts: u64::MAX,
            last_seq: u64::MAX,
            last_sender: peer,
            unread_count: u64::MAX,
            peer_wrote: true,
        }
    }

    #[test]
    fn a_card_that_is_older_than_the_rules_is_cleaned() {
        let mut old = row(1, "x");
        old.peer_name = Some("Ann\u{202E}".into());
        old.avatar_url = Some("https://tracker.example/a.png".into());
        let shown = entry(old, Boundaries::default(), &ProfileRules::default()).peer;
        assert_eq!((shown.name.as_deref(), shown.avatar_url), (Some("Ann"), None));
    }

    #[test]
    fn a_page_ends_where_it_would_be_too_long_on_the_wire() {
        let rules = ProfileRules::default();
        for (filling, all_fit) in [("x", true), ("\u{1}", false)] {
            let rows: Vec<_> = (0..limits::INBOX_MAX_LIMIT as usize).map(|n| row(n, filling)).collect();
            let fits = rows_in_page(&rows);
            assert_eq!(fits.is_none(), all_fit, "{filling:?}: {fits:?}");
            let bytes = |row: &ConversationRow| {
                let boundaries = Boundaries { last_delivered_seq: u64::MAX, last_read_seq: u64::MAX };
                let bytes = serde_json::to_string(&entry(row.clone(), boundaries, &rules)).unwrap().len();
                assert!(bytes <= encoded_bytes(row), "{bytes} bytes and not {}", encoded_bytes(row));
                bytes
            };
            let page: usize = rows[..fits.unwrap_or(rows.len())].iter().map(bytes).sum();
            assert!(page <= limits::PAGE_ENCODED_MAX_BYTES, "{page}");
        }
        let long = row(1, &"\u{1}".repeat(100));
        assert_eq!(rows_in_page(&[long.clone(), long.clone()]), Some(1), "there is always room for one");
        assert_eq!(rows_in_page(&[long]), None);
    }
}
