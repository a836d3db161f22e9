//! What each client frame becomes: a call to the app server, and frames in answer.

use std::{collections::BTreeMap, sync::Arc};

use bluetick_protocol::{
    ClientFrame, ConversationId, Done, ErrorCode, ErrorFrame, Pong, Presence, Ref, Send as SendFrame, Seq,
    ServerFrame, WireError,
};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, join_all};

use super::{Identity, SessionHost, token_profile::take_token_profile};
use crate::{App, ReceiptRequest, SendRequest};

/// What a request leaves to be done by the loop.
pub(super) struct Answered {
    pub frames: Vec<ServerFrame>,
    /// A fresh token was accepted.
    pub identity: Option<Identity>,
    /// The session must end.
    pub end: Option<WireError>,
    /// They answer a batch of sends.
    pub sends: bool,
}

impl Answered {
    pub(super) fn frames(frames: Vec<ServerFrame>) -> Answered {
        Answered { frames, identity: None, end: None, sends: false }
    }
}

pub(super) fn error_frame(reference: Option<Ref>, error: WireError) -> ServerFrame {
    metrics::counter!("bluetick_errors_total", "code" => error.code.as_str()).increment(1);
    ServerFrame::Error(ErrorFrame { reference, error })
}

fn done(reference: Option<Ref>) -> Vec<ServerFrame> {
    reference.into_iter().map(|reference| ServerFrame::Done(Done { reference })).collect()
}

impl SessionHost {
    /// Sends that came one after another go together: one commit for all of them.
    pub(super) fn send_batch(
        &self,
        entry: &SessionEntry,
        sends: Vec<SendFrame>,
    ) -> BoxFuture<'static, Answered> {
        let app = self.app.clone();
        let (user, session) = (entry.user_id.clone(), Some(entry.session_id));
        Box::pin(async move {
            let references: Vec<_> = sends.iter().map(|send| send.reference.clone()).collect();
            let answers = app.send(SendRequest { user, session, sends }).await;
            let frames = answers.into_iter().zip(references).map(|(answer, reference)| match answer {
                Ok(sent) => ServerFrame::Sent(sent),
                Err(e) => error_frame(reference, e),
            });
            Answered { sends: true, ..Answered::frames(frames.collect()) }
        })
    }

    /// Any other request.
    pub(super) fn request(&self, entry: &SessionEntry, frame: ClientFrame) -> BoxFuture<'static, Answered> {
        let (app, tokens, gateway) = (self.app.clone(), self.tokens.clone(), self.gateway.clone());
        let (entry, server_time) = (entry.clone(), self.clock.now_ms());
        Box::pin(async move {
            if let ClientFrame::Auth(auth) = frame {
                return match tokens.check(&auth.token).await {
                    Ok(identity) if identity.user == entry.user_id => {
                        take_token_profile(&*app, &gateway, &identity).await;
                        Answered { identity: Some(identity), ..Answered::frames(done(auth.reference)) }
                    }
                    Ok(_) => {
                        let why =
                            WireError::new(ErrorCode::Unauthorized, "the fresh token names another user");
                        Answered { end: Some(why), ..Answered::frames(Vec::new()) }
                    }
                    // The old token still holds: a bad fresh one is an error, not the end.
                    Err(e) => Answered::frames(vec![error_frame(auth.reference, e)]),
                };
            }
            let reference = frame.reference().cloned();
            match answer(&*app, entry, frame, server_time).await {
                Ok(frames) => Answered::frames(frames),
                Err(e) => Answered::frames(vec![error_frame(reference, e)]),
            }
        })
    }
}

async fn answer(
    app: &dyn App,
    entry: SessionEntry,
    frame: ClientFrame,
    server_time: u64,
) -> Result<Vec<ServerFrame>, WireError> {
    let user = entry.user_id.clone();
    Ok(match frame {
        ClientFrame::Typing(f) => {
            app.typing(user, f.conversation_id).await?;
            done(f.reference)
        }
        ClientFrame::Inbox(query) => vec![ServerFrame::Inbox(app.inbox(user, query).await?)],
        ClientFrame::History(query) => vec![ServerFrame::History(app.history(user, query).await?)],
        ClientFrame::Status(f) => {
            let mut status = app.status(user, f.conversation_id).await?;
            status.reference = f.reference;
            vec![ServerFrame::Status(status)]
        }
        ClientFrame::Watch(watch) => {
            let told: Vec<Presence> = app.watch(entry, watch.users).await?;
            let mut frames: Vec<_> = told.into_iter().map(ServerFrame::Presence).collect();
            frames.extend(done(watch.reference));
            frames
        }
        ClientFrame::Ping(ping) => vec![ServerFrame::Pong(Pong { reference: ping.reference, server_time })],
        ClientFrame::Hello(_) => {
            return Err(WireError::new(
                ErrorCode::BadRequest,
                "hello was said already; use auth for a fresh token",
            ));
        }
        // Sends and receipts have ways of their own, and auth was answered before.
        ClientFrame::Send(_) | ClientFrame::Ack(_) | ClientFrame::Read(_) | ClientFrame::Auth(_) => {
            Vec::new()
        }
    })
}

