//! Inbox orders that missed a message because Redis could not be reached. Each may lack a
//! conversation, and nothing else would show that, so it is deleted as soon as Redis answers; the
//! next read rebuilds it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use bluetick_protocol::UserId;
use parking_lot::Mutex;

use super::{
    Redis,
    connection::{RedisShared, with_jitter},
};
use crate::Result;

/// Beyond so many users, every inbox order is deleted instead.
const MAX_USERS: usize = 100_000;
const RETRY_AFTER: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct StaleInboxes(Mutex<StaleUsers>);

#[derive(Default)]
struct StaleUsers {
    users: BTreeSet<UserId>,
    everybody: bool,
    /// A task is deleting them.
    is_deleting: bool,
}

impl Redis {
    pub(super) fn inbox_is_stale(&self, user: &UserId) {
        let begin = {
            let mut stale = self.shared.stale_inboxes.0.lock();
            if !stale.everybody {
                stale.users.insert(user.clone());
            }
            if stale.users.len() > MAX_USERS {
                stale.users.clear();
                stale.everybody = true;
            }
            !std::mem::replace(&mut stale.is_deleting, true)
        };
        if begin {
            tokio::spawn(delete_stale_inboxes(Arc::downgrade(&self.shared)));
        }
    }

    /// Returns whether none is left.
    async fn try_delete_stale_inboxes(&self) -> Result<bool> {
        let stale = || self.shared.stale_inboxes.0.lock();
        // A user leaves the set before the deletion, so that a message missed meanwhile puts them
        // back.
        let (users, everybody) = {
            let mut stale = stale();
            (stale.users.clone(), std::mem::take(&mut stale.everybody))
        };
        if everybody && let Err(e) = self.delete_all("inbox:").await {
            stale().everybody = true;
            return Err(e);
        }
        for user in users {
            stale().users.remove(&user);
            if let Err(e) = self.inbox_forget(&user).await {
                stale().users.insert(user);
                return Err(e);
            }
        }
        let mut stale = stale();
        let is_done = stale.users.is_empty() && !stale.everybody;
        stale.is_deleting = !is_done;
        Ok(is_done)
    }
}

async fn delete_stale_inboxes(shared: Weak<RedisShared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if matches!((Redis { shared }).try_delete_stale_inboxes().await, Ok(true)) {
            return;
        }
        tokio::time::sleep(with_jitter(RETRY_AFTER)).await;
    }
}
