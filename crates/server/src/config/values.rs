//! Types of single settings.

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Deserializer, de};

/// `true`, `false` or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
    Auto,
}

/// A secret value. Its `Debug` output hides it, so that no log or error shows it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

pub(super) fn listen_address<'de, D: Deserializer<'de>>(d: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(d)?;
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    numeric.parse().map_err(|_| {
        de::Error::custom(format_args!(
            "{text:?} is not an address with a port; write 127.0.0.1:8080, 0.0.0.0:8080 or [::]:8080"
        ))
    })
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct SwitchVisitor;
        impl de::Visitor<'_> for SwitchVisitor {
            type Value = Switch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"auto\"")
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Switch, E> {
                Ok(if on { Switch::On } else { Switch::Off })
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Switch, E> {
                match text {
                    "auto" => Ok(Switch::Auto),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        d.deserialize_any(SwitchVisitor)
    }
}

/// Whether a host, given without its port, is this machine's loopback.
pub fn is_loopback_name(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}
