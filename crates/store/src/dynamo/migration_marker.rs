//! The progress of a migration: one item of `users`, under a key that no user can have.
//!
//! | attribute | meaning |
//! | --- | --- |
//! | `source`, `last_write` | the store that is moved, and its state; another one is refused |
//! | `begun_at` | a node lease taken after it means that a server has used these tables |
//! | `state` | `copying`, `copied` (not yet compared), `done` |
//! | `place_id`, `place_seq`, `place_user`, `place_attachment`, `moved` | everything before this place is written |
//!
//! It lies in the target, so that it can be read from any machine and goes when the tables go. A
//! file beside the source would outlive tables that were created again, and would be missing from a
//! copy of the source.

use bluetick_protocol::{ConversationId, S3Ref, UserId};

use super::{
    item::{Attributes as _, Item, ItemKey, damaged, key, n, s},
    load::{Loader, refused},
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{Result, SourceIdentity, WalkPlace};

/// No user id contains this character.
pub(super) const MIGRATION: &str = "#migration";

pub(super) struct MigrationMarker {
    pub source: String,
    pub last_write: u64,
    pub begun_at: u64,
    pub state: String,
    pub place: Option<WalkPlace>,
    pub moved: u64,
}

pub(super) const COPYING: &str = "copying";
pub(super) const COPIED: &str = "copied";
pub(super) const DONE: &str = "done";

fn marker_key() -> ItemKey {
    key([("user_id", s(MIGRATION)), ("item", s("embedded"))])
}

pub(super) fn is_marker(item: &Item) -> bool {
    item.text("user_id") == Some(MIGRATION)
}

impl MigrationMarker {
    fn read(item: &Item) -> Result<MigrationMarker> {
        let attachment = |text| S3Ref::new(text).map_err(|e| damaged("place_attachment", e));
        let place = match (item.text("place_id"), item.text("place_user")) {
            (Some(id), _) => {
                let id = ConversationId::new(id).map_err(|e| damaged("place_id", e))?;
                Some(WalkPlace::Conversation { id, seq: item.need_number("place_seq")? })
            }
            (None, Some(user)) => {
                Some(WalkPlace::User(UserId::new(user).map_err(|e| damaged("place_user", e))?))
            }
            (None, None) => {
                item.text("place_attachment").map(attachment).transpose()?.map(WalkPlace::Attachment)
            }
        };
        Ok(MigrationMarker {
            source: item.need_text("source")?.to_owned(),
            last_write: item.need_number("last_write")?,
            begun_at: item.need_number("begun_at")?,
            state: item.need_text("state")?.to_owned(),
            place,
            moved: item.seq("moved"),
        })
    }
}

impl Loader {
    pub(super) async fn marker(&self) -> Result<Option<MigrationMarker>> {
        self.dynamo().get(Table::Users, marker_key()).await?.as_ref().map(MigrationMarker::read).transpose()
    }

    pub(super) async fn claim(&self, source: &SourceIdentity) -> Result<()> {
        let mut item = marker_key();
        item.extend(key([
            ("source", s(&source.name)),
            ("last_write", n(source.last_write)),
            ("begun_at", n(self.now_ms())),
            ("state", s(COPYING)),
            ("moved", n(0)),
        ]));
        let write = Write::put(Table::Users, item)
            .only_if("attribute_not_exists(#source) OR #source = :source")
            .value(":source", s(&source.name));
        match self.dynamo().write(&write).await? {
            WriteOutcome::Done(_) => Ok(()),
            WriteOutcome::Refused(_) => {
                refused("another store is being moved to these tables at this moment")
            }
        }
    }

    pub(super) async fn note(&self, source: &SourceIdentity, place: &WalkPlace, moved: u64) -> Result<()> {
        let (set, remove, values) = match place {
            WalkPlace::Conversation { id, seq } => {
                ("#place_id = :id, #place_seq = :seq", "#place_user", vec![(":id", s(id)), (":seq", n(*seq))])
            }
            WalkPlace::User(user) => {
                ("#place_user = :user", "#place_id, #place_seq", vec![(":user", s(user))])
            }
            WalkPlace::Attachment(s3_ref) => (
                "#place_attachment = :attachment",
                "#place_id, #place_seq, #place_user",
                vec![(":attachment", s(s3_ref))],
            ),
        };
        let update = format!("SET #moved = :moved, {set} REMOVE {remove}");
        let mut write = Write::update(Table::Users, marker_key(), update).value(":moved", n(moved));
        for (name, value) in values {
            write = write.value(name, value);
        }
        self.change_marker(source, write).await
    }

    pub(super) async fn set_state(&self, source: &SourceIdentity, state: &str, moved: u64) -> Result<()> {
        let update = "SET #state = :state, #moved = :moved REMOVE #place_id, #place_seq, #place_user, \
                      #place_attachment";
        let write = Write::update(Table::Users, marker_key(), update)
            .value(":state", s(state))
            .value(":moved", n(moved));
        self.change_marker(source, write).await
    }

    async fn change_marker(&self, source: &SourceIdentity, write: Write) -> Result<()> {
        let write = write
            .only_if("#source = :source AND #last_write = :last_write")
            .value(":source", s(&source.name))
            .value(":last_write", n(source.last_write));
        match self.dynamo().write(&write).await? {
            WriteOutcome::Done(_) => Ok(()),
            WriteOutcome::Refused(_) => {
                refused("somebody else has begun to move another store to these tables")
            }
        }
    }
}
