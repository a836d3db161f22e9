//! One user's profile and blocks, and how a record changes them.

use std::{collections::BTreeMap, sync::Arc};

use bluetick_protocol::{Profile, UserId};

use super::{
    bytes::{ByteReader, FORMAT, Malformed, NEWER, put_opt, put_str, put_u64},
    record::WalRecord,
};

/// Format 2 holds earlier profiles, which those see whom the user blocked back then. In format 1
/// everybody sees the current profile.
const USER_FORMAT: u8 = 2;

/// A user's profile and blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UserRow {
    pub profile: Profile,
    /// The blocked users. Each keeps seeing the profile from the time of the block; `None` if it
    /// has not changed since.
    pub blocked: BTreeMap<UserId, Option<Arc<Profile>>>,
}

impl UserRow {
    /// The profile as another user's inbox shows it.
    pub(super) fn profile_for(&self, other: &UserId) -> &Profile {
        match self.blocked.get(other) {
            Some(Some(frozen)) => frozen,
            _ => &self.profile,
        }
    }

    pub(super) fn apply(&mut self, record: &WalRecord) {
        match record {
            WalRecord::Profile { profile, .. } => {
                if *profile != self.profile && !self.blocked.is_empty() {
                    let before = Arc::new(self.profile.clone());
                    for frozen in self.blocked.values_mut() {
                        frozen.get_or_insert_with(|| before.clone());
                    }
                }
                self.profile = profile.clone();
            }
            WalRecord::Block { other, blocked: true, .. } => {
                self.blocked.entry(other.clone()).or_default();
            }
            WalRecord::Block { other, blocked: false, .. } => {
                self.blocked.remove(other);
            }
            WalRecord::EraseUser { .. } => *self = UserRow::default(),
            _ => {}
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Many blocks share a profile: it is written once, and the blocks refer to it by position.
        let mut profiles: Vec<&Profile> = Vec::new();
        let mut places: BTreeMap<(Option<&str>, Option<&str>), u64> = BTreeMap::new();
        for frozen in self.blocked.values().flatten() {
            places.entry((frozen.name.as_deref(), frozen.avatar_url.as_deref())).or_insert_with(|| {
                profiles.push(frozen);
                profiles.len() as u64
            });
        }
        let plain = profiles.is_empty();
        out.push(if plain { FORMAT } else { USER_FORMAT });
        put_profile(out, &self.profile);
        if !plain {
            put_u64(out, profiles.len() as u64);
            for profile in profiles {
                put_profile(out, profile);
            }
        }
        put_u64(out, self.blocked.len() as u64);
        for (user, frozen) in &self.blocked {
            put_str(out, user.as_str());
            if !plain {
                let place = frozen.as_ref().and_then(|frozen| {
                    places.get(&(frozen.name.as_deref(), frozen.avatar_url.as_deref())).copied()
                });
                put_u64(out, place.unwrap_or(0));
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<UserRow, Malformed> {
        let r = &mut ByteReader(bytes);
        let format = r.u8()?;
        if !(FORMAT..=USER_FORMAT).contains(&format) {
            return Err(NEWER);
        }
        let current = profile(r)?;
        let mut profiles = Vec::new();
        if format >= 2 {
            for _ in 0..r.u64()? {
                profiles.push(Arc::new(profile(r)?));
            }
        }
        let count = r.u64()?;
        let mut blocked = BTreeMap::new();
        for _ in 0..count {
            let user = r.user()?;
            let place = if format >= 2 { r.u64()? } else { 0 };
            let frozen = match place.checked_sub(1) {
                None => None,
                Some(at) => {
                    let known = usize::try_from(at).ok().and_then(|at| profiles.get(at));
                    Some(known.ok_or(Malformed("a block refers to a missing profile"))?.clone())
                }
            };
            blocked.insert(user, frozen);
        }
        r.end()?;
        Ok(UserRow { profile: current, blocked })
    }
}

pub(super) fn put_profile(out: &mut Vec<u8>, profile: &Profile) {
    put_opt(out, profile.name.as_deref());
    put_opt(out, profile.avatar_url.as_deref());
}

pub(super) fn profile(r: &mut ByteReader<'_>) -> Result<Profile, Malformed> {
    Ok(Profile { name: r.opt()?.map(str::to_owned), avatar_url: r.opt()?.map(str::to_owned) })
}
