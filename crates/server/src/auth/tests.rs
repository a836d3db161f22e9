use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use bluetick_store::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

const SECRET: &str = "an example of a secret that is long enough";

fn now() -> u64 {
    SystemClock.now_ms() / 1000
}

fn check_with(keys: KeySource) -> JwtCheck {
    JwtCheck {
        keys,
        audience: None,
        issuer: None,
        leeway_secs: 0,
        require_exp: false,
        max_age_secs: None,
        clock: Arc::new(SystemClock),
        profiles: false,
    }
}

fn by_secret() -> JwtCheck {
    check_with(KeySource::One(VerificationKey::from_secret(SECRET)))
}

fn sign(algorithm: Algorithm, id: Option<&str>, key: &EncodingKey, claims: Value) -> String {
    let header = Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, &claims, key).unwrap()
}

fn hs256(claims: Value) -> String {
    sign(Algorithm::HS256, None, &EncodingKey::from_secret(SECRET.as_bytes()), claims)
}

/// The code and the message of a refusal, which never shows the token.
async fn refusal(check: &JwtCheck, token: &str) -> (ErrorCode, String) {
    let error = check.check(token).await.expect_err("the token passed");
    assert!(token.len() < 8 || !error.message.contains(token), "{}", error.message);
    (error.code, error.message)
}

#[tokio::test]
async fn a_profile_comes_from_the_claims_if_asked_for() {
    let named = hs256(json!({"sub": "alice", "name": "Alice", "picture": "https://cdn.example/a.png"}));
    let check = by_secret().with_profiles(true);
    let profile = |token: String| {
        let check = &check;
        async move { check.check(&token).await.unwrap().profile }
    };
    let expected =
        Profile { name: Some("Alice".into()), avatar_url: Some("https://cdn.example/a.png".into()) };
    assert_eq!(profile(named.clone()).await, Some(expected));
    assert_eq!(by_secret().check(&named).await.unwrap().profile, None, "nobody asked");
    for claims in [
        json!({"sub": "alice"}),
        json!({"sub": "alice", "name": null}),
        json!({"sub": "alice", "name": {"given": "Alice"}, "picture": 7}),
    ] {
        assert_eq!(
            profile(hs256(claims.clone())).await,
            None,
            "{claims} says nothing, and is no reason to refuse"
        );
    }
}

#[tokio::test]
async fn a_minted_token_names_its_user_and_its_end() {
    let alice = UserId::new("alice").unwrap();
    let token = mint_for(SECRET, &alice, Duration::from_secs(60), None, None).unwrap();
    let identity = by_secret().check(&token).await.unwrap();
    assert_eq!(identity.user, alice);
    let left = identity.expires_at.unwrap() / 1000 - now();
    assert!((58..=60).contains(&left), "{left}");
    let endless = by_secret().check(&hs256(json!({"sub": "alice"}))).await.unwrap();
    assert_eq!(endless.expires_at, None);
    let fraction =
        by_secret().check(&hs256(json!({"sub": "alice", "exp": now() as f64 + 9.5}))).await.unwrap();
    assert!(fraction.expires_at.is_some());
}

#[tokio::test]
async fn bad_tokens_are_refused_with_the_reason() {
    let check = by_secret();
    let other = EncodingKey::from_secret(b"another secret that is long enough too");
    let claims = json!({"sub": "alice", "exp": now() + 60});
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJhbGljZSJ9.";
    let good = hs256(claims.clone());
    let tampered = {
        let mut parts: Vec<&str> = good.split('.').collect();
        parts[1] = "eyJzdWIiOiJib2IifQ";
        parts.join(".")
    };
    for (token, part) in [
        (String::new(), "not a JWT"),
        ("a.b.c".into(), "not a JWT"),
        ("é".repeat(20), "not a JWT"),
        (none.into(), "not a JWT"),
        (tampered, "signature"),
        (sign(Algorithm::HS256, None, &other, claims.clone()), "signature"),
        (sign(Algorithm::HS512, None, &EncodingKey::from_secret(SECRET.as_bytes()), claims), "HS512"),
        (hs256(json!({"exp": now() + 60})), "no \"sub\""),
        (hs256(json!({"sub": "", "exp": now() + 60})), "no user id"),
        (hs256(json!({"sub": "alice smith", "exp": now() + 60})), "no user id"),
        (hs256(json!({"sub": "a".repeat(129), "exp": now() + 60})), "no user id"),
        (hs256(json!({"sub": "..", "exp": now() + 60})), "must not be"),
        (hs256(json!({"sub": 7, "exp": now() + 60})), "cannot be read"),
        (hs256(json!({"sub": "alice", "exp": "soon"})), "cannot be read"),
        (hs256(json!({"sub": "alice", "nbf": now() + 3600})), "not valid yet"),
        (hs256(json!({"sub": "alice", "fill": "x".repeat(9000)})), "longer than 8192"),
    ] {
        let (code, message) = refusal(&check, &token).await;
        assert_eq!(code, ErrorCode::Unauthorized, "{message}");
        assert!(message.contains(part), "{message} should say {part}");
    }
    let critical = Header { crit: Some(vec!["b64".into()]), ..Header::new(Algorithm::HS256) };
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let critical = jsonwebtoken::encode(&critical, &json!({"sub": "alice"}), &key).unwrap();
    assert!(refusal(&check, &critical).await.1.contains("extensions"));
}

