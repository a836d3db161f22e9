//! `bluetick doctor`: looks at configuration, data directory and server, and says what to do about what is wrong.

#[cfg(feature = "cluster")]
use std::collections::BTreeSet;
use std::{fs, path::Path, sync::Arc};

use bluetick_protocol::MessageId;
use bluetick_store::{Clock, NodeRole, Store, SystemClock};
use clap::Args;
use reqwest::StatusCode;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::ServerConfig,
};
use serde_json::Value;

use super::{
    Failure, Outcome, output,
    remote::{Remote, Unanswered},
    target::{Place, Target},
};
use crate::{
    backends,
    config::Config,
    permissions::{self, Exposure},
    push::Providers,
};

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    target: Target,
}

/// Clocks further apart than this make tokens expire early or late.
const CLOCK_SKEW_MS: u64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Ok,
    Warn,
    Fail,
}

/// What was looked at, line by line.
#[derive(Default)]
struct Findings(Vec<(Grade, &'static str, String)>);

impl Findings {
    fn add(&mut self, grade: Grade, what: &'static str, text: impl Into<String>) {
        self.0.push((grade, what, text.into()));
    }

    fn ok(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Ok, what, text);
    }

    fn warn(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Warn, what, text);
    }

    fn fail(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Fail, what, text);
    }

    fn failed(&self) -> bool {
        self.0.iter().any(|(grade, ..)| *grade == Grade::Fail)
    }

    fn render(&self) -> String {
        let lines = self.0.iter().map(|(grade, what, text)| {
            let grade = match grade {
                Grade::Ok => "ok",
                Grade::Warn => "warn",
                Grade::Fail => "fail",
            };
            format!("{grade:<4}  {what:<14}  {text}\n")
        });
        lines.collect()
    }
}

pub async fn run(args: DoctorArgs) -> Outcome {
    let mut findings = Findings::default();
    match args.target.resolve() {
        Ok(place) => {
            let source = match &args.target.config {
                Some(path) => format!("{} is valid", path.display()),
                None => "no file given: defaults and environment are valid".into(),
            };
            findings.ok("configuration", source);
            examine(&place, &mut findings).await;
        }
        Err(Failure::Failed(why)) => findings.fail("configuration", why),
        Err(other) => return Err(other),
    }
    output::print(&findings.render())?;
    if findings.failed() { Err(Failure::Told) } else { Ok(()) }
}

async fn examine(place: &Place, findings: &mut Findings) {
    check_own_clock(findings);
    check_directory(&place.config.server.data_dir, findings);
    check_exposure(&place.config, findings);
    check_keys(&place.config, findings);
    check_tls(&place.config, findings);
    check_push(&place.config, findings).await;
    if !check_server(place, findings).await {
        check_store(place, findings).await;
    }
}

fn check_own_clock(findings: &mut Findings) {
    if SystemClock.now_ms() < MessageId::EPOCH_MS {
        findings.fail("clock", "this machine's clock is before 2024; set it, message ids are made from it");
    }
}

fn check_directory(data: &Path, findings: &mut Findings) {
    let shown = data.display();
    match fs::metadata(data) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return findings
                .warn("data directory", format!("there is no {shown} yet; `bluetick serve` makes it"));
        }
        Err(e) => return findings.fail("data directory", format!("cannot look at {shown}: {e}")),
        Ok(found) if !found.is_dir() => {
            return findings
                .fail("data directory", format!("{shown} is not a directory; choose another with --data"));
        }
        Ok(_) => {}
    }
    let probe = data.join(format!(".doctor-{}", std::process::id()));
    match fs::write(&probe, b"") {
        Ok(()) => {
            let _ = fs::remove_file(&probe);
            findings.ok("data directory", format!("{shown} can be written"));
        }
        Err(e) => findings.fail(
            "data directory",
            format!(
                "{shown} cannot be written: {e}; run as the user the server runs as, or give it to that user"
            ),
        ),
    }
}

/// Messages in a directory that others can get into are not private.
fn check_exposure(config: &Config, findings: &mut Findings) {
    for (path, exposure) in permissions::exposed_directories(config) {
        let shown = path.display();
        let why = format!("{shown} is open to {}; chmod 700 {shown}", exposure.as_str());
        findings.add(grade_of(exposure), "permissions", why);
    }
}

/// Operators share a group on purpose at times; nobody shares keys with everybody.
fn grade_of(exposure: Exposure) -> Grade {
    match exposure {
        Exposure::Group => Grade::Warn,
        Exposure::Everybody => Grade::Fail,
    }
}

