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

/// Answers as an app server would: what was asked, as a line of text, and the answer as JSON.
impl Transport for FakeApp {
    async fn call<T: DeserializeOwned + Send>(
        &self,
        request: ClusterRequest,
        _: fn(&AppResult<T>) -> bool,
    ) -> AppResult<T> {
        use ClusterRequest as Asked;
        let card = |user: &UserId| json!({"user_id": user, "name": null, "avatar_url": null});
        let (asked, value) = match request {
            Asked::NotBefore(_) => return Ok(answer(json!(*self.not_before.lock()))),
            Asked::Send(request) => {
                let send = &request.sends[0];
                let sent = self.note(
                    format!("send {} {:?} {}", request.user, send.to, send.body),
                    json!({
                        "ref": send.reference, "client_msg_id": send.client_msg_id,
                        "conversation_id": "alice~bob", "seq": 1, "message_id": "7", "ts": 9,
                        "duplicate": false,
                    }),
                );
                return Ok(answer(json!([sent])));
            }
            Asked::Inbox(user, query) => (
                format!("inbox {user} {:?} {:?}", query.limit, query.before),
                json!({"conversations": [], "next": null}),
            ),
            Asked::History(user, query) => {
                let id = query.conversation_id;
                let asked = format!(
                    "history {user} {id} {:?} {:?} {:?}",
                    query.after_seq, query.before_seq, query.limit
                );
                let page =
                    json!({"conversation_id": id, "messages": [], "from_seq": 0, "to_seq": 0, "next": null});
                (asked, page)
            }
            Asked::Status(user, id) => {
                let none = Boundaries::default();
                let status = json!({"conversation_id": id, "last_seq": 0, "unread_count": 0, "own": none, "peer": none});
                (format!("status {user} {id}"), status)
            }
            Asked::Read(r) => (format!("read {} {} {}", r.user, r.conversation_id, r.seq), json!(null)),
            Asked::Profile(user) => (format!("profile {user}"), card(&user)),
            Asked::PutProfile(user, profile) => {
                (format!("put_profile {user} {:?}", profile.name), card(&user))
            }
            Asked::TokenProfile(user, profile) => {
                (format!("token_profile {user} {:?}", profile.name), json!(null))
            }
            Asked::UserCard(user, other) => (format!("user_card {user} {other}"), card(&other)),
            Asked::SetBlock(user, other, blocked) => {
                (format!("set_block {user} {other} {blocked}"), json!(null))
            }
            Asked::Blocks(user) => (format!("blocks {user}"), json!(["mallory"])),
            Asked::PutPush(user, device, PushRegistration { target, content }) => {
                let card = PushDeviceCard { device, provider: target.provider(), content, registered_at: 7 };
                (format!("put_push {user} {} {}", card.device, target.address()), json!(card))
            }
            Asked::DeletePush(user, device) => (format!("delete_push {user} {device}"), json!(null)),
            Asked::PushDevices(user) => (format!("push_devices {user}"), json!([])),
            Asked::Mute(user, mute) => {
                (format!("mute {user} {} {:?}", mute.conversation_id, mute.until), json!(null))
            }
            Asked::Unmute(user, conversation) => (format!("unmute {user} {conversation}"), json!(null)),
            Asked::Mutes(user) => (format!("mutes {user}"), json!([])),
            Asked::BeginUpload(user, request) => {
                let upload = json!({"method": "PUT", "url": "/v1/blobs/x?expires=1"});
                let upload = json!({"s3_ref": S3Ref::mint(1, [0; 10]), "upload": upload, "expires_at": 1});
                (format!("begin_upload {user} {} {}", request.name, request.bytes), upload)
            }
            Asked::CompleteUpload(user, s3_ref, parts) => {
                (format!("complete_upload {user} {s3_ref} {:?}", parts.etags), json!(null))
            }
            Asked::Download(user, conversation, s3_ref) => {
                let url = "https://bucket.example/x";
                let download = json!({"url": url, "expires_at": 1, "name": "x", "mime": "a/b", "bytes": 1, "sha256": ""});
                (format!("download {user} {conversation} {s3_ref}"), download)
            }
            _ => return Err(WireError::new(ErrorCode::Unsupported, "not over http")),
        };
        self.note(asked, value).map(answer)
    }
}

fn answer<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
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
    let remote: Arc<dyn App> = Arc::new(RemoteApp(app.clone()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Store::memory(clock.clone());
    let gateway = Arc::new(Gateway::new("test"));
    let gateways: Arc<dyn Gateways> = gateway.clone();
    let node =
        ChatService::new(store.clone(), gateways.clone(), clock.clone(), config.chat(), Arc::new(Unlimited));
    let tokens: Arc<dyn TokenCheck> = Arc::new(FakeTokens);
    let sessions = SessionHost {
        app: remote.clone(),
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
        app: remote.clone(),
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
