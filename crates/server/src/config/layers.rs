//! The layers of the configuration in order of precedence, and the errors for mistakes in them.

use std::path::Path;

use figment::{
    Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format as _, Toml},
    value::{Dict, Map, Value},
};
use serde::de::DeserializeOwned;

use super::{ConfigError, Overrides, defaults::DEFAULTS, variables};

pub(super) const ENV_PREFIX: &str = "BLUETICK_";
const ENVIRONMENT: &str = "the environment";

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
    let environment = Environment::read::<T>(variables)?;
    layers = layers.merge(&environment);
    if let Some(data) = overrides.data {
        layers = layers.merge(Flag { section: "server", key: "data_dir", value: data.display().to_string() });
    }
    if let Some(listen) = overrides.listen {
        layers = layers.merge(Flag { section: "server", key: "listen", value: listen });
    }
    layers.extract().map_err(|e| environment.unknown::<T>(&e).unwrap_or_else(|| explain(e, path)))
}

/// The variables that name a setting, as a layer.
struct Environment {
    root: Dict,
    names: Vec<String>,
}

impl Environment {
    /// Refuses a variable that looks like a setting and is none: otherwise a misspelt one would
    /// have no effect.
    fn read<T: DeserializeOwned>(
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let defaults: Dict = Figment::from(Toml::string(DEFAULTS)).extract().unwrap_or_default();
        let mut environment = Environment { root: Dict::new(), names: Vec::new() };
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(ENV_PREFIX) else { continue };
            let Some((section, key)) = rest.split_once("__") else {
                if variables::is_misspelt(rest, &text) {
                    return Err(variables::refusal::<T>(&name));
                }
                continue;
            };
            let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
            let value = env_value(&defaults, &section, &key, text);
            put(&mut environment.root, &section, &key, value);
            environment.names.push(name);
        }
        Ok(environment)
    }

    /// Names the variable that set a key which does not exist, if that is what is wrong.
    fn unknown<T: DeserializeOwned>(&self, error: &figment::Error) -> Option<ConfigError> {
        let Kind::UnknownField(field, _) = &error.kind else { return None };
        if error.metadata.as_ref()?.name != ENVIRONMENT {
            return None;
        }
        let mut path = error.path.clone();
        if path.last() != Some(field) {
            path.push(field.clone());
        }
        let wrong = format!("{ENV_PREFIX}{}", path.join("__"));
        let is_wrong = |name: &&String| {
            let (name, wrong) = (name.to_ascii_uppercase(), wrong.to_ascii_uppercase());
            name.strip_prefix(&wrong).is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
        };
        Some(variables::refusal::<T>(self.names.iter().find(is_wrong).unwrap_or(&wrong)))
    }
}

/// Inserts a value under its section. A nested section has two underscores before its keys as well.
fn put(root: &mut Dict, section: &str, key: &str, value: Value) {
    let entry = root.entry(section.to_owned()).or_insert_with(|| Value::from(Dict::new()));
    let Value::Dict(_, keys) = entry else { return };
    match key.split_once("__") {
        Some((inner, key)) => put(keys, inner, key, value),
        None => drop(keys.insert(key.to_owned(), value)),
    }
}

/// The text of a variable as a value of the type of the setting's default. Text settings are taken
/// literally: a secret of digits must not become a number.
fn env_value(defaults: &Dict, section: &str, key: &str, text: String) -> Value {
    let default = match defaults.get(section) {
        Some(Value::Dict(_, keys)) => keys.get(key),
        _ => None,
    };
    // Its section is commented out in the defaults.
    let is_list = matches!(default, Some(Value::Array(..))) || (section, key) == ("push", "webpush__hosts");
    let is_array = text.trim_start().starts_with('[');
    if is_list && !is_array {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        return Value::from(parts.map(str::to_owned).collect::<Vec<_>>());
    }
    // `pages` and `demo` take a boolean or the word "auto".
    let is_text = matches!(default, None | Some(Value::String(..))) && !matches!(section, "pages" | "demo");
    match is_text && !is_list {
        true => Value::from(text),
        false => text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {}),
    }
}

impl Provider for &Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
            .interpolater(|_, keys| format!("{ENV_PREFIX}{}", keys.join("__").to_ascii_uppercase()))
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.root.clone()))
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

/// An error that names the key and its source, without the value, which may be a secret.
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
