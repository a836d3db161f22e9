//! Misspelt settings in the environment.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use crate::harness::*;

fn doctor(variables: &[(&str, &str)]) -> Output {
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["doctor", "--data"]).arg(dir.path()).envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn a_misspelt_setting_is_refused_with_the_nearest_name() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["serve", "--data"])
        .arg(dir.path())
        .env("BLUETICK_SERVER_LISTEN", "127.0.0.1:0")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("BLUETICK_SERVER_LISTEN in the environment is not a setting"), "{told}");
    assert!(told.contains("did you mean BLUETICK_SERVER__LISTEN?"), "{told}");

    for (name, meant) in [
        ("BLUETICK_LIMITS__SEND_PER_SECOND", "BLUETICK_LIMITS__SENDS_PER_SECOND"),
        ("BLUETICK_ADMIN_KEY", "BLUETICK_ADMIN__KEY"),
        ("BLUETICK_CLUSTER_SECRET", "BLUETICK_CLUSTER__SECRET"),
    ] {
        let output = doctor(&[(name, "x")]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && told.contains(name) && told.contains(meant), "{told}");
    }
}

#[test]
fn variables_that_are_no_settings_disturb_nobody() {
    let output = doctor(&[
        ("BLUETICK_TOKEN", "x"),
        ("BLUETICK_DEMO_KEY", "x"),
        ("BLUETICK_COMMIT", "x"),
        ("BLUETICK_PORT", "tcp://10.0.0.1:8080"),
        ("BLUETICK_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("BLUETICK_SERVICE_HOST", "10.0.0.1"),
        ("BLUETICK_TEST_REDIS", "redis://127.0.0.1"),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_admin_key_has_one_name_for_the_server_and_for_commands() {
    let key = "an admin key that is long enough for anybody";
    let server = Server::with(&[("BLUETICK_ADMIN__KEY", key)]);
    let elsewhere = tempfile::tempdir().unwrap();
    let inspect = |key: &str| {
        Command::new(binary())
            .args(["inspect", "sessions", "--user", "alice", "--json", "--server", &server.http("")])
            .arg("--data")
            .arg(elsewhere.path())
            .env("BLUETICK_ADMIN__KEY", key)
            .output()
            .unwrap()
    };
    let answer = inspect(key);
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let refused = inspect("another key that is long enough for anybody");
    assert!(!refused.status.success());
}
