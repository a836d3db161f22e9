//! The fixture of a check: a fresh store with its clock, and short names for the usual steps.

use std::{any::Any, sync::Arc};

use bluetick_protocol::{ConversationId, Seq, Side, UserId};

use crate::{
    Committed, ConversationRow, ManualClock, Message, NewMessage, PageLimit, Store, testing::message,
};

/// When a fixture's clock begins: in 2025, because ids count from 2024.
pub const START_MS: u64 = 1_760_000_000_000;

/// A fresh store, its clock, and what must live as long as both.
pub struct Fixture {
    pub store: Store,
    pub clock: Arc<ManualClock>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// Makes the store from a clock that stands at [`START_MS`].
    pub fn new(make: impl FnOnce(Arc<ManualClock>) -> Store) -> Self {
        Fixture::keeping((), make)
    }

    /// The same, keeping something alive beside the store: a temporary directory, a container.
    pub fn keeping(kept: impl Any + Send + Sync, make: impl FnOnce(Arc<ManualClock>) -> Store) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        Fixture { store: make(clock.clone()), clock, _kept: Box::new(kept) }
    }

    pub(super) async fn send(&self, new: NewMessage) -> Committed {
        send(&self.store, new).await
    }

    /// Sends `n` plain messages from one side and returns the last one's seq.
    pub(super) async fn send_many(&self, conversation: &ConversationId, from: Side, n: usize) -> Seq {
        let first = self.store.messages.last_seq(conversation).await.unwrap() + 1;
        for i in 0..n as u64 {
            self.send(message(conversation, from, &format!("m{}", first + i))).await;
        }
        self.store.messages.last_seq(conversation).await.unwrap()
    }

    pub(super) async fn all(&self, conversation: &ConversationId) -> Vec<Arc<Message>> {
        all(&self.store, conversation).await
    }

    pub(super) async fn row(&self, user: &UserId, conversation: &ConversationId) -> Option<ConversationRow> {
        self.store.conversations.conversation(user, conversation).await.unwrap()
    }

    pub(super) async fn unread(&self, user: &UserId, conversation: &ConversationId) -> u64 {
        self.row(user, conversation).await.map_or(0, |row| row.unread_count)
    }
}

pub(super) async fn send(store: &Store, new: NewMessage) -> Committed {
    let mut results = store.messages.commit_sends(vec![new]).await;
    assert_eq!(results.len(), 1, "one send has one result");
    results.remove(0).expect("the send succeeds")
}

/// Every message of a conversation, read in pages.
pub(super) async fn all(store: &Store, conversation: &ConversationId) -> Vec<Arc<Message>> {
    let mut messages: Vec<Arc<Message>> = Vec::new();
    loop {
        let from = messages.last().map_or(1, |m| m.seq + 1);
        let page = store.messages.read_from(conversation, from, PageLimit::messages(100)).await.unwrap();
        if page.is_empty() {
            return messages;
        }
        assert!(page[0].seq >= from, "a read from {from} of {conversation} begins no earlier");
        messages.extend(page);
    }
}

/// A seeded generator (SplitMix64), so that a failure can be reproduced.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub fn side(&mut self) -> Side {
        *self.pick(&Side::BOTH)
    }
}
