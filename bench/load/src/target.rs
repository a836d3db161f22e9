//! The server under load: its address, the secret for its users' tokens, and its admin key.
//!
//! All of it can be read in the server's data directory. A server with a configuration of its own
//! also needs the configuration file, or the environment that the server has.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bluetick_protocol::UserId;
use clap::Args;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde::{Deserialize, Serialize};

use crate::Failure;

const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const INFO_DEADLINE: Duration = Duration::from_secs(5);
const DEFAULT_DATA_DIR: &str = "./bluetick-data";

#[derive(Debug, Default, Clone, Args)]
pub struct Target {
    /// The server's address, if it is not the one that its data directory names
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The server's data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server's configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's admin key, if it is not in its data directory or configuration
    #[arg(long, value_name = "KEY", env = "BLUETICK_ADMIN__KEY", hide_env_values = true)]
    admin_key: Option<String>,
    /// Trust the certificate authorities in this PEM file instead of the public ones
    #[arg(long, value_name = "FILE", env = "SSL_CERT_FILE")]
    ca_file: Option<PathBuf>,
}

/// What the benchmark needs of a server's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    server: ServerSettings,
    auth: AuthSettings,
    admin: AdminSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerSettings {
    data_dir: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuthSettings {
    hs256_secret: Option<String>,
    hs256_secret_file: Option<PathBuf>,
    audience: Option<String>,
    issuer: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AdminSettings {
    key: Option<String>,
    key_file: Option<PathBuf>,
}

/// A target with everything filled in.
pub struct ResolvedTarget {
    pub url: String,
    pub ca: Option<Vec<CertificateDer<'static>>>,
    signing: Result<Signing, String>,
    admin_key: Option<String>,
}

struct Signing {
    secret: String,
    audience: Option<String>,
    issuer: Option<String>,
}

#[derive(Serialize)]
struct TokenClaims<'a> {
    sub: &'a str,
    iat: u64,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_trimmed(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

impl Settings {
    /// The file, and over it the environment, as the server reads them.
    fn load(file: Option<&Path>) -> Result<Settings, Failure> {
        let mut settings = match file {
            None => Settings::default(),
            Some(file) => {
                let failed = |why: String| Failure::Usage(format!("cannot read {}: {why}", file.display()));
                let text = std::fs::read_to_string(file).map_err(|e| failed(e.to_string()))?;
                toml::from_str(&text).map_err(|e| failed(e.to_string()))?
            }
        };
        let path = |name| variable(name).map(PathBuf::from);
        let Settings { server, auth, admin } = &mut settings;
        server.data_dir = path("BLUETICK_SERVER__DATA_DIR").or(server.data_dir.take());
        auth.hs256_secret = variable("BLUETICK_AUTH__HS256_SECRET").or(auth.hs256_secret.take());
        auth.hs256_secret_file = path("BLUETICK_AUTH__HS256_SECRET_FILE").or(auth.hs256_secret_file.take());
        auth.audience = variable("BLUETICK_AUTH__AUDIENCE").or(auth.audience.take());
        auth.issuer = variable("BLUETICK_AUTH__ISSUER").or(auth.issuer.take());
        admin.key_file = path("BLUETICK_ADMIN__KEY_FILE").or(admin.key_file.take());
        Ok(settings)
    }
}

impl Target {
    pub fn resolve(&self) -> Result<ResolvedTarget, Failure> {
        let Settings { server, auth, admin } = Settings::load(self.config.as_deref())?;
        let data = self.data.clone().or(server.data_dir).unwrap_or_else(|| DEFAULT_DATA_DIR.into());
        let url = match &self.server {
            Some(given) => normal_url(given).map_err(Failure::Usage)?,
            None => read_trimmed(&data.join("server.url"))
                .and_then(|url| normal_url(&url).ok())
                .map(|url| url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:"))
                .ok_or_else(|| {
                    Failure::Failed(format!(
                        "no server runs on {}; start one with `bluetick serve --data {0}`, or give --server",
                        data.display()
                    ))
                })?,
        };
        let secret_file = auth.hs256_secret_file.unwrap_or_else(|| data.join("jwt.secret"));
        let secret = auth.hs256_secret.or_else(|| read_trimmed(&secret_file));
        let signing = match secret {
            Some(secret) => Ok(Signing { secret, audience: auth.audience, issuer: auth.issuer }),
            None => Err(format!(
                "no token: there is no secret in {}; give --data with the server's data directory, or --config",
                secret_file.display()
            )),
        };
        let key_file = admin.key_file.unwrap_or_else(|| data.join("admin.key"));
        let admin_key = self.admin_key.clone().or(admin.key).or_else(|| read_trimmed(&key_file));
        let ca = match url.starts_with("https:") {
            true => self.certificates()?,
            false => None,
        };
        Ok(ResolvedTarget { url, ca, signing, admin_key })
    }

    fn certificates(&self) -> Result<Option<Vec<CertificateDer<'static>>>, Failure> {
        let Some(path) = self.ca_file.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let failed = |why: String| {
            Failure::Usage(format!("no certificates can be read in {} (--ca-file): {why}", path.display()))
        };
        let found: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|e| failed(e.to_string()))?;
        match found.is_empty() {
            true => Err(failed("it holds none in PEM".into())),
            false => Ok(Some(found)),
        }
    }
}

impl ResolvedTarget {
    pub fn websocket_url(&self) -> String {
        // The address begins with http:// or https://, and becomes ws:// or wss://.
        format!("ws{}/v1/ws", self.url.strip_prefix("http").unwrap_or(&self.url))
    }

    /// For WebSockets and uploads; `None` means the public authorities.
    pub fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(certificates) = &self.ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        match taken {
            0 => Err(Failure::Usage("--ca-file holds no certificate of an authority".into())),
            _ => Ok(Some(Arc::new(
                ClientConfig::builder().with_root_certificates(roots).with_no_client_auth(),
            ))),
        }
    }

    pub fn token(&self, user: &UserId) -> Result<String, String> {
        let Signing { secret, audience, issuer } = self.signing.as_ref().map_err(String::clone)?;
        let now = now_ms() / 1000;
        let claims = TokenClaims {
            sub: user.as_str(),
            iat: now,
            exp: now + TOKEN_LIFETIME.as_secs(),
            aud: audience.as_deref(),
            iss: issuer.as_deref(),
        };
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).map_err(|e| e.to_string())
    }

    /// The process behind the server, as its admin API says, where that can be asked.
    pub async fn server_pid(&self) -> Option<u32> {
        let key = self.admin_key.as_ref()?;
        let mut http = reqwest::Client::builder().timeout(INFO_DEADLINE);
        if let Some(certificates) = &self.ca {
            let parsed = certificates.iter().filter_map(|der| reqwest::Certificate::from_der(der).ok());
            http = http.tls_certs_only(parsed);
        }
        let request = http.build().ok()?.get(format!("{}/admin/v1/info", self.url)).bearer_auth(key);
        let info: serde_json::Value = request.send().await.ok()?.json().await.ok()?;
        info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }
}

/// An address as people write it: with http, ws or no scheme, with or without a slash at the end.
fn normal_url(given: &str) -> Result<String, String> {
    let bare = given.trim_end_matches('/').trim_end_matches("/v1/ws");
    let url = match bare.split_once("://") {
        Some(("http" | "ws", rest)) => format!("http://{rest}"),
        Some(("https" | "wss", rest)) => format!("https://{rest}"),
        None => format!("http://{bare}"),
        Some((other, _)) => return Err(format!("{other}:// is not supported; give http:// or https://")),
    };
    match reqwest::Url::parse(&url) {
        Ok(parsed) if parsed.has_host() => Ok(url),
        _ => Err(format!("{given:?} is not an address such as http://127.0.0.1:8080")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_written_in_many_ways() {
        for given in ["127.0.0.1:8080", "http://127.0.0.1:8080/", "ws://127.0.0.1:8080/v1/ws"] {
            assert_eq!(normal_url(given).unwrap(), "http://127.0.0.1:8080", "{given}");
        }
        assert_eq!(normal_url("wss://chat.example").unwrap(), "https://chat.example");
        assert!(normal_url("ftp://chat.example").is_err());
        assert!(normal_url("").is_err());
    }
}
