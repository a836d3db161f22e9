//! `users`: profiles, blocks, mutes and revocations. Every send reads block flags, so Redis caches
//! them. A change first marks the cached flag as unknown, and a reader who finds the mark reads the
//! table.

use std::collections::BTreeSet;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use bluetick_protocol::{ConversationId, Mute, Profile, Side, UserId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    client::PartitionQuery,
    item::{Attributes as _, Item, ItemKey, damaged, flag, key, n, s},
    row::row_key,
    tables::Table,
    write::Write,
};
use crate::{Result, Users};

pub(super) const PROFILE: &str = "profile";
pub(super) const BLOCK: &str = "block#";
pub(super) const MUTE: &str = "mute#";
pub(super) const NOT_BEFORE: &str = "not_before";
const ROWS_AT_ONCE: usize = 16;

pub(super) fn user_key(user: &UserId, item: &str) -> ItemKey {
    key([("user_id", s(user)), ("item", s(item))])
}

pub(super) fn block_key(user: &UserId, other: &UserId) -> ItemKey {
    user_key(user, &format!("{BLOCK}{other}"))
}

/// A block, with the profile that the blocked user still sees.
pub(super) fn block_item(user: &UserId, other: &UserId, profile: &Profile) -> Item {
    let mut item = block_key(user, other);
    item.insert("blocked".into(), flag());
    // Blocks of earlier versions have no copy.
    item.insert("frozen".into(), flag());
    put_profile_fields(&mut item, profile);
    item
}

pub(super) fn mute_key(user: &UserId, conversation: &ConversationId) -> ItemKey {
    user_key(user, &format!("{MUTE}{conversation}"))
}

pub(super) fn mute_item(user: &UserId, mute: &Mute) -> Item {
    let mut item = mute_key(user, &mute.conversation_id);
    item.extend(mute.until.map(|until| ("until".to_owned(), n(until))));
    item
}

/// A mute, if the item is one.
pub(super) fn read_mute(item: &Item) -> Result<Option<Mute>> {
    let Some(id) = item.need_text("item")?.strip_prefix(MUTE) else { return Ok(None) };
    let conversation_id = ConversationId::new(id).map_err(|error| damaged("item", error))?;
    let until = item.has("until").then(|| item.need_number("until")).transpose()?;
    Ok(Some(Mute { conversation_id, until }))
}

pub(super) fn not_before_item(user: &UserId, secs: u64) -> Item {
    let mut item = user_key(user, NOT_BEFORE);
    item.insert("secs".into(), n(secs));
    item
}

pub(super) fn read_profile(item: Option<&Item>) -> Profile {
    Profile {
        name: item.and_then(|item| item.owned("name")),
        avatar_url: item.and_then(|item| item.owned("avatar_url")),
    }
}

pub(super) fn profile_item(user: &UserId, profile: &Profile) -> Item {
    let mut item = user_key(user, PROFILE);
    put_profile_fields(&mut item, profile);
    item
}

fn put_profile_fields(item: &mut Item, profile: &Profile) {
    for (name, text) in [("name", &profile.name), ("avatar_url", &profile.avatar_url)] {
        if let Some(text) = text {
            item.insert(name.to_owned(), s(text));
        }
    }
}

impl DynamoStore {
    /// The profiles of both members, by side, as the other one sees them: that of a member who
    /// blocks the other is from the time of the block.
    pub(super) async fn profiles(&self, conversation: &ConversationId) -> Result<[Profile; 2]> {
        let [low, high] = Side::BOTH.map(|side| conversation.member(side));
        let sides = [(&low, &high), (&high, &low)];
        let keys = sides.iter().flat_map(|(user, other)| [user_key(user, PROFILE), block_key(user, other)]);
        let items = self.dynamo.get_many(Table::Users, keys.collect()).await?;
        Ok(sides.map(|(user, _)| {
            let mut own = items.iter().filter(|item| item.text("user_id") == Some(user.as_str()));
            let frozen = own.clone().find(|item| item.has("frozen"));
            read_profile(frozen.or_else(|| own.find(|item| item.text("item") == Some(PROFILE))))
        }))
    }