#[tokio::test]
async fn an_expired_token_is_told_as_such() {
    for exp in [json!(now() - 1), json!(0), json!(-5), json!(now() as f64 - 1.5)] {
        let (code, _) = refusal(&by_secret(), &hs256(json!({"sub": "alice", "exp": exp}))).await;
        assert_eq!(code, ErrorCode::TokenExpired);
    }
    let lenient = JwtCheck { leeway_secs: 60, ..by_secret() };
    let identity = lenient.check(&hs256(json!({"sub": "alice", "exp": now() - 30}))).await.unwrap();
    assert!(identity.expires_at.unwrap() > now() * 1000, "a session that may begin may also go on");
}

#[tokio::test]
async fn audience_and_issuer_are_demanded_if_configured() {
    let check = JwtCheck { audience: Some("chat".into()), issuer: Some("https://id".into()), ..by_secret() };
    let claims = |aud: Value, iss: Value| hs256(json!({"sub": "alice", "aud": aud, "iss": iss}));
    assert!(check.check(&claims(json!("chat"), json!("https://id"))).await.is_ok());
    assert!(check.check(&claims(json!(["mail", "chat"]), json!("https://id"))).await.is_ok());
    for (token, part) in [
        (claims(json!("mail"), json!("https://id")), "audience"),
        (claims(json!("chat"), json!("https://else")), "issuer"),
        (hs256(json!({"sub": "alice", "iss": "https://id"})), "aud"),
        (hs256(json!({"sub": "alice", "aud": "chat"})), "iss"),
    ] {
        let (code, message) = refusal(&check, &token).await;
        assert_eq!(code, ErrorCode::Unauthorized);
        assert!(message.contains(part), "{message} should say {part}");
    }
    let alice = UserId::new("alice").unwrap();
    let minted = mint_for(SECRET, &alice, Duration::from_secs(9), Some("chat"), Some("https://id")).unwrap();
    assert!(check.check(&minted).await.is_ok());
    assert!(by_secret().check(&minted).await.is_ok(), "an audience nobody asked for is no obstacle");
}

struct TestKeyPair {
    public_pem: String,
    encoding: EncodingKey,
    raw: Vec<u8>,
}

fn ed25519() -> TestKeyPair {
    let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let encoding = EncodingKey::from_ed_pem(made.serialize_pem().as_bytes()).unwrap();
    TestKeyPair { public_pem: made.public_key_pem(), encoding, raw: made.public_key_raw().to_vec() }
}

fn p256() -> TestKeyPair {
    let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let encoding = EncodingKey::from_ec_pem(made.serialize_pem().as_bytes()).unwrap();
    TestKeyPair { public_pem: made.public_key_pem(), encoding, raw: made.public_key_raw().to_vec() }
}

fn rsa() -> TestKeyPair {
    use rsa::pkcs8::{EncodePrivateKey as _, EncodePublicKey as _, LineEnding};
    let made = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
    let private = made.to_pkcs8_pem(LineEnding::LF).unwrap();
    let encoding = EncodingKey::from_rsa_pem(private.as_bytes()).unwrap();
    TestKeyPair {
        public_pem: made.to_public_key().to_public_key_pem(LineEnding::LF).unwrap(),
        encoding,
        raw: vec![],
    }
}

