//! Redis (or Valkey, 6.2 or later): what many machines share and may lose.
//!
//! With the prefix `P`, and braces that are Redis's own hash tags, so that all keys of one script lie in one slot:
//!
//! | key | holds | kept |
//! | --- | --- | --- |
//! | `P seq:{conversation}` | the last seq that was handed out | 7 days after its last use |
//! | `P ws:{user}` | hash: session → `expires_at connected_at device gateway` | a while beyond the last entry's TTL |
//! | `P watching:{user}` | hash: session → `stamp touched_at user user …`, whom it watches | as `ws` |
//! | `P watched:{user}` | sorted set: `session stamp watcher` by `touched_at`; an index of the one above | a day after its last use |
//! | `P last_seen:{user}` | when the user was last connected, ms | 90 days |
//! | `P inbox:{user}` | sorted set: conversation by time, and markers; see [`inbox`] | 1 hour after it was built |
//! | `P block:{pair}:user` | `0`, `1`, or `?` while it is being changed | 5 min, 10 s |
//! | `P rate:{user}`, `P rate:{user}:name` | when a bucket of the user's will be full again, ms | until then |
//! | `P nodes:{role}` | sorted set: address by `expires_at` | a while beyond the last entry's TTL |
//!
//! Times come from the caller's clock and are judged by it; Redis's own expiry only cleans up. A step that reads and
//! writes is one script. Everything here can be made anew: an empty Redis costs a rebuild and loses no message.

mod beats;
mod blocks;
mod connection;
mod dial;
mod directory;
mod inbox;
mod owed;
mod rates;
mod scripts;
mod sequence;
mod sessions;

pub use connection::{Redis, RedisConfig, RedisMode};
pub use directory::RedisDirectory;
pub use inbox::{INBOX_CAP, InboxRead};
pub use rates::TokenBucket;
pub use sessions::RedisSessions;
