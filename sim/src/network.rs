//! The network between gateways and app servers: requests to any app server that is up, and
//! hand-overs to the gateway that an entry names. Each may be lost on the way there or back, and a
//! request continues for a while after its caller is gone.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{
    AppResult, ChatService, ClusterRequest, Gateway, Gateways, HandOver, HandingOver, SessionEvent, Spawner,
    Transport, unavailable,
};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, Either};
use parking_lot::Mutex;
use rand::RngExt;
use serde::de::DeserializeOwned;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    notices::NoticeRequest,
    process::Process,
    sim::{Sim, note},
};

/// A request that is not answered by then has failed for its caller.
const REQUEST_DEADLINE: Duration = Duration::from_secs(15);

/// How long after that the app server still works on it, as the real listener does.
const GRACE: Duration = Duration::from_secs(10);

/// An app server. It keeps no state, so a crash does not change it.
pub struct AppServer {
    pub process: Arc<Process>,
    pub node: Arc<ChatService>,
}

/// The app servers, as a gateway or a back end sees them.
pub struct Apps {
    pub sim: Arc<Sim>,
    /// The calling process; `None` for a back end.
    pub asker: Option<Arc<Process>>,
    pub servers: Arc<Vec<AppServer>>,
}

impl Transport for Apps {
    /// Writes the request and reads the answer as the RPC does. Nothing is retried here: the sessions and clients do
    /// that.
    async fn call<T: DeserializeOwned + Send>(
        &self,
        request: ClusterRequest,
        _: fn(&AppResult<T>) -> bool,
    ) -> AppResult<T> {
        let sim = &self.sim;
        if let ClusterRequest::NotBefore(_) = request {
            // No token is revoked in a simulation.
            return read_answer(br#"{"Ok":null}"#);
        }
        let what = if sim.is_traced() { describe(&request) } else { String::new() };
        let name = self.asker.as_ref().map_or("back end", |process| process.name()).to_owned();
        if let Some(asker) = &self.asker {
            asker.awake().await;
            asker.may_crash(sim).await;
        }
        let server = &self.servers[sim.draw(|rng| rng.random_range(0..self.servers.len()))];
        sim.hop().await;
        let cut_off = |process: &Arc<Process>| process.is_cut_off();
        if !server.process.is_up() || cut_off(&server.process) || self.asker.as_ref().is_some_and(cut_off) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            note!(sim, "{name} → {}: {what}: no connection", server.process.name());
            return Err(unavailable());
        }
        note!(sim, "{name} → {}: {what}", server.process.name());
        let (answer, answered) = oneshot::channel();
        let service = server.node.clone();
        let working = NoticeRequest::begin(&sim.notices).run(async move { request.run_on(&*service).await });
        server.process.spawn(async move {
            if let Ok(done) = timeout(REQUEST_DEADLINE + GRACE, working).await {
                let _ = answer.send(done);
            }
        });
        let answer = match timeout(REQUEST_DEADLINE, answered).await {
            Ok(Ok(answer)) => answer.unwrap_or_default(),
            _ => {
                note!(sim, "{name} ← {}: {what}: no answer", server.process.name());
                return Err(unavailable());
            }
        };
        if sim.strikes(sim.setup.lost_answer_rate) {
            sim.count(|f| f.lost_answers += 1);
            note!(sim, "{name} ← {}: {what}: the answer is lost", server.process.name());
            return Err(unavailable());
        }
        sim.hop().await;
        if let Some(asker) = &self.asker {
            asker.awake().await;
            asker.may_crash(sim).await;
        }
        note!(sim, "{name} ← {}: {what}: {}", server.process.name(), String::from_utf8_lossy(&answer));
        read_answer(&answer)
    }
}

fn read_answer<T: DeserializeOwned>(text: &[u8]) -> AppResult<T> {
    serde_json::from_slice(text).expect("an app server of the same version writes what is asked for")
}

