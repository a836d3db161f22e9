//! What an operator asks of a running server: rows as the notes draw them, the way of a message, repair, export and
//! erasure.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, Download, ErrorCode, Json, MessageFrame, MessageId, Mute, Profile, S3Ref, Seq, UserCard,
    UserId, WireError,
};
use bluetick_store::{
    Clock, ColdRun, ConversationRow, DeviceRow, Message, OwedPush, PageLimit, PendingRow, SessionEntry,
    StatusRow, Store,
};
use serde::{Deserialize, Serialize};

use crate::{
    AppResult, ColdStep, ColdSurvey, DeliveryObserver, Gateways, Mover, ProfileRules, Push, PushTested,
    TraceEvent, Uploads, token_revoked, wire,
};

mod attachments;

pub use attachments::UploadUsageRow;

/// Runs of the cold tier that are looked through at once.
const RUNS_AT_ONCE: usize = 1_000;
/// How many of a conversation's messages an operator is shown as rows.
const NEWEST_MESSAGES: u64 = 50;
/// How long an erasure waits for the user's sessions to end.
const SESSIONS_END_WITHIN_MS: u64 = 5_000;
const SESSIONS_LOOK_EVERY_MS: u64 = 20;

/// One of these, owned and serialisable, so that any process can pass it to one that has the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminCall {
    /// The newest messages of a conversation.
    Messages(ConversationId),
    Pending(UserId),
    Status(UserId),
    Conversations(UserId),
    Sessions(UserId),
    Devices(UserId),
    /// What the user's devices are still to be notified of.
    Owed(UserId),
    /// How many bytes of uploads the user is charged for.
    UploadUsage(UserId),
    /// Notifies all of a user's devices now, and tells what each provider answered.
    PushTest(UserId),
    Repair(UserId),
    Export(UserId),
    Erase(UserId),
    Profile(UserId),
    /// Sets a user's name and avatar, whoever else may.
    SetProfile(UserId, Profile),
    /// Refuses the user's tokens and ends their sessions.
    Revoke(UserId),
    TraceId(MessageId),
    Trace(ConversationId, Seq),
    /// What this one process remembers of a message.
    Events(ConversationId, Seq),
    Checkpoint,
    /// Moves old messages into objects for a little while, from a place on.
    ColdStep(ColdStep),
    /// Adds up what is cold, from a place on.
    ColdSurvey(ColdSurvey),
    /// Checks objects for a little while, from a place on.
    ColdVerify(Option<ColdRun>),
}

/// Whoever does what an operator asks, and answers with what is to be shown, as JSON.
#[async_trait]
pub trait Operator: Send + Sync {
    async fn run(&self, call: AdminCall) -> AppResult<Json>;
}

pub struct Admin {
    pub(crate) store: Store,
    pub(crate) gateways: Arc<dyn Gateways>,
    pub(crate) clock: Arc<dyn Clock>,
    observer: Arc<DeliveryObserver>,
    /// Nothing where nobody is to be notified.
    push: Option<Arc<Push>>,
    /// Nothing where there is no object store.
    mover: Option<Arc<Mover>>,
    /// Nothing where messages have no attachments.
    uploads: Option<Arc<dyn Uploads>>,
    profiles: ProfileRules,
}

