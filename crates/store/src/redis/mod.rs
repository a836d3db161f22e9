//! Redis (or Valkey, 6.2 or later): the state that nodes share and may lose.
//!
//! The keys, with the prefix `P`. Braces are hash tags, so that all keys of one script lie in one
//! slot:
//!
//! | key | value | expires |
//! | --- | --- | --- |
//! | `P seq:{conversation}` | the last seq that was handed out | 7 days after its last use |
//! | `P ws:{user}` | hash: session → `expires_at connected_at device gateway` | 10 min after the last entry's TTL |
//! | `P watching:{user}` | hash: session → `stamp touched_at user user …`, whom each session watches | as `ws` |
//! | `P watched:{user}` | sorted set: `session stamp watcher` by `touched_at`; an index of `watching` | a day after its last use |
//! | `P last_seen:{user}` | when the user was last connected, ms | 90 days |
//! | `P inbox:{user}` | sorted set: conversation by time, and markers; see [`inbox`] | 1 hour after it was built; an unfinished one after 5 min |
//! | `P block:{pair}:user` | `0`, `1`, or `?` while it is being changed | 5 min; `?` after 10 s |
//! | `P rate:{user}`, `P rate:{user}:name` | when the token bucket will be full again, ms | then |
//! | `P nodes:{role}` | sorted set: address by `expires_at` | 10 min after the last entry's TTL |
//!
//! Times are the caller's clock; Redis's own expiry only cleans up. A step that reads and writes is
//! one script (`*.lua`). All of it can be rebuilt: an empty Redis costs a rebuild and loses no
//! message.

mod blocks;
mod commands;
mod config;
mod connection;
mod dial;
mod directory;
mod heartbeats;
mod inbox;
mod rates;
mod scripts;
mod sequence;
mod sessions;
mod stale_inboxes;

pub use config::{RedisConfig, RedisMode};
pub use connection::Redis;
pub use directory::RedisDirectory;
pub use inbox::{INBOX_CAP, InboxRead};
pub use rates::TokenBucket;
pub use sessions::RedisSessions;
