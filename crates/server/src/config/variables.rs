//! Which environment variables are settings, and suggestions for misspelt ones.

use figment::{
    Figment,
    error::Kind,
    providers::{Format as _, Serialized, Toml},
    value::{Dict, Value},
};
use serde::de::DeserializeOwned;

use super::{ConfigError, defaults::DEFAULTS, layers::ENV_PREFIX};

/// Variables that are not settings: those of the command line, of `deploy/`, of a build, of
/// examples, and of tests and their scripts. None may differ from a setting only by an underscore,
/// because that mistake would go unnoticed.
const NO_SETTINGS: [&str; 14] = [
    "TOKEN",
    "HEALTH_URL",
    "FAILPOINT",
    "IMAGE",
    "COMMIT",
    "URL",
    "STATE",
    "DEMO_KEY",
    "BIN",
    "SERVICES_DIR",
    "SHOTS",
    "FUZZ_CASES",
    "LIBFUZZER_ARGS",
    "WRITE_SEEDS",
];
const OF_TESTS: &str = "TEST_";
/// A key that no section has.
const NO_KEY: &str = "?";

/// Whether a variable without two underscores was meant as a setting. `rest` is its name without
/// the prefix.
pub(super) fn is_misspelt(rest: &str, value: &str) -> bool {
    !NO_SETTINGS.contains(&rest) && !rest.starts_with(OF_TESTS) && !is_of_kubernetes(rest, value)
}

/// Kubernetes sets variables for the services of a namespace: one called `bluetick` or
/// `bluetick-app` becomes `BLUETICK_PORT`, `BLUETICK_APP_SERVICE_HOST`,
/// `BLUETICK_PORT_8080_TCP_ADDR` and more.
fn is_of_kubernetes(rest: &str, value: &str) -> bool {
    let words: Vec<&str> = rest.split('_').collect();
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    (words.last() == Some(&"PORT") && is_address)
        || words.windows(2).any(|pair| matches!(pair, ["SERVICE", "HOST" | "PORT"]))
        || words.windows(3).any(|three| {
            matches!(three, ["PORT", number, "TCP" | "UDP" | "SCTP"] if number.bytes().all(|b| b.is_ascii_digit()))
        })
}

pub(super) fn refusal<T: DeserializeOwned>(name: &str) -> ConfigError {
    let hint = match name {
        "BLUETICK_ADMIN_KEY" => {
            "the admin key is BLUETICK_ADMIN__KEY, with two underscores, for the server and for every command"
                .into()
        }
        "BLUETICK_JWT_SECRET" => "the secret for tokens is BLUETICK_AUTH__HS256_SECRET".into(),
        _ => match nearest(name, settings::<T>()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => {
                "a setting is BLUETICK_SECTION__KEY; `bluetick serve --print-config=all` lists all".into()
            }
        },
    };
    ConfigError::UnknownVariable { name: name.to_owned(), hint }
}

/// The setting that is spelt most like it, if one is.
fn nearest(name: &str, settings: Vec<String>) -> Option<String> {
    // How many underscores there are is the usual mistake.
    let bare = |text: &str| text.to_ascii_uppercase().replace("__", "_");
    let name = bare(name);
    let by_distance = settings.into_iter().map(|setting| (distance(&name, &bare(&setting)), setting));
    let (distance, setting) = by_distance.min()?;
    (distance * 3 <= name.len() - ENV_PREFIX.len()).then_some(setting)
}

/// How many letters must be added, dropped or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Every setting, as a variable. An unknown key makes serde list the known keys of a section; this
/// is slow and runs only for an error message.
fn settings<T: DeserializeOwned>() -> Vec<String> {
    let defaults = Figment::from(Toml::string(DEFAULTS));
    let mut found = Vec::new();
    let mut sections: Vec<Vec<&'static str>> = vec![Vec::new()];
    while let Some(section) = sections.pop() {
        for key in keys_of::<T>(&defaults, &section) {
            let path = [section.as_slice(), &[*key]].concat();
            match keys_of::<T>(&defaults, &path).is_empty() {
                true if section.is_empty() => {}
                true => found.push(format!("{ENV_PREFIX}{}", path.join("__").to_ascii_uppercase())),
                false => sections.push(path),
            }
        }
    }
    found
}