#[derive(Debug, Clone, Serialize)]
pub struct TraceReport {
    pub conversation_id: ConversationId,
    pub seq: Seq,
    pub message_id: MessageId,
    pub sender: UserId,
    pub receiver: UserId,
    pub stored_at: u64,
    pub withheld: bool,
    pub void: bool,
    /// What the rows say now: single, double or blue.
    pub tick: &'static str,
    /// The receiver's pending row, if this message is still to be delivered by it.
    pub first_undelivered_seq: Option<Seq>,
    /// What the ring of recent events remembers; older steps are gone.
    pub events: Vec<TraceEvent>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Repaired {
    pub conversations: Vec<Recounted>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Recounted {
    pub conversation_id: ConversationId,
    pub before: u64,
    pub after: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct UserExport {
    pub user_id: UserId,
    pub profile: Profile,
    pub blocks: Vec<UserId>,
    pub mutes: Vec<Mute>,
    /// From when on their tokens count, if any were revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<u64>,
    pub devices: Vec<DeviceRow>,
    pub conversations: Vec<ConversationRow>,
    pub message_status: Vec<StatusRow>,
    pub pending_deliveries: Vec<PendingRow>,
    pub messages: Vec<MessageFrame>,
    pub attachments: Vec<ExportedAttachment>,
}

/// A message as it is stored.
#[derive(Debug, Clone, Serialize)]
pub struct MessageRow {
    #[serde(flatten)]
    pub frame: MessageFrame,
    /// The receiver blocked the sender when it came.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

/// An attachment of an exported message, and where its bytes are for a while.
#[derive(Debug, Clone, Serialize)]
pub struct ExportedAttachment {
    pub conversation_id: ConversationId,
    pub seq: Seq,
    pub s3_ref: S3Ref,
    #[serde(flatten)]
    pub download: Download,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Erased {
    pub conversations: u64,
    pub messages: u64,
    pub attachments: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Revoked {
    /// Tokens count that were issued at this time or later, in seconds since 1970.
    pub not_before: u64,
    /// How many sessions were told to end.
    pub sessions: usize,
    /// How many devices are not notified any more.
    pub devices: usize,
}

#[async_trait]
impl Operator for Admin {
    async fn run(&self, call: AdminCall) -> AppResult<Json> {
        match call {
            AdminCall::Messages(id) => json(&self.messages(&id).await?),
            AdminCall::Pending(user) => json(&self.pending(&user).await?),
            AdminCall::Status(user) => json(&self.status(&user).await?),
            AdminCall::Conversations(user) => json(&self.conversations(&user).await?),
            AdminCall::Sessions(user) => json(&self.sessions(&user).await?),
            AdminCall::Devices(user) => json(&self.devices(&user).await?),
            AdminCall::Owed(user) => json(&self.owed(&user).await?),
            AdminCall::UploadUsage(user) => json(&self.upload_usage(&user).await?),
            AdminCall::PushTest(user) => json(&self.push_test(&user).await?),
            AdminCall::Repair(user) => json(&self.repair(&user).await?),
            AdminCall::Export(user) => json(&self.export(&user).await?),
            AdminCall::Erase(user) => json(&self.erase(&user).await?),
            AdminCall::Profile(user) => json(&self.profile(&user).await?),
            AdminCall::SetProfile(user, profile) => json(&self.set_profile(&user, profile).await?),
            AdminCall::Revoke(user) => json(&self.revoke(&user).await?),
            AdminCall::TraceId(id) => json(&self.trace_id(id).await?),
            AdminCall::Trace(id, seq) => json(&self.trace(&id, seq).await?),
            AdminCall::Events(id, seq) => json(&self.observer.steps_of(&id, seq)),
            AdminCall::ColdStep(step) => json(&self.mover()?.step(step).await?),
            AdminCall::ColdSurvey(survey) => json(&self.mover()?.survey(survey).await?),
            AdminCall::ColdVerify(after) => json(&self.mover()?.verify(after).await?),
            AdminCall::Checkpoint => {
                self.store.maintenance.checkpoint().await.map_err(wire)?;
                json(&())
            }
        }
    }
}

/// The sender's own receipts are of what the other member wrote.
fn concerns(message: &Message, event: &TraceEvent) -> bool {
    !event.step.is_receipt() || event.who != message.sender().as_str()
}

fn json(answer: &impl Serialize) -> AppResult<Json> {
    let text = serde_json::value::to_raw_value(answer).map_err(|e| {
        tracing::error!(error = %e, "an answer to an operator cannot be written as JSON");
        WireError::new(ErrorCode::Internal, "the answer cannot be written")
    })?;
    Ok(Json(text.into()))
}

impl Admin {
    pub fn new(
        store: Store,
        gateways: Arc<dyn Gateways>,
        observer: Arc<DeliveryObserver>,
        clock: Arc<dyn Clock>,
    ) -> Admin {
        let profiles = ProfileRules::default();
        Admin { store, gateways, clock, observer, push: None, mover: None, uploads: None, profiles }
    }

    /// With the notification service, if there is one.
    pub fn with_push(mut self, push: Option<Arc<Push>>) -> Admin {
        self.push = push;
        self
    }

    /// With the cold tier, if there is one.
    pub fn with_mover(mut self, mover: Option<Arc<Mover>>) -> Admin {
        self.mover = mover;
        self
    }

    fn mover(&self) -> AppResult<&Mover> {
        self.mover.as_deref().ok_or_else(|| {
            WireError::new(ErrorCode::Unsupported, "this server has no object store: set [objects]")
        })
    }

    /// With the place of attachments, if there is one.
    pub fn with_uploads(mut self, uploads: Option<Arc<dyn Uploads>>) -> Admin {
        self.uploads = uploads;
        self
    }

    /// With what names and avatars may be.
    pub fn with_profiles(mut self, profiles: ProfileRules) -> Admin {
        self.profiles = profiles;
        self
    }

    pub async fn profile(&self, user: &UserId) -> AppResult<UserCard> {
        let Profile { name, avatar_url } = self.store.users.profile(user).await.map_err(wire)?;
        Ok(UserCard { user_id: user.clone(), name, avatar_url })
    }

    /// The operator may set a profile whoever else does; what it may say is the same.
    pub async fn set_profile(&self, user: &UserId, profile: Profile) -> AppResult<UserCard> {
        let checked = self.profiles.check(profile);
        let profile = checked.map_err(|why| WireError::new(ErrorCode::BadRequest, why))?;
        self.store.users.put_profile(user, profile).await.map_err(wire)?;
        self.profile(user).await
    }

    pub async fn messages(&self, id: &ConversationId) -> AppResult<Vec<MessageRow>> {
        let last = self.store.messages.last_seq(id).await.map_err(wire)?;
        let from = last.saturating_sub(NEWEST_MESSAGES) + 1;
        let limit = PageLimit::messages(NEWEST_MESSAGES as usize);
        let newest = self.store.messages.read_from(id, from, limit).await.map_err(wire)?;
        let row =
            |message: &Arc<Message>| MessageRow { frame: message.to_frame(), withheld: message.withheld };
        Ok(newest.iter().filter(|message| !message.void).map(row).collect())
    }

    pub async fn pending(&self, user: &UserId) -> AppResult<Vec<PendingRow>> {
        self.store.pending.pending_of(user).await.map_err(wire)
    }

    pub async fn status(&self, user: &UserId) -> AppResult<Vec<StatusRow>> {
        self.store.status.statuses_of(user).await.map_err(wire)
    }

    pub async fn conversations(&self, user: &UserId) -> AppResult<Vec<ConversationRow>> {
        self.store.conversations.conversations_of(user).await.map_err(wire)
    }

    pub async fn sessions(&self, user: &UserId) -> AppResult<Vec<SessionEntry>> {
        self.store.sessions.lookup(user).await.map_err(wire)
    }

    pub async fn devices(&self, user: &UserId) -> AppResult<Vec<DeviceRow>> {
        self.store.devices.devices_of(user).await.map_err(wire)
    }

    pub async fn owed(&self, user: &UserId) -> AppResult<Vec<OwedPush>> {
        self.store.push_outbox.owed_to(user).await.map_err(wire)
    }

    pub async fn push_test(&self, user: &UserId) -> AppResult<Vec<PushTested>> {
        match &self.push {
            Some(push) => push.test(user).await,
            None => {
                let why = "this server notifies nobody: set up a provider in [push]";
                Err(WireError::new(ErrorCode::Unsupported, why))
            }
        }
    }

    pub async fn trace_id(&self, id: MessageId) -> AppResult<TraceReport> {
        match self.store.messages.find(id).await.map_err(wire)? {
            Some(message) => self.report(&message).await,
            None => Err(WireError::new(ErrorCode::NotFound, format!("no message has the id {id}"))),
        }
    }

    pub async fn trace(&self, id: &ConversationId, seq: Seq) -> AppResult<TraceReport> {
        let found = self.store.messages.read_from(id, seq, PageLimit::messages(1)).await.map_err(wire)?;
        match found.first().filter(|m| m.seq == seq) {
            Some(message) => self.report(message).await,
            None => Err(WireError::new(ErrorCode::NotFound, format!("{id} has no message {seq}"))),
        }
    }

    async fn report(&self, message: &Message) -> AppResult<TraceReport> {
        let (id, seq, receiver) = (&message.conversation_id, message.seq, message.receiver());
        let status = self.store.status.status(&receiver, id).await.map_err(wire)?;
        let row = self.store.pending.pending_row(&receiver, id).await.map_err(wire)?;
        let tick = if seq <= status.last_read_seq {
            "blue"
        } else if seq <= status.last_delivered_seq {
            "double"
        } else {
            "single"
        };
        Ok(TraceReport {
            conversation_id: id.clone(),
            seq,
            message_id: message.message_id,
            sender: message.sender(),
            receiver,
            stored_at: message.ts,
            withheld: message.withheld,
            void: message.void,
            tick,
            first_undelivered_seq: row.filter(|&first| first <= seq),
            events: self
                .observer
                .steps_of(id, seq)
                .into_iter()
                .filter(|event| concerns(message, event))
                .collect(),
        })
    }

    /// Counts every unread anew from the messages.
    pub async fn repair(&self, user: &UserId) -> AppResult<Repaired> {
        let mut conversations = Vec::new();
        for conversation_id in self.store.maintenance.memberships(user).await.map_err(wire)? {
            let (before, after) =
                self.store.conversations.recount(user, &conversation_id).await.map_err(wire)?;
            conversations.push(Recounted { conversation_id, before, after });
        }
        Ok(Repaired { conversations })
    }

    /// Everything that is kept of a user and for them.
    pub async fn export(&self, user: &UserId) -> AppResult<UserExport> {
        let (mut messages, mut attachments) = (Vec::new(), Vec::new());
        for id in self.store.maintenance.memberships(user).await.map_err(wire)? {
            let Some(side) = id.side_of(user) else { continue };
            let mut from = 1;
            loop {
                let page = self.store.messages.read_from(&id, from, PageLimit::messages(500)).await;
                let page = page.map_err(wire)?;
                let Some(last) = page.last() else { break };
                from = last.seq + 1;
                for message in page.iter().filter(|m| m.visible_to(side)) {
                    messages.push(message.to_frame());
                    attachments.extend(self.exported(message).await?);
                }
            }
        }
        Ok(UserExport {
            user_id: user.clone(),
            profile: self.store.users.profile(user).await.map_err(wire)?,
            blocks: self.store.users.blocked_by(user).await.map_err(wire)?,
            mutes: self.store.users.mutes_of(user).await.map_err(wire)?,
            not_before: self.store.users.not_before(user).await.map_err(wire)?,
            devices: self.devices(user).await?,
            conversations: self.conversations(user).await?,
            message_status: self.status(user).await?,
            pending_deliveries: self.pending(user).await?,
            messages,
            attachments,
        })
    }

    /// Locks the user out: no token that exists counts any more, no session goes on, no device is notified.
    pub async fn revoke(&self, user: &UserId) -> AppResult<Revoked> {
        let not_before = self.lock_out(user).await?;
        let sessions = self.end_sessions_of(user, token_revoked()).await?;
        let devices = self.forget_push_devices(user).await?;
        Ok(Revoked { not_before, sessions, devices })
    }

    /// Ends the user's sessions and erases what they wrote and what is kept of them. They are revoked before, and stay
    /// so: a token that still exists would bring an erased user back.
    pub async fn erase(&self, user: &UserId) -> AppResult<Erased> {
        self.lock_out(user).await?;
        let why = WireError::new(ErrorCode::Erased, "this user's data were erased");
        self.end_sessions_of(user, why).await?;
        // A session that ends writes its last words down; they must be there before they can be erased.
        for _ in 0..SESSIONS_END_WITHIN_MS / SESSIONS_LOOK_EVERY_MS {
            if self.sessions(user).await?.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(SESSIONS_LOOK_EVERY_MS)).await;
        }
        let mut erased = Erased { conversations: 0, messages: 0, attachments: 0 };
        for id in self.store.maintenance.memberships(user).await.map_err(wire)? {
            let Some(side) = id.side_of(user) else { continue };
            // What is cold is written anew without them. Once more afterwards: what was being moved meanwhile was read
            // before the erasure, and nothing moves in the old form from then on.
            erased.messages += self.store.cold.erase(&id, side, false).await.map_err(wire)?;
            erased.messages += self.store.maintenance.erase_member(user, &id).await.map_err(wire)?;
            if self.store.cold.erase(&id, side, true).await.map_err(wire)? > 0 {
                // The other side's row may show or count what became void only now.
                self.store.maintenance.erase_member(user, &id).await.map_err(wire)?;
            }
            erased.conversations += 1;
            bluetick_store::failpoint::hit("erase.member_erased");
        }
        erased.messages += self.erase_cold_leftovers(user).await?;
        erased.attachments = self.erase_attachments(user).await?;
        self.store.maintenance.erase_user(user).await.map_err(wire)?;
        Ok(erased)
    }

    /// What an erasure that was cut off left in objects: its conversations are not the user's any more, so the runs are asked.
    async fn erase_cold_leftovers(&self, user: &UserId) -> AppResult<u64> {
        let cold = &self.store.cold;
        let (mut erased, mut after) = (0, None::<ColdRun>);
        loop {
            let runs = cold.runs.all_runs(after.as_ref(), RUNS_AT_ONCE).await.map_err(wire)?;
            let Some(last) = runs.last().cloned() else { return Ok(erased) };
            let mut before = after.map(|run| run.conversation_id);
            for run in &runs {
                if before.as_ref() != Some(&run.conversation_id)
                    && let Some(side) = run.conversation_id.side_of(user)
                {
                    erased += cold.erase(&run.conversation_id, side, true).await.map_err(wire)?;
                }
                before = Some(run.conversation_id.clone());
            }
            after = Some(last);
        }
    }
}
