use std::fs;

use super::{local::*, server::report_routes, *};
use crate::config::Config;

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
