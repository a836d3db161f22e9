//! Inbox orders that could not be told of a message. Each is deleted as soon as Redis can be reached, so that it is
//! built anew: until then it may lack a conversation, and nothing else would show that.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use bluetick_protocol::UserId;
use parking_lot::Mutex;

use super::{
    Redis,
    connection::{Inner, shortened},
};
use crate::Result;

/// Beyond so many users all orders are deleted instead.
const MOST_USERS: usize = 100_000;
const WAIT: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Owed(Mutex<Debt>);

#[derive(Default)]
struct Debt {
    users: BTreeSet<UserId>,
    everybody: bool,
    /// Somebody is at work on it already.
    being_paid: bool,
}

impl Redis {
    pub(super) fn owe_forgetting(&self, user: &UserId) {
        let begin = {
            let mut debt = self.inner.owed.0.lock();
            if !debt.everybody {
                debt.users.insert(user.clone());
            }
            if debt.users.len() > MOST_USERS {
                debt.users.clear();
                debt.everybody = true;
            }
            !std::mem::replace(&mut debt.being_paid, true)
        };
        if begin {
            tokio::spawn(pay(Arc::downgrade(&self.inner)));
        }
    }

    /// Deletes what is owed, and says whether nothing is left.
    async fn pay_once(&self) -> Result<bool> {
        // What is paid is out of the list first: whoever is owed to again meanwhile comes in again.
        let (users, everybody) = {
            let mut debt = self.inner.owed.0.lock();
            (debt.users.clone(), std::mem::take(&mut debt.everybody))
        };
        if everybody && let Err(e) = self.delete_all("inbox:").await {
            self.inner.owed.0.lock().everybody = true;
            return Err(e);
        }
        for user in users {
            self.inner.owed.0.lock().users.remove(&user);
            if let Err(e) = self.inbox_forget(&user).await {
                self.inner.owed.0.lock().users.insert(user);
                return Err(e);
            }
        }
        let mut debt = self.inner.owed.0.lock();
        let paid = debt.users.is_empty() && !debt.everybody;
        debt.being_paid = !paid;
        Ok(paid)
    }
}

async fn pay(inner: Weak<Inner>) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        if matches!(Redis { inner }.pay_once().await, Ok(true)) {
            return;
        }
        tokio::time::sleep(shortened(WAIT)).await;
    }
}
