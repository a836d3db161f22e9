//! Validation of profiles. One user's name and avatar are shown to others, so a name must not
//! reorder or hide text, and an avatar must not make other users' devices call a host of the user's
//! choice.

use bluetick_protocol::{Profile, limits};

/// Who sets names and avatars. The operator may in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfileSource {
    /// The users themselves.
    #[default]
    User,
    /// The claims `name` and `picture` of their tokens.
    Token,
    /// Only the operator.
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileRules {
    pub source: ProfileSource,
    /// Hosts that avatars may be on, in lower case: `cdn.example` or `cdn.example:8443`; `*` for
    /// any. Avatars on the server itself, given as a path, need no entry.
    pub avatar_hosts: Vec<String>,
}

impl ProfileRules {
    /// The profile without surrounding white space, or what is wrong with it.
    pub(crate) fn check(&self, profile: Profile) -> Result<Profile, String> {
        let profile = Profile { name: tidy(profile.name), avatar_url: tidy(profile.avatar_url) };
        if let Some(name) = &profile.name {
            check_name(name)?;
        }
        if let Some(url) = &profile.avatar_url {
            self.check_avatar(url)?;
        }
        Ok(profile)
    }

    /// The same for a profile that nobody can correct: invalid parts are removed. Stored profiles
    /// are cleaned when they are shown, too, because they may be older than these rules.
    pub(crate) fn clean(&self, profile: Profile) -> Profile {
        let avatar_url = tidy(profile.avatar_url).filter(|url| self.check_avatar(url).is_ok());
        Profile { name: profile.name.and_then(shown_name), avatar_url }
    }

    fn check_avatar(&self, url: &str) -> Result<(), String> {
        if url.len() > limits::AVATAR_URL_MAX_BYTES {
            return Err("\"avatar_url\" may be at most 1024 bytes long".into());
        }
        // Browsers drop or replace some of these, so the checked URL would not be the one that is
        // called.
        let plain = |b: u8| b.is_ascii_graphic() && !b"\\\"<>`{}|^".contains(&b);
        if !url.bytes().all(plain) {
            return Err(
                "\"avatar_url\" must be an address in ASCII, with everything else percent-encoded".into()
            );
        }
        if url.starts_with('/') {
            return match url.starts_with("//") {
                true => Err("\"avatar_url\" must name its scheme, or be a path on this server".into()),
                false => Ok(()),
            };
        }
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "https" => "443",
            "http" => "80",
            _ => {
                return Err(
                    "\"avatar_url\" must be an http or https address, or a path on this server".into()
                );
            }
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        let host = authority.strip_suffix(&format!(":{default_port}")).unwrap_or(&authority);
        if host.is_empty() || host.contains('@') {
            return Err("\"avatar_url\" must name a host, without a user".into());
        }
        match self.avatar_hosts.iter().any(|allowed| allowed == "*" || allowed == host) {
            true => Ok(()),
            false => Err(format!(
                "\"avatar_url\" is on {host:?}, which is not among the hosts that this server allows; its operator \
                 lists them in profiles.avatar_hosts"
            )),
        }
    }
}

/// A stored name without invalid characters.
pub(crate) fn shown_name(name: String) -> Option<String> {
    let chars: Vec<char> = name.trim().chars().collect();
    let shown = (0..chars.len()).filter(|&at| may_be_shown(&chars, at)).map(|at| chars[at]);
    let mut clean: String = shown.collect();
    let end = (0..=clean.len().min(limits::NAME_MAX_BYTES)).rev().find(|&at| clean.is_char_boundary(at));
    clean.truncate(end.unwrap_or(0));
    tidy(Some(clean))
}

fn tidy(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

const ZWJ: char = '\u{200D}';
/// Requests the emoji presentation of the character before it.
const EMOJI_PRESENTATION: char = '\u{FE0F}';

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > limits::NAME_MAX_BYTES {
        return Err("\"name\" may be at most 128 bytes long".into());
    }
    let chars: Vec<char> = name.chars().collect();
    match (0..chars.len()).find(|&at| !may_be_shown(&chars, at)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "\"name\" has the character U+{:04X}: control characters, and those that are not seen or that change the \
             direction of text, are not allowed in names",
            u32::from(chars[at])
        )),
    }
}

/// Whether the character at this position may be part of a name. Joiners and presentation selectors
/// are allowed only inside an emoji.
fn may_be_shown(name: &[char], at: usize) -> bool {
    // Skin tones and presentation selectors belong to the emoji before them.
    let before = || name[..at].iter().rev().copied().find(|&c| !is_modifier(c));
    let joinable = |c: char| is_emoji(c) || is_keycap(c);
    match name[at] {
        ZWJ => before().is_some_and(is_emoji) && name.get(at + 1).copied().is_some_and(is_emoji),
        EMOJI_PRESENTATION => before().is_some_and(joinable),
        c => !is_hidden(c),
    }
}

/// Invisible characters, and those that change how others are displayed.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Direction of text.
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
            // Without width.
            | '\u{200B}' | '\u{200C}' | '\u{2060}'..='\u{2065}' | '\u{FEFF}'
            // Selectors of other forms.
            | '\u{180B}'..='\u{180D}' | '\u{180F}' | '\u{FE00}'..='\u{FE0E}' | '\u{E0100}'..='\u{E01EF}'
            // Separators, fillers and other characters without a glyph.
            | '\u{00AD}' | '\u{034F}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180E}'
            | '\u{2028}' | '\u{2029}' | '\u{206A}'..='\u{206F}' | '\u{3164}' | '\u{FFA0}'
            | '\u{2800}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E007F}')
}

