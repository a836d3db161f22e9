//! Rows of text as an aligned table, or as one in Markdown.

#[derive(Debug, Default)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn to_text(&self) -> String {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let width = |at: usize| lines().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..self.header.len()).map(|at| width(at).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in lines() {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
            text.push('\n');
        }
        text
    }

    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.header);
        text.push_str(&line(&vec!["---".to_owned(); self.header.len()]));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// A number as people read it: with commas, and with digits behind the point only where it is small.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_in_text_and_stand_apart_in_markdown() {
        let mut table = Table::new(["", "Bluetick", "µs"]);
        table.row(["online", "60,000", "1"]);
        table.row(["stored for those away", "-", "1,000 (900–1,100)"]);
        assert_eq!(
            table.to_text(),
            "                        Bluetick                  µs\n\
             online                    60,000                   1\n\
             stored for those away          -   1,000 (900–1,100)\n"
        );
        assert_eq!(
            table.to_markdown(),
            "|  | Bluetick | µs |\n| --- | --- | --- |\n| online | 60,000 | 1 |\n\
             | stored for those away | - | 1,000 (900–1,100) |\n"
        );
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        assert_eq!(number(0.4), "0.40");
        assert_eq!(number(13.66), "13.7");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(104.0), "104");
    }
}
