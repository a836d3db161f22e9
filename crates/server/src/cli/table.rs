//! Rows as an aligned table.

use serde_json::Value;

/// Lays out rows under their column names, numbers to the right.
pub fn render(columns: &[&str], rows: &[Vec<Value>]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let width = |at: usize| {
        let longest = cells.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count()).max();
        longest.unwrap_or(0).max(columns[at].len())
    };
    let layout: Vec<(usize, bool)> = (0..columns.len())
        .map(|at| {
            (width(at), !rows.is_empty() && rows.iter().all(|r| r.get(at).is_some_and(Value::is_number)))
        })
        .collect();
    let names: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
    let mut table = String::new();
    for row in std::iter::once(&names).chain(&cells) {
        let mut line = String::new();
        for (text, &(width, is_number)) in row.iter().zip(&layout) {
            let pad = " ".repeat(width.saturating_sub(text.chars().count()));
            let (before, after) = if is_number { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.push_str(&format!("{before}{text}{after}  "));
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

/// A value as one cell. Control characters are escaped: names and previews come from other users,
/// and a terminal would execute them.
pub fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec![json!("alice~bob"), json!(7), json!(null)],
            vec![json!("a~b"), json!(1234), json!("x")],
        ];
        let table = render(&["conversation_id", "seq", "name"], &rows);
        assert_eq!(
            table,
            "conversation_id   seq  name\nalice~bob           7  -\na~b              1234  x\n"
        );
    }

    #[test]
    fn a_table_without_rows_still_names_its_columns() {
        assert_eq!(render(&["receiver_id", "seq"], &[]), "receiver_id  seq\n");
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do_by_a_name() {
        assert_eq!(cell(&json!("\u{1b}[2Jx")), "\u{fffd}[2Jx");
    }
}
