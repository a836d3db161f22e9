//! How a browser treats a download: displayed only if it is harmless, otherwise saved under its
//! name (RFC 6266, RFC 8187).

/// The value of `Content-Disposition`.
pub fn disposition(mime: &str, name: &str) -> String {
    let kind = if is_shown(mime) { "inline" } else { "attachment" };
    let plain: String = name
        .chars()
        .map(|c| match c {
            '"' | '\\' | '%' => '_',
            c if c == ' ' || c.is_ascii_graphic() => c,
            _ => '_',
        })
        .collect();
    let mut value = format!("{kind}; filename=\"{plain}\"");
    if plain != name {
        value.push_str("; filename*=UTF-8''");
        for b in name.bytes() {
            match b.is_ascii_alphanumeric() || b"-._~!#$&+^`|".contains(&b) {
                true => value.push(char::from(b)),
                false => value.push_str(&format!("%{b:02X}")),
            }
        }
    }
    value
}

fn is_shown(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/avif")
        || essence.starts_with("video/")
        || essence.starts_with("audio/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_types_are_shown_and_every_name_survives() {
        assert_eq!(disposition("image/png", "a b.png"), "inline; filename=\"a b.png\"");
        for saved in ["image/svg+xml", "text/html", "application/pdf", "application/xhtml+xml"] {
            assert!(disposition(saved, "x").starts_with("attachment;"), "{saved}");
        }
        assert_eq!(
            disposition("text/plain", "Zoë \"1\".txt"),
            "attachment; filename=\"Zo_ _1_.txt\"; filename*=UTF-8''Zo%C3%AB%20%221%22.txt"
        );
    }
}
