//! Verifies tokens: JWTs whose `sub` is the user id. The configured key decides the algorithm,
//! never the token.

mod jwks;
mod revocation;
mod secret;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::session::{Identity, TokenCheck};
use bluetick_protocol::{ErrorCode, Profile, UserId, WireError};
use bluetick_store::Clock;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, errors::ErrorKind};
use serde::{Deserialize, Serialize};

use crate::config::{AuthSettings, Config, HS256_MIN_BYTES};
use jwks::Jwks;
pub use revocation::{RevocableTokens, refuse_if_revoked};
pub use secret::{hex, keys_match, load_or_create_secret, read_secret};

/// A longer token is refused without parsing it.
pub const TOKEN_MAX_BYTES: usize = 8 * 1024;
/// How far ahead of ours an issuer's clock may be.
const CLOCK_SKEW_SECS: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("cannot make a secret in {path}: {source}")]
    NotWritable { path: String, source: std::io::Error },
    #[error("{path} holds {length} bytes, and a secret must have at least {HS256_MIN_BYTES}; {remedy}")]
    TooShort { path: String, length: usize, remedy: &'static str },
    #[error(
        "{path} holds no public key that is understood: give RSA, EC P-256 or Ed25519 as PEM (BEGIN PUBLIC KEY)"
    )]
    NotAKey { path: String },
    #[error("tokens are signed elsewhere: auth names a public key, with which nothing can be signed")]
    NoSecret,
    #[error("the token could not be signed")]
    NotSigned,
    #[error("the key set cannot be fetched: {0}")]
    KeySet(String),
}