#[tokio::test]
async fn a_public_key_checks_its_own_algorithm_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("issuer.pem");
    let claims = json!({"sub": "alice", "exp": now() + 60});
    let pairs = [(Algorithm::EdDSA, ed25519()), (Algorithm::ES256, p256()), (Algorithm::RS256, rsa())];
    for (algorithm, pair) in &pairs {
        fs::write(&path, &pair.public_pem).unwrap();
        let key = public_key(&path).unwrap();
        assert_eq!(key.algorithm, *algorithm);
        let check = check_with(KeySource::One(key));
        let token = sign(*algorithm, Some("any"), &pair.encoding, claims.clone());
        assert_eq!(check.check(&token).await.unwrap().user.as_str(), "alice");
        // Key confusion: the public key is no secret, so it must not pass as an HMAC key.
        for bytes in [pair.public_pem.as_bytes(), pair.public_pem.trim().as_bytes(), pair.raw.as_slice()] {
            let forged = sign(Algorithm::HS256, None, &EncodingKey::from_secret(bytes), claims.clone());
            let (code, message) = refusal(&check, &forged).await;
            assert_eq!(code, ErrorCode::Unauthorized);
            assert!(message.contains("HS256"), "{message}");
        }
        for (_, other) in pairs.iter().filter(|(a, _)| a != algorithm) {
            let (other_algorithm, _) = pairs.iter().find(|(_, p)| std::ptr::eq(p, other)).unwrap();
            let token = sign(*other_algorithm, None, &other.encoding, claims.clone());
            assert_eq!(refusal(&check, &token).await.0, ErrorCode::Unauthorized);
        }
    }
    fs::write(&path, "no key").unwrap();
    assert!(matches!(public_key(&path), Err(AuthError::NotAKey { .. })));
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    fs::write(&path, p384.public_key_pem()).unwrap();
    assert!(matches!(public_key(&path), Err(AuthError::NotAKey { .. })), "a key that can check nothing");
    assert!(matches!(public_key(&dir.path().join("absent")), Err(AuthError::Unreadable { .. })));
}

/// An issuer on a real socket, whose key set the test changes.
struct Issuer {
    url: String,
    answer: Arc<Mutex<(u16, String)>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(body: String) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let issuer = Issuer { url, answer: Arc::new(Mutex::new((200, body))), asked: Arc::default() };
        let (answer, asked) = (issuer.answer.clone(), issuer.asked.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                let (status, body) = answer.lock().clone();
                let mut request = [0u8; 4096];
                let _ = stream.read(&mut request).await;
                let head = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        issuer
    }

    fn answers(&self, status: u16, body: impl Into<String>) {
        *self.answer.lock() = (status, body.into());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

pub(super) fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let sextets = |chunk: &[u8]| {
        let n = chunk.iter().enumerate().fold(0u32, |n, (i, b)| n | u32::from(*b) << (16 - 8 * i));
        (0..=chunk.len())
            .map(move |i| char::from(ALPHABET[(n >> (18 - 6 * i)) as usize & 63]))
            .collect::<String>()
    };
    bytes.chunks(3).map(sextets).collect()
}

fn set(keys: &[(&str, &TestKeyPair)]) -> String {
    let keys: Vec<Value> = keys
        .iter()
        .map(|(id, pair)| match pair.raw.len() {
            32 => json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": base64url(&pair.raw)}),
            _ => json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256",
                "x": base64url(&pair.raw[1..33]), "y": base64url(&pair.raw[33..])}),
        })
        .collect();
    json!({ "keys": keys }).to_string()
}

async fn by_set(issuer: &Issuer, pause: Duration) -> JwtCheck {
    let set = Jwks::start_pausing(&issuer.url, Duration::from_secs(3600), pause).await.unwrap();
    check_with(KeySource::Set(set))
}

#[tokio::test]
async fn a_key_set_follows_the_issuers_rotation() {
    let (first, second) = (ed25519(), p256());
    let claims = json!({"sub": "alice", "exp": now() + 60});
    let by_first = sign(Algorithm::EdDSA, Some("one"), &first.encoding, claims.clone());
    let by_second = sign(Algorithm::ES256, Some("two"), &second.encoding, claims.clone());
    let unnamed = sign(Algorithm::EdDSA, None, &first.encoding, claims.clone());
    let issuer = Issuer::start(set(&[("one", &first)])).await;
    let pause = Duration::from_millis(300);
    let check = by_set(&issuer, pause).await;
    assert!(check.check(&by_first).await.is_ok());
    assert!(check.check(&unnamed).await.is_ok(), "without a key id, any key that fits may have signed");
    assert_eq!(issuer.asked(), 1);

    // Within the pause nobody asks again, however many unknown keys are named.
    for n in 0..20 {
        let unknown = sign(Algorithm::EdDSA, Some(&format!("k{n}")), &first.encoding, claims.clone());
        assert_eq!(refusal(&check, &unknown).await.0, ErrorCode::Unauthorized);
    }
    assert_eq!(refusal(&check, &by_second).await.0, ErrorCode::Unauthorized);
    assert_eq!(issuer.asked(), 1);

    // After it, one question brings the new key, for all who wait for it, and takes the old one
    // away.
    issuer.answers(200, set(&[("two", &second)]));
    tokio::time::sleep(pause).await;
    let check = Arc::new(check);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (check, token) = (check.clone(), by_second.clone());
            tokio::spawn(async move { check.check(&token).await })
        })
        .collect();
    for one in waiting {
        assert!(one.await.unwrap().is_ok());
    }
    assert_eq!(issuer.asked(), 2);
    assert_eq!(refusal(&check, &by_first).await.0, ErrorCode::Unauthorized);
}