/// A request as the trace of a run shows it.
fn describe(request: &ClusterRequest) -> String {
    match request {
        ClusterRequest::Send(request) => {
            let ids: Vec<_> = request.sends.iter().map(|send| send.client_msg_id.as_str()).collect();
            format!("send {}", ids.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// A gateway's process. After a crash another one of the same name starts without sessions.
pub struct GatewayServer {
    pub process: Arc<Process>,
    /// The current gateway, and the number of crashes before it started.
    current: Mutex<(u64, Arc<Gateway>)>,
}

impl GatewayServer {
    pub fn new(process: Arc<Process>) -> GatewayServer {
        let gateway = Arc::new(Gateway::new(process.name()));
        GatewayServer { process, current: Mutex::new((0, gateway)) }
    }

    /// The current gateway. Nothing survives a crash.
    pub fn gateway(&self) -> Arc<Gateway> {
        let mut current = self.current.lock();
        if current.0 != self.process.crashes() {
            *current = (self.process.crashes(), Arc::new(Gateway::new(self.process.name())));
        }
        current.1.clone()
    }
}

/// The gateways, as an app server sees them.
#[derive(Clone)]
pub struct GatewaysOf {
    pub sim: Arc<Sim>,
    pub asker: Arc<Process>,
    pub servers: Arc<Vec<GatewayServer>>,
}

impl Gateways for GatewaysOf {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        let (gateways, to) = (self.clone(), to.clone());
        let notice = self.sim.notices.begin(&self.asker, &to, &event);
        Either::Right(Box::pin(async move { gateways.reach(&to, event, notice).await }))
    }
}

impl GatewaysOf {
    async fn reach(&self, to: &SessionEntry, event: SessionEvent, notice: Option<u64>) -> HandOver {
        let sim = &self.sim;
        let what = if sim.is_traced() {
            format!("{} → {} {} {}: {}", self.asker.name(), to.gateway, to.user_id, to.device, short(&event))
        } else {
            String::new()
        };
        self.asker.awake().await;
        sim.hop().await;
        self.asker.may_crash(sim).await;
        let Some(server) = self.servers.iter().find(|server| *server.process.name() == *to.gateway) else {
            return HandOver::Refused;
        };
        if self.asker.is_cut_off() || server.process.is_cut_off() {
            note!(sim, "{what}: cut off");
            return std::future::pending().await;
        }
        server.process.awake().await;
        if !server.process.is_up() {
            note!(sim, "{what}: down");
            sim.notices.arrived(notice, false);
            return HandOver::Refused;
        }
        let outcome = server.gateway().hand_over(to, event).await;
        note!(sim, "{what}: {outcome:?}");
        sim.notices.arrived(notice, outcome == HandOver::Taken);
        if sim.strikes(sim.setup.lost_answer_rate) {
            sim.count(|f| f.lost_answers += 1);
            note!(sim, "{what}: the answer is lost");
            return std::future::pending().await;
        }
        sim.hop().await;
        self.asker.may_crash(sim).await;
        outcome
    }
}

/// The background work of an app server. It ends with the process.
pub struct AppBackground(pub Arc<Process>);

impl Spawner for AppBackground {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

fn short(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Messages { messages, row_written, .. } => {
            let row = if *row_written { " with a row" } else { "" };
            let id = messages.first().map(|message| message.conversation_id.as_str()).unwrap_or_default();
            let seqs: Vec<_> = messages.iter().map(|message| message.seq).collect();
            format!("messages {id} {seqs:?}{row}")
        }
        SessionEvent::Wake { conversation_id } => format!("wake {conversation_id}"),
        SessionEvent::Ticks(t) | SessionEvent::OwnTicks(t) => format!(
            "ticks of {} in {}: {}/{}",
            t.user_id, t.conversation_id, t.last_delivered_seq, t.last_read_seq
        ),
        SessionEvent::Close(why) => format!("close: {}", why.code),
        SessionEvent::Typing(_) => "typing".into(),
        SessionEvent::Presence(_) => "presence".into(),
    }
}
