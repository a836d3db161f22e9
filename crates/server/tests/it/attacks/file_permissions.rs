//! Another user of the machine looks for messages and keys in the files of the server.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    attachments::{send, uploaded},
    harness::*,
    http::api,
};

/// Everything below a directory that others than its owner can open.
fn open_to_others(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push((entry.path(), mode));
        }
        if entry.path().is_dir() {
            found.extend(open_to_others(&entry.path()));
        }
    }
    found
}

/// Starts the server with the loosest umask there is.
fn without_umask(command: &mut Command) {
    let program = command.get_program().to_owned();
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let environment: Vec<_> =
        command.get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(program).args(args).envs(environment);
    shell.stdout(Stdio::piped()).stderr(Stdio::inherit());
    *command = shell;
}

#[tokio::test]
async fn nothing_that_the_server_writes_can_be_read_by_others() {
    let mut server = Server::prepared(&[]);
    let objects = server.dir.path().join("objects");
    server.set("BLUETICK_OBJECTS__DIR", objects.to_str().unwrap());
    server.started_by(without_umask);
    // Made by somebody else, and open: what is put into it is closed all the same.
    fs::create_dir(server.data()).unwrap();
    fs::set_permissions(server.data(), fs::Permissions::from_mode(0o755)).unwrap();
    server.restart();
    let alice = api(&server, "alice");
    let s3_ref = uploaded(&alice, "photo.png", "image/png", b"not really a photo").await;
    let (status, sent) = send(&alice, "bob", serde_json::json!({"s3_ref": s3_ref})).await;
    assert_eq!(status, 200, "{sent}");
    server.kill();
    server.restart();
    assert_eq!(open_to_others(&server.data()), []);
    assert_eq!(open_to_others(&objects), []);
    assert_eq!(fs::metadata(&objects).unwrap().permissions().mode() & 0o077, 0);
}

#[tokio::test]
async fn the_log_and_doctor_complain_of_an_open_directory() {
    let mut server = Server::prepared(&[]);
    fs::create_dir(server.data()).unwrap();
    fs::set_permissions(server.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let log = server.dir.path().join("log");
    // Its standard error goes into a file.
    server.started_by(|command| {
        let data = command.get_args().skip_while(|arg| *arg != "--data").nth(1).unwrap();
        let log = Path::new(data).with_file_name("log");
        command.stderr(fs::File::create(log).unwrap());
    });
    server.restart();
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("can be read by others") && said.contains("chmod 700"), "{said}");
    let doctor = server.run(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!doctor.status.success() && told.contains("fail  permissions"), "{told}");
    fs::set_permissions(server.data(), fs::Permissions::from_mode(0o700)).unwrap();
    let doctor = server.run(&["doctor"]);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
    server.kill();
    server.restart();
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains("can be read by others"), "{said}");
}
