//! `bluetick inspect`: the rows kept for a user, as the design names them.

use std::sync::Arc;

use bluetick_chat::UploadUsageRow;
use bluetick_protocol::{DeviceId, PushContent, PushProvider, UserId};
use bluetick_store::{
    ConversationRow, DeviceRow, OwedPush, PendingRow, SessionEntry, StatusRow, Store, StoreError, SystemClock,
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use super::{
    Failure, Outcome, output,
    remote::{RequestError, segment},
    table,
    target::{ResolvedTarget, Target},
};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Which rows
    #[arg(value_enum)]
    kind: RowKind,
    /// Whose
    #[arg(long, value_name = "USER")]
    user: UserId,
    /// Print an array of rows instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowKind {
    /// Conversations with something undelivered
    Pending,
    /// How far the user has received and read each conversation
    Status,
    /// The user's inbox
    Conversations,
    /// The user's live connections
    Sessions,
    /// Where the user's devices are notified
    Devices,
    /// What the user's devices are still to be notified of
    Push,
    /// How much of their upload quota the user has used
    Uploads,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum UserRows {
    Pending(Vec<PendingRow>),
    Status(Vec<StatusRow>),
    Conversations(Vec<ConversationRow>),
    Sessions(Vec<SessionEntry>),
    Devices(Vec<PrintedDevice>),
    Push(Vec<OwedPush>),
    Uploads(Vec<UploadUsageRow>),
}

/// A registration with a shortened address. `bluetick export` has the whole address.
#[derive(Debug, Serialize)]
struct PrintedDevice {
    user_id: UserId,
    device: DeviceId,
    provider: PushProvider,
    address: String,
    content: PushContent,
    registered_at: u64,
}

impl From<DeviceRow> for PrintedDevice {
    fn from(row: DeviceRow) -> PrintedDevice {
        let target = &row.registration.target;
        PrintedDevice {
            provider: target.provider(),
            address: shortened(target.address()),
            content: row.registration.content,
            user_id: row.user_id,
            device: row.device,
            registered_at: row.registered_at,
        }
    }
}

/// The two ends of what would be long, and useful to whoever finds it in a terminal's scrollback.
fn shortened(address: &str) -> String {
    const KEPT: usize = 8;
    let characters: Vec<char> = address.chars().collect();
    match characters.len() > 3 * KEPT {
        true => {
            let (begin, end) = (&characters[..KEPT], &characters[characters.len() - KEPT..]);
            format!("{}…{}", String::from_iter(begin), String::from_iter(end))
        }
        false => format!("{}…", String::from_iter(&characters[..characters.len() / 2])),
    }
}

pub async fn run(args: InspectArgs) -> Outcome {
    let place = args.target.resolve()?;
    let rows = find(&place, args.kind, &args.user).await?;
    let text = if args.json { rows.to_json() } else { rows.to_table() };
    Ok(output::print(&text)?)
}

/// Asks the server; where there is none, reads the store, which nobody holds then.
async fn find(place: &ResolvedTarget, kind: RowKind, user: &UserId) -> Outcome<UserRows> {
    let why_not = match place.remote() {
        Err(no_key) if place.url_given => return Err(no_key),
        Err(Failure::Failed(no_key)) => no_key,
        Err(other) => return Err(other),
        Ok(remote) => match remote.get(&format!("users/{}/{}", segment(user.as_str()), kind.name())).await {
            Ok(answer) => {
                return UserRows::parse(kind, &answer).map_err(|e| {
                    Failure::Failed(format!("{} answered what is not rows: {e}", remote.url()))
                });
            }
            // A wrong key may mean that another data directory's server has this address.
            Err(RequestError::Unreachable(why) | RequestError::WrongKey(why)) if !place.url_given => why,
            Err(other) => return Err(other.into()),
        },
    };
    match read_store(place, kind, user).await {
        Ok(Some(rows)) => Ok(rows),
        Ok(None) => Err(Failure::Failed(why_not)),
        Err(e) => Err(Failure::Failed(format!("{why_not}; and the store cannot be read: {e}"))),
    }
}

/// The rows as they lie in a data directory, if it holds a store at all: looking must not make one.
async fn read_store(
    place: &ResolvedTarget,
    kind: RowKind,
    user: &UserId,
) -> Result<Option<UserRows>, StoreError> {
    if !place.holds_store() {
        return Ok(None);
    }
    let store = Store::embedded(place.config.embedded_store_with_objects()?, Arc::new(SystemClock))?;
    let rows = UserRows::read(kind, &store, user).await;
    store.maintenance.close().await?;
    rows.map(Some)
}

impl RowKind {
    fn name(self) -> &'static str {
        match self {
            RowKind::Pending => "pending",
            RowKind::Status => "status",
            RowKind::Conversations => "conversations",
            RowKind::Sessions => "sessions",
            RowKind::Devices => "devices",
            RowKind::Push => "push",
            RowKind::Uploads => "uploads",
        }
    }
}

