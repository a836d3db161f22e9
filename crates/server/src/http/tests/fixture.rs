//! The router over an app that remembers what it was asked, and what it answered.

use super::*;

/// Answers like an app server, and remembers what it was asked.
#[derive(Default)]
pub(super) struct FakeApp {
    pub(super) asked: Mutex<Vec<String>>,
    /// What everything is answered with, if set.
    pub(super) error: Mutex<Option<WireError>>,
    /// Set when everybody's tokens are revoked.
    pub(super) not_before: Mutex<Option<u64>>,
    /// What it is asked at the moment of that revocation.
    pub(super) revoked_at: Mutex<Option<&'static str>>,
}

impl FakeApp {
    pub(super) fn revoke(&self) {
        *self.not_before.lock() = Some(u64::MAX);
    }

    pub(super) fn note<T>(&self, what: String, answer: T) -> AppResult<T> {
        if self.revoked_at.lock().is_some_and(|call| what.starts_with(call)) {
            self.revoke();
        }
        self.asked.lock().push(what);
        match self.error.lock().clone() {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    pub(super) fn last(&self) -> String {
        self.asked.lock().last().cloned().unwrap_or_default()
    }
}

pub(super) fn card(user: UserId) -> UserCard {
    UserCard { user_id: user, name: None, avatar_url: None }
}

pub(super) fn unused<T>() -> AppResult<T> {
    Err(WireError::new(ErrorCode::Unsupported, "not over http"))
}

#[async_trait]
impl App for FakeApp {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let send = request.sends[0].clone();
        let sent = Sent {
            reference: send.reference,
            client_msg_id: send.client_msg_id,
            conversation_id: ConversationId::new("alice~bob").unwrap(),
            seq: 1,
            message_id: MessageId(7),
            ts: 9,
            duplicate: false,
        };
        vec![self.note(format!("send {} {:?} {}", request.user, send.to, send.body), sent)]
    }
    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        let page = InboxPage { reference: None, conversations: vec![], next: None };
        self.note(format!("inbox {user} {:?} {:?}", query.limit, query.before), page)
    }
    async fn history(&self, user: UserId, q: HistoryQuery) -> AppResult<HistoryPage> {
        let page = HistoryPage {
            reference: None,
            conversation_id: q.conversation_id.clone(),
            messages: vec![],
            from_seq: 0,
            to_seq: 0,
            next: None,
        };
        let asked = format!(
            "history {user} {} {:?} {:?} {:?}",
            q.conversation_id, q.after_seq, q.before_seq, q.limit
        );
        self.note(asked, page)
    }
    async fn status(&self, user: UserId, conversation_id: ConversationId) -> AppResult<StatusAnswer> {
        let asked = format!("status {user} {conversation_id}");
        let (own, peer) = Default::default();
        let answer =
            StatusAnswer { reference: None, conversation_id, last_seq: 0, unread_count: 0, own, peer };
        self.note(asked, answer)
    }
    async fn read(&self, r: ReceiptRequest) -> AppResult<()> {
        self.note(format!("read {} {} {}", r.user, r.conversation_id, r.seq), ())
    }
    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        self.note(format!("profile {user}"), card(user))
    }
    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        self.note(format!("put_profile {user} {:?}", profile.name), card(user))
    }
    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        self.note(format!("token_profile {user} {:?}", profile.name), ())
    }
    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        self.note(format!("user_card {user} {other}"), card(other))
    }
    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        self.note(format!("set_block {user} {other} {blocked}"), ())
    }
    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.note(format!("blocks {user}"), vec![UserId::new("mallory").unwrap()])
    }

    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        let card = PushDeviceCard {
            device: device.clone(),
            provider: registration.target.provider(),
            content: registration.content,
            registered_at: 7,
        };
        self.note(format!("put_push {user} {device} {}", registration.target.address()), card)
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        self.note(format!("delete_push {user} {device}"), ())
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        self.note(format!("push_devices {user}"), Vec::new())
    }

    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.note(format!("mute {user} {} {:?}", mute.conversation_id, mute.until), ())
    }

    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.note(format!("unmute {user} {conversation}"), ())
    }

    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        self.note(format!("mutes {user}"), Vec::new())
    }
    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        let upload = SignedRequest {
            method: "PUT".into(),
            url: "/v1/blobs/x?expires=1".into(),
            headers: Default::default(),
        };
        let s3_ref = S3Ref::mint(1, [0; 10]);
        let upload = Upload { s3_ref, upload: Some(upload), parts: vec![], expires_at: 1 };
        self.note(format!("begin_upload {user} {} {}", request.name, request.bytes), upload)
    }
    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        self.note(format!("complete_upload {user} {s3_ref} {:?}", parts.etags), ())
    }
    async fn download(
        &self,
        user: UserId,
        conversation: ConversationId,
        s3_ref: S3Ref,
    ) -> AppResult<Download> {
        let download = Download {
            url: "https://bucket.example/x".into(),
            expires_at: 1,
            name: "x".into(),
            mime: "a/b".into(),
            bytes: 1,
            sha256: String::new(),
        };
        self.note(format!("download {user} {conversation} {s3_ref}"), download)
    }
    async fn plan(&self, _: PlanRequest) -> AppResult<Plan> {
        unused()
    }
    async fn read_range(&self, _: RangeRequest) -> AppResult<MessageRange> {
        unused()
    }
    async fn pending_row(&self, _: UserId, _: ConversationId) -> AppResult<Option<Seq>> {
        unused()
    }
    async fn ack(&self, _: ReceiptRequest) -> AppResult<()> {
        unused()
    }
    async fn settle(&self, _: SettleRequest) -> AppResult<Settled> {
        unused()
    }
    async fn pay_debts(&self, _: DebtsRequest) -> AppResult<Vec<Debt>> {
        unused()
    }
    async fn typing(&self, _: UserId, _: ConversationId) -> AppResult<()> {
        unused()
    }
    async fn watch(&self, _: SessionEntry, _: Vec<UserId>) -> AppResult<Vec<Presence>> {
        unused()
    }
    async fn presence_changed(&self, _: UserId, _: bool) -> AppResult<()> {
        unused()
    }
    async fn end_sessions(&self, _: Vec<SessionEntry>, _: WireError) {}
    async fn not_before(&self, _: UserId) -> AppResult<Option<u64>> {
        Ok(*self.not_before.lock())
    }
}

