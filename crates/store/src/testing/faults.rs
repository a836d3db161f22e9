//! The fault layer: a system of the store whose calls pass a policy, which may delay them, fail
//! them, or lose their answers. The tests of the rules stop single calls with it; the simulator
//! draws faults from a seed.

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_protocol::{ClientMsgId, ConversationId, MessageId, Seq, SessionId, UserId};

use crate::{
    Advanced, Committed, Message, MessageStatus, Messages, NewMessage, Noted, PageLimit, PendingDeliveries,
    PendingRow, Result, SessionEntry, SessionStore, StatusRow,
};

/// Decides what becomes of each call.
pub trait FaultPolicy: Send + Sync + 'static {
    /// Runs a call, or does not, and returns what its caller is told. The call owns its arguments,
    /// so that a policy may let it take effect after its caller was told that it failed.
    fn run<T: Debug + Send + 'static>(
        &self,
        call: StoreCall<'_>,
        op: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// The calls that can fail. [`SeqTaken`](StoreMethod::SeqTaken) is no method: it is the point in a
/// commit at which a writer has its seq and has not written under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreMethod {
    CommitSends,
    SeqTaken,
    ReadFrom,
    ReadBefore,
    LastSeq,
    CloseHole,
    NoteUndelivered,
    PendingOf,
    PendingRow,
    Settle,
    Advance,
    Status,
    HasAckedAll,
    Notified,
    RaiseNotified,
    Register,
    Refresh,
    Unregister,
    Lookup,
}

impl StoreMethod {
    pub const SESSION_STORE: [StoreMethod; 4] =
        [StoreMethod::Register, StoreMethod::Refresh, StoreMethod::Unregister, StoreMethod::Lookup];
}

/// One call: its method, whom and what it concerns, and its other arguments for a trace.
#[derive(Clone, Copy)]
pub struct StoreCall<'a> {
    pub method: StoreMethod,
    pub user: Option<&'a UserId>,
    pub conversation: Option<&'a ConversationId>,
    pub client_msg_id: Option<&'a ClientMsgId>,
    pub arguments: &'a (dyn Debug + Sync),
}

impl<'a> StoreCall<'a> {
    fn new(method: StoreMethod, arguments: &'a (dyn Debug + Sync)) -> Self {
        StoreCall { method, user: None, conversation: None, client_msg_id: None, arguments }
    }

    /// What tells a call from others of its method: the `client_msg_id` of a commit, the user of a
    /// row or an entry, the conversation of a read.
    pub fn subject(&self) -> &'a str {
        let user = self.user.map(UserId::as_str);
        let conversation = self.conversation.map(ConversationId::as_str);
        self.client_msg_id.map(ClientMsgId::as_str).or(user).or(conversation).unwrap_or_default()
    }
}

impl fmt::Display for StoreCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.method)?;
        if let Some(user) = self.user {
            write!(f, " {user}")?;
        }
        if let Some(conversation) = self.conversation {
            write!(f, " {conversation}")?;
        }
        write!(f, " {:?}", self.arguments)
    }
}

/// One system of a store, behind a policy.
pub struct Faulty<S: ?Sized, P> {
    inner: Arc<S>,
    policy: Arc<P>,
}

impl<S: ?Sized, P> Faulty<S, P> {
    pub fn new(inner: Arc<S>, policy: Arc<P>) -> Self {
        Faulty { inner, policy }
    }
}

/// Implements a system. Each method that can fail names what its call concerns; those under
/// `reliable` pass by the policy; those under `by_hand` are written out. Of the arguments, the
/// borrowed ones come first.
macro_rules! faulty_system {
    ($system:ident {
        $(fn $method:ident($($lent:ident: &$lent_type:ty),+ $(; $($value:ident: $value_type:ty),+)?) -> $answer:ty
            as $name:ident { $($subject:ident: $of:expr),+ })*
        reliable
        $(fn $reliable:ident($($argument:ident: $argument_type:ty),*) -> $reliable_answer:ty;)*
        $(by_hand { $($by_hand:tt)* })?
    }) => {
        #[async_trait]
        impl<S: $system + ?Sized + 'static, P: FaultPolicy> $system for Faulty<S, P> {
            $(async fn $method(
                &self,
                $($lent: &$lent_type,)+
                $($($value: $value_type,)+)?
            ) -> Result<$answer> {
                let arguments = ($($($value,)+)?);
                let call = StoreCall { $($subject: $of,)+ ..StoreCall::new(StoreMethod::$name, &arguments) };
                let inner = self.inner.clone();
                let op = {
                    $(let $lent = $lent.to_owned();)+
                    async move { inner.$method($(&$lent,)+ $($($value,)+)?).await }
                };
                self.policy.run(call, op).await
            })*

            $(async fn $reliable(&self, $($argument: $argument_type),*) -> Result<$reliable_answer> {
                self.inner.$reliable($($argument),*).await
            })*

            $($($by_hand)*)?
        }
    };
}