/// Keys that others on the machine can read are not secret.
fn check_keys(config: &Config, findings: &mut Findings) {
    let made = [Some(config.jwt_secret_path()), Some(config.admin_key_path())];
    let given = [
        config.auth.hs256_secret_file.clone(),
        config.admin.key_file.clone(),
        config.tls.key_file.clone(),
        config.cluster.secret_file.clone(),
        config.cluster.key_file.clone(),
        config.push.apns.as_ref().map(|apns| apns.key_file.clone()),
        config.push.fcm.as_ref().map(|fcm| fcm.service_account_file.clone()),
        config.push.webpush.as_ref().map(|webpush| webpush.key_file.clone()),
        config.push.webhook.as_ref().and_then(|webhook| webhook.secret_file.clone()),
    ];
    for (path, must_exist) in
        made.into_iter().flatten().map(|p| (p, false)).chain(given.into_iter().flatten().map(|p| (p, true)))
    {
        let shown = path.display();
        let found = fs::metadata(&path);
        if let Some(exposure) = found.as_ref().ok().and_then(Exposure::of) {
            let why = format!("{shown} is open to {}; chmod 600 {shown}", exposure.as_str());
            findings.add(grade_of(exposure), "keys", why);
            continue;
        }
        match found {
            Ok(_) => match fs::File::open(&path) {
                Ok(_) => findings.ok("keys", format!("{shown} is readable by its owner only")),
                Err(e) => {
                    findings.fail("keys", format!("cannot read {shown}: {e}; run as the user that owns it"))
                }
            },
            Err(e) if must_exist => findings.fail("keys", format!("the configuration names {shown}: {e}")),
            Err(_) => {}
        }
    }
}

fn check_tls(config: &Config, findings: &mut Findings) {
    let (Some(cert), Some(key)) = (&config.tls.cert_file, &config.tls.key_file) else {
        if config.listens_on_loopback() {
            findings.ok("tls", "off; fine on loopback");
        } else {
            findings.warn(
                "tls",
                format!(
                    "off, and {} is not loopback: tokens travel in the clear unless a proxy in front does TLS; set \
                     tls.cert_file and tls.key_file",
                    config.server.listen
                ),
            );
        }
        return;
    };
    match load_certificate(cert, key) {
        Ok(count) => {
            findings.ok("tls", format!("{} holds {count} certificates, and the key fits", cert.display()))
        }
        Err(why) => findings.fail("tls", why),
    }
}

fn load_certificate(cert: &Path, key: &Path) -> Result<usize, String> {
    let wrong = |path: &Path, why: String| format!("{}: {why}; give PEM files", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|e| wrong(cert, e.to_string().to_lowercase()))?;
    if chain.is_empty() {
        return Err(wrong(cert, "no certificate in it".into()));
    }
    let count = chain.len();
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e.to_string().to_lowercase()))?;
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .map_err(|e| format!("{} and {} do not go together: {e}", cert.display(), key.display()))?;
    Ok(count)
}

/// Asks every provider that is set up whether it would take a notification, as the server would. Nobody gets one.
async fn check_push(config: &Config, findings: &mut Findings) {
    if !config.push.is_configured() {
        return findings.ok("push", "off: nobody is notified; [push] sets up providers");
    }
    let providers = match Providers::new(&config.push) {
        Ok(providers) => providers,
        Err(e) => return findings.fail("push", e.to_string()),
    };
    for (provider, answer) in providers.check().await {
        let name = provider.as_str();
        match answer {
            Ok(well) => findings.ok("push", format!("{name}: {well}")),
            Err(why) => findings.fail(
                "push",
                format!(
                    "{name}: {why}; until this is put right its notifications wait, and are lost when too old"
                ),
            ),
        }
    }
}

