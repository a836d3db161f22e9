//! What can be checked on this machine without a server: clock, data directory, keys, certificates
//! and push providers.

use std::{fs, path::Path};

use bluetick_protocol::MessageId;
use bluetick_store::{Clock as _, SystemClock};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::ServerConfig,
};

use super::{Findings, Grade};
use crate::{
    config::Config,
    permissions::{self, Exposure},
    push::Providers,
};

pub(super) fn check_own_clock(findings: &mut Findings) {
    if SystemClock.now_ms() < MessageId::EPOCH_MS {
        findings.fail("clock", "this machine's clock is before 2024; set it, message ids are made from it");
    }
}

pub(super) fn check_directory(data: &Path, findings: &mut Findings) {
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

/// Warns about directories that other users can enter.
pub(super) fn check_exposure(config: &Config, findings: &mut Findings) {
    for (path, exposure) in permissions::exposed_directories(config) {
        let shown = path.display();
        let why = format!("{shown} is open to {}; chmod 700 {shown}", exposure.as_str());
        findings.add(grade_of(exposure), "permissions", why);
    }
}

/// Access for a group may be intended; access for everyone is not.
fn grade_of(exposure: Exposure) -> Grade {
    match exposure {
        Exposure::Group => Grade::Warn,
        Exposure::Everybody => Grade::Fail,
    }
}

/// Checks that keys exist and that only their owner can read them.
pub(super) fn check_keys(config: &Config, findings: &mut Findings) {
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

pub(super) fn check_tls(config: &Config, findings: &mut Findings) {
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

/// Asks every configured provider whether it accepts our credentials. No device is notified.
pub(super) async fn check_push(config: &Config, findings: &mut Findings) {
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
                    "{name}: {why}; until this is fixed, its notifications wait and expire after push.max_age_secs"
                ),
            ),
        }
    }
}