#[tokio::test]
async fn a_set_that_cannot_be_had_leaves_the_old_keys() {
    let pair = ed25519();
    let claims = json!({"sub": "alice", "exp": now() + 60});
    let token = sign(Algorithm::EdDSA, Some("one"), &pair.encoding, claims.clone());
    let unknown = sign(Algorithm::EdDSA, Some("x"), &pair.encoding, claims.clone());
    let issuer = Issuer::start(set(&[("one", &pair)])).await;
    let check = by_set(&issuer, Duration::ZERO).await;
    let long = "x".repeat(300 * 1024);
    for (status, body) in
        [(500, ""), (404, "{}"), (200, "not json"), (200, r#"{"keys":[]}"#), (200, long.as_str())]
    {
        issuer.answers(status, body);
        let before = issuer.asked();
        assert_eq!(refusal(&check, &unknown).await.0, ErrorCode::Unauthorized);
        assert_eq!(issuer.asked(), before + 1);
        assert!(check.check(&token).await.is_ok(), "{status}");
    }
}

#[tokio::test]
async fn an_issuer_may_come_up_later_and_lists_only_public_keys_for_signatures() {
    let pair = ed25519();
    let claims = json!({"sub": "alice", "exp": now() + 60});
    let issuer = Issuer::start(String::new()).await;
    issuer.answers(503, "");
    let check = by_set(&issuer, Duration::ZERO).await;
    let token = sign(Algorithm::EdDSA, Some("one"), &pair.encoding, claims.clone());
    assert_eq!(refusal(&check, &token).await.0, ErrorCode::Unavailable);

    let x = base64url(&pair.raw);
    let odd = json!({"keys": [
        {"kty": "oct", "kid": "hmac", "k": base64url(SECRET.as_bytes())},
        {"kty": "OKP", "crv": "Ed25519", "kid": "enc", "use": "enc", "x": x},
        {"kty": "OKP", "crv": "Ed25519", "kid": "wrong", "alg": "RS256", "x": x},
        {"kty": "something", "kid": "new"}, 7, {},
        {"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x},
    ]});
    issuer.answers(200, odd.to_string());
    assert!(check.check(&token).await.is_ok());
    let hmac =
        sign(Algorithm::HS256, Some("hmac"), &EncodingKey::from_secret(SECRET.as_bytes()), claims.clone());
    assert_eq!(refusal(&check, &hmac).await.0, ErrorCode::Unauthorized);
    for id in ["enc", "wrong"] {
        let token = sign(Algorithm::EdDSA, Some(id), &pair.encoding, claims.clone());
        assert_eq!(refusal(&check, &token).await.0, ErrorCode::Unauthorized, "{id}");
    }
}

#[tokio::test]
async fn an_expired_token_is_told_as_such_however_many_keys_are_tried() {
    // Without a key id every key of the algorithm is tried, and the one that fits is neither first
    // nor last.
    let pairs = [ed25519(), ed25519(), ed25519()];
    let issuer = Issuer::start(set(&[("a", &pairs[0]), ("b", &pairs[1]), ("c", &pairs[2])])).await;
    let check = by_set(&issuer, Duration::ZERO).await;
    for pair in &pairs {
        let expired = json!({"sub": "alice", "exp": now() - 60});
        let expired = sign(Algorithm::EdDSA, None, &pair.encoding, expired);
        assert_eq!(refusal(&check, &expired).await.0, ErrorCode::TokenExpired);
    }
    let foreign =
        sign(Algorithm::EdDSA, None, &ed25519().encoding, json!({"sub": "alice", "exp": now() - 60}));
    assert_eq!(
        refusal(&check, &foreign).await.0,
        ErrorCode::Unauthorized,
        "nobody's signature, nobody's end"
    );
}

#[tokio::test]
async fn an_end_and_an_age_may_be_wanted() {
    let check = JwtCheck { require_exp: true, ..by_secret() };
    let (code, message) = refusal(&check, &hs256(json!({"sub": "alice", "iat": now()}))).await;
    assert!(code == ErrorCode::Unauthorized && message.contains("auth.require_exp"), "{message}");
    assert!(check.check(&hs256(json!({"sub": "alice", "exp": now() + 60}))).await.is_ok());

    let check = JwtCheck { max_age_secs: Some(100), leeway_secs: 5, ..by_secret() };
    let (code, message) = refusal(&check, &hs256(json!({"sub": "alice", "iat": null}))).await;
    assert!(code == ErrorCode::Unauthorized && message.contains("auth.max_age_secs"), "{message}");
    assert_eq!(
        refusal(&check, &hs256(json!({"sub": "alice", "iat": now() - 106}))).await.0,
        ErrorCode::TokenExpired
    );
    let end = async |claims: Value| check.check(&hs256(claims)).await.unwrap().expires_at.unwrap() / 1000;
    let iat = now() - 50;
    assert_eq!(end(json!({"sub": "alice", "iat": iat})).await, iat + 105, "the session ends with the token");
    assert_eq!(end(json!({"sub": "alice", "iat": iat, "exp": iat + 1000})).await, iat + 105);
    assert_eq!(end(json!({"sub": "alice", "iat": iat, "exp": iat + 70})).await, iat + 75);
}

#[tokio::test]
async fn a_token_says_when_it_was_issued() {
    let check = by_secret();
    let issued_at = async |claims: Value| check.check(&hs256(claims)).await.unwrap().issued_at;
    assert_eq!(issued_at(json!({"sub": "alice"})).await, None);
    assert_eq!(issued_at(json!({"sub": "alice", "iat": 1_700_000_000.9})).await, Some(1_700_000_000));
    let minted =
        mint_for(SECRET, &UserId::new("alice").unwrap(), Duration::from_secs(9), None, None).unwrap();
    assert!(check.check(&minted).await.unwrap().issued_at.is_some());
}

#[tokio::test]
async fn a_token_of_the_future_is_refused() {
    let check = JwtCheck { leeway_secs: 5, ..by_secret() };
    let ahead = now() + 50;
    let passed = check.check(&hs256(json!({"sub": "alice", "iat": ahead}))).await.unwrap();
    assert_eq!(passed.issued_at, Some(ahead), "clocks differ");
    // It would outlive every revocation until then; the second is in milliseconds.
    for iat in [json!(now() + 75), json!(now() * 1000), json!(u64::MAX), json!(1e300)] {
        let (code, message) = refusal(&check, &hs256(json!({"sub": "alice", "iat": iat}))).await;
        assert!(code == ErrorCode::Unauthorized && message.contains("\"iat\""), "{iat}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_revocation_is_kept_only_where_that_is_asked_for() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = bluetick_store::Store::memory(clock.clone());
    let gateways = Arc::new(bluetick_chat::Gateway::new("test"));
    let config = Config::load(None, Default::default()).unwrap().chat();
    let budget = Arc::new(bluetick_chat::Unlimited);
    let app: Arc<dyn bluetick_chat::App> =
        Arc::new(bluetick_chat::ChatService::new(store.clone(), gateways, clock, config, budget));
    let kept_for = Duration::from_secs(5);
    let of_requests = RevocableTokens::new(Arc::new(by_secret()), app.clone(), kept_for);
    let of_sessions = RevocableTokens::new(Arc::new(by_secret()), app.clone(), Duration::ZERO);
    let token = hs256(json!({"sub": "alice", "iat": now()}));
    let identity = of_requests.check(&token).await.unwrap();
    assert!(of_sessions.check(&token).await.is_ok());
    assert!(refuse_if_revoked(&*app, &identity).await.is_ok());

    store.users.raise_not_before(&identity.user, now() + 10).await.unwrap();
    let revoked = |answer: Result<Identity, WireError>| answer.err().map(|error| error.code);
    assert_eq!(revoked(of_sessions.check(&token).await), Some(ErrorCode::TokenRevoked));
    assert!(of_requests.check(&token).await.is_ok(), "kept from before");
    let again = refuse_if_revoked(&*app, &identity).await.map(|()| identity);
    assert_eq!(revoked(again), Some(ErrorCode::TokenRevoked));
    tokio::time::advance(kept_for).await;
    assert_eq!(revoked(of_requests.check(&token).await), Some(ErrorCode::TokenRevoked));
}