impl UserRows {
    fn parse(kind: RowKind, json: &[u8]) -> serde_json::Result<UserRows> {
        Ok(match kind {
            RowKind::Pending => UserRows::Pending(serde_json::from_slice(json)?),
            RowKind::Status => UserRows::Status(serde_json::from_slice(json)?),
            RowKind::Conversations => UserRows::Conversations(serde_json::from_slice(json)?),
            RowKind::Sessions => UserRows::Sessions(serde_json::from_slice(json)?),
            RowKind::Devices => UserRows::devices(serde_json::from_slice(json)?),
            RowKind::Push => UserRows::Push(serde_json::from_slice(json)?),
            RowKind::Uploads => UserRows::Uploads(serde_json::from_slice(json)?),
        })
    }

    async fn read(kind: RowKind, store: &Store, user: &UserId) -> Result<UserRows, StoreError> {
        Ok(match kind {
            RowKind::Pending => UserRows::Pending(store.pending.pending_of(user).await?),
            RowKind::Status => UserRows::Status(store.status.statuses_of(user).await?),
            RowKind::Conversations => {
                UserRows::Conversations(store.conversations.conversations_of(user).await?)
            }
            RowKind::Sessions => UserRows::Sessions(store.sessions.lookup(user).await?),
            RowKind::Devices => UserRows::devices(store.devices.devices_of(user).await?),
            RowKind::Push => UserRows::Push(store.push_outbox.owed_to(user).await?),
            RowKind::Uploads => {
                let usage = store.attachments.upload_usage(user).await?;
                UserRows::Uploads(vec![UploadUsageRow { user_id: user.clone(), usage }])
            }
        })
    }

    fn devices(rows: Vec<DeviceRow>) -> UserRows {
        UserRows::Devices(rows.into_iter().map(PrintedDevice::from).collect())
    }

    fn columns(&self) -> &'static [&'static str] {
        match self {
            UserRows::Pending(_) => &["receiver_id", "conversation_id", "first_undelivered_seq"],
            UserRows::Status(_) => &["user_id", "conversation_id", "last_delivered_seq", "last_read_seq"],
            UserRows::Conversations(_) => &[
                "user_id",
                "conversation_id",
                "last_message_preview",
                "last_message_ts",
                "last_seq",
                "last_sender",
                "unread_count",
                "peer_id",
                "peer_name",
                "avatar_url",
            ],
            UserRows::Sessions(_) => &["user_id", "device", "session_id", "gateway", "connected_at"],
            UserRows::Devices(_) => &["user_id", "device", "provider", "address", "content", "registered_at"],
            UserRows::Push(_) => {
                &["user_id", "conversation_id", "seq", "clear", "attempts", "devices", "due_at"]
            }
            UserRows::Uploads(_) => &["user_id", "total_bytes", "day", "day_bytes"],
        }
    }

    fn to_json(&self) -> String {
        // Rows are strings and numbers under fixed names: writing them cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn to_table(&self) -> String {
        let columns = self.columns();
        let rows = match serde_json::to_value(self) {
            Ok(Value::Array(rows)) => rows,
            _ => Vec::new(),
        };
        let rows: Vec<Vec<Value>> = rows
            .iter()
            .map(|row| columns.iter().map(|&column| row.get(column).cloned().unwrap_or_default()).collect())
            .collect();
        table::render(columns, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A table that misses a column, or names one that is gone, would show it as `-` for ever.
    #[test]
    fn every_column_of_every_row_is_shown() {
        let samples = [
            (RowKind::Pending, r#"[{"receiver_id":"b","conversation_id":"a~b","first_undelivered_seq":3}]"#),
            (
                RowKind::Status,
                r#"[{"user_id":"b","conversation_id":"a~b","last_delivered_seq":3,"last_read_seq":0}]"#,
            ),
            (
                RowKind::Conversations,
                r#"[{"user_id":"b","conversation_id":"a~b","peer_id":"a","last_message_preview":"hi",
                "last_message_ts":1,"last_seq":3,"last_sender":"a","unread_count":3}]"#,
            ),
            (
                RowKind::Sessions,
                r#"[{"user_id":"b","device":"web","session_id":"0f","gateway":"g","connected_at":1}]"#,
            ),
            (
                RowKind::Devices,
                r#"[{"user_id":"b","device":"web","registration":{"provider":"fcm","token":"t"},"registered_at":1}]"#,
            ),
            (
                RowKind::Push,
                r#"[{"user_id":"b","conversation_id":"a~b","seq":3,"clear":false,"attempts":1,"devices":["web"],
                "due_at":1}]"#,
            ),
            (RowKind::Uploads, r#"[{"user_id":"b","total_bytes":5000,"day":20000,"day_bytes":4096}]"#),
        ];
        for (kind, json) in samples {
            let rows = UserRows::parse(kind, json.as_bytes()).unwrap();
            let printed: Value = serde_json::from_str(&rows.to_json()).unwrap();
            let keys: BTreeSet<&str> = printed[0].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, rows.columns().iter().copied().collect(), "{kind:?}");
            assert_eq!(rows.to_table().lines().count(), 2);
        }
    }

    #[test]
    fn no_address_is_shown_whole() {
        assert_eq!(shortened("0123456789abcdef0123456789abcdef"), "01234567…89abcdef");
        assert_eq!(shortened("0123"), "01…");
        assert_eq!(shortened("x"), "…");
    }

    #[test]
    fn a_user_without_rows_is_an_empty_array() {
        assert_eq!(UserRows::parse(RowKind::Pending, b"[]").unwrap().to_json(), "[]\n");
    }
}
