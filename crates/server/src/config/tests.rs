use std::{path::Path, time::Duration};

use bluetick_chat::{ChatConfig, session::SessionConfig};
use bluetick_protocol::limits;
use bluetick_store::EmbeddedConfig;

use super::*;

fn load(file: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bluetick.toml");
    std::fs::write(&path, file).unwrap();
    let env: Vec<_> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Config::load_with(Some(&path), env.into_iter(), Overrides::default())
}

fn refused(file: &str) -> String {
    load(file, &[]).expect_err(file).to_string()
}

#[test]
fn the_defaults_hold_and_agree_with_the_limits_of_the_protocol() {
    let config = Config::load_with(None, std::iter::empty(), Overrides::default()).unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(config.limits.body_max_bytes, limits::BODY_DEFAULT_MAX_BYTES);
    assert_eq!(config.limits.frame_max_bytes, limits::FRAME_DEFAULT_MAX_BYTES);
    assert!(config.demo_is_on());
    assert!(!config.auth.is_configured());
    let (store, made) = (config.embedded_store(), EmbeddedConfig::new("x"));
    assert_eq!(store.checkpoint_bytes, made.checkpoint_bytes);
    assert_eq!(store.cache_bytes, made.cache_bytes);
    assert_eq!(store.free_space_floor_bytes, made.free_space_floor_bytes);
    assert_eq!(store.idempotency_window_ms, made.idempotency_window_ms);
    assert_eq!(format!("{:?}", config.chat()), format!("{:?}", ChatConfig::default()));
    let in_one_process =
        SessionConfig { reconcile_every: Duration::from_secs(600), ..SessionConfig::default() };
    assert_eq!(format!("{:?}", config.session()), format!("{in_one_process:?}"));
}

#[test]
fn both_printed_configurations_are_accepted_as_files() {
    for printed in [PrintedSettings::Common, PrintedSettings::All] {
        let config = load(&printed.text(), &[]).unwrap();
        let defaults = Config::load_with(None, std::iter::empty(), Overrides::default()).unwrap();
        assert_eq!(format!("{config:?}"), format!("{defaults:?}"), "{printed:?}");
    }
}

#[test]
fn later_layers_win() {
    let env = [("BLUETICK_LIMITS__SENDS_PER_SECOND", "7"), ("BLUETICK_PORT", "tcp://10.0.0.1:80")];
    let file = "[limits]\nsends_per_second = 5\nsend_burst = 9\n";
    let config = load(file, &env).unwrap();
    assert_eq!((config.limits.sends_per_second, config.limits.send_burst), (7, 9));
    let overrides = Overrides { data: Some("/d".into()), listen: Some("[::1]:9".into()) };
    let config = Config::load_with(None, std::iter::empty(), overrides).unwrap();
    assert_eq!(config.server.data_dir, Path::new("/d"));
    assert_eq!(config.server.listen, "[::1]:9".parse().unwrap());
}

#[test]
fn text_from_the_environment_stays_text_and_lists_are_read() {
    let digits = "0123456789012345678901234567890123456789";
    let env = [
        ("BLUETICK_AUTH__HS256_SECRET", digits),
        ("BLUETICK_LIMITS__ALLOWED_ORIGINS", "https://a.example, https://b.example:8443"),
        ("BLUETICK_DEMO__ENABLED", "false"),
    ];
    let config = load("", &env).unwrap();
    assert_eq!(config.auth.hs256_secret.as_ref().unwrap().expose(), digits);
    assert_eq!(config.limits.allowed_origins, ["https://a.example", "https://b.example:8443"]);
    assert_eq!(config.demo.enabled, Switch::Off);
    assert!(!format!("{config:?}").contains(digits), "debug output must not show keys");
    let config = load("", &[("BLUETICK_LIMITS__ALLOWED_ORIGINS", "[\"https://c.example\"]")]).unwrap();
    assert_eq!(config.limits.allowed_origins, ["https://c.example"]);
}