faulty_system!(PendingDeliveries {
    fn note_undelivered(receiver: &UserId, id: &ConversationId; seq: Seq) -> Noted
        as NoteUndelivered { user: Some(receiver), conversation: Some(id) }
    fn pending_of(receiver: &UserId) -> Vec<PendingRow> as PendingOf { user: Some(receiver) }
    fn pending_row(receiver: &UserId, id: &ConversationId) -> Option<Seq>
        as PendingRow { user: Some(receiver), conversation: Some(id) }
    fn settle(receiver: &UserId, id: &ConversationId; expected: Seq, to: Option<Seq>) -> bool
        as Settle { user: Some(receiver), conversation: Some(id) }
    reliable
});

faulty_system!(MessageStatus {
    fn advance(user: &UserId, id: &ConversationId; delivered: Seq, read: Seq) -> Advanced
        as Advance { user: Some(user), conversation: Some(id) }
    fn status(user: &UserId, id: &ConversationId) -> StatusRow
        as Status { user: Some(user), conversation: Some(id) }
    fn has_acked_all(user: &UserId, id: &ConversationId) -> bool
        as HasAckedAll { user: Some(user), conversation: Some(id) }
    fn notified(user: &UserId, id: &ConversationId) -> (StatusRow, Seq)
        as Notified { user: Some(user), conversation: Some(id) }
    fn raise_notified(user: &UserId, id: &ConversationId; seq: Seq) -> ()
        as RaiseNotified { user: Some(user), conversation: Some(id) }
    reliable
    fn statuses_of(user: &UserId) -> Vec<StatusRow>;
});

faulty_system!(SessionStore {
    fn register(entry: &SessionEntry; ttl: Duration, max: usize) -> Vec<SessionEntry>
        as Register { user: Some(&entry.user_id) }
    fn refresh(sessions: &[(UserId, SessionId)]; ttl: Duration) -> Vec<bool>
        as Refresh { user: sessions.first().map(|(user, _)| user) }
    fn unregister(user: &UserId; session: SessionId) -> bool as Unregister { user: Some(user) }
    fn lookup(user: &UserId) -> Vec<SessionEntry> as Lookup { user: Some(user) }
    reliable
    fn last_seen(user: &UserId) -> Option<u64>;
    fn set_last_seen(user: &UserId, ms: u64) -> ();
    fn watch(watcher: &SessionEntry, users: &[UserId], ttl: Duration) -> ();
    fn watchers(user: &UserId) -> Vec<SessionEntry>;
    fn flush() -> ();
});

faulty_system!(Messages {
    fn read_from(id: &ConversationId; from: Seq, limit: PageLimit) -> Vec<Arc<Message>>
        as ReadFrom { conversation: Some(id) }
    fn read_before(id: &ConversationId; before: Seq, limit: PageLimit) -> Vec<Arc<Message>>
        as ReadBefore { conversation: Some(id) }
    fn last_seq(id: &ConversationId) -> Seq as LastSeq { conversation: Some(id) }
    fn close_hole(id: &ConversationId; seq: Seq) -> () as CloseHole { conversation: Some(id) }
    reliable
    fn find(message_id: MessageId) -> Option<Arc<Message>>;
    by_hand {
        async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
            let count = sends.len();
            let first = sends.first().map(|send| send.client_msg_id.clone());
            let call = StoreCall {
                client_msg_id: first.as_ref(),
                ..StoreCall::new(StoreMethod::CommitSends, &count)
            };
            let inner = self.inner.clone();
            let committed = self.policy.run(call, async move { Ok(inner.commit_sends(sends).await) }).await;
            committed.unwrap_or_else(|e| (0..count).map(|_| Err(e.clone())).collect())
        }
    }
});
