//! Prosody as Debian packages it: stock file storage, only the modules that the work needs.

use std::process::Command;

use super::Place;
use crate::{
    process::{Server, free_port},
    xmpp::{HOST, PASSWORD, user},
};

pub fn start(place: &Place<'_>) -> Result<Server, String> {
    let port = free_port()?;
    write_accounts(place)?;
    let config = place.write(
        "prosody.cfg.lua",
        &format!(
            r#"run_as_root = true
data_path = {data:?}
pidfile = {pid:?}
log = {{ error = "*console" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
modules_enabled = {{ "roster", "saslauth", "disco", "ping", "posix", "offline" }}
modules_disabled = {{ "s2s", "tls" }}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
storage = "internal"
VirtualHost "{HOST}"
"#,
            data = place.file("data"),
            pid = place.file("pid"),
        ),
    )?;
    let mut serve = Command::new("prosody");
    serve.arg("--config").arg(config).arg("-F").current_dir(place.dir);
    Server::start(&serve, &place.log(), port, || true)
}

/// An account is a file; in its name all but letters and digits is written by number.
fn write_accounts(place: &Place<'_>) -> Result<(), String> {
    let dir = place.file("data").join(HOST).join("accounts");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for n in 0..place.users {
        let path = dir.join(format!("{}.dat", user(n).replace('-', "%2d")));
        let account = format!("return {{ [\"password\"] = \"{PASSWORD}\"; }};\n");
        std::fs::write(&path, account).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
