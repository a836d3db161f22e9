//! What a running server says about itself.

use bluetick_store::{Clock as _, SystemClock};
use reqwest::StatusCode;
use serde_json::Value;

use super::{Findings, Grade, store::report_space};
use crate::cli::{
    Failure,
    remote::{Remote, RequestError},
    target::ResolvedTarget,
};

/// Clocks further apart than this make tokens expire early or late.
const CLOCK_SKEW_MS: u64 = 5_000;

/// Reports the push routes that fail.
pub(super) fn report_routes(told: &Value, findings: &mut Findings) {
    for route in told["push"].as_array().into_iter().flatten() {
        let name = route["route"].as_str().unwrap_or("?");
        match (route["misconfigured"].as_str(), route["failing"].as_str()) {
            (Some(why), _) => findings.fail("push", format!("the server cannot notify by {name}: {why}")),
            (None, Some(why)) => {
                findings.warn("push", format!("{name} does not take notifications now: {why}"))
            }
            (None, None) => {}
        }
    }
}

/// Checks the server's health and readiness. Returns whether a server answered.
pub(super) async fn check_server(place: &ResolvedTarget, findings: &mut Findings) -> bool {
    let remote = match Remote::new(&place.url, place.admin_key.as_deref(), &place.trust) {
        Ok(remote) => remote,
        Err(Failure::Usage(why) | Failure::Failed(why)) => {
            findings.fail("server", why);
            return false;
        }
        Err(Failure::Told) => return false,
    };
    match remote.page("/healthz").await {
        Ok((StatusCode::OK, _)) => findings.ok("server", format!("answers at {}", place.url)),
        Ok((status, _)) => {
            findings.fail("server", format!("{} answers {status} to /healthz; is it bluetick?", place.url));
            return true;
        }
        Err(RequestError::Untrusted(why)) => {
            // The address on the command line must be in the certificate. A derived one is rarely.
            findings.add(if place.url_given { Grade::Fail } else { Grade::Warn }, "certificate", why);
            return true;
        }
        Err(error) => {
            let Failure::Failed(why) = error.into() else {
                return false;
            };
            // Only a server that was named on the command line must run.
            findings.add(if place.url_given { Grade::Fail } else { Grade::Warn }, "server", why);
            return false;
        }
    }
    match remote.page("/readyz").await {
        Ok((StatusCode::OK, text)) => {
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            match told["store"]["degraded"].as_str() {
                None => findings.ok("ready", "takes messages"),
                Some(why) => findings.warn("ready", format!("takes messages, but {why}")),
            }
            report_routes(&told, findings);
        }
        Ok((status, text)) => {
            let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
            findings.fail("ready", format!("the server does not take messages ({status}): {text}"));
        }
        Err(error) => {
            if let Failure::Failed(why) = error.into() {
                findings.fail("ready", why);
            }
        }
    }
    check_info(&remote, place, findings).await;
    true
}

/// Checks what needs the admin key: clock, free space, state of the store.
pub(super) async fn check_info(remote: &Remote, place: &ResolvedTarget, findings: &mut Findings) {
    if place.admin_key.is_none() {
        let dir = place.config.server.data_dir.display();
        return findings
            .warn("admin", format!("no admin key in {dir}; give --data or --admin-key to see more"));
    }
    let before = SystemClock.now_ms();
    let answer = match remote.get("info").await {
        Ok(answer) => answer,
        Err(RequestError::WrongKey(why)) => return findings.warn("admin", why),
        Err(other) => {
            let Failure::Failed(why) = other.into() else {
                return;
            };
            return findings.fail("admin", why);
        }
    };
    let after = SystemClock.now_ms();
    let Ok(info) = serde_json::from_slice::<Value>(&answer) else {
        return findings.fail("admin", format!("{} answers what is not JSON; is it bluetick?", place.url));
    };
    let (version, sessions) =
        (info["version"].as_str().unwrap_or("?"), info["sessions"].as_u64().unwrap_or_default());
    findings.ok("version", format!("server {version}, this command {}", env!("CARGO_PKG_VERSION")));
    findings.ok("sessions", format!("{sessions} open"));
    if let Some(theirs) = info["server_time"].as_u64() {
        let off = before.saturating_sub(theirs).max(theirs.saturating_sub(after));
        if off > CLOCK_SKEW_MS {
            findings.warn(
                "clock",
                format!("the server's clock is {off} ms off from this machine's; use NTP on both"),
            );
        } else {
            findings.ok("clock", "the server's agrees with this machine's");
        }
    }
    let health = &info["health"];
    if health["backend"] == "embedded" {
        report_space(health["free_bytes"].as_u64(), &place.config, findings);
    }
    match health["refusing"].as_str() {
        None => {
            let backend = health["backend"].as_str().unwrap_or("?");
            findings.ok("store", format!("{backend}: held by the server, takes messages"));
        }
        Some(why) => findings.fail("store", format!("refuses messages: {why}")),
    }
}
