//! An issuer's key set, fetched at start and refreshed. If a fetch fails, the old keys stay valid:
//! an issuer that is down must not log everybody out.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use bluetick_protocol::{ErrorCode, WireError};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};

use super::{AuthError, VerificationKey, refused};

/// An unknown key id may be a rotation or an attack. Either way the set is not fetched more often
/// than this.
const REFETCH_PAUSE: Duration = Duration::from_secs(10);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const SET_MAX_BYTES: usize = 256 * 1024;
const SET_MAX_KEYS: usize = 64;

pub(super) struct Jwks {
    url: String,
    client: reqwest::Client,
    keys: ArcSwap<Vec<VerificationKey>>,
    /// The time of the last fetch. The lock is held during a fetch, so that all who wait for a
    /// rotation share it.
    last_fetch: Mutex<Option<Instant>>,
    refetch_pause: Duration,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Jwks {
    /// Fetches the set. A failure is logged and retried, because the issuer may start after us.
    pub(super) async fn start(url: &str, refresh: Duration) -> Result<Arc<Jwks>, AuthError> {
        Jwks::start_pausing(url, refresh, REFETCH_PAUSE).await
    }

    pub(super) async fn start_pausing(
        url: &str,
        refresh: Duration,
        refetch_pause: Duration,
    ) -> Result<Arc<Jwks>, AuthError> {
        crate::tls::install_provider();
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| AuthError::KeySet(e.to_string()))?;
        let set = Arc::new(Jwks {
            url: url.to_owned(),
            client,
            keys: ArcSwap::default(),
            last_fetch: Mutex::new(None),
            refetch_pause,
        });
        set.fetch_now().await;
        tokio::spawn(keep_fresh(Arc::downgrade(&set), refresh));
        Ok(set)
    }

    /// The keys that may have signed a token with this key id and algorithm.
    pub(super) async fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<VerificationKey>, WireError> {
        let found = self.select(id, algorithm);
        if !found.is_empty() {
            return Ok(found);
        }
        self.refetch_if_due().await;
        let found = self.select(id, algorithm);
        match (found.is_empty(), self.keys.load().is_empty()) {
            (false, _) => Ok(found),
            (true, true) => Err(WireError::new(
                ErrorCode::Unavailable,
                "the server has not got the issuer's keys yet; try again",
            )
            .retry_after(self.refetch_pause.as_millis() as u64)),
            (true, false) => {
                Err(refused("the token is signed by a key or algorithm that the issuer does not list"))
            }
        }
    }

    fn select(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<VerificationKey> {
        let keys = self.keys.load();
        let same = |key: &VerificationKey| match (id, key.id.as_deref()) {
            (Some(asked), Some(has)) => asked == has,
            _ => true,
        };
        let fits = |key: &&VerificationKey| key.algorithm == algorithm && same(key);
        keys.iter().filter(fits).cloned().collect()
    }

    async fn refetch_if_due(&self) {
        let mut last = self.last_fetch.lock().await;
        if last.is_none_or(|at| at.elapsed() >= self.refetch_pause) {
            *last = Some(Instant::now());
            self.fetch().await;
        }
    }

    async fn fetch_now(&self) {
        let mut last = self.last_fetch.lock().await;
        *last = Some(Instant::now());
        self.fetch().await;
    }

    async fn fetch(&self) {
        match self.download().await {
            Ok(keys) => self.keys.store(Arc::new(keys)),
            Err(error) => {
                let kept = self.keys.load().len();
                tracing::warn!(%error, kept, "key set not fetched, keeping the keys at hand");
            }
        }
    }

    async fn download(&self) -> Result<Vec<VerificationKey>, AuthError> {
        let failed = |e: reqwest::Error| AuthError::KeySet(e.without_url().to_string());
        let mut answer = self.client.get(&self.url).send().await.map_err(failed)?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(AuthError::KeySet(format!("the issuer answered {}", answer.status())));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > SET_MAX_BYTES {
                return Err(AuthError::KeySet(format!("it is longer than {SET_MAX_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let keys = parse(&body)?;
        if keys.is_empty() {
            return Err(AuthError::KeySet("it lists no RSA, P-256 or Ed25519 key for signatures".into()));
        }
        Ok(keys)
    }
}

/// Every key that can be used. One of an unknown kind is no reason to do without the others.
fn parse(body: &[u8]) -> Result<Vec<VerificationKey>, AuthError> {
    let set: KeySet = serde_json::from_slice(body)
        .map_err(|_| AuthError::KeySet("the answer is not a JSON key set".into()))?;
    let usable = set.keys.into_iter().filter_map(|value| usable(&serde_json::from_value(value).ok()?));
    Ok(usable.take(SET_MAX_KEYS).collect())
}

/// Only public keys for signatures count: a symmetric key in a public document is no secret.
fn usable(jwk: &Jwk) -> Option<VerificationKey> {
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(p) if p.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|named| named.to_string() != format!("{algorithm:?}")) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(jwk).ok()?;
    Some(VerificationKey { id: jwk.common.key_id.clone(), algorithm, decoding })
}

async fn keep_fresh(set: Weak<Jwks>, refresh: Duration) {
    loop {
        let empty = set.upgrade().is_none_or(|set| set.keys.load().is_empty());
        tokio::time::sleep(if empty { REFETCH_PAUSE.min(refresh) } else { refresh }).await;
        let Some(set) = set.upgrade() else { return };
        set.fetch_now().await;
    }
}
