//! Ids. Text ids are checked once, when they are read, and are cheap to clone.

use std::{fmt, str::FromStr, sync::Arc};

use arrayvec::ArrayString;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::{ID_MAX_BYTES, USER_ID_MAX_BYTES};

/// Position of a message in its conversation: 1, 2, 3 … A 0 stands for "before the first".
pub type Seq = u64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {why}")]
pub struct InvalidId {
    what: &'static str,
    why: &'static str,
}

const TOO_LONG: &str = "must be at most 64 characters long";

const fn is_device_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@')
}

/// Keys rely on the excluded characters: `~` joins two user ids, and stores separate the parts of a key with a zero
/// byte, a space or `#`.
const fn is_user_byte(b: u8) -> bool {
    is_device_byte(b) || matches!(b, b'+' | b'|' | b':' | b'=')
}

fn check_user(what: &'static str, text: &str) -> Result<(), InvalidId> {
    let why = if text.is_empty() {
        "must not be empty"
    } else if text.len() > USER_ID_MAX_BYTES {
        "must be at most 128 characters long"
    } else if !text.bytes().all(is_user_byte) {
        "may hold only A-Z a-z 0-9 . _ - @ + | : ="
    } else {
        return Ok(());
    };
    Err(InvalidId { what, why })
}

fn check_device(what: &'static str, text: &str) -> Result<(), InvalidId> {
    let why = if text.is_empty() {
        "must not be empty"
    } else if text.len() > ID_MAX_BYTES {
        TOO_LONG
    } else if !text.bytes().all(is_device_byte) {
        "may hold only A-Z a-z 0-9 . _ - @"
    } else {
        return Ok(());
    };
    Err(InvalidId { what, why })
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident($kept:ty), $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($kept);

        impl $name {
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&'static str, &str) -> Result<(), InvalidId> = $check;
                check($what, text)?;
                Ok($name(<$kept>::try_from(text).map_err(|_| InvalidId { what: $what, why: TOO_LONG })?))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        // Maps keyed by an id can be looked up by its text; both hash alike.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                $name::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a {}", $what)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        // The marker lets the codec answer `invalid_id` instead of `bad_request`.
                        $name::new(text).map_err(|e| E::custom(format_args!("{INVALID_ID_MARK}{e}")))
                    }
                }
                d.deserialize_str(Visitor)
            }
        }
    };
}

pub(crate) const INVALID_ID_MARK: &str = "invalid id: ";

text_id!(
    /// A user of the host application: a token's `sub`.
    UserId(Arc<str>), "user id", check_user
);
text_id!(
    /// One of a user's devices, named by the client.
    DeviceId(Arc<str>), "device id", check_device
);
text_id!(
    /// Chosen by the sender's client; the same id always means the same message. Stored inline, because each message
    /// has its own.
    ClientMsgId(ArrayString<ID_MAX_BYTES>), "client_msg_id", |what, text| {
        let why = if text.is_empty() {
            "must not be empty"
        } else if text.len() > ID_MAX_BYTES {
            TOO_LONG
        } else if !text.bytes().all(|b| b.is_ascii_graphic()) {
            "may hold only visible ASCII characters"
        } else {
            return Ok(());
        };
        Err(InvalidId { what, why })
    }
);
text_id!(
    /// Two users: their ids in byte order, joined by `~`. Both sides compute it, and membership follows from it without a
    /// lookup.
    ConversationId(Arc<str>), "conversation id", |what, text| {
        let Some((low, high)) = text.split_once('~') else {
            return Err(InvalidId { what, why: "must be two user ids joined by ~" });
        };
        check_user("user id in a conversation id", low)?;
        check_user("user id in a conversation id", high)?;
        if low >= high {
            return Err(InvalidId { what, why: "must name two different users in byte order" });
        }
        Ok(())
    }
);

text_id!(
    /// Names the bytes of an attachment: the time of the announcement, and 80 random bits so that it cannot be guessed.
    S3Ref(Arc<str>), "s3_ref", |what, text| {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        match text.len() == 32 && text.bytes().all(hex) {
            true => Ok(()),
            false => Err(InvalidId { what, why: "must be 32 hex digits, as the server gave them" }),
        }
    }
);

impl S3Ref {
    pub fn mint(now_ms: u64, random: [u8; 10]) -> S3Ref {
        let random = random.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
        S3Ref(format!("{:012x}{random:020x}", now_ms & 0xffff_ffff_ffff).into())
    }