/// Receipts that are durable, and the frames to answer with.
pub(super) struct Receipted {
    pub acked: Vec<(ConversationId, Seq)>,
    pub frames: Vec<ServerFrame>,
    /// To be tried again.
    pub failed: Receipts,
}

/// Receipts that wait to be made durable, the newest of each conversation standing for all before it.
#[derive(Debug, Default)]
pub(super) struct Receipts(BTreeMap<ConversationId, Receipt>);

#[derive(Debug, Default)]
struct Receipt {
    acked: Seq,
    read: Option<Seq>,
    references: Vec<Ref>,
    /// It was tried before.
    again: bool,
}

impl Receipts {
    pub(super) fn len(&self) -> usize {
        self.0.values().map(|receipt| 1 + receipt.references.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many will be written down: one a conversation.
    pub(super) fn conversations(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, frame: ClientFrame) {
        let (receipt, is_read) = match frame {
            ClientFrame::Ack(receipt) => (receipt, false),
            ClientFrame::Read(receipt) => (receipt, true),
            _ => return,
        };
        let kept = self.0.entry(receipt.conversation_id).or_default();
        // Read implies delivered.
        kept.acked = kept.acked.max(receipt.seq);
        if is_read {
            kept.read = Some(kept.read.map_or(receipt.seq, |read| read.max(receipt.seq)));
        }
        kept.references.extend(receipt.reference);
    }

    /// Takes back what could not be made durable.
    pub(super) fn put_back(&mut self, failed: Receipts) {
        for (id, receipt) in failed.0 {
            let kept = self.0.entry(id).or_default();
            kept.acked = kept.acked.max(receipt.acked);
            kept.read = kept.read.max(receipt.read);
            kept.again = true;
        }
    }

    /// Makes them durable.
    pub(super) fn flush(&mut self, app: Arc<dyn App>, entry: &SessionEntry) -> BoxFuture<'static, Receipted> {
        let receipts = std::mem::take(&mut self.0);
        let entry = entry.clone();
        Box::pin(async move {
            let one = |(id, receipt): (ConversationId, Receipt)| {
                let (app, entry) = (app.clone(), entry.clone());
                async move {
                    let request = |seq| ReceiptRequest {
                        user: entry.user_id.clone(),
                        session: Some(entry.session_id),
                        conversation_id: id.clone(),
                        seq,
                        again: receipt.again,
                    };
                    let mut outcome = Ok(());
                    if receipt.read.is_none_or(|read| read < receipt.acked) {
                        outcome = app.ack(request(receipt.acked)).await;
                    }
                    if let (Some(read), Ok(())) = (receipt.read, &outcome) {
                        outcome = app.read(request(read)).await;
                    }
                    (id, receipt, outcome)
                }
            };
            let (mut acked, mut frames, mut failed) = (Vec::new(), Vec::new(), Receipts::default());
            for (id, receipt, outcome) in join_all(receipts.into_iter().map(one)).await {
                match outcome {
                    Ok(()) => {
                        let told = |reference| ServerFrame::Done(Done { reference });
                        frames.extend(receipt.references.into_iter().map(told));
                        acked.push((id, receipt.acked));
                    }
                    Err(e) => {
                        let mut told = receipt.references.iter().cloned().map(Some).collect::<Vec<_>>();
                        if e.code.is_retryable() {
                            // Who named a receipt is told; all of it is tried again, since the others cannot be.
                            failed.0.insert(id, Receipt { references: Vec::new(), ..receipt });
                        } else if told.is_empty() {
                            told.push(None);
                        }
                        frames.extend(told.into_iter().map(|reference| error_frame(reference, e.clone())));
                    }
                }
            }
            Receipted { acked, frames, failed }
        })
    }
}