#[test]
fn unknown_keys_are_refused_by_name_and_place() {
    let error = refused("[limits]\nframe_max_byte = 1\n");
    assert!(error.contains("unknown key limits.frame_max_byte"), "{error}");
    assert!(error.contains("bluetick.toml") && error.contains("frame_max_bytes"), "{error}");
    let error = refused("[limit]\nx = 1\n");
    assert!(error.contains("unknown key limit in"), "{error}");
    let error = load("", &[("BLUETICK_SERVER__LISTN", "x")]).unwrap_err().to_string();
    assert!(error.contains("BLUETICK_SERVER__LISTN") && error.contains("environment"), "{error}");
    assert!(error.contains("did you mean BLUETICK_SERVER__LISTEN?"), "{error}");
    let error = load("", &[("BLUETICK_SERVR__LISTEN", "x")]).unwrap_err().to_string();
    assert!(error.contains("did you mean BLUETICK_SERVER__LISTEN?"), "{error}");
    let error = load("", &[("BLUETICK_SERVER_LISTEN", "x")]).unwrap_err().to_string();
    assert!(error.contains("did you mean BLUETICK_SERVER__LISTEN?"), "{error}");
}

#[test]
fn wrong_values_are_told_with_their_key() {
    let error = refused("[server]\nlisten = \"8080\"\n");
    assert!(error.contains("server.listen") && error.contains("127.0.0.1:8080"), "{error}");
    let error = refused("[limits]\nsend_burst = -1\n");
    assert!(error.contains("limits.send_burst"), "{error}");
    let error = refused("[auth]\nhs256_secret = 12345678\n");
    assert!(error.contains("auth.hs256_secret") && !error.contains("12345678"), "{error}");
    let error = refused("[server\n");
    assert!(error.contains("bluetick.toml"), "{error}");
    assert!(refused("[log]\nformat = \"xml\"\n").contains("log.format"));
    let missing =
        Config::load_with(Some(Path::new("/nonexistent.toml")), std::iter::empty(), Overrides::default());
    assert!(missing.unwrap_err().to_string().contains("/nonexistent.toml"));
}

#[test]
fn providers_of_notifications_are_set_up_by_their_sections() {
    let push = load("", &[]).unwrap().push;
    assert!(!push.is_configured() && push.check().is_ok());
    let env = [
        ("BLUETICK_PUSH__DELAY_MS", "50"),
        ("BLUETICK_PUSH__CONCURRENCY", "2"),
        ("BLUETICK_PUSH__WEBPUSH__KEY_FILE", "/vapid.pem"),
        ("BLUETICK_PUSH__WEBPUSH__HOSTS", "push.example, *.example.org"),
    ];
    let file = "[push.webpush]\nsubject = \"mailto:ops@example.org\"\n\
                [push.webhook]\nurl = \"http://app/\"\nsecret = \"0123456789012345678901234567890123456789\"";
    let push = load(file, &env).unwrap().push;
    assert_eq!((push.delay_ms, push.concurrency, push.unacked_secs), (50, 2, 20));
    let webpush = push.webpush.as_ref().unwrap();
    assert_eq!(webpush.key_file, Path::new("/vapid.pem"));
    assert_eq!(webpush.hosts, ["push.example", "*.example.org"]);
    assert!(push.is_configured() && !format!("{push:?}").contains("0123456789"));
    let config = load(file, &env).unwrap();
    assert_eq!(config.session().unacked_after, Some(Duration::from_secs(20)));
    let notifications = config.notifications();
    assert_eq!((notifications.delay, notifications.concurrency), (Duration::from_millis(50), 2));
    assert_eq!(notifications.sweep_every, Duration::from_secs(1));
    assert_eq!(load("", &[]).unwrap().session().unacked_after, None);
}