    /// When it was minted, in ms since 1970.
    pub fn minted_at(&self) -> u64 {
        u64::from_str_radix(&self.0[..12], 16).unwrap_or_default()
    }
}

/// Which of a conversation's two members: the lower or the higher id in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    Low,
    High,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::Low, Side::High];

    pub fn other(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
        }
    }

    pub fn index(self) -> usize {
        self as usize
    }
}

impl ConversationId {
    /// The conversation of two users, or `None` when they are the same one.
    pub fn between(a: &UserId, b: &UserId) -> Option<Self> {
        let (low, high) = match a.0.cmp(&b.0) {
            std::cmp::Ordering::Less => (a, b),
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => (b, a),
        };
        Some(ConversationId(format!("{low}~{high}").into()))
    }

    /// Both members, the lower one first.
    pub fn halves(&self) -> (&str, &str) {
        self.0.split_once('~').unwrap_or((&self.0, ""))
    }

    pub fn member(&self, side: Side) -> UserId {
        UserId(self.member_str(side).into())
    }

    pub fn member_str(&self, side: Side) -> &str {
        let (low, high) = self.halves();
        match side {
            Side::Low => low,
            Side::High => high,
        }
    }

    /// The side that a user is on, or `None` for a user who is not a member.
    pub fn side_of(&self, user: &UserId) -> Option<Side> {
        // No user id contains `~`, so one next to this id is the separator.
        let (id, user) = (self.0.as_bytes(), user.0.as_bytes());
        let other = id.len().checked_sub(user.len() + 1)?;
        if id[user.len()] == b'~' && id.starts_with(user) {
            Some(Side::Low)
        } else if id[other] == b'~' && id.ends_with(user) {
            Some(Side::High)
        } else {
            None
        }
    }

    /// The other member, or `None` for a user who is not a member.
    pub fn peer_of(&self, user: &UserId) -> Option<UserId> {
        self.side_of(user).map(|side| self.member(side.other()))
    }
}

/// 64-bit Snowflake: 42 bits of milliseconds since 2024, 10 of node, 12 of counter. Unique everywhere and
/// roughly in time order. A string in JSON, because JavaScript's numbers end at 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MessageId(pub u64);

impl MessageId {
    pub const EPOCH_MS: u64 = 1_704_067_200_000;
    const COUNTER_BITS: u32 = 12;
    const NODE_BITS: u32 = 10;
    pub const NODE_MAX: u16 = (1 << Self::NODE_BITS) - 1;
    /// The largest id that fits the 63 bits which every language's signed integer holds.
    pub const MAX: MessageId = MessageId(i64::MAX as u64);

    /// The smallest id of a moment: smaller ids were minted before.
    pub fn at(ms: u64) -> Self {
        let shifted = ms.saturating_sub(Self::EPOCH_MS).min(Self::MAX.0 >> 22) << 22;
        MessageId(shifted)
    }

    /// When it was minted, in milliseconds since 1970.
    pub fn ms(self) -> u64 {
        (self.0 >> (Self::NODE_BITS + Self::COUNTER_BITS)) + Self::EPOCH_MS
    }

    /// The smallest id of the moment this much earlier.
    pub fn minus_ms(self, ms: u64) -> Self {
        MessageId::at(self.ms().saturating_sub(ms))
    }

    /// The next id at `now_ms` on `node` after `last`: greater than `last` even if the clock stood still or went back.
    pub fn mint(last: MessageId, now_ms: u64, node: u16) -> MessageId {
        let node = u64::from(node & Self::NODE_MAX) << Self::COUNTER_BITS;
        let ms = now_ms.max(last.ms());
        if ms == last.ms() {
            let counter = (last.0 & ((1 << Self::COUNTER_BITS) - 1)) + 1;
            if counter < (1 << Self::COUNTER_BITS) {
                let same = MessageId(MessageId::at(ms).0 | node | counter);
                if same > last {
                    return same;
                }
            }
            return MessageId(MessageId::at(ms + 1).0 | node);
        }
        MessageId(MessageId::at(ms).0 | node)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MessageId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let wrong = InvalidId { what: "message id", why: "must be a decimal number below 2^63, as a string" };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(n) if digits && n <= Self::MAX.0 => Ok(MessageId(n)),
            _ => Err(wrong),
        }
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = MessageId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message id (a decimal number as a string)")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<MessageId, E> {
                text.parse().map_err(|e| E::custom(format_args!("{INVALID_ID_MARK}{e}")))
            }
        }
        d.deserialize_str(Visitor)
    }
}

