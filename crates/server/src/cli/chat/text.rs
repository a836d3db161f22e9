//! Other people's text on this terminal: made harmless, measured in columns, wrapped.

use bluetick_protocol::{Attachment, MessageFrame};
use ratatui::{style::Style, text::Span};

/// Replaces a character that could move the cursor, colour the screen or reverse the line.
const REPLACED: char = '\u{fffd}';

/// Text that is safe to print: no control characters but the newline.
pub(super) fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\n' => safe.push('\n'),
            '\r' => {
                if characters.peek() != Some(&'\n') {
                    safe.push('\n');
                }
            }
            '\t' => safe.push_str("    "),
            c if c.is_control() || is_direction(c) => safe.push(REPLACED),
            c => safe.push(c),
        }
    }
    safe
}

/// A message's text; of an attachment what it is, and then the text.
pub(super) fn shown(message: &MessageFrame) -> String {
    let body = harmless(&message.body);
    let Some(said) = &message.attachment else { return body };
    let attachment = serde_json::from_str::<Attachment>(said.as_str()).ok();
    let label = attachment.map(|attachment| harmless(attachment.label()).replace('\n', " "));
    match (label.filter(|label| !label.is_empty()), body.is_empty()) {
        (Some(label), true) => format!("📎 {label}"),
        (Some(label), false) => format!("📎 {label}: {body}"),
        (None, _) => format!("📎 {body}").trim_end().to_owned(),
    }
}

/// Overrides of the writing direction, which can make a line read as something else.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How many columns it takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// What the reader takes for single characters; each newline is one.
pub(super) fn graphemes(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            all.push("\n".to_owned());
        }
        let line = Span::raw(line);
        all.extend(line.styled_graphemes(Style::default()).map(|grapheme| grapheme.symbol.to_owned()));
    }
    all
}

/// Lines of at most `columns`, broken at spaces where that is possible.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    text.split('\n').flat_map(|line| wrap_line(line, columns.max(2))).collect()
}

fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut current, mut used) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        // The space that ends a word may hang over the edge: nobody sees it there.
        if used + width(word.trim_end()) > columns && used > 0 {
            lines.push(std::mem::take(&mut current));
            used = 0;
        }
        for grapheme in graphemes(word) {
            let wide = width(&grapheme);
            if used + wide > columns && grapheme != " " {
                lines.push(std::mem::take(&mut current));
                used = 0;
            }
            current.push_str(&grapheme);
            used += wide;
        }
    }
    lines.push(current);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_disarmed() {
        assert_eq!(harmless("a\x1b[31mb\x07\u{202e}c"), "a\u{fffd}[31mb\u{fffd}\u{fffd}c");
        assert_eq!(harmless("a\r\nb\rc\td"), "a\nb\nc    d");
    }

    #[test]
    fn lines_break_at_words_and_long_words_anywhere() {
        assert_eq!(wrap("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("one\n\ntwo", 10), ["one", "", "two"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn wide_characters_count_twice_and_stay_whole() {
        assert_eq!(width("日本"), 4);
        assert_eq!(wrap("日本語日本語", 5), ["日本", "語日", "本語"]);
        assert_eq!(graphemes("e\u{301}👩‍👩‍👧\nx"), ["e\u{301}", "👩‍👩‍👧", "\n", "x"]);
    }
}
