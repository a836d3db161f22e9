//! What a process does for the others, by its roles: the rules for gateways, sessions for app servers.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_chat::{App, AppResult, Gateway, Gateways, Operator};
use bluetick_protocol::{ErrorCode, WireError};
use bytes::Bytes;
use serde::Serialize;

use super::{listener::Desk, wire::Request};

/// What there is to be asked for in this process.
pub struct OwnDesk {
    pub app: Option<Arc<dyn App>>,
    pub operator: Option<Arc<dyn Operator>>,
    pub gateway: Option<Arc<Gateway>>,
}

/// Tells a caller that it has come to the wrong process.
pub const WRONG_ROLE: &str = "this process does not have the role that was asked for";

#[async_trait]
impl Desk for OwnDesk {
    async fn handle(&self, payload: Bytes) -> Bytes {
        match serde_json::from_slice::<Request>(&payload) {
            Ok(request) => self.answer(request).await,
            Err(error) => {
                tracing::warn!(%error, "another process asked what this one does not understand");
                let why = "this process is of another version and does not understand the call";
                write::<()>(&Err(WireError::new(ErrorCode::Unavailable, why).retry_after(1_000)))
            }
        }
    }
}

impl OwnDesk {
    async fn answer(&self, request: Request) -> Bytes {
        match (request, &self.app, &self.operator, &self.gateway) {
            (Request::HandOver(to, event), _, _, Some(gateway)) => {
                write(&Ok(gateway.hand_over(&to, event).await))
            }
            (Request::Admin(call), _, Some(operator), _) => write(&operator.run(call).await),
            (Request::HandOver(..) | Request::Admin(_), ..) | (_, None, ..) => {
                // Somebody else may have it: an address that belonged to another process, most likely.
                write::<()>(&Err(WireError::new(ErrorCode::Unavailable, WRONG_ROLE).retry_after(1_000)))
            }
            (request, Some(app), ..) => ask(&**app, request).await,
        }
    }
}

async fn ask(app: &dyn App, request: Request) -> Bytes {
    match request {
        Request::Send(request) => write(&Ok(app.send(request).await)),
        Request::Plan(request) => write(&app.plan(request).await),
        Request::ReadRange(request) => write(&app.read_range(request).await),
        Request::PendingRow(user, id) => write(&app.pending_row(user, id).await),
        Request::Ack(request) => write(&app.ack(request).await),
        Request::Read(request) => write(&app.read(request).await),
        Request::Settle(request) => write(&app.settle(request).await),
        Request::PayDebts(request) => write(&app.pay_debts(request).await),
        Request::Typing(user, id) => write(&app.typing(user, id).await),
        Request::Inbox(user, query) => write(&app.inbox(user, query).await),
        Request::History(user, query) => write(&app.history(user, query).await),
        Request::Status(user, id) => write(&app.status(user, id).await),
        Request::Watch(watcher, users) => write(&app.watch(watcher, users).await),
        Request::PresenceChanged(user, online) => write(&app.presence_changed(user, online).await),
        Request::EndSessions(sessions, why) => {
            app.end_sessions(sessions, why).await;
            write(&Ok(()))
        }
        Request::NotBefore(user) => write(&app.not_before(user).await),
        Request::Profile(user) => write(&app.profile(user).await),
        Request::PutProfile(user, profile) => write(&app.put_profile(user, profile).await),
        Request::TokenProfile(user, profile) => write(&app.token_profile(user, profile).await),
        Request::UserCard(user, other) => write(&app.user_card(user, other).await),
        Request::SetBlock(user, other, blocked) => write(&app.set_block(user, other, blocked).await),
        Request::Blocks(user) => write(&app.blocks(user).await),
        Request::PutPush(user, device, registration) => {
            write(&app.put_push(user, device, registration).await)
        }
        Request::DeletePush(user, device) => write(&app.delete_push(user, device).await),
        Request::PushDevices(user) => write(&app.push_devices(user).await),
        Request::Mute(user, mute) => write(&app.mute(user, mute).await),
        Request::Unmute(user, conversation) => write(&app.unmute(user, conversation).await),
        Request::Mutes(user) => write(&app.mutes(user).await),
        Request::BeginUpload(user, request) => write(&app.begin_upload(user, request).await),
        Request::CompleteUpload(user, s3_ref, parts) => {
            write(&app.complete_upload(user, s3_ref, parts).await)
        }
        Request::Download(user, id, s3_ref) => write(&app.download(user, id, s3_ref).await),
        // Answered by the other roles before.
        Request::HandOver(..) | Request::Admin(_) => Bytes::new(),
    }
}

fn write<T: Serialize>(answer: &AppResult<T>) -> Bytes {
    match serde_json::to_vec(answer) {
        Ok(text) => text.into(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            Bytes::new()
        }
    }
}
