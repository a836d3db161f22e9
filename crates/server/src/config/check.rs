//! Relations between settings, each with a message that says what to set.

mod cluster;
mod objects;

use bluetick_protocol::limits;

use super::{Backend, Config, ConfigError, HS256_MIN_BYTES, Switch, is_loopback_name};

/// A frame is read into memory whole before anything can be said of it.
const FRAME_HARD_MAX_BYTES: usize = 8 * 1024 * 1024;
/// Whoever can guess it can do anything. A key in a file is as long, or is refused when it is read.
const ADMIN_KEY_MIN_CHARS: usize = 32;
/// A row has at most 400 KB, with everything in it.
const DYNAMODB_BODY_MAX_BYTES: usize = 256 * 1024;
/// A `watch` of as many users as one may name, the dearest request, must fit.
const REQUEST_BURST_MIN: usize = 3_000;

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_keys()?;
        self.check_exposure()?;
        self.check_limits()?;
        self.check_ranges()?;
        self.push.check().map_err(ConfigError::Contradiction)?;
        self.check_objects()?;
        self.check_attachments()?;
        self.check_cluster()
    }

    fn check_keys(&self) -> Result<(), ConfigError> {
        if self.auth.sources() > 1 {
            return wrong(
                "auth: set only one of hs256_secret, hs256_secret_file, public_key_file and jwks_url",
            );
        }
        if self.admin.key.is_some() && self.admin.key_file.is_some() {
            return wrong("admin: set only one of key and key_file");
        }
        if let Some(key) = &self.admin.key
            && key.expose().chars().count() < ADMIN_KEY_MIN_CHARS
        {
            return wrong(format!(
                "admin.key must be at least {ADMIN_KEY_MIN_CHARS} characters long: it reads and erases everything; \
                 `openssl rand -hex 32` makes one"
            ));
        }
        if self.tls.cert_file.is_some() != self.tls.key_file.is_some() {
            return wrong("tls: set both cert_file and key_file, or neither");
        }
        if let Some(secret) = &self.auth.hs256_secret
            && secret.expose().len() < HS256_MIN_BYTES
        {
            return wrong(format!("auth.hs256_secret must be at least {HS256_MIN_BYTES} bytes long"));
        }
        if let Some(url) = &self.auth.jwks_url {
            check_jwks_url(url)?;
        }
        Ok(())
    }

    /// What is open to other machines must be guarded by a key that somebody chose.
    fn check_exposure(&self) -> Result<(), ConfigError> {
        if self.is_gateway() && !self.listens_on_loopback() && !self.auth.is_configured() {
            return wrong(format!(
                "server.listen is {}, which other machines can reach, and no key for tokens is configured; set one \
                 of auth.hs256_secret, auth.hs256_secret_file, auth.public_key_file or auth.jwks_url (in the \
                 environment for example BLUETICK_AUTH__HS256_SECRET_FILE), or listen on 127.0.0.1",
                self.server.listen
            ));
        }
        if self.demo.enabled == Switch::On {
            if !self.listens_on_loopback() {
                return wrong(format!(
                    "demo.enabled is true, and server.listen is {}: the demo gives tokens to anyone who asks and \
                     is for loopback only; set demo.enabled = false, or listen on 127.0.0.1",
                    self.server.listen
                ));
            }
            if self.auth.public_key_file.is_some() || self.auth.jwks_url.is_some() {
                return wrong(
                    "demo.enabled is true, and auth names a public key, which cannot sign the demo's tokens; set \
                     demo.enabled = false, or use auth.hs256_secret",
                );
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        if limits.body_max_bytes == 0 || limits.body_max_bytes > limits::BODY_HARD_MAX_BYTES {
            return wrong(format!(
                "limits.body_max_bytes must be from 1 to {}, not {}",
                limits::BODY_HARD_MAX_BYTES,
                limits.body_max_bytes
            ));
        }
        if self.store.backend == Backend::Dynamodb && limits.body_max_bytes > DYNAMODB_BODY_MAX_BYTES {
            return wrong(format!(
                "limits.body_max_bytes is {}, and a row of DynamoDB holds bodies of up to {DYNAMODB_BODY_MAX_BYTES}",
                limits.body_max_bytes
            ));
        }
        let frame_needed = 6 * limits.body_max_bytes + limits::META_MAX_BYTES + 1024;
        if limits.frame_max_bytes < frame_needed {
            return wrong(format!(
                "limits.frame_max_bytes is {}, and a body of limits.body_max_bytes = {}, fully escaped, needs a \
                 frame of {frame_needed}; raise the first or lower the second",
                limits.frame_max_bytes, limits.body_max_bytes
            ));
        }
        if limits.frame_max_bytes > FRAME_HARD_MAX_BYTES {
            return wrong(format!(
                "limits.frame_max_bytes must be at most {FRAME_HARD_MAX_BYTES}, not {}",
                limits.frame_max_bytes
            ));
        }
        if limits.sends_per_second > 0 && limits.send_burst == 0 {
            return wrong("limits.send_burst must be at least 1 where limits.sends_per_second is set");
        }
        for (key, rate, size_key, size, least) in [
            (
                "limits.send_bytes_per_second",
                limits.send_bytes_per_second,
                "limits.send_burst_bytes",
                limits.send_burst_bytes,
                limits.body_max_bytes + limits::META_MAX_BYTES,
            ),
            (
                "limits.request_units_per_second",
                limits.request_units_per_second,
                "limits.request_burst_units",
                limits.request_burst_units,
                REQUEST_BURST_MIN,
            ),
        ] {
            if rate > 0 && (size as usize) < least {
                return wrong(format!(
                    "{size_key} is {size}, and where {key} is set it must be at least {least}"
                ));
            }
        }
        self.check_hosts()
    }

    fn check_hosts(&self) -> Result<(), ConfigError> {
        for host in &self.profiles.avatar_hosts {
            if host != "*" && !is_host(host) {
                return wrong(format!(
                    "profiles.avatar_hosts: {host:?} is not a host; write it as cdn.example, with the port if it has \
                     one, and without scheme and path"
                ));
            }
        }
        for origin in &self.limits.allowed_origins {
            if origin != "*" && !is_origin(origin) {
                return wrong(format!(
                    "limits.allowed_origins: {origin:?} is not an origin; write it as https://app.example, with \
                     the port if it has one and no path"
                ));
            }
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let (limits, sessions) = (&self.limits, &self.sessions);
        for (key, value) in [
            ("limits.max_sessions", limits.max_sessions as u64),
            ("limits.hello_deadline_secs", limits.hello_deadline_secs),
            ("sessions.heartbeat_secs", sessions.heartbeat_secs),
            ("sessions.window_messages", sessions.window_messages as u64),
            ("sessions.ack_timeout_secs", sessions.ack_timeout_secs),
            ("sessions.write_timeout_secs", sessions.write_timeout_secs),
            ("sessions.min_read_bytes_per_sec", sessions.min_read_bytes_per_sec),
            ("sessions.hand_over_deadline_ms", sessions.hand_over_deadline_ms),
            ("sessions.hand_over_hedge_ms", sessions.hand_over_hedge_ms),
            ("sessions.resume_max_age_days", sessions.resume_max_age_days),
            ("sessions.resume_max_conversations", sessions.resume_max_conversations as u64),
            ("store.checkpoint_bytes", self.store.checkpoint_bytes),
            ("store.idempotency_days", self.store.idempotency_days),
            ("auth.jwks_refresh_secs", self.auth.jwks_refresh_secs),
            ("attachments.max_bytes", self.attachments.max_bytes),
            ("attachments.uploads_per_user", self.attachments.uploads_per_user as u64),
            ("attachments.upload_rate_window_secs", self.attachments.upload_rate_window_secs),
            ("attachments.upload_expires_secs", self.attachments.upload_expires_secs),
            ("attachments.download_expires_secs", self.attachments.download_expires_secs),
        ] {
            if value == 0 {
                return wrong(format!("{key} must be at least 1"));
            }
        }
        for (key, value, most) in [
            ("sessions.resume_max_age_days", sessions.resume_max_age_days, 36_500),
            ("store.idempotency_days", self.store.idempotency_days, 36_500),
            ("sessions.heartbeat_secs", sessions.heartbeat_secs, 86_400),
            ("sessions.overlap_secs", sessions.overlap_secs, 86_400),
            ("sessions.ttl_secs", sessions.ttl_secs, 604_800),
            ("sessions.ack_timeout_secs", sessions.ack_timeout_secs, 86_400),
            ("sessions.write_timeout_secs", sessions.write_timeout_secs, 86_400),
            ("sessions.min_read_bytes_per_sec", sessions.min_read_bytes_per_sec, 1 << 20),
            ("sessions.reconnect_spread_secs", sessions.reconnect_spread_secs, 86_400),
            ("sessions.hand_over_deadline_ms", sessions.hand_over_deadline_ms, 60_000),
            ("sessions.hand_over_hedge_ms", sessions.hand_over_hedge_ms, sessions.hand_over_deadline_ms),
            ("limits.requests_in_flight", limits.requests_in_flight as u64, 100_000),
            ("limits.sends_per_second", limits.sends_per_second.into(), 1_000_000),
            ("limits.profile_changes_per_minute", limits.profile_changes_per_minute.into(), 1_000_000),
            ("limits.send_burst", limits.send_burst.into(), 1_000_000),
            ("cluster.drain_secs", self.cluster.drain_secs, 3_600),
            ("auth.leeway_secs", self.auth.leeway_secs, 3_600),
            ("auth.max_age_secs", self.auth.max_age_secs, 10 * 365 * 86_400),
            ("auth.jwks_refresh_secs", self.auth.jwks_refresh_secs, 86_400),
            ("limits.hello_deadline_secs", limits.hello_deadline_secs, 3_600),
            // As long as a signed request to a bucket can be good.
            ("attachments.upload_expires_secs", self.attachments.upload_expires_secs, 43_200),
            ("attachments.download_expires_secs", self.attachments.download_expires_secs, 604_800),
            ("attachments.max_bytes", self.attachments.max_bytes, 5_000 << 30),
            ("attachments.uploads_at_once", self.attachments.uploads_at_once as u64, 65_536),
            ("attachments.upload_rate_window_secs", self.attachments.upload_rate_window_secs, 3_600),
            (
                "attachments.upload_min_bytes_per_second",
                self.attachments.upload_min_bytes_per_second,
                1 << 30,
            ),
            ("sessions.window_messages", sessions.window_messages as u64, 65_536),
        ] {
            if value > most {
                return wrong(format!("{key} must be at most {most}, not {value}"));
            }
        }
        if sessions.ttl_secs <= 2 * sessions.heartbeat_secs {
            return wrong(format!(
                "sessions.ttl_secs is {}, and must be more than twice sessions.heartbeat_secs = {}, or one lost \
                 heartbeat makes a live session look dead",
                sessions.ttl_secs, sessions.heartbeat_secs
            ));
        }
        Ok(())
    }
}

fn wrong(text: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Contradiction(text.into()))
}

/// A name or address, with a port or without: what stands between `//` and the path of an address.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)),
    };
    good && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    matches!(scheme, "http" | "https")
        && !authority.is_empty()
        && authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]_".contains(&b))
}

/// Whoever can change the response can sign tokens, so it must be encrypted beyond this machine.
fn check_jwks_url(url: &str) -> Result<(), ConfigError> {
    let parsed = reqwest::Url::parse(url)
        .map_err(|e| ConfigError::Contradiction(format!("auth.jwks_url is not a URL: {e}")))?;
    let local = parsed.host_str().is_some_and(is_loopback_name);
    match parsed.scheme() {
        "https" => Ok(()),
        "http" if local => Ok(()),
        _ => wrong("auth.jwks_url must begin with https:// (http:// only for a loopback host)"),
    }
}