/// What the server met when it last tried.
fn report_routes(told: &Value, findings: &mut Findings) {
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

/// Asks the server how it is. Returns whether one answered.
async fn check_server(place: &Place, findings: &mut Findings) -> bool {
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
        Err(Unanswered::Untrusted(why)) => {
            // A server that was named must be trusted; the guessed name of one is rarely in its certificate.
            findings.add(if place.url_given { Grade::Fail } else { Grade::Warn }, "certificate", why);
            return true;
        }
        Err(unanswered) => {
            let Failure::Failed(why) = unanswered.into() else {
                return false;
            };
            // A server that was named must be there; one that was only guessed need not.
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
        Err(unanswered) => {
            if let Failure::Failed(why) = unanswered.into() {
                findings.fail("ready", why);
            }
        }
    }
    check_info(&remote, place, findings).await;
    true
}

/// What only an operator may know: clock, free space, state of the store.
async fn check_info(remote: &Remote, place: &Place, findings: &mut Findings) {
    if place.admin_key.is_none() {
        let dir = place.config.server.data_dir.display();
        return findings
            .warn("admin", format!("no admin key in {dir}; give --data or --admin-key to see more"));
    }
    let before = SystemClock.now_ms();
    let answer = match remote.get("info").await {
        Ok(answer) => answer,
        Err(Unanswered::WrongKey(why)) => return findings.warn("admin", why),
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

/// Opens the store, as a server would; only when none answered, because then nobody should hold it.
async fn check_store(place: &Place, findings: &mut Findings) {
    if !place.config.is_one_process() {
        return check_shared(&place.config, findings).await;
    }
    if !place.holds_store() {
        return;
    }
    let opened = place
        .config
        .embedded_store_with_objects()
        .and_then(|config| Store::embedded(config, Arc::new(SystemClock)));
    let store = match opened {
        Ok(store) => store,
        Err(e) => return findings.fail("store", e.to_string()),
    };
    let health = store.maintenance.health().await;
    report_space(health.free_bytes, &place.config, findings);
    match store.maintenance.close().await {
        Ok(()) => findings.ok("store", "its format is known, it opens and closes well, nobody else holds it"),
        Err(e) => findings.fail("store", format!("it opens, but does not close: {e}")),
    }
}

/// What processes share: asked from here, as one of them would.
async fn check_shared(config: &Config, findings: &mut Findings) {
    let opened = match backends::open(config, Arc::new(SystemClock)).await {
        Ok(opened) => opened,
        Err(e) => return findings.fail("store", e.to_string()),
    };
    if let Some(store) = &opened.store {
        let health = store.maintenance.health().await;
        match health.refusing {
            None => findings.ok("store", format!("{} answers", health.backend)),
            Some(why) => findings.fail("store", why),
        }
        check_tables(config, findings).await;
    }
    let Some(directory) = &opened.directory else { return };
    let announced = match directory.members(NodeRole::App).await {
        Ok(announced) => {
            findings.ok("session store", "redis answers");
            announced
        }
        Err(e) => {
            let why = format!("{e}; while it is down everybody counts as offline, and messages wait");
            findings.fail("session store", why);
            Vec::new()
        }
    };
    if config.is_gateway() && !config.is_app() {
        check_app_servers(config, announced, findings).await;
    }
}

#[cfg(not(feature = "cluster"))]
async fn check_tables(_: &Config, _: &mut Findings) {}

#[cfg(feature = "cluster")]
async fn check_tables(config: &Config, findings: &mut Findings) {
    use bluetick_store::dynamo::{Dynamo, check_tables, probe_operations};

    use super::tables::is_needed_and_lacking;

    let dynamo = match Dynamo::new(config.distributed_store().dynamo).await {
        Ok(dynamo) => dynamo,
        Err(e) => return findings.fail("tables", format!("cannot be looked at: {e}")),
    };
    match check_tables(&dynamo).await {
        Ok(found) => {
            let wrong: Vec<_> = found.iter().filter(|f| f.wrong).map(|f| f.to_string()).collect();
            match wrong.is_empty() {
                true => findings.ok("tables", "are as they should be"),
                false => return findings.fail("tables", wrong.join("; ")),
            }
        }
        Err(e) => return findings.fail("tables", format!("cannot be looked at: {e}")),
    }
    let probed = probe_operations(&dynamo).await;
    for one in probed.iter().filter(|one| one.lacking.is_some()) {
        match is_needed_and_lacking(one) {
            true => findings.fail("operations", one.to_string()),
            false => findings.warn("operations", one.to_string()),
        }
    }
    if !probed.iter().any(is_needed_and_lacking) {
        findings.ok("operations", "the endpoint has all that a server needs");
    }
}

#[cfg(not(feature = "cluster"))]
async fn check_app_servers(_: &Config, _: Vec<String>, _: &mut Findings) {}

#[cfg(feature = "cluster")]
async fn check_app_servers(config: &Config, announced: Vec<String>, findings: &mut Findings) {
    use crate::rpc::{AppServers, DirectoryEntries, Guard, LinkStatus, PoolConfig};

    let guard = match Guard::from_config(&config.cluster) {
        Ok(guard) => guard,
        Err(e) => return findings.fail("app servers", e.to_string()),
    };
    let entries = DirectoryEntries::new(&guard, Arc::new(SystemClock));
    let (believed, others) = entries.believe(NodeRole::App, &announced);
    if others > 0 {
        findings.warn(
            "app servers",
            format!(
                "{others} entries in Redis are passed over: they are not signed with this process's cluster.secret, or have \
                 expired"
            ),
        );
    }
    let fixed: BTreeSet<String> = config.cluster.app_servers.iter().cloned().collect();
    if believed.is_empty() && fixed.is_empty() {
        let why = "none is announced, and cluster.app_servers names none; start one with roles = [\"app\"]";
        return findings.fail("app servers", why);
    }
    let servers = AppServers::new(guard, PoolConfig::default());
    servers.set(&believed, &fixed);
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        if servers.link_statuses().iter().all(|(_, status)| *status != LinkStatus::Connecting) {
            break;
        }
    }
    for (address, status) in servers.link_statuses() {
        match status {
            LinkStatus::Up => findings.ok("app servers", format!("{address} answers")),
            LinkStatus::Draining => findings.warn("app servers", format!("{address} is going down")),
            LinkStatus::Connecting => findings.fail("app servers", format!("{address} does not answer")),
            LinkStatus::Down(why) => findings.fail("app servers", why),
        }
    }
}

fn report_space(free: Option<u64>, config: &Config, findings: &mut Findings) {
    let floor = config.store.free_space_floor_bytes;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    match free {
        None => findings.warn("free space", "the file system does not say"),
        Some(free) if free < floor => findings.fail(
            "free space",
            format!(
                "{} MiB, below the floor of {} MiB: messages are refused; make room",
                mib(free),
                mib(floor)
            ),
        ),
        Some(free) if free < floor.saturating_mul(4) => findings.warn(
            "free space",
            format!("{} MiB; below {} MiB messages will be refused; make room", mib(free), mib(floor)),
        ),
        Some(free) => findings.ok("free space", format!("{} MiB", mib(free))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_check_and_one_failure_fails_all() {
        let mut findings = Findings::default();
        findings.ok("tls", "off; fine on loopback");
        findings.warn("free space", "little");
        assert!(!findings.failed());
        assert_eq!(
            findings.render(),
            "ok    tls             off; fine on loopback\nwarn  free space      little\n"
        );
        findings.fail("store", "locked");
        assert!(findings.failed());
    }

    #[tokio::test]
    async fn a_key_that_is_not_there_is_told_before_a_server_needs_it() {
        let mut config = Config::load(None, crate::config::Overrides::default()).unwrap();
        let mut findings = Findings::default();
        check_push(&config, &mut findings).await;
        assert!(!findings.failed() && findings.render().contains("off"), "{}", findings.render());
        let webpush =
            serde_json::json!({"key_file": "/nonexistent/vapid.pem", "subject": "mailto:ops@example.org"});
        config.push.webpush = Some(serde_json::from_value(webpush).unwrap());
        check_push(&config, &mut findings).await;
        check_keys(&config, &mut findings);
        let told = findings.render();
        assert!(findings.failed() && told.contains("push.webpush.key_file"), "{told}");
        assert!(told.contains("the configuration names /nonexistent/vapid.pem"), "{told}");
    }

    #[test]
    fn a_way_that_is_closed_warns_and_a_wrong_key_fails() {
        let route = |misconfigured: Option<&str>| {
            serde_json::json!({"push": [
                {"route": "apns", "paused_ms": 5, "misconfigured": misconfigured, "failing": "no answer"},
            ]})
        };
        let mut findings = Findings::default();
        report_routes(&route(None), &mut findings);
        assert!(!findings.failed() && findings.render().contains("no answer"), "{}", findings.render());
        report_routes(&route(Some("403 InvalidProviderToken")), &mut findings);
        assert!(findings.failed() && findings.render().contains("403"), "{}", findings.render());
    }

    #[test]
    fn a_readable_directory_or_key_is_told() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::load(None, crate::config::Overrides::default()).unwrap();
        config.server.data_dir = dir.path().to_owned();
        let key = config.admin_key_path();
        fs::write(&key, "key").unwrap();
        let graded = |directory: u32, file: u32| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(directory)).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(file)).unwrap();
            let mut findings = Findings::default();
            check_exposure(&config, &mut findings);
            check_keys(&config, &mut findings);
            findings.0.into_iter().map(|(grade, what, _)| (what, grade)).collect::<Vec<_>>()
        };
        assert_eq!(graded(0o700, 0o600), [("keys", Grade::Ok)]);
        assert_eq!(graded(0o750, 0o640), [("permissions", Grade::Warn), ("keys", Grade::Warn)]);
        assert_eq!(graded(0o755, 0o644), [("permissions", Grade::Fail), ("keys", Grade::Fail)]);
    }

    #[test]
    fn a_directory_is_looked_at_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let mut findings = Findings::default();
        check_directory(dir.path(), &mut findings);
        check_directory(&dir.path().join("none"), &mut findings);
        let grades: Vec<Grade> = findings.0.iter().map(|(grade, ..)| *grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Warn]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
