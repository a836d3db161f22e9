//! A fake push provider: records what it receives, and answers as the test says.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    ChatService, Notification, NotificationKind, Notifier, Push, PushApi, PushConfig, Pushed, Unlimited,
};
use bluetick_protocol::{DeviceId, PushContent, PushRegistration, PushTarget};
use bluetick_store::DeviceRow;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{TestSpawner, ToGateways, World, spawn, user};

/// One notification as a provider got it.
#[derive(Debug, Clone)]
pub struct ReceivedPush {
    pub token: String,
    pub note: Notification,
    pub answer: Pushed,
}

impl ReceivedPush {
    /// The line that the user sees, title first; what is not shown is in brackets.
    pub fn shown(&self) -> String {
        match &self.note.kind {
            NotificationKind::Alert { title, body: Some(body), .. } => format!("{title}: {body}"),
            NotificationKind::Alert { title, body: None, .. } => title.clone(),
            NotificationKind::Clear { .. } => "(clear)".to_owned(),
            NotificationKind::Test { title, .. } => format!("(test) {title}"),
        }
    }
}

#[derive(Default)]
pub struct Phones {
    got: Mutex<Vec<ReceivedPush>>,
    answers: Mutex<BTreeMap<String, VecDeque<Pushed>>>,
    down: Mutex<BTreeSet<&'static str>>,
    slow: Mutex<BTreeMap<&'static str, Duration>>,
    busy: Mutex<BTreeSet<(String, String)>>,
}

impl Phones {
    /// Every attempt, whatever its result.
    pub fn tried(&self) -> Vec<ReceivedPush> {
        self.got.lock().clone()
    }

    /// The accepted notifications.
    pub fn got(&self) -> Vec<ReceivedPush> {
        let mut got = self.tried();
        got.retain(|got| got.answer == Pushed::Accepted);
        got
    }

    pub fn shown(&self) -> Vec<String> {
        self.got().iter().map(ReceivedPush::shown).collect()
    }

    /// What one phone shows.
    pub fn shown_on(&self, token: &str) -> Vec<String> {
        self.got().iter().filter(|got| got.token == token).map(ReceivedPush::shown).collect()
    }

    /// The next answers to what goes to a token, before it is accepted again.
    pub fn answer(&self, token: &str, answers: impl IntoIterator<Item = Pushed>) {
        self.answers.lock().entry(token.to_owned()).or_default().extend(answers);
    }

    /// A provider ("fcm" or "webhook") is down, or up again.
    pub fn set_down(&self, route: &'static str, down: bool) {
        let mut all = self.down.lock();
        if down {
            all.insert(route)
        } else {
            all.remove(route)
        };
    }

    /// How many requests wait for an answer.
    pub fn busy(&self) -> usize {
        self.busy.lock().len()
    }

    /// How long each answer takes.
    pub fn set_slow(&self, by: Duration) {
        self.set_slow_on("fcm", by);
    }

    pub fn set_slow_on(&self, route: &'static str, by: Duration) {
        self.slow.lock().insert(route, by);
    }
}

pub fn later(after: Option<u64>) -> Pushed {
    Pushed::Later { after: after.map(Duration::from_secs), why: "busy".into() }
}

#[async_trait]
impl Notifier for Phones {
    fn route(&self, registration: &PushRegistration) -> Option<String> {
        match registration.target {
            PushTarget::Fcm { .. } => Some("fcm".into()),
            PushTarget::Webhook { .. } => Some("webhook".into()),
            _ => None,
        }
    }

    fn salt(&self) -> &[u8] {
        b"salt"
    }

    async fn push(&self, device: &DeviceRow, note: &Notification) -> Pushed {
        let token = device.registration.target.address().to_owned();
        let busy = (token.clone(), note.collapse_id.clone());
        assert!(self.busy.lock().insert(busy.clone()), "one of a conversation at a time");
        let provider = device.registration.target.provider().as_str();
        let slow = self.slow.lock().get(provider).copied().unwrap_or_default();
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        self.busy.lock().remove(&busy);
        let down = self.down.lock().contains(provider);
        let scripted = self.answers.lock().get_mut(&token).and_then(VecDeque::pop_front);
        let answer = match scripted {
            Some(answer) => answer,
            None if down => later(None),
            None => Pushed::Accepted,
        };
        let got = ReceivedPush { token, note: note.clone(), answer: answer.clone() };
        self.got.lock().push(got);
        answer
    }
}

/// An app server's notification service, and the task that it runs in.
pub struct PushService {
    pub push: Arc<Push>,
    pub node: Arc<ChatService>,
    task: JoinHandle<()>,
}

impl PushService {
    /// Its process dies; what it had in memory is lost.
    pub fn crash(&self) {
        self.task.abort();
    }
}

impl World {
    /// One more app server that sends notifications.
    pub fn service(&self, config: PushConfig) -> PushService {
        let chat = bluetick_chat::ChatConfig::default();
        let node = ChatService::new(
            self.store.clone(),
            Arc::new(ToGateways(self.gateways.clone())),
            self.clock.clone(),
            chat,
            Arc::new(Unlimited),
        );
        let node = node.with_spawner(Arc::new(TestSpawner));
        let push = Arc::new(Push::new(
            self.store.clone(),
            self.phones.clone(),
            self.clock.clone(),
            node.observer(),
            config,
            1,
        ));
        let running = push.clone();
        let task = spawn(async move { running.run().await });
        PushService { node: Arc::new(node.with_push(push.clone())), push, task }
    }

    /// A user's device that is notified at this token by FCM.
    pub async fn registers(&self, name: &str, device: &str, token: &str) {
        let target = PushTarget::Fcm { token: token.to_owned() };
        self.registers_as(name, device, target, PushContent::Preview).await;
    }

    pub async fn registers_as(&self, name: &str, device: &str, target: PushTarget, content: PushContent) {
        let device = DeviceId::new(device).unwrap();
        let registration = PushRegistration { target, content };
        self.node.put_push(user(name), device, registration).await.unwrap();
    }

    pub async fn tokens_of(&self, name: &str) -> Vec<String> {
        let devices = self.store.devices.devices_of(&user(name)).await.unwrap();
        devices.iter().map(|row| row.registration.target.address().to_owned()).collect()
    }

    /// How many notifications are still owed to a user's devices.
    pub async fn owed(&self, name: &str) -> usize {
        self.store.push_outbox.owed_to(&user(name)).await.unwrap().len()
    }
}
