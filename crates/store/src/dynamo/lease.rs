//! `node_leases`: PK node; owner, expires_at. A lease on one of 1,024 node numbers, under which a
//! node mints ids.
//!
//! Two nodes with one number could mint the same id twice, and clients would take the two messages
//! for one. So a number is taken by one conditional write, renewed long before it expires, and
//! given up by its holder before anybody else may take it. A node that cannot prove that it holds
//! its lease mints nothing. A paused process checks a clock that went on meanwhile. An id that it
//! minted just before the pause carries that time, and the next holder mints only ids after the end
//! of the earlier lease.

use std::{sync::Arc, time::Duration};

use bluetick_protocol::MessageId;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::time::Instant;

use super::{
    client::Dynamo,
    item::{Attributes as _, ItemKey, key, n, s},
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{Clock, Result, StoreError};

const TTL: Duration = Duration::from_secs(30);
/// The holder stops this long before the lease expires, because its clock and the next holder's may
/// differ.
const MARGIN: Duration = Duration::from_secs(8);
const RENEW_AFTER: Duration = Duration::from_secs(8);
/// Numbers that are tried before the call fails.
const TRIES: usize = 64;

pub(super) struct Lease {
    shared: Arc<LeaseShared>,
    renewal: Mutex<Option<tokio::task::AbortHandle>>,
}

struct LeaseShared {
    dynamo: Dynamo,
    clock: Arc<dyn Clock>,
    owner: String,
    held: Mutex<Option<HeldLease>>,
    /// The last id that this process minted, under any number.
    last: Mutex<MessageId>,
    /// Held while a number is acquired.
    acquiring: tokio::sync::Mutex<()>,
    #[cfg(test)]
    only: Mutex<Option<u16>>,
}

struct HeldLease {
    node: u16,
    until: Instant,
    /// The same by the wall clock, which goes on while the machine is suspended.
    until_ms: u64,
    renewed: Instant,
}

fn until_ms(expires_at: u64) -> u64 {
    expires_at.saturating_sub(MARGIN.as_millis() as u64)
}

impl Lease {
    pub fn new(dynamo: Dynamo, clock: Arc<dyn Clock>) -> Lease {
        let owner = format!("{:032x}", rand::rng().random::<u128>());
        let shared = LeaseShared {
            dynamo,
            clock,
            owner,
            held: Mutex::default(),
            last: Mutex::default(),
            acquiring: Default::default(),
            #[cfg(test)]
            only: Mutex::default(),
        };
        Lease { shared: Arc::new(shared), renewal: Mutex::default() }
    }

    /// The next id, if this process may mint.
    pub async fn mint(&self) -> Result<MessageId> {
        loop {
            if let Some(id) = self.shared.mint_now() {
                return Ok(id);
            }
            self.shared.acquire().await?;
            let mut renewal = self.renewal.lock();
            if renewal.as_ref().is_none_or(|task| task.is_finished()) {
                *renewal = Some(tokio::spawn(keep(Arc::downgrade(&self.shared))).abort_handle());
            }
        }
    }

    #[cfg(test)]
    pub fn expire_for_test(&self, at: Instant) {
        if let Some(held) = self.shared.held.lock().as_mut() {
            held.until = at;
        }
    }

    /// Tries this one number only.
    #[cfg(test)]
    pub fn only_for_test(&self, node: u16) {
        *self.shared.only.lock() = Some(node);
    }

    /// Gives the number back at once. Nothing is minted after it.
    pub async fn release(&self) {
        if let Some(renewal) = self.renewal.lock().take() {
            renewal.abort();
        }
        let held = self.shared.held.lock().take();
        if let Some(held) = held {
            // The next holder begins after the last id that was minted here.
            let ended = self.shared.last.lock().ms().max(self.shared.clock.now_ms()) + 1;
            let write = Write::update(Table::NodeLeases, at(held.node), "SET #expires_at = :ended")
                .only_if("#owner = :me")
                .value(":ended", n(ended))
                .value(":me", s(&self.shared.owner));
            let _ = self.shared.dynamo.write(&write).await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.lock().take() {
            renewal.abort();
        }
    }
}

pub(super) fn at(node: u16) -> ItemKey {
    key([("node", n(node.into()))])
}

/// Renews the lease for as long as the store exists.
async fn keep(shared: std::sync::Weak<LeaseShared>) {
    loop {
        tokio::time::sleep(RENEW_AFTER / 4).await;
        let Some(shared) = shared.upgrade() else { return };
        let due = shared.held.lock().as_ref().is_some_and(|held| held.renewed.elapsed() > RENEW_AFTER);
        if due && let Err(error) = shared.renew().await {
            tracing::warn!(%error, "the lease on a node number could not be renewed");
        }
    }
}

impl LeaseShared {
    fn mint_now(&self) -> Option<MessageId> {
        let held = self.held.lock();
        let now_ms = self.clock.now_ms();
        let held = held.as_ref().filter(|held| Instant::now() < held.until && now_ms < held.until_ms)?;
        let mut last = self.last.lock();
        *last = MessageId::mint(*last, now_ms, held.node);
        Some(*last)
    }

    fn any_node(&self) -> u16 {
        #[cfg(test)]
        if let Some(node) = *self.only.lock() {
            return node;
        }
        rand::rng().random_range(0..=MessageId::NODE_MAX)
    }

    async fn acquire(&self) -> Result<()> {
        let _one = self.acquiring.lock().await;
        let now_ms = self.clock.now_ms();
        if self.held.lock().as_ref().is_some_and(|held| Instant::now() < held.until && now_ms < held.until_ms)
        {
            return Ok(());
        }
        *self.held.lock() = None;
        for _ in 0..TRIES {
            let node = self.any_node();
            let asked = Instant::now();
            let now = self.clock.now_ms();
            let free_since = now.saturating_sub(MARGIN.as_millis() as u64);
            let write = Write::update(
                Table::NodeLeases,
                at(node),
                "SET #previous = if_not_exists(#expires_at, :zero), #owner = :me, #expires_at = :until",
            )
            .only_if("attribute_not_exists(#expires_at) OR #expires_at < :free")
            .value(":me", s(&self.owner))
            .value(":zero", n(0))
            .value(":until", n(now + TTL.as_millis() as u64))
            .value(":free", n(free_since));
            match self.dynamo.write(&write).await? {
                WriteOutcome::Done(row) => {
                    let previous = row.number("previous").unwrap_or_default();
                    let until = asked + TTL - MARGIN;
                    let mut held = self.held.lock();
                    let mut last = self.last.lock();
                    *last = MessageId::at(previous).max(*last);
                    let until_ms = until_ms(now + TTL.as_millis() as u64);
                    *held = Some(HeldLease { node, until, until_ms, renewed: asked });
                    tracing::info!(node, "holding a node number");
                    return Ok(());
                }
                WriteOutcome::Refused(_) => continue,
            }
        }
        Err(StoreError::unavailable("a free node number (all that were tried are held)"))
    }

    async fn renew(&self) -> Result<()> {
        let Some(node) = self.held.lock().as_ref().map(|held| held.node) else { return Ok(()) };
        let (asked, expires_at) = (Instant::now(), self.clock.now_ms() + TTL.as_millis() as u64);
        let write = Write::update(Table::NodeLeases, at(node), "SET #expires_at = :until")
            .only_if("#owner = :me")
            .value(":me", s(&self.owner))
            .value(":until", n(expires_at));
        let written = self.dynamo.write(&write).await?;
        let mut held = self.held.lock();
        match written {
            WriteOutcome::Done(_) => {
                if let Some(held) = held.as_mut() {
                    // Not if it ended meanwhile: who took it in between may have minted.
                    (held.until, held.renewed) = (asked + TTL - MARGIN, asked);
                    held.until_ms = until_ms(expires_at);
                }
            }
            WriteOutcome::Refused(_) => {
                tracing::warn!(node, "somebody else holds this node number; taking another");
                *held = None;
            }
        }
        Ok(())
    }
}
