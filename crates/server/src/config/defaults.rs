//! The default settings inside the binary, and the part of them that an operator needs.

use clap::ValueEnum;

/// Every setting with its default. It is the first layer of the configuration.
pub(super) const DEFAULTS: &str = include_str!("../config.default.toml");

/// Begins the comment of settings that are for tests and for problems that no default foresees.
/// They are accepted like all others, but printed only on request.
const ADVANCED: &str = "# Advanced: ";

/// Which settings `bluetick serve --print-config` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrintedSettings {
    /// The settings that an operator chooses
    Common,
    /// Also those that rarely need a change
    All,
}

impl PrintedSettings {
    /// The settings as a commented TOML file.
    pub fn text(self) -> String {
        match self {
            PrintedSettings::All => DEFAULTS.to_owned(),
            PrintedSettings::Common => common(),
        }
    }
}

/// The defaults without the advanced settings: each goes from its comment to the last of the
/// consecutive keys below it.
fn common() -> String {
    let mut kept = String::new();
    let mut lines = DEFAULTS.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with(ADVANCED) {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        while lines.next_if(|line| !is_key(line)).is_some() {}
        while lines.next_if(|line| is_key(line) || line.starts_with("#  ")).is_some() {}
    }
    kept
}

/// Whether a line sets a key, or would if it were not commented out.
fn is_key(line: &str) -> bool {
    let line = line.strip_prefix("# ").unwrap_or(line);
    line.split_once(" = ").is_some_and(|(key, _)| {
        key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> usize {
        text.lines().filter(|line| is_key(line)).count()
    }

    #[test]
    fn advanced_settings_are_printed_only_on_request() {
        let (common, all) = (PrintedSettings::Common.text(), PrintedSettings::All.text());
        for shown in ["listen = ", "heartbeat_secs = ", "# jwks_url = ", "drain_secs = ", "[demo]\n"] {
            assert!(common.contains(shown) && all.contains(shown), "{shown}");
        }
        for hidden in ["Advanced", "ttl_secs", "write_timeout_secs", "sandbox_url", "# hosts", "#  "] {
            assert!(!common.contains(hidden) && all.contains(hidden), "{hidden}");
        }
        assert_eq!((keys(&common), keys(&all)), (81, 120));
    }
}
