//! The line being written.

use super::text::{graphemes, harmless, width};

/// Stands for a line break inside the one line that is shown.
const LINE_BREAK: &str = "↵";

/// Text and cursor, both counted in what the reader takes for characters.
#[derive(Debug, Default)]
pub(super) struct TextInput {
    graphemes: Vec<String>,
    cursor: usize,
}

impl TextInput {
    pub(super) fn text(&self) -> String {
        self.graphemes.concat()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.graphemes.is_empty()
    }

    /// Gives the text away and begins anew.
    pub(super) fn take(&mut self) -> String {
        let text = self.text();
        *self = TextInput::default();
        text
    }

    /// Inserts at the cursor. The new text may join the character before it (an accent, a joined
    /// emoji), so the whole text is segmented again.
    pub(super) fn insert(&mut self, text: &str) {
        let before = self.graphemes[..self.cursor].concat() + &harmless(text);
        let after = self.graphemes[self.cursor..].concat();
        let whole = graphemes(&format!("{before}{after}"));
        let mut length = 0;
        let from_start = whole.iter().take_while(|grapheme| {
            length += grapheme.len();
            length <= before.len()
        });
        self.cursor = from_start.count();
        self.graphemes = whole;
    }

    pub(super) fn backspace(&mut self) {
        if self.cursor > 0 {
            self.cursor -= 1;
            self.graphemes.remove(self.cursor);
        }
    }

    pub(super) fn delete(&mut self) {
        if self.cursor < self.graphemes.len() {
            self.graphemes.remove(self.cursor);
        }
    }

    pub(super) fn left(&mut self) {
        self.cursor = self.cursor.saturating_sub(1);
    }

    pub(super) fn right(&mut self) {
        self.cursor = (self.cursor + 1).min(self.graphemes.len());
    }

    pub(super) fn home(&mut self) {
        self.cursor = 0;
    }

    pub(super) fn end(&mut self) {
        self.cursor = self.graphemes.len();
    }

    pub(super) fn delete_word(&mut self) {
        let before = &self.graphemes[..self.cursor];
        let is_space = |grapheme: &&String| grapheme.trim().is_empty();
        let spaces = before.iter().rev().take_while(is_space).count();
        let word = before.iter().rev().skip(spaces).take_while(|grapheme| !is_space(grapheme)).count();
        let start = self.cursor - spaces - word;
        self.graphemes.drain(start..self.cursor);
        self.cursor = start;
    }

    pub(super) fn delete_to_start(&mut self) {
        self.graphemes.drain(..self.cursor);
        self.cursor = 0;
    }

    /// The part that fits into `columns` with the cursor in sight, and the cursor's column in it.
    pub(super) fn window(&self, columns: usize) -> (String, usize) {
        let shown: Vec<&str> =
            self.graphemes.iter().map(|g| if g == "\n" { LINE_BREAK } else { g.as_str() }).collect();
        let mut start = self.cursor;
        let mut column = 0;
        // One column is left for the cursor itself.
        while start > 0 && column + width(shown[start - 1]) < columns {
            start -= 1;
            column += width(shown[start]);
        }
        let mut used = 0;
        let fitting = shown[start..].iter().take_while(|grapheme| {
            used += width(grapheme);
            used <= columns
        });
        (fitting.copied().collect(), column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> TextInput {
        let mut input = TextInput::default();
        input.insert(text);
        input
    }

    #[test]
    fn editing_moves_by_what_the_reader_sees() {
        let mut input = typed("añ👩‍👩‍👧b");
        input.left();
        input.backspace();
        assert_eq!(input.text(), "añb");
        input.home();
        input.delete();
        input.end();
        input.insert("!");
        assert_eq!(input.text(), "ñb!");
        input.left();
        input.left();
        input.insert("x");
        assert_eq!(input.text(), "ñxb!");
    }

    #[test]
    fn an_accent_joins_the_letter_before_it() {
        let mut input = typed("e");
        input.insert("\u{301}");
        input.backspace();
        assert!(input.is_empty());
    }

    #[test]
    fn words_and_lines_are_deleted_backwards() {
        let mut input = typed("one two  three  ");
        input.delete_word();
        assert_eq!(input.text(), "one two  ");
        input.delete_word();
        assert_eq!(input.text(), "one ");
        input.left();
        input.left();
        input.delete_to_start();
        assert_eq!(input.text(), "e ");
        input.delete_word();
        assert_eq!(input.take(), "e ");
        assert!(input.is_empty());
    }

    #[test]
    fn the_window_follows_the_cursor() {
        let mut input = typed("abcdefghij");
        assert_eq!(input.window(5), ("ghij".into(), 4));
        input.home();
        assert_eq!(input.window(5), ("abcde".into(), 0));
        assert_eq!(typed("日本語").window(5), ("本語".into(), 4));
        assert_eq!(typed("a\nb").window(9), ("a↵b".into(), 3));
        assert_eq!(typed("").window(0), (String::new(), 0));
    }
}
