//! Where settings come from, in the order in which they win, and how a mistake in one is told.

use std::path::Path;

use figment::{
    Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format as _, Toml},
    value::{Dict, Map, Value},
};
use serde::de::DeserializeOwned;

use super::{ConfigError, DEFAULTS, Overrides};

const ENV_PREFIX: &str = "BLUETICK_";

pub(super) fn merge<T: DeserializeOwned>(
    path: Option<&Path>,
    variables: impl Iterator<Item = (String, String)>,
    overrides: Overrides,
) -> Result<T, ConfigError> {
    let mut layers = Figment::from(Toml::string(DEFAULTS));
    if let Some(path) = path {
        // Read here, because a provider would take a missing file for an empty one.
        let text = std::fs::read_to_string(path)
            .map_err(|e| ConfigError::Unreadable { path: path.display().to_string(), why: e.to_string() })?;
        layers = layers.merge(Named { toml: Toml::string(&text), name: path.display().to_string() });
    }
    layers = layers.merge(Environment::read(variables));
    if let Some(data) = overrides.data {
        layers = layers.merge(Flag { section: "server", key: "data_dir", value: data.display().to_string() });
    }
    if let Some(listen) = overrides.listen {
        layers = layers.merge(Flag { section: "server", key: "listen", value: listen });
    }
    layers.extract().map_err(|e| explain(e, path))
}

/// The variables with a section, as a layer. Names without two underscores are other programs' (Kubernetes puts
/// BLUETICK_PORT into every container beside a service of that name) or the command line's own.
struct Environment(Dict);

impl Environment {
    fn read(variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut root = Dict::new();
        for (name, text) in variables {
            let Some((section, key)) = name.strip_prefix(ENV_PREFIX).and_then(|n| n.split_once("__")) else {
                continue;
            };
            let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
            let value = env_value(&section, &key, text);
            put(&mut root, &section, &key, value);
        }
        Environment(root)
    }
}

/// Puts a value under its section; a section inside a section has two underscores before its keys as well.
fn put(root: &mut Dict, section: &str, key: &str, value: Value) {
    let entry = root.entry(section.to_owned()).or_insert_with(|| Value::from(Dict::new()));
    let Value::Dict(_, keys) = entry else { return };
    match key.split_once("__") {
        Some((inner, key)) => put(keys, inner, key, value),
        None => drop(keys.insert(key.to_owned(), value)),
    }
}

/// Text settings are taken as they stand: a secret of digits must not become a number on the way.
fn env_value(section: &str, key: &str, text: String) -> Value {
    let list = matches!(
        (section, key),
        ("limits", "allowed_origins")
            | ("server", "roles")
            | ("cluster", "app_servers")
            | ("redis", "urls")
            | ("push", "webpush__hosts")
            | ("attachments", "types")
    );
    let parsed = matches!(section, "limits" | "sessions" | "store" | "cold" | "pages" | "demo")
        || key.ends_with("_secs")
        || matches!(
            (section, key),
            ("push", "delay_ms" | "concurrency")
                | ("objects", "s3_path_style")
                | ("attachments", "enabled" | "max_bytes")
        )
        || text.trim_start().starts_with('[') && list;
    if list && !text.trim_start().starts_with('[') {
        return Value::from(
            text.split(',').map(str::trim).filter(|o| !o.is_empty()).map(str::to_owned).collect::<Vec<_>>(),
        );
    }
    match parsed {
        true => text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {}),
        false => Value::from(text),
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("the environment")
            .interpolater(|_, keys| format!("{ENV_PREFIX}{}", keys.join("__").to_ascii_uppercase()))
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}

/// A file's text under the file's name, for errors.
struct Named {
    toml: figment::providers::Data<Toml>,
    name: String,
}

impl Provider for Named {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        self.toml.data()
    }
}

struct Flag {
    section: &'static str,
    key: &'static str,
    value: String,
}

impl Provider for Flag {
    fn metadata(&self) -> Metadata {
        Metadata::named("the command line")
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let keys = Dict::from([(self.key.to_owned(), Value::from(self.value.clone()))]);
        let root = Dict::from([(self.section.to_owned(), Value::from(keys))]);
        Ok(Profile::Default.collect(root))
    }
}

/// A sentence that names the key and where it stands, without the value where that could be a secret.
fn explain(error: figment::Error, file: Option<&Path>) -> ConfigError {
    let place = match (&error.metadata, file) {
        (Some(metadata), _) => metadata.name.to_string(),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => "the configuration".to_owned(),
    };
    let mut path = error.path.clone();
    match error.kind {
        Kind::UnknownField(field, known) => {
            if path.last() != Some(&field) {
                path.push(field);
            }
            let known = match known {
                [] => "no key is known there".to_owned(),
                known => format!("known are {}", known.join(", ")),
            };
            ConfigError::UnknownKey { key: path.join("."), place, known }
        }
        // A syntax error of the file: it carries its own place.
        Kind::Message(text) if path.is_empty() => {
            let file = file.map(|p| format!("{}: ", p.display())).unwrap_or_default();
            ConfigError::Syntax(format!("{file}{}", text.trim_end()))
        }
        Kind::MissingField(field) => {
            path.push(field.into_owned());
            ConfigError::BadValue { key: path.join("."), place, why: "must be set".into() }
        }
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            ConfigError::BadValue { key: path.join("."), place, why: format!("must be {expected}") }
        }
        kind => ConfigError::BadValue { key: path.join("."), place, why: kind.to_string() },
    }
}
