//! `conversations`: PK user_id, SK conversation_id; what one member's inbox shows of a
//! conversation. Also the inbox order, `inbox:{user}`, which is derived from it.

use async_trait::async_trait;
use bluetick_protocol::{Attachment, ConversationId, Json, MessageId, Seq, UserId, limits};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRow {
    pub user_id: UserId,
    pub conversation_id: ConversationId,
    pub peer_id: UserId,
    /// The peer has written something that this user may see. Until then the row hides the peer's
    /// profile. Derived from the messages; not a column of the row.
    #[serde(skip)]
    pub peer_wrote: bool,
    /// Copies of the peer's profile. They no longer change once the peer blocks this user.
    pub peer_name: Option<String>,
    pub avatar_url: Option<String>,
    pub last_message_preview: String,
    pub last_message_ts: u64,
    pub last_seq: Seq,
    pub last_sender: UserId,
    pub unread_count: u64,
}

/// A place in a user's inbox, newest first: by time, then by conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboxPosition {
    pub last_message_ts: u64,
    pub conversation_id: ConversationId,
}

/// A conversation with a message at or after a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveConversation {
    pub conversation_id: ConversationId,
    /// The last seq that this user may see.
    pub last_seq: Seq,
    pub last_message_id: MessageId,
}

/// A page of [`Conversations::undelivered`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// In order of conversation.
    pub conversations: Vec<ConversationId>,
    /// The last conversation that was checked, if there are more.
    pub next: Option<ConversationId>,
}

#[async_trait]
pub trait Conversations: Send + Sync {
    /// One row, if this user's inbox has it.
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>>;

    /// All rows of a user, in order of conversation.
    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>>;

    /// A page of the inbox, newest first, after a position; and whether there is more behind it.
    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)>;

    /// The conversations with a message at or after `since_ms`, newest first, at most `limit` (R6).
    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>>;

    /// The conversations with a message from the peer beyond `last_delivered_seq` that this user
    /// may see: no device has acked it, whether or not there is a pending row (R6). Checks at most
    /// `limit` conversations after `after`, so a page may be empty without being the last. A
    /// backend may include a conversation that is being written to although nothing is undelivered;
    /// it never omits a message whose sender was told `sent`.
    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered>;

    /// The sum of `unread_count` over the user's conversations.
    async fn total_unread(&self, user: &UserId) -> Result<u64>;

    /// Recounts the unread messages from `messages` and repairs the row. Returns the count before
    /// and after.
    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)>;
}

/// The preview of a message: the kind of its attachment, and the beginning of its text.
pub fn preview_of(body: &str, attachment: Option<&Json>) -> String {
    let attached = attachment.and_then(|json| serde_json::from_str::<Attachment>(json.as_str()).ok());
    match attached {
        None => line_of(body),
        Some(attached) if body.is_empty() => line_of(attached.label()),
        Some(attached) => line_of(&format!("{}: {body}", attached.label())),
    }
}

/// A text as one line, cut at a character.
fn line_of(body: &str) -> String {
    let mut preview = String::with_capacity(body.len().min(limits::PREVIEW_MAX_CHARS + 8));
    let (mut shown, mut gap) = (0, false);
    for (n, c) in body.chars().enumerate() {
        if shown >= limits::PREVIEW_MAX_CHARS || n > 4 * limits::PREVIEW_MAX_CHARS {
            preview.push('…');
            break;
        }
        if c.is_whitespace() || c.is_control() {
            gap = shown > 0;
        } else {
            if gap {
                preview.push(' ');
                shown += 1;
                gap = false;
            }
            preview.push(c);
            shown += 1;
        }
    }
    preview
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_one_line_and_cut_at_a_character() {
        assert_eq!(line_of("  two\n\n lines "), "two lines");
        assert_eq!(line_of(&"é".repeat(80)), "é".repeat(80));
        assert_eq!(line_of(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
        assert_eq!(line_of(""), "");
        assert!(line_of(&" ".repeat(10_000)).len() < 10);
    }

    #[test]
    fn a_preview_says_what_is_attached() {
        let attached = |mime: &str, name: &str, voice: bool| {
            let s3_ref = "0".repeat(32);
            let json =
                serde_json::json!({"s3_ref": s3_ref, "name": name, "mime": mime, "bytes": 1, "voice": voice});
            Json::from_text(&json.to_string()).unwrap()
        };
        let preview = |body: &str, json: Json| preview_of(body, Some(&json));
        assert_eq!(preview("", attached("image/jpeg", "IMG_1.jpg", false)), "Photo");
        assert_eq!(preview("", attached("video/mp4", "v.mp4", false)), "Video");
        assert_eq!(preview("", attached("audio/ogg", "a.ogg", true)), "Voice message");
        assert_eq!(preview("", attached("audio/mpeg", "song.mp3", false)), "song.mp3");
        assert_eq!(preview("", attached("application/pdf", "contract.pdf", false)), "contract.pdf");
        assert_eq!(preview("the\nbeach", attached("image/png", "b.png", false)), "Photo: the beach");
        // An unknown attachment is not shown.
        assert_eq!(preview("hello", Json::from_text("{\"a\":1}").unwrap()), "hello");
    }
}