/// One live connection of one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        u128::from_str_radix(&text, 16).map(SessionId).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(s: &str) -> UserId {
        UserId::new(s).unwrap()
    }

    #[test]
    fn both_sides_compute_the_same_conversation() {
        let (a, b) = (user("alice"), user("bob"));
        let id = ConversationId::between(&a, &b).unwrap();
        assert_eq!(id.as_str(), "alice~bob");
        assert_eq!(ConversationId::between(&b, &a).unwrap(), id);
        assert_eq!(id.peer_of(&a), Some(b));
        for stranger in [
            "carol",
            "alic",
            "lice",
            "alice2",
            "bo",
            "ob",
            "xbob",
            "alice-bob",
            "a-much-longer-name-than-both",
        ] {
            assert_eq!(id.side_of(&user(stranger)), None, "{stranger}");
        }
        assert_eq!(ConversationId::new("bob~bobby").unwrap().side_of(&user("bob")), Some(Side::Low));
        assert_eq!(ConversationId::new("abob~bob").unwrap().side_of(&user("bob")), Some(Side::High));
        assert_eq!(ConversationId::between(&a, &a), None);
    }

    #[test]
    fn ids_outside_the_alphabet_are_refused() {
        for bad in ["", "a b", "a~b", "é", "a\0", "a/b", "a#b", "a,b", "a%7Cb", &"x".repeat(129)] {
            assert!(UserId::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "a b", "a|b", "a+b", &"x".repeat(65)] {
            assert!(DeviceId::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["bob~alice", "a~a", "alice", "a~b~c", "~b", "a~"] {
            assert!(ConversationId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_of_identity_providers_are_taken() {
        for good in [
            "auth0|5f7c8ec7c33c6c004bbafe82",
            "google-oauth2|108251222085688410292",
            "ann+test@x.org",
            "urn:oid:1=2",
            "0b6f3c1e-5d55-4a3c-9f0e-2f1f5f6c7d8e.7c9e6679-7425-40de-944b-e07fc1f90ae7",
            &"x".repeat(128),
        ] {
            assert!(UserId::new(good).is_ok(), "{good:?}");
        }
        let long = ConversationId::between(&user(&"a".repeat(128)), &user(&"b".repeat(128))).unwrap();
        assert_eq!(ConversationId::new(long.as_str()).unwrap().halves().1.len(), 128);
        // The vertical bar sorts after every letter, `+` before every digit.
        assert_eq!(ConversationId::between(&user("a|"), &user("az")).unwrap().as_str(), "az~a|");
        assert_eq!(ConversationId::between(&user("a0"), &user("a+")).unwrap().as_str(), "a+~a0");
    }

    proptest! {
        #[test]
        fn a_conversation_leads_back_to_its_members(
            a in "[A-Za-z0-9._@+|:=-]{1,128}", b in "[A-Za-z0-9._@+|:=-]{1,128}",
        ) {
            let (a, b) = (user(&a), user(&b));
            let Some(id) = ConversationId::between(&a, &b) else {
                prop_assert_eq!(a, b);
                return Ok(());
            };
            prop_assert_eq!(&ConversationId::new(id.as_str()).unwrap(), &id);
            prop_assert_eq!(ConversationId::between(&b, &a), Some(id.clone()));
            prop_assert_eq!(id.peer_of(&a), Some(b.clone()));
            prop_assert_eq!(id.peer_of(&b), Some(a));
        }

        #[test]
        fn minted_ids_only_grow(steps in proptest::collection::vec((0u64..3, 0u16..=1023), 1..6000)) {
            let mut last = MessageId::default();
            let mut now = MessageId::EPOCH_MS + 5_000;
            for (step, node) in steps {
                now = now + step - 1;
                let next = MessageId::mint(last, now, node);
                prop_assert!(next > last);
                last = next;
            }
        }

        #[test]
        fn message_ids_round_trip_through_json(n in 0..=i64::MAX as u64) {
            let id = MessageId(n);
            let text = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(&text, &format!("\"{n}\""));
            prop_assert_eq!(serde_json::from_str::<MessageId>(&text).unwrap(), id);
        }
    }
}
