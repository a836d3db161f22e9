//! Fuzz targets: any text as a token, and any header and claims under a valid signature. They are
//! here because the check is private to the server.

use std::sync::LazyLock;

use bluetick_fuzz::fuzz;
use bluetick_store::ManualClock;
use futures_util::FutureExt as _;
use serde::de::IgnoredAny;

use super::{tests::base64url, *};

const SECRET: &str = "an example of a secret that is long enough";
/// When the tokens of the corpus are looked at.
const NOW_SECS: u64 = 1_700_000_000;

fn check_with(key: VerificationKey) -> JwtCheck {
    let clock = Arc::new(ManualClock::new(NOW_SECS * 1000));
    JwtCheck {
        keys: KeySource::One(key),
        audience: None,
        issuer: None,
        leeway_secs: 0,
        require_exp: false,
        max_age_secs: None,
        clock,
        profiles: true,
    }
}

fn by_secret() -> JwtCheck {
    check_with(VerificationKey::from_secret(SECRET))
}

/// What a check says; with one key there is nothing to wait for.
fn answer(check: &JwtCheck, token: &str) -> Result<Identity, WireError> {
    check.check(token).now_or_never().expect("an answer at once")
}

fn sign(message: &str) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap()
}

/// A public key and the one thing that was ever signed with its other half, which nobody has kept.
struct Public {
    check: JwtCheck,
    signed: &'static str,
}

impl Public {
    fn new(file: &str, token: &'static str) -> Public {
        let path = Path::new("src/auth/fuzz").join(file);
        let (signed, _) = token.rsplit_once('.').unwrap();
        Public { check: check_with(public_key(&path).unwrap()), signed }
    }
}

static BY_SECRET: LazyLock<JwtCheck> = LazyLock::new(by_secret);
static BY_PUBLIC_KEY: LazyLock<[Public; 3]> = LazyLock::new(|| {
    [
        Public::new("ed25519.pem", include_str!("../../../../fuzz/corpus/token/ok-eddsa")),
        Public::new("p256.pem", include_str!("../../../../fuzz/corpus/token/ok-es256")),
        Public::new("rsa.pem", include_str!("../../../../fuzz/corpus/token/ok-rs256")),
    ]
});

#[test]
fn token() {
    fuzz("token", 30_000, |bytes| {
        let token = &*String::from_utf8_lossy(bytes);
        let mut accepted = false;
        if let Ok(identity) = answer(&BY_SECRET, token) {
            accepted = true;
            let (message, signature) = token.rsplit_once('.').expect("a token has parts");
            assert_eq!(signature, sign(message), "only what was signed with the key, and signed once");
            assert_eq!(identity, answer(&BY_SECRET, token).unwrap());
        }
        for public in BY_PUBLIC_KEY.iter() {
            if answer(&public.check, token).is_ok() {
                accepted = true;
                let (message, _) = token.rsplit_once('.').expect("a token has parts");
                assert_eq!(message, public.signed, "nothing else was ever signed with this key");
            }
        }
        accepted
    });
}

#[derive(Deserialize)]
struct ToldHeader {
    alg: String,
    crit: Option<IgnoredAny>,
}

/// Times as the floating-point numbers that other people's checks make of them.
#[derive(Deserialize)]
struct ToldClaims {
    sub: String,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

/// The input is a header, the end of a line, and claims.
#[test]
fn claims() {
    fuzz("claims", 30_000, |bytes| {
        let mut halves = bytes.splitn(2, |b| *b == b'\n');
        let (header, claims) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        let message = format!("{}.{}", base64url(header), base64url(claims));
        let token = format!("{message}.{}", sign(&message));
        let Ok(identity) = answer(&BY_SECRET, &token) else {
            return false;
        };
        let header: ToldHeader = serde_json::from_slice(header).expect("the header is JSON");
        assert_eq!(header.alg, "HS256");
        assert!(header.crit.is_none());
        let claims: ToldClaims = serde_json::from_slice(claims).expect("the claims are JSON");
        assert_eq!(claims.sub, identity.user.as_str());
        let now = NOW_SECS as f64;
        if let Some(exp) = claims.exp {
            assert!(exp > now, "{exp} is over");
            let told = identity.expires_at.expect("what ends is known to end") as f64 / 1000.0;
            let most = u64::MAX as f64 / 1000.0;
            assert!((told - exp.min(most)).abs() <= 1.0 + exp.min(most) * 1e-9, "{exp} became {told}");
        } else {
            assert_eq!(identity.expires_at, None);
        }
        if let Some(nbf) = claims.nbf {
            assert!(nbf < now + CLOCK_SKEW_SECS as f64 + 1.0, "{nbf} is yet to come");
        }
        if let Some(iat) = claims.iat {
            assert!(iat < now + CLOCK_SKEW_SECS as f64 + 1.0, "{iat} is yet to come");
        }
        true
    });
}
