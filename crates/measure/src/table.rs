//! Tables of text, for the terminal.

use std::fmt::Write as _;

/// Lays rows out in columns as wide as their contents, with two spaces before each. Columns in
/// `left`, counted from 0, are aligned left, the others right.
pub(crate) fn table(rows: &[Vec<String>], left: &[usize]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut widths = vec![0; count];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match left.contains(&at) {
                true => write!(line, "  {cell:<width$}"),
                false => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Breaks words into lines, of which all but the first are indented as much as `mark` is long.
pub(crate) fn wrapped(mark: &str, words: &str, columns: usize) -> String {
    let mut text = mark.to_owned();
    let mut column = mark.len();
    for (at, word) in words.split(' ').enumerate() {
        let width = word.chars().count();
        if at > 0 && column + 1 + width > columns {
            let _ = write!(text, "\n{:1$}", "", mark.len());
            column = mark.len();
        } else if at > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text + "\n"
}

/// Returns a row of fixed texts.
pub(crate) fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Returns those of the names that are there, as one.
pub(crate) fn joined(names: &[&str], between: &str) -> String {
    let names: Vec<&str> = names.iter().copied().filter(|name| !name.is_empty()).collect();
    names.join(between)
}

/// Returns each of these once, in their order.
pub(crate) fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let rows = [header(&["arm", "ms"]), header(&["tls13", "7"]), header(&["é"])];
        assert_eq!(table(&rows, &[0]), "  arm    ms\n  tls13   7\n  é\n");
        assert_eq!(table(&rows, &[]), "    arm  ms\n  tls13   7\n      é\n");
        assert_eq!(table(&[], &[]), "");
    }

    #[test]
    fn lines_break_between_words() {
        let text = wrapped("  1. ", "word word word", 14);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 2 && lines[1].starts_with("     word"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 14), "{text}");
    }
}