/// The keys of a section; none of what is no section.
fn keys_of<T: DeserializeOwned>(defaults: &Figment, section: &[&str]) -> &'static [&'static str] {
    let mut probe = Dict::from([(NO_KEY.to_owned(), Value::from(true))]);
    for name in section.iter().rev() {
        probe = Dict::from([((*name).to_owned(), Value::from(probe))]);
    }
    match defaults.clone().merge(Serialized::defaults(probe)).extract::<T>() {
        Err(error) => match error.kind {
            Kind::UnknownField(field, known) if field == NO_KEY => known,
            _ => &[],
        },
        Ok(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_setting_is_found_those_without_a_default_included() {
        let settings = settings::<Config>();
        for setting in [
            "BLUETICK_SERVER__LISTEN",
            "BLUETICK_ADMIN__KEY",
            "BLUETICK_TLS__CERT_FILE",
            "BLUETICK_PUSH__DELAY_MS",
            "BLUETICK_PUSH__APNS__TEAM_ID",
        ] {
            assert!(settings.iter().any(|known| known == setting), "{setting}: {settings:?}");
        }
        assert!(!settings.iter().any(|known| known == "BLUETICK_PUSH__APNS"), "a section is no setting");
    }

    #[test]
    fn a_misspelt_setting_is_refused_with_the_nearest_name() {
        for (misspelt, meant) in [
            ("BLUETICK_SERVER_LISTEN", "BLUETICK_SERVER__LISTEN"),
            ("BLUETICK_SERVER_DATADIR", "BLUETICK_SERVER__DATA_DIR"),
            ("BLUETICK_LIMITS_SEND_PER_SECOND", "BLUETICK_LIMITS__SENDS_PER_SECOND"),
            ("BLUETICK_PUSH_APNS_TEAM_ID", "BLUETICK_PUSH__APNS__TEAM_ID"),
            ("BLUETICK_ADMIN_KEY", "BLUETICK_ADMIN__KEY"),
            ("BLUETICK_CLUSTER_SECRET", "BLUETICK_CLUSTER__SECRET"),
            ("BLUETICK_JWT_SECRET", "BLUETICK_AUTH__HS256_SECRET"),
            ("BLUETICK_SOMETHING_ELSE", "BLUETICK_SECTION__KEY"),
        ] {
            assert!(is_misspelt(&misspelt[ENV_PREFIX.len()..], "x"), "{misspelt}");
            let told = refusal::<Config>(misspelt).to_string();
            assert!(told.contains(misspelt) && told.contains(meant), "{told}");
        }
    }

    /// A name in the list that is a setting's but for the underscores hides a mistake.
    #[test]
    fn nothing_that_is_let_pass_is_a_misspelt_setting() {
        let settings = settings::<Config>();
        for name in NO_SETTINGS {
            let taken =
                settings.iter().find(|known| known.replace("__", "_") == format!("{ENV_PREFIX}{name}"));
            assert_eq!(taken, None, "{name}");
        }
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        for (rest, value) in [
            ("PORT", "tcp://10.0.0.1:80"),
            ("APP_PORT", "udp://10.0.0.1:80"),
            ("SERVICE_HOST", "10.0.0.1"),
            ("SERVER_SERVICE_PORT", "80"),
            ("SERVICE_PORT_HTTP", "80"),
            ("PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("GATEWAY_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("TOKEN", "x"),
            ("DEMO_KEY", "0123456789abcdef"),
            ("COMMIT", "7057bf0"),
            ("IMAGE", "bluetick:0.1.0"),
            ("FAILPOINT", "send.committed"),
            ("TEST_REDIS", "redis://127.0.0.1"),
        ] {
            assert!(!is_misspelt(rest, value), "{rest}");
        }
        assert!(is_misspelt("PORT", "8080"));
    }
}