fn is_modifier(c: char) -> bool {
    matches!(c, EMOJI_PRESENTATION | '\u{1F3FB}'..='\u{1F3FF}')
}

/// Digits and signs that become an emoji with a presentation selector.
fn is_keycap(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*' | '©' | '®' | '\u{203C}' | '\u{2049}' | '\u{2122}' | '\u{2139}')
}

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2BFF}' | '\u{1F000}'..='\u{1FAFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<Option<String>, String> {
        let profile = Profile { name: Some(name.into()), avatar_url: None };
        ProfileRules::default().check(profile).map(|profile| profile.name)
    }

    fn avatar(hosts: &[&str], url: &str) -> Result<(), String> {
        let avatar_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let rules = ProfileRules { avatar_hosts, ..ProfileRules::default() };
        rules.check(Profile { name: None, avatar_url: Some(url.into()) }).map(|_| ())
    }

    #[test]
    fn a_name_hides_nothing_and_keeps_its_direction() {
        for good in ["Ann", "Ann Ö.", "山田 太郎", "محمد", "👩‍👩‍👧", "👩🏽‍🚀 Ann", "❤️‍🔥", "O'Neil", "🏳️‍🌈", "José"]
        {
            assert_eq!(named(good), Ok(Some(good.to_owned())), "{good:?}");
        }
        assert_eq!(named("  Ann "), Ok(Some("Ann".into())));
        assert_eq!(named(" \n "), Ok(None));
        let bidi = (0x202A..=0x202E).chain(0x2066..=0x2069).chain([0x200E, 0x200F, 0x061C]);
        let hidden = [
            0x200B, 0x200C, 0x200D, 0x2060, 0x2065, 0xFEFF, 0x00AD, 0x3164, 0xE0041, 0x07, 0x1B, 0x85,
            0x2028, 0x2800, 0xFE00, 0xFE0F, 0x180B, 0x180F, 0xE0100, 0x1D173, 0x1BCA0,
        ];
        for code in bidi.chain(hidden) {
            let c = char::from_u32(code).unwrap();
            for name in [format!("A{c}B"), format!("Ann{c} ."), format!(". {c}Ann")] {
                let why = named(&name).expect_err(&format!("{name:?}"));
                assert!(why.contains(&format!("U+{code:04X}")), "{why}");
            }
        }
        for joined in ["a\u{200D}b", "👩\u{200D}", "👩\u{200D}b", "a\u{200D}👩", "👩\u{200D}\u{200D}👩"]
        {
            assert!(named(joined).is_err(), "{joined:?}");
        }
        assert!(named(&"n".repeat(129)).is_err());
    }

    #[test]
    fn an_avatar_is_on_a_host_that_is_allowed() {
        let hosts = ["cdn.example", "img.example:8443"];
        for good in [
            "/v1/blobs/x?sig=1",
            "https://cdn.example/a.png",
            "https://CDN.Example:443/a.png",
            "http://cdn.example:80?x",
            "https://img.example:8443/a#b",
        ] {
            assert_eq!(avatar(&hosts, good), Ok(()), "{good}");
        }
        for bad in [
            "https://evil.example/a.png",
            "https://cdn.example.evil.example/a.png",
            "https://cdn.example@evil.example/a.png",
            "https://evil.example\\@cdn.example/a.png",
            "https://cdn.example:8443/a.png",
            "https://img.example/a.png",
            "//evil.example/a.png",
            "/\\evil.example/a.png",
            "/\t/evil.example/a.png",
            "https:///a.png",
            "https:evil.example",
            "javascript:alert(1)",
            "data:image/png;base64,AAAA",
            "ftp://cdn.example/a.png",
            "a.png",
            "https://cdn.example/a b.png",
            "https://cdn.example/ä.png",
            "https://cdn.example/\u{202E}.png",
        ] {
            assert!(avatar(&hosts, bad).is_err(), "{bad}");
        }
        assert!(avatar(&hosts, &format!("/{}", "a".repeat(1024))).is_err());
        let why = avatar(&[], "https://cdn.example/a.png").unwrap_err();
        assert!(why.contains("profiles.avatar_hosts") && why.contains("cdn.example"), "{why}");
        assert_eq!(avatar(&["*"], "https://anywhere.example/a.png"), Ok(()));
        assert!(avatar(&["*"], "javascript://anywhere.example/a").is_err());
    }

    #[test]
    fn what_a_token_says_is_cleaned() {
        let rules = ProfileRules::default();
        let said = |name: &str, url: &str| Profile { name: Some(name.into()), avatar_url: Some(url.into()) };
        let clean = rules.clean(said(" Ann\u{202E}\u{200B} ", "https://evil.example/a.png"));
        assert_eq!(clean, Profile { name: Some("Ann".into()), avatar_url: None });
        let long = rules.clean(said(&"ö".repeat(100), "/a.png"));
        assert_eq!(long, said(&"ö".repeat(64), "/a.png"));
        assert!(rules.check(long).is_ok());
        assert_eq!(rules.clean(said("\u{200B}", "")), Profile::default());
        for whole in ["👩‍👩‍👧", "❤️‍🔥", "Ann 1️⃣"] {
            assert_eq!(rules.clean(said(whole, "/a.png")), said(whole, "/a.png"));
        }
    }
}
