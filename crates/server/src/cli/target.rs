//! The server and the data directory that a command works on.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;

use super::{Failure, Outcome, remote::Remote, trust::Trust};
use crate::config::{Backend, Config, Overrides};

#[derive(Debug, Default, Clone, Args)]
pub struct Target {
    /// The server's address [default: from its data directory or configuration]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The server's admin key [default: from its data directory or configuration]
    #[arg(long, value_name = "KEY", env = "BLUETICK_ADMIN__KEY", hide_env_values = true)]
    pub admin_key: Option<String>,
    #[command(flatten)]
    pub trust: Trust,
}

/// A target with its configuration, address and key.
pub struct ResolvedTarget {
    pub config: Config,
    pub url: String,
    /// Whether the address was given on the command line, so that no other server will do.
    pub url_given: bool,
    pub admin_key: Option<String>,
    pub trust: Trust,
}

impl Target {
    pub fn resolve(&self) -> Outcome<ResolvedTarget> {
        let overrides = Overrides { data: self.data.clone(), listen: None };
        let config =
            Config::load(self.config.as_deref(), overrides).map_err(|e| Failure::Failed(e.to_string()))?;
        let url = match &self.server {
            Some(given) => normal_url(given).map_err(Failure::Usage)?,
            None => written_url(&config)
                .unwrap_or_else(|| own_url(config.server.listen, config.tls.cert_file.is_some())),
        };
        let admin_key = self.admin_key.clone().or_else(|| admin_key(&config));
        Ok(ResolvedTarget {
            config,
            url,
            url_given: self.server.is_some(),
            admin_key,
            trust: self.trust.clone(),
        })
    }

    /// The server's admin API.
    pub fn remote(&self) -> Outcome<Remote> {
        self.resolve()?.remote()
    }
}

impl ResolvedTarget {
    /// Whether the data directory holds a store. Without one it may hold keys only, and opening a
    /// store would create it.
    pub fn holds_store(&self) -> bool {
        let embedded = self.config.is_app() && self.config.store.backend == Backend::Embedded;
        embedded && self.config.server.data_dir.join("VERSION").exists()
    }

    pub fn remote(&self) -> Outcome<Remote> {
        match &self.admin_key {
            Some(key) => Remote::new(&self.url, Some(key), &self.trust),
            None => Err(Failure::Failed(format!(
                "no admin key for {}: none can be read in {dir}; give --data with the server's data directory, or \
                 --admin-key (no server yet? `bluetick serve --data {dir}` starts one)",
                self.url,
                dir = self.config.server.data_dir.display()
            ))),
        }
    }

    pub fn websocket_url(&self) -> String {
        // http:// becomes ws://, and https:// becomes wss://.
        format!("ws{}/v1/ws", self.url.strip_prefix("http").unwrap_or(&self.url))
    }
}

/// The admin key of a server with this configuration, if this user may read it.
fn admin_key(config: &Config) -> Option<String> {
    if let Some(key) = &config.admin.key {
        return Some(key.expose().to_owned());
    }
    let path = config.admin.key_file.clone().unwrap_or_else(|| config.admin_key_path());
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|key| !key.is_empty())
}

/// The file with the address of the running server.
pub fn address_file(config: &Config) -> PathBuf {
    config.server.data_dir.join("server.url")
}

/// The file with the demo key of the running server, for programs of the same user.
pub fn demo_key_file(config: &Config) -> PathBuf {
    config.server.data_dir.join("demo.key")
}

fn written_url(config: &Config) -> Option<String> {
    let text = std::fs::read_to_string(address_file(config)).ok()?;
    let url = normal_url(text.trim()).ok()?;
    Some(url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:"))
}

/// The URL of a server with this configuration, from the same machine.
fn own_url(listen: SocketAddr, tls: bool) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    format!("{}://{}", if tls { "https" } else { "http" }, SocketAddr::new(ip, listen.port()))
}

/// Normalises an address: with http, ws or no scheme, with or without a trailing slash.
fn normal_url(given: &str) -> Result<String, String> {
    let bare = given.trim_end_matches('/').trim_end_matches("/v1/ws");
    let url = match bare.split_once("://") {
        Some(("http" | "ws", rest)) => format!("http://{rest}"),
        Some(("https" | "wss", rest)) => format!("https://{rest}"),
        None => format!("http://{bare}"),
        Some((other, _)) => {
            return Err(format!("{other}:// is not supported; give http:// or https://"));
        }
    };
    match reqwest::Url::parse(&url) {
        Ok(parsed) if parsed.has_host() => Ok(url),
        _ => Err(format!("{given:?} is not an address; it looks like http://127.0.0.1:8080")),
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

    #[test]
    fn a_server_on_every_address_is_reached_on_loopback() {
        assert_eq!(own_url("0.0.0.0:9000".parse().unwrap(), false), "http://127.0.0.1:9000");
        assert_eq!(own_url("[::]:9000".parse().unwrap(), true), "https://[::1]:9000");
    }
}
