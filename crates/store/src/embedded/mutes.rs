//! `mutes`: the conversations that a user muted, a small row for each.

use bluetick_protocol::{ConversationId, Mute, UserId};

use super::{
    Embedded,
    bytes::{ByteReader, FORMAT, Malformed, check_format, put_u64},
    engine::user_key,
    rows::{RowSpace, key_parts, user_prefix},
};
use crate::Result;

pub(super) fn encode(mute: &Mute) -> Vec<u8> {
    let mut out = vec![FORMAT, u8::from(mute.until.is_some())];
    put_u64(&mut out, mute.until.unwrap_or_default());
    out
}

pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Mute, Malformed> {
    let (_, id) = key_parts(key)?;
    let conversation_id = ConversationId::new(id).map_err(|_| Malformed("not a conversation id"))?;
    let r = &mut ByteReader(value);
    check_format(r)?;
    let ends = r.u8()? != 0;
    let until = Some(r.u64()?).filter(|_| ends);
    r.end()?;
    Ok(Mute { conversation_id, until })
}

impl Embedded {
    pub(super) async fn put_mute(&self, user: &UserId, mute: &Mute) -> Result<()> {
        let (key, value) = (user_key(user.as_str(), &mute.conversation_id), encode(mute));
        self.transact(move |tx| {
            tx.put(RowSpace::Mutes, key, value);
            Ok(())
        })
        .await
    }

    pub(super) async fn remove_mute(&self, user: &UserId, id: &ConversationId) -> Result<()> {
        let key = user_key(user.as_str(), id);
        self.transact(move |tx| tx.forget(RowSpace::Mutes, key)).await
    }

    pub(super) fn mute_of(&self, user: &UserId, id: &ConversationId) -> Result<Option<Mute>> {
        let key = user_key(user.as_str(), id);
        let value = self.shared.rows.get(&self.shared.engine, RowSpace::Mutes, &key)?;
        Ok(value.map(|value| decode(&key, &value)).transpose()?)
    }

    pub(super) async fn mutes(&self, user: &UserId) -> Result<Vec<Mute>> {
        let prefix = user_prefix(user.as_str());
        self.blocking(move |shared| {
            let rows = shared.rows.under(&shared.engine, RowSpace::Mutes, &prefix)?;
            rows.iter().map(|(key, value)| Ok(decode(key, value)?)).collect()
        })
        .await
    }
}
