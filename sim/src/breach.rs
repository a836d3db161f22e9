//! Rules broken on purpose, to show that each is needed.
//!
//! A [`Breach`] is a decorator around what the delivery rules run on: the store, the way to the
//! gateways, or what a session sees of its app server. The code of the rules knows nothing of it.
//! The rules' own tests and the simulator's `--without` share these decorators. Without a breach
//! nothing is decorated, so a run under all rules is not affected.

mod app;
mod gateways;
mod sessions;
mod store;

use std::{collections::BTreeSet, sync::Arc};

use bluetick_chat::{App, Gateways, RemoteApp};
use bluetick_store::{SessionStore, Store};

use app::BreachingApp;
use gateways::BreachingGateways;
use sessions::{BreachingSessions, Deferred};
use store::BreachingStore;

/// A way to break one rule of [`bluetick_chat::Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breach {
    /// A session's registration takes effect after its pending rows were read.
    R1,
    /// No session is told of a pending row.
    R2,
    /// The pending row is read, then written if there is none; and a session begins at its row
    /// even where an earlier message is not acked.
    R3,
    /// The messages after a removed row are not read again.
    R4,
    /// A closing session writes no pending rows.
    R5,
    /// A cursor is ignored: only pending rows are drained.
    R6,
    /// A device without a cursor gets pending rows only, not everything that no device has acked.
    R6Undelivered,
    /// A reader treats a hole as void without closing it.
    R8,
    /// A repeated send is answered and not delivered again.
    R9,
    /// A stale entry counts as delivered, and a session does not notice that its entry is lost.
    R12,
}

impl Breach {
    pub const ALL: [Breach; 10] = [
        Breach::R1,
        Breach::R2,
        Breach::R3,
        Breach::R4,
        Breach::R5,
        Breach::R6,
        Breach::R6Undelivered,
        Breach::R8,
        Breach::R9,
        Breach::R12,
    ];
}

/// The rules that are broken in one run.
#[derive(Debug, Clone, Default)]
pub struct Breaches(BTreeSet<Breach>);

impl Breaches {
    pub fn of(breaches: impl IntoIterator<Item = Breach>) -> Breaches {
        Breaches(breaches.into_iter().collect())
    }

    fn contains(&self, breach: Breach) -> bool {
        self.0.contains(&breach)
    }

    fn any(&self, breaches: &[Breach]) -> bool {
        breaches.iter().any(|breach| self.contains(*breach))
    }

    /// The store as an app server sees it.
    pub fn store(&self, store: Store) -> Store {
        use Breach::{R3, R6Undelivered, R8, R9};
        if !self.any(&[R3, R6Undelivered, R8, R9]) {
            return store;
        }
        let breaching = Arc::new(BreachingStore { inner: store.clone(), breaches: self.clone() });
        Store {
            messages: breaching.clone(),
            pending: breaching.clone(),
            status: breaching.clone(),
            conversations: breaching,
            ..store
        }
    }

    /// The gateways as an app server sees them.
    pub fn gateways(&self, gateways: Arc<dyn Gateways>) -> Arc<dyn Gateways> {
        match self.any(&[Breach::R2, Breach::R12]) {
            true => Arc::new(BreachingGateways { inner: gateways, breaches: self.clone() }),
            false => gateways,
        }
    }

    /// An app server and the session store, as the sessions of one gateway see them.
    pub fn sessions(
        &self,
        app: Arc<dyn App>,
        registry: Arc<dyn SessionStore>,
    ) -> (Arc<dyn App>, Arc<dyn SessionStore>) {
        use Breach::{R1, R4, R5, R6, R12};
        if !self.any(&[R1, R4, R5, R6, R12]) {
            return (app, registry);
        }
        let deferred = Arc::new(Deferred::new(registry.clone()));
        let breaching = BreachingApp { inner: app, breaches: self.clone(), deferred: deferred.clone() };
        let sessions = BreachingSessions { inner: registry, breaches: self.clone(), deferred };
        (Arc::new(RemoteApp(Arc::new(breaching))), Arc::new(sessions))
    }
}