    /// A user's items of one kind, in order.
    async fn items_of(&self, user: &UserId, kind: &str) -> Result<Vec<Item>> {
        let mut query =
            PartitionQuery { range: Some((">=", s(kind))), ..PartitionQuery::of(Table::Users, s(user)) };
        let mut found = Vec::new();
        loop {
            let (items, next) = self.dynamo.query(&query).await?;
            for item in items {
                if !item.need_text("item")?.starts_with(kind) {
                    return Ok(found);
                }
                found.push(item);
            }
            match next {
                Some(next) => query.start = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Writes a profile into the peer's row of a conversation, if there is one.
    pub(super) async fn copy_profile(
        &self,
        to: &UserId,
        conversation: &ConversationId,
        profile: &Profile,
    ) -> Result<()> {
        let mut set = vec!["#version = #version + :one".to_owned()];
        let mut remove = Vec::new();
        let mut values: Vec<(String, AttributeValue)> = vec![(":one".into(), n(1))];
        for (name, text) in [("peer_name", &profile.name), ("avatar_url", &profile.avatar_url)] {
            match text {
                Some(text) => {
                    set.push(format!("#{name} = :{name}"));
                    values.push((format!(":{name}"), s(text)));
                }
                None => remove.push(format!("#{name}")),
            }
        }
        let mut expression = format!("SET {}", set.join(", "));
        if !remove.is_empty() {
            expression = format!("{expression} REMOVE {}", remove.join(", "));
        }
        let mut write = Write::update(Table::Conversations, row_key(to, conversation), expression)
            .only_if("attribute_exists(#version)");
        for (name, value) in values {
            write = write.value(&name, value);
        }
        self.dynamo.write(&write).await.map(|_| ())
    }

    /// Copies until the copy equals the profile, so that the later of two concurrent changes wins.
    pub(super) async fn copy_until_same(&self, user: &UserId, mut profile: Profile) -> Result<()> {
        loop {
            self.copy_to_peers(user, &profile).await?;
            let now = self.profile(user).await?;
            if now == profile {
                return Ok(());
            }
            profile = now;
        }
    }

    /// Writes it into the inboxes of all peers whom the user does not block.
    async fn copy_to_peers(&self, user: &UserId, profile: &Profile) -> Result<()> {
        let blocked: &BTreeSet<UserId> = &self.blocked_by(user).await?.into_iter().collect();
        let mut query = PartitionQuery {
            only: Some("#conversation_id"),
            ..PartitionQuery::of(Table::Conversations, s(user))
        };
        loop {
            let (items, next) = self.dynamo.query(&query).await?;
            stream::iter(items)
                .map(|item: Item| async move {
                    let id = item.conversation()?;
                    match id.peer_of(user).filter(|peer| !blocked.contains(peer)) {
                        Some(peer) => self.copy_profile(&peer, &id, profile).await,
                        None => Ok(()),
                    }
                })
                .buffer_unordered(ROWS_AT_ONCE)
                .try_collect::<Vec<()>>()
                .await?;
            match next {
                Some(next) => query.start = Some(next),
                None => return Ok(()),
            }
        }
    }
}

#[async_trait]
impl Users for DynamoStore {
    async fn profile(&self, user: &UserId) -> Result<Profile> {
        let item = self.dynamo.get(Table::Users, user_key(user, PROFILE)).await?;
        Ok(read_profile(item.as_ref()))
    }

    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()> {
        self.writable()?;
        // The profile first: a row that is created meanwhile reads it.
        self.dynamo.write(&Write::put(Table::Users, profile_item(user, &profile))).await?;
        self.copy_until_same(user, profile).await
    }

    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool> {
        if let Ok(Some(blocked)) = self.redis.block_cached(user, other).await {
            return Ok(blocked);
        }
        let blocked = self.dynamo.get(Table::Users, block_key(user, other)).await?.is_some();
        // Sets the flag only if there is none: a concurrent change has left its mark.
        let _ = self.redis.block_fill(user, other, blocked).await;
        Ok(blocked)
    }

    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        self.writable()?;
        // Without Redis, cached flags live on for five minutes. The block is made all the same.
        if let Err(error) = self.redis.block_changing(user, other).await {
            tracing::warn!(%error, "redis could not be told of a block; other nodes may see it up to five minutes late");
        }
        let write = match blocked {
            true => {
                let profile = self.profile(user).await?;
                // A repeated block keeps the first copy of the profile.
                Write::put(Table::Users, block_item(user, other, &profile))
                    .only_if("attribute_not_exists(#user_id)")
            }
            false => Write::delete(Table::Users, block_key(user, other)),
        };
        self.dynamo.write(&write).await?;
        // If this fails, the mark stays until it expires, and the table is read.
        let _ = self.redis.block_changed(user, other, blocked).await;
        if !blocked && let Some(id) = ConversationId::between(user, other) {
            // Read after the block is removed: changes of the profile before that skipped this
            // copy.
            let profile = self.profile(user).await?;
            self.copy_profile(other, &id, &profile).await?;
        }
        Ok(())
    }

    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>> {
        let items = self.items_of(user, BLOCK).await?;
        let others = items.iter().filter_map(|item| item.text("item")?.strip_prefix(BLOCK));
        others.map(|other| UserId::new(other).map_err(|error| damaged("item", error))).collect()
    }

    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()> {
        self.writable()?;
        self.dynamo.write(&Write::put(Table::Users, mute_item(user, &mute))).await.map(|_| ())
    }

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()> {
        self.writable()?;
        self.dynamo.write(&Write::delete(Table::Users, mute_key(user, conversation))).await.map(|_| ())
    }

    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>> {
        let item = self.dynamo.get(Table::Users, mute_key(user, conversation)).await?;
        Ok(item.as_ref().map(read_mute).transpose()?.flatten())
    }

    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>> {
        let items = self.items_of(user, MUTE).await?;
        items.iter().filter_map(|item| read_mute(item).transpose()).collect()
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>> {
        let item = self.dynamo.get(Table::Users, user_key(user, NOT_BEFORE)).await?;
        item.map(|item| item.need_number("secs")).transpose()
    }

    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()> {
        self.writable()?;
        let write = Write::put(Table::Users, not_before_item(user, secs))
            .only_if("attribute_not_exists(#secs) OR #secs < :secs")
            .value(":secs", n(secs));
        // Refused if there is a later revocation already.
        self.dynamo.write(&write).await.map(|_| ())
    }
}