/// Takes a user's name for their token.
pub(super) struct FakeTokens;

#[async_trait]
impl TokenCheck for FakeTokens {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        match UserId::new(token) {
            Ok(user) if token != "expired" => {
                Ok(Identity { user, expires_at: None, profile: None, issued_at: None })
            }
            _ => Err(WireError::new(ErrorCode::TokenExpired, "the token has expired")),
        }
    }
}

pub(super) struct Fixture {
    pub(super) app: Arc<FakeApp>,
    pub(super) state: AppState,
    pub(super) router: Router,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: axum::http::HeaderMap,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of an error in the one shape that errors have.
    pub(super) fn error(&self) -> String {
        let json = self.json();
        assert!(json["error"]["message"].as_str().is_some_and(|message| message.len() > 5), "{}", self.body);
        assert_eq!(self.header("content-type"), "application/json");
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}

pub(super) fn fixture_with(change: impl FnOnce(&mut Config)) -> Fixture {
    let mut config = Config::load(None, Overrides::default()).unwrap();
    change(&mut config);
    let app = Arc::new(FakeApp::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Store::memory(clock.clone());
    let gateway = Arc::new(Gateway::new("test"));
    let gateways: Arc<dyn Gateways> = gateway.clone();
    let node =
        ChatService::new(store.clone(), gateways.clone(), clock.clone(), config.chat(), Arc::new(Unlimited));
    let tokens: Arc<dyn TokenCheck> = Arc::new(FakeTokens);
    let sessions = SessionHost {
        app: app.clone(),
        registry: store.sessions.clone(),
        gateway,
        tokens: tokens.clone(),
        clock: clock.clone(),
        config: SessionConfig::default(),
        observer: node.observer(),
        budget: Arc::new(Unlimited),
    };
    let demo = config.demo_is_on();
    let state = AppState::new(Services {
        app: app.clone(),
        operator: Arc::new(Admin::new(store.clone(), gateways, node.observer(), clock.clone())),
        readiness: Arc::new(Readiness {
            store: Some(store.clone()),
            sessions: None,
            push: None,
            #[cfg(feature = "cluster")]
            servers: None,
        }),
        store: Some(store),
        providers: config.push.is_configured().then(|| Arc::new(Providers::new(&config.push).unwrap())),
        uploads: None,
        tokens,
        sessions: Arc::new(sessions),
        config: Arc::new(config),
        admin_key: "an admin key for tests, long enough".into(),
        metrics: crate::metrics::install(),
        demo: demo.then(|| demo::Demo::with_fresh_key("a demo secret for tests, long enough").unwrap()),
        in_flight: crate::http::in_flight::InFlightLimit::new(8),
        draining: AtomicBool::new(false),
    });
    Fixture { app, router: router(state.clone()), state }
}

pub(super) fn fixture() -> Fixture {
    fixture_with(|_| {})
}

/// Notifies by Web Push and webhook. The key that it is known by is gone from the disk when it is read.
pub(super) fn fixture_that_notifies() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("vapid.pem");
    std::fs::write(&key, crate::push::make_vapid_key().unwrap().0).unwrap();
    let webpush = json!({"key_file": key, "subject": "mailto:ops@example.org", "hosts": ["push.example"]});
    let webhook =
        json!({"url": "http://127.0.0.1:9/", "secret": "a secret of a webhook that is long enough"});
    fixture_with(|config| {
        config.push.webpush = Some(serde_json::from_value(webpush).unwrap());
        config.push.webhook = Some(serde_json::from_value(webhook).unwrap());
    })
}

/// What a browser gives whose push service is at `host`.
pub(super) fn subscription(host: &str) -> Value {
    let point = crate::push::make_vapid_key().unwrap().1;
    json!({
        "provider": "webpush",
        "subscription": {
            "endpoint": format!("https://{host}/send/1"),
            "expirationTime": null,
            "keys": {"p256dh": point, "auth": "A".repeat(22)},
        },
    })
}

impl Fixture {
    pub(super) async fn call(&self, request: HttpRequest<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(super) async fn as_alice(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let request = HttpRequest::builder().method(method).uri(path).header("host", "chat.example");
        let mut request = request.header("authorization", "Bearer alice");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
        self.call(request.body(body).unwrap()).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call(HttpRequest::get(path).body(Body::empty()).unwrap()).await
    }
}
