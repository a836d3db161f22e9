//! The systems that hold Bluetick's state, as traits, and their backends.
//!
//! A method is one step that every backend makes atomically. It is named after what it does for the
//! delivery rules, not after a key-value call. Callers hold a [`Store`] and never branch on the
//! backend behind it.

mod attachments;
mod clock;
mod cold;
#[cfg(feature = "testing")]
pub mod conformance;
mod contents;
mod conversations;
mod devices;
mod directory;
#[cfg(feature = "cluster")]
mod distributed;
#[cfg(feature = "cluster")]
pub mod dynamo;
mod embedded;
mod error;
pub mod failpoint;
mod maintenance;
#[cfg(feature = "testing")]
mod memory;
mod messages;
mod objects;
mod pending;
mod push_outbox;
#[cfg(feature = "cluster")]
mod redis;
mod sessions;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod users;

use std::sync::Arc;

#[cfg(feature = "cluster")]
pub use self::redis::{
    INBOX_CAP, InboxRead, Redis, RedisConfig, RedisDirectory, RedisMode, RedisSessions, TokenBucket,
};
pub use attachments::{
    Announced, AttachmentRow, Attachments, OverQuota, UploadQuota, UploadState, UploadUsage, left_of_day_ms,
};
#[cfg(feature = "testing")]
pub use clock::ManualClock;
pub use clock::{Clock, SystemClock};
pub use cold::{
    COLD_SHARDS, ColdCandidate, ColdConfig, ColdObjects, ColdRun, ColdRuns, ColdTier, EnlistPlace, Movable,
    cold_shard,
};
pub use contents::{Content, ContentKind, MemberRow, SentId, ShownMessage, WalkPage, WalkPlace};
pub use conversations::{
    ActiveConversation, ConversationRow, Conversations, InboxPosition, Undelivered, preview_of,
};
pub use devices::{DeviceRow, Devices};
pub use directory::{Directory, NodeRole};
#[cfg(feature = "cluster")]
pub use distributed::{DistributedConfig, Registry};
pub use embedded::{EmbeddedConfig, EmbeddedSource, SourceIdentity, Walk, restore};
pub use error::{Result, StoreError};
pub use maintenance::{BackupSink, Health, Maintenance};
#[cfg(feature = "testing")]
pub use memory::{Memory, MemoryDirectory, TablePut};
pub use messages::{Committed, Message, Messages, NewMessage, PageLimit};
pub use objects::{NewObject, ObjectInfo, Objects, S3Config, UploadTerms};
pub use pending::{Noted, PendingDeliveries, PendingRow};
pub use push_outbox::{OwedPush, PushOutbox};
pub use sessions::{MemorySessions, SessionEntry, SessionStore};
pub use status::{Advanced, MessageStatus, StatusRow};
pub use users::Users;

/// One handle on every system. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// Hot and cold messages.
    pub messages: Arc<dyn Messages>,
    pub cold: Arc<ColdTier>,
    pub pending: Arc<dyn PendingDeliveries>,
    pub status: Arc<dyn MessageStatus>,
    pub conversations: Arc<dyn Conversations>,
    pub users: Arc<dyn Users>,
    pub devices: Arc<dyn Devices>,
    pub push_outbox: Arc<dyn PushOutbox>,
    pub attachments: Arc<dyn Attachments>,
    pub sessions: Arc<dyn SessionStore>,
    pub maintenance: Arc<dyn Maintenance>,
}

impl Store {
    /// Opens the embedded store in a directory, creates it if there is none, and recovers after a
    /// crash.
    pub fn embedded(config: EmbeddedConfig, clock: Arc<dyn Clock>) -> Result<Store> {
        let sessions = Arc::new(MemorySessions::new(clock.clone()));
        let objects = config.objects.clone();
        let embedded = Arc::new(embedded::Embedded::open(config, clock)?);
        let cold = Arc::new(ColdTier::new(embedded.clone(), embedded.clone(), objects));
        Ok(Store {
            messages: cold.clone(),
            cold,
            attachments: embedded.clone(),
            pending: embedded.clone(),
            status: embedded.clone(),
            conversations: embedded.clone(),
            users: embedded.clone(),
            devices: embedded.clone(),
            push_outbox: embedded.clone(),
            sessions,
            maintenance: embedded,
        })
    }

    /// A store in memory: the reference model, for tests and simulation.
    #[cfg(feature = "testing")]
    pub fn memory(clock: Arc<dyn Clock>) -> Store {
        Store::from_memory(Arc::new(Memory::new(clock.clone())), clock)
    }

    /// A store over a `Memory` that the test keeps a handle on.
    #[cfg(feature = "testing")]
    pub fn from_memory(memory: Arc<Memory>, clock: Arc<dyn Clock>) -> Store {
        let objects = Arc::new(ColdObjects::new(Objects::memory(), ColdConfig::default()));
        let cold = Arc::new(ColdTier::new(memory.clone(), memory.clone(), Some(objects)));
        Store {
            messages: cold.clone(),
            cold,
            attachments: memory.clone(),
            pending: memory.clone(),
            status: memory.clone(),
            conversations: memory.clone(),
            users: memory.clone(),
            devices: memory.clone(),
            push_outbox: memory.clone(),
            sessions: Arc::new(MemorySessions::new(clock)),
            maintenance: memory,
        }
    }
}
