//! `not_before`: the time before which a user's tokens are revoked, a small row for each such user.

use bluetick_protocol::UserId;

use super::{
    Embedded,
    bytes::{ByteReader, FORMAT, Malformed, check_format, put_u64},
    rows::{RowSpace, user_prefix},
};
use crate::Result;

pub(super) fn encode(secs: u64) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_u64(&mut out, secs);
    out
}

pub(super) fn decode(value: &[u8]) -> Result<u64, Malformed> {
    let r = &mut ByteReader(value);
    check_format(r)?;
    let secs = r.u64()?;
    r.end()?;
    Ok(secs)
}

impl Embedded {
    pub(super) fn not_before_of(&self, user: &UserId) -> Result<Option<u64>> {
        let value =
            self.shared.rows.get(&self.shared.engine, RowSpace::NotBefore, &user_prefix(user.as_str()))?;
        Ok(value.map(|value| decode(&value)).transpose()?)
    }

    pub(super) async fn put_not_before(&self, user: &UserId, secs: u64) -> Result<()> {
        let key = user_prefix(user.as_str());
        self.transact(move |tx| {
            let kept = tx.get(RowSpace::NotBefore, &key)?.map(|value| decode(&value)).transpose()?;
            if kept.is_none_or(|kept| kept < secs) {
                tx.put(RowSpace::NotBefore, key, encode(secs));
            }
            Ok(())
        })
        .await
    }
}