#[test]
fn half_a_provider_is_told_by_the_key_that_is_missing() {
    for (file, needle) in [
        ("[push.apns]\nkey_file = \"k\"\nkey_id = \"a\"\ntopic = \"t\"", "push.apns.team_id"),
        ("[push.fcm]\nurl = \"https://x.example\"", "push.fcm.service_account_file"),
        ("[push.webpush]\nkey_file = \"k\"", "push.webpush.subject"),
        ("[push.webhook]\nsecret_file = \"k\"", "push.webhook.url"),
        ("[push.webhook]\nurl = \"https://x.example\"", "secret_file"),
        ("[push.webhook]\nurl = \"https://x.example\"\nsecret = \"short\"", "push.webhook.secret"),
        ("[push.webhook]\nurl = \"ftp://x.example\"\nsecret_file = \"k\"", "push.webhook.url"),
        ("[push.fcm]\nservice_account_file = \"k\"\nurl = \"http://x.example\"", "https://"),
        ("[push.webpush]\nkey_file = \"k\"\nsubject = \"mailto: <a@b>\"", "push.webpush.subject"),
        (
            "[push.webpush]\nkey_file = \"k\"\nsubject = \"https://a.example\"\nhosts = [\"https://b\"]",
            "push.webpush.hosts",
        ),
        ("[push]\nconcurrency = 0", "push.concurrency"),
        ("[push]\ncontent = \"all\"", "push.content"),
        ("[push]\ntext = \" \"", "push.text"),
        ("[push.sms]\nurl = \"x\"", "push.sms"),
    ] {
        let error = refused(file);
        assert!(error.contains(needle), "{file}: {error}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (file, needle) in [
        ("[server]\nlisten = \"0.0.0.0:80\"", "auth.hs256_secret_file"),
        ("[server]\nlisten = \"[::]:80\"", "127.0.0.1"),
        ("[sessions]\nttl_secs = 40", "sessions.heartbeat_secs"),
        ("[limits]\nbody_max_bytes = 65536", "limits.frame_max_bytes"),
        ("[limits]\nbody_max_bytes = 0", "limits.body_max_bytes"),
        ("[limits]\nallowed_origins = [\"app.example/x\"]", "allowed_origins"),
        ("[sessions]\nwindow_messages = 0", "sessions.window_messages"),
        ("[sessions]\nheartbeat_secs = 9223372036854775807", "sessions.heartbeat_secs"),
        ("[limits]\nsends_per_second = 2000000000", "limits.sends_per_second"),
        ("[tls]\ncert_file = \"a\"", "key_file"),
        ("[admin]\nkey = \"0123456789012345678901234567890\"", "admin.key must be at least 32"),
        ("[auth]\nhs256_secret = \"short\"", "32 bytes"),
        ("[auth]\nhs256_secret_file = \"a\"\npublic_key_file = \"b\"", "only one"),
        ("[auth]\njwks_url = \"http://issuer.example/keys\"", "https://"),
        (
            "[auth]\nhs256_secret_file = \"a\"\n[server]\nlisten=\"0.0.0.0:1\"\n[demo]\nenabled=true",
            "demo.enabled",
        ),
        ("[auth]\njwks_url = \"https://issuer.example/keys\"\n[demo]\nenabled=true", "public key"),
        ("[server]\nroles = []", "server.roles"),
        ("[server]\nroles = [\"app\", \"app\"]", "server.roles"),
        ("[server]\nroles = [\"app\"]", "cluster.listen"),
        ("[cluster]\nlisten = \"0.0.0.0:7070\"", "cluster.advertise"),
        ("[cluster]\nlisten = \"0.0.0.0:7070\"\nadvertise = \"0.0.0.0:7070\"", "can reach"),
        ("[cluster]\nlisten = \"0.0.0.0:7070\"\nadvertise = \"a:7070\"", "nothing guards the cluster"),
        ("[cluster]\nlisten = \"127.0.0.1:7070\"\nsecret = \"short\"", "32 bytes"),
        (
            "[cluster]\nlisten = \"0.0.0.0:7070\"\nadvertise = \"a:7070\"\nsecret_file = \"f\"",
            "cluster.allow_plaintext = true",
        ),
        (
            "[cluster]\nlisten = \"127.0.0.1:7070\"\napp_servers = [\"10.0.0.8:7070\"]\nsecret_file = \"f\"",
            "cluster.allow_plaintext = true",
        ),
        ("[cluster]\nlisten = \"127.0.0.1:7070\"\nca_file = \"a\"", "cert_file"),
        ("[cluster]\nlisten = \"127.0.0.1:7070\"", "store.backend"),
        ("[server]\nroles = [\"gateway\"]\n[cluster]\nlisten = \"127.0.0.1:7070\"", "redis.urls"),
        ("[store]\nbackend = \"dynamodb\"", "redis.urls"),
        ("[store]\nbackend = \"dynamodb\"\n[redis]\nurls = [\"u:p@h:1\"]", "redis://"),
        ("[store]\nbackend = \"dynamodb\"\n[redis]\nurls = [\"redis://a\", \"redis://b\"]", "redis.mode"),
        (
            "[store]\nbackend = \"dynamodb\"\n[redis]\nurls = [\"redis://a\"]\nmode = \"sentinel\"",
            "redis.master",
        ),
        ("[objects]\ndir = \"a\"\ns3_bucket = \"b\"", "only one"),
        ("[objects]\ns3_region = \"eu-west-1\"", "objects.s3_bucket"),
        ("[objects]\ns3_bucket = \"s3://b\"", "objects.s3_bucket"),
        ("[objects]\ns3_bucket = \"b\"\ns3_access_key_id = \"k\"", "s3_secret_access_key"),
        ("[objects]\ns3_bucket = \"b\"\ns3_endpoint = \"s3.example.org\"", "https://"),
        ("[objects]\ns3_bucket = \"b\"\ns3_endpoint = \"http://127.0.0.1:9000\"", "s3_path_style"),
        ("[objects]\ns3_bucket = \"b\"\ns3_prefix = \"a//b\"", "objects.s3_prefix"),
        ("[attachments]\nmax_bytes = 0", "attachments.max_bytes"),
        ("[attachments]\nupload_expires_secs = 604801", "attachments.upload_expires_secs"),
        ("[attachments]\ntypes = [\"pictures\"]", "attachments.types"),
        ("[attachments]\npublic_url = \"chat.example\"", "attachments.public_url"),
        (
            "[store]\nbackend = \"dynamodb\"\n[redis]\nurls = [\"redis://a\"]\n[objects]\ndir = \"d\"",
            "objects.s3_bucket",
        ),
    ] {
        let error = refused(file);
        assert!(error.contains(needle), "{file}: {error}");
    }
    assert!(load("[server]\nlisten = \"0.0.0.0:80\"\n[auth]\nhs256_secret_file = \"f\"", &[]).is_ok());
    assert!(load("[auth]\njwks_url = \"http://127.0.0.1:9/keys\"", &[]).is_ok());
}

#[test]
fn a_cluster_beyond_this_machine_needs_a_secret_or_certificates() {
    let guards = [
        "secret = \"0123456789012345678901234567890123456789\"",
        "secret_file = \"f\"",
        "ca_file = \"a\"\ncert_file = \"b\"\nkey_file = \"c\"",
    ];
    for (settings, named) in [
        ("allow_plaintext = true", "cluster.allow_plaintext is true"),
        ("advertise = \"10.0.0.7:7070\"", "cluster.advertise is 10.0.0.7:7070"),
        ("advertise = \"chat-1.internal:7070\"", "cluster.advertise"),
        ("app_servers = [\"127.0.0.1:1\", \"10.0.0.8:7070\"]", "cluster.app_servers names 10.0.0.8"),
        ("app_servers = [\"a:1\"]\nallow_plaintext = true", "cluster.app_servers"),
    ] {
        let file = format!("[cluster]\nlisten = \"127.0.0.1:7070\"\n{settings}\n");
        let error = refused(&file);
        assert!(error.contains(named) && error.contains("cluster.secret_file"), "{file}: {error}");
        for guard in guards {
            // Something else is wrong with it: the backend, or what goes in clear text.
            let error = refused(&format!("{file}{guard}"));
            assert!(!error.contains("nothing guards the cluster"), "{file}{guard}: {error}");
        }
    }
    let near =
        "[cluster]\nlisten = \"[::1]:7070\"\nadvertise = \"localhost:7070\"\napp_servers = [\"127.0.0.1:1\"]";
    assert!(refused(near).contains("store.backend"), "one machine needs no guard");
    assert!(load("[cluster]\nallow_plaintext = true", &[]).is_ok(), "there is no cluster");
}

#[test]
fn objects_are_in_a_bucket_or_else_in_the_data_directory() {
    let config = load("[server]\ndata_dir = \"/d\"", &[]).unwrap();
    assert_eq!(config.objects_dir(), Path::new("/d/objects"));
    let env = [
        ("BLUETICK_OBJECTS__S3_BUCKET", "chat"),
        ("BLUETICK_OBJECTS__S3_PREFIX", "/blue/tick/"),
        ("BLUETICK_OBJECTS__S3_ENDPOINT", "http://127.0.0.1:9"),
        ("BLUETICK_OBJECTS__S3_PATH_STYLE", "true"),
        ("BLUETICK_OBJECTS__S3_ACCESS_KEY_ID", "1234512345"),
        ("BLUETICK_OBJECTS__S3_SECRET_ACCESS_KEY", "6789067890"),
    ];
    let config = load("", &env).unwrap();
    assert!(config.objects.s3_path_style);
    let objects = config.object_store().unwrap().unwrap();
    assert_eq!(objects.place(), "s3://chat/blue/tick");
    let shown = format!("{config:?}{objects:?}");
    assert!(!shown.contains("1234512345") && !shown.contains("6789067890"), "{shown}");
}

const GATEWAY: [(&str, &str); 7] = [
    ("BLUETICK_SERVER__ROLES", "gateway"),
    ("BLUETICK_CLUSTER__LISTEN", "127.0.0.1:7070"),
    ("BLUETICK_CLUSTER__APP_SERVERS", "10.0.0.8:7070, 10.0.0.9:7070"),
    ("BLUETICK_REDIS__URLS", "redis://10.0.0.2:6379"),
    ("BLUETICK_CLUSTER__ALLOW_PLAINTEXT", "true"),
    ("BLUETICK_CLUSTER__SECRET", "a secret that all processes of a test share"),
    ("BLUETICK_STORE__BACKEND", "dynamodb"),
];

#[cfg(feature = "cluster")]
#[test]
fn a_process_of_a_cluster_looks_more_often() {
    let config = load("", &GATEWAY).unwrap();
    assert!(config.is_gateway() && !config.is_app() && !config.is_one_process());
    assert_eq!(config.cluster.app_servers, ["10.0.0.8:7070", "10.0.0.9:7070"]);
    assert_eq!(config.cluster.advertised("127.0.0.1:9".parse().unwrap()), "127.0.0.1:9");
    assert!(config.session().reconcile_every <= config.session().overlap);
    assert_eq!(load("", &[]).unwrap().session().reconcile_every, Duration::from_secs(600));
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_build_for_one_process_says_how_to_get_another() {
    let error = load("", &GATEWAY).unwrap_err().to_string();
    assert!(error.contains("--features cluster") && error.contains("store.backend"), "{error}");
    let error = load("", &GATEWAY[..6]).unwrap_err().to_string();
    assert!(error.contains("cluster.listen needs a build"), "{error}");
}