/// A key and its one algorithm. The header of a token cannot choose another: otherwise a public key
/// could be used as an HMAC secret.
#[derive(Clone)]
struct VerificationKey {
    id: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

enum KeySource {
    One(VerificationKey),
    Set(Arc<Jwks>),
}

/// Checks tokens against the configured key.
pub struct JwtCheck {
    keys: KeySource,
    audience: Option<String>,
    issuer: Option<String>,
    leeway_secs: u64,
    require_exp: bool,
    /// The maximum age of a token, from its `iat`.
    max_age_secs: Option<u64>,
    clock: Arc<dyn Clock>,
    /// Whether names and avatars come from tokens.
    profiles: bool,
}

impl JwtCheck {
    /// With HS256, `secret` is the shared one; see [`signing_secret`].
    pub async fn from_config(
        auth: &AuthSettings,
        secret: Option<&str>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthError> {
        let keys = if let Some(url) = &auth.jwks_url {
            KeySource::Set(Jwks::start(url, Duration::from_secs(auth.jwks_refresh_secs)).await?)
        } else if let Some(path) = &auth.public_key_file {
            KeySource::One(public_key(path)?)
        } else {
            KeySource::One(VerificationKey::from_secret(secret.ok_or(AuthError::NoSecret)?))
        };
        Ok(JwtCheck {
            keys,
            audience: auth.audience.clone(),
            issuer: auth.issuer.clone(),
            leeway_secs: auth.leeway_secs,
            require_exp: auth.require_exp,
            max_age_secs: Some(auth.max_age_secs).filter(|secs| *secs > 0),
            clock,
            profiles: false,
        })
    }

    /// Whether to take names and avatars from the claims `name` and `picture`.
    pub fn with_profiles(mut self, profiles: bool) -> Self {
        self.profiles = profiles;
        self
    }

    fn verify(&self, token: &str, key: &VerificationKey) -> Result<Identity, WireError> {
        let mut rules = Validation::new(key.algorithm);
        // Times are checked below, with our own clock.
        rules.validate_exp = false;
        rules.required_spec_claims.clear();
        match &self.audience {
            Some(audience) => {
                rules.set_audience(&[audience]);
                rules.required_spec_claims.insert("aud".into());
            }
            None => rules.validate_aud = false,
        }
        if let Some(issuer) = &self.issuer {
            rules.set_issuer(&[issuer]);
            rules.required_spec_claims.insert("iss".into());
        }
        let claims = match jsonwebtoken::decode::<JwtClaims>(token, &key.decoding, &rules) {
            Ok(data) => data.claims,
            Err(error) => return Err(refused(why(error.kind()))),
        };
        let issued_at = self.issued_at(&claims)?;
        let end = self.check_times(&claims, issued_at)?;
        let Some(subject) = claims.sub else {
            return Err(refused("the token has no \"sub\""));
        };
        // URL parsers remove such a path segment, so this user could not be blocked or revoked.
        if matches!(subject.as_str(), "." | "..") {
            return Err(refused("the token's \"sub\" must not be \".\" or \"..\""));
        }
        let user =
            UserId::new(&subject).map_err(|e| refused(format!("the token's \"sub\" is no user id: {e}")))?;
        let text = |claim: Option<serde_json::Value>| match claim {
            Some(serde_json::Value::String(text)) => Some(text),
            _ => None,
        };
        let profile = Profile { name: text(claims.name), avatar_url: text(claims.picture) };
        // A token without these claims leaves the profile unchanged.
        let profile = Some(profile).filter(|profile| self.profiles && *profile != Profile::default());
        Ok(Identity { user, expires_at: end.map(|secs| secs.saturating_mul(1000)), profile, issued_at })
    }

    /// The time of issue. A future time is refused: such a token would outlive revocations.
    fn issued_at(&self, claims: &JwtClaims) -> Result<Option<u64>, WireError> {
        let latest = (self.clock.now_ms() / 1000).saturating_add(CLOCK_SKEW_SECS + self.leeway_secs);
        let issued_at = claims.iat.map(|iat| iat.0);
        match issued_at.is_some_and(|secs| secs > latest) {
            true => Err(refused(
                "the token's \"iat\" is in the future; give it in seconds, by a clock that is right",
            )),
            false => Ok(issued_at),
        }
    }

    /// Checks that the token is valid now. Returns its expiry in seconds, if it has one.
    fn check_times(&self, claims: &JwtClaims, issued_at: Option<u64>) -> Result<Option<u64>, WireError> {
        let now = self.clock.now_ms() / 1000;
        if self.require_exp && claims.exp.is_none() {
            return Err(refused("the token has no \"exp\", and this server wants one (auth.require_exp)"));
        }
        let too_old = match (self.max_age_secs, issued_at) {
            (None, _) => None,
            (Some(most), Some(issued_at)) => Some(issued_at.saturating_add(most)),
            (Some(_), None) => {
                return Err(refused(
                    "the token has no \"iat\", and this server wants one (auth.max_age_secs)",
                ));
            }
        };
        let end = claims.exp.map(|exp| exp.0).into_iter().chain(too_old).min();
        let end = end.map(|secs| secs.saturating_add(self.leeway_secs));
        if end.is_some_and(|end| end <= now) {
            return Err(WireError::new(
                ErrorCode::TokenExpired,
                "the token has expired; reconnect with a new one",
            ));
        }
        if claims.nbf.is_some_and(|nbf| nbf.0 > now.saturating_add(CLOCK_SKEW_SECS + self.leeway_secs)) {
            return Err(refused("the token is not valid yet"));
        }
        Ok(end)
    }
}

#[async_trait]
impl TokenCheck for JwtCheck {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        if token.len() > TOKEN_MAX_BYTES {
            return Err(refused(format!("the token is longer than {TOKEN_MAX_BYTES} bytes")));
        }
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| refused("the token is not a JWT signed with an algorithm this server knows"))?;
        // Critical extensions must be understood, and none is supported (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(refused("the token demands extensions that this server does not know"));
        }
        let candidates = match &self.keys {
            KeySource::One(key) if key.algorithm != header.alg => {
                return Err(refused(format!(
                    "the token is signed with {:?}, and this server takes {:?}",
                    header.alg, key.algorithm
                )));
            }
            KeySource::One(key) => return self.verify(token, key),
            KeySource::Set(set) => set.candidates(header.kid.as_deref(), header.alg).await?,
        };
        let mut last = refused("the token is signed by a key that the issuer does not list");
        for key in &candidates {
            match self.verify(token, key) {
                Ok(identity) => return Ok(identity),
                // Only the key that made the signature gets this far.
                Err(error) if error.code == ErrorCode::TokenExpired => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl VerificationKey {
    fn from_secret(secret: &str) -> VerificationKey {
        VerificationKey {
            id: None,
            algorithm: Algorithm::HS256,
            decoding: DecodingKey::from_secret(secret.as_bytes()),
        }
    }
}

fn refused(why: impl Into<String>) -> WireError {
    WireError::new(ErrorCode::Unauthorized, why)
}

fn why(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::InvalidSignature => "the token's signature does not fit the server's key".into(),
        ErrorKind::InvalidAlgorithm => {
            "the token is signed with an algorithm that this key is not for".into()
        }
        ErrorKind::InvalidAudience => "the token is meant for another audience".into(),
        ErrorKind::InvalidIssuer => "the token comes from another issuer".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("the token has no {claim:?}"),
        _ => "the token cannot be read".into(),
    }
}

/// Reads a public key. Its type decides the algorithm.
fn public_key(path: &Path) -> Result<VerificationKey, AuthError> {
    let shown = path.display().to_string();
    let pem = std::fs::read(path).map_err(|source| AuthError::Unreadable { path: shown.clone(), source })?;
    let found = [
        (Algorithm::RS256, DecodingKey::from_rsa_pem(&pem)),
        (Algorithm::ES256, DecodingKey::from_ec_pem(&pem)),
        (Algorithm::EdDSA, DecodingKey::from_ed_pem(&pem)),
    ];
    let fits = found.into_iter().find_map(|(algorithm, key)| Some((algorithm, key.ok()?)));
    let Some((algorithm, decoding)) = fits else {
        return Err(AuthError::NotAKey { path: shown });
    };
    let key = VerificationKey { id: None, algorithm, decoding };
    // A key of an unsupported curve parses, but verifies no token. Report it at start.
    match probe(&key) {
        true => Ok(key),
        false => Err(AuthError::NotAKey { path: shown }),
    }
}

/// Whether the key can verify signatures at all. The signature of the probe is wrong on purpose.
fn probe(key: &VerificationKey) -> bool {
    jsonwebtoken::crypto::verify("", b"probe", &key.decoding, key.algorithm).is_ok()
}

#[derive(Debug, Serialize, Deserialize)]
struct JwtClaims {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exp: Option<NumericDate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<NumericDate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iat: Option<NumericDate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iss: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    picture: Option<serde_json::Value>,
}

/// Seconds since 1970, as an integer or a fraction. Times before 1970 count as 1970.
#[derive(Debug, Clone, Copy)]
struct NumericDate(u64);

impl Serialize for NumericDate {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(d)?;
        let secs = number.as_u64().or_else(|| number.as_f64().map(|f| f as u64));
        Ok(NumericDate(secs.unwrap_or_default()))
    }
}

/// The HS256 secret: the configured one, or the one in the data directory, which is generated if
/// missing.
pub fn signing_secret(config: &Config) -> Result<String, AuthError> {
    let auth = &config.auth;
    if auth.public_key_file.is_some() || auth.jwks_url.is_some() {
        return Err(AuthError::NoSecret);
    }
    if let Some(secret) = &auth.hs256_secret {
        return Ok(secret.expose().to_owned());
    }
    match &auth.hs256_secret_file {
        Some(path) => read_secret(path),
        None => load_or_create_secret(&config.jwt_secret_path()),
    }
}

/// The admin key: the configured one, or the one in the data directory.
pub fn admin_key(config: &Config) -> Result<String, AuthError> {
    if let Some(key) = &config.admin.key {
        return Ok(key.expose().to_owned());
    }
    match &config.admin.key_file {
        Some(path) => read_secret(path),
        None => load_or_create_secret(&config.admin_key_path()),
    }
}

/// Signs a token for a user with the shared secret, with the audience and issuer that the server
/// requires.
pub fn mint_for(
    secret: &str,
    user: &UserId,
    ttl: Duration,
    audience: Option<&str>,
    issuer: Option<&str>,
) -> Result<String, AuthError> {
    let now = bluetick_store::SystemClock.now_ms() / 1000;
    let claims = JwtClaims {
        sub: Some(user.to_string()),
        exp: Some(NumericDate(now.saturating_add(ttl.as_secs()))),
        nbf: None,
        iat: Some(NumericDate(now)),
        aud: audience.map(Into::into),
        iss: issuer.map(Into::into),
        name: None,
        picture: None,
    };
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(secret.as_bytes()),
    )
    .map_err(|_| AuthError::NotSigned)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
