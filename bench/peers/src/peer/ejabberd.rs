//! ejabberd as Debian packages it: stock Mnesia storage, only the modules that the work needs.
//!
//! `ejabberdctl` would change the user and want a node name, and with it epmd, which all Erlang on a machine shares.
//! So Erlang is started as that script does it, but without a name: such a node talks to nobody.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::Place;
use crate::{
    process::{Server, free_port},
    xmpp::{HOST, PASSWORD},
};

pub fn start(place: &Place<'_>) -> Result<Server, String> {
    let port = free_port()?;
    let config = place.write(
        "ejabberd.yml",
        &format!(
            r#"loglevel: error
hosts:
  - {HOST}
listen:
  -
    port: {port}
    ip: "127.0.0.1"
    module: ejabberd_c2s
    backlog: 1024
    max_stanza_size: 262144
    shaper: none
    access: all
auth_method: internal
auth_password_format: plain
shaper_rules:
  max_user_offline_messages: infinity
modules:
  mod_offline:
    access_max_user_messages: max_user_offline_messages
  mod_ping: {{}}
  mod_roster: {{}}
"#
        ),
    )?;
    let ready = place.file("ready");
    let mut serve = Command::new("erl");
    serve
        // As in Debian's ejabberdctl, and one scheduler that does not spin while it waits.
        .args(["+K", "true", "+P", "250000", "+S", "1:1", "+sbwt", "none", "-noinput"])
        .args(["-mnesia", "dir"])
        .arg(format!("{:?}", place.file("mnesia")))
        .args(["-s", "ejabberd", "-eval"])
        .arg(register_users(place.users, &ready))
        .env("HOME", place.dir)
        .env("EJABBERD_CONFIG_PATH", config)
        .env("EJABBERD_LOG_PATH", place.file("ejabberd.log"))
        .env("ERL_LIBS", libraries()?)
        .env("ERL_MAX_PORTS", "32000")
        .env("ERL_MAX_ETS_TABLES", "1400")
        .env("ERL_CRASH_DUMP_BYTES", "0")
        .current_dir(place.dir);
    Server::start(&serve, &place.log(), port, || ready.exists())
}

/// Erlang that makes the users once the server is up, and then a file that says so.
fn register_users(users: u32, ready: &Path) -> String {
    format!(
        r#"{{ok, _}} = application:ensure_all_started(ejabberd),
           lists:foreach(fun(N) ->
               User = iolist_to_binary(["bench-", integer_to_list(N)]),
               ok = ejabberd_auth:try_register(User, <<"{HOST}">>, <<"{PASSWORD}">>)
           end, lists:seq(0, {last})),
           ok = file:write_file({ready:?}, <<>>)."#,
        last = users.saturating_sub(1)
    )
}

/// The directory in which Debian keeps `ejabberd-VERSION`: /usr/lib and the machine's kind.
fn libraries() -> Result<PathBuf, String> {
    let dirs = std::fs::read_dir("/usr/lib").map_err(|e| format!("/usr/lib: {e}"))?;
    let holds_it = |dir: &PathBuf| {
        let mut names = std::fs::read_dir(dir).into_iter().flatten().flatten();
        names.any(|entry| {
            entry.file_name().to_string_lossy().starts_with("ejabberd-") && entry.path().join("ebin").is_dir()
        })
    };
    let mut dirs = dirs.flatten().map(|entry| entry.path());
    dirs.find(holds_it).ok_or_else(|| "no ejabberd in /usr/lib".into())
}
