//! Words of strangers on a terminal: nothing that is only meant to be read moves its cursor,
//! renames its window or turns its text around.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` with all but letters, marks, line feeds and tabs in the form `\u001b`.
///
/// It is the form of JSON, where such characters occur within strings alone: its meaning stays.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| matches!(letter, '\n' | '\t') || is_printable(letter))
}

/// Escapes a word in a line or a cell of a table: line feeds and tabs, too.
pub fn printable_word(text: &str) -> Cow<'_, str> {
    escaped(text, is_printable)
}

fn escaped(text: &str, is_plain: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_plain) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_plain(letter) {
            escaped.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    Cow::Owned(escaped)
}

/// Returns true for what the standard library prints as it is: no control or formatting characters,
/// such as those that change the direction of writing, and no unassigned ones.
fn is_printable(letter: char) -> bool {
    // Behind another letter, where combining marks belong.
    letter.is_ascii_graphic() || letter == ' ' || format!("a{letter}").escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_is_unchanged() {
        for text in ["", "www.example.com", "a 'b' \"c\" \\d", "größe 東京 café\u{301} ✓\n\tx"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn terminal_controls_are_escaped() {
        assert_eq!(printable("\x1b]0;owned\x07"), "\\u001b]0;owned\\u0007");
        assert_eq!(printable("a\rb\u{9b}31m"), "a\\u000db\\u009b31m");
        assert_eq!(printable("\u{202e}cod.exe\u{200b}"), "\\u202ecod.exe\\u200b");
        assert_eq!(printable("\u{e0041}"), "\\udb40\\udc41");
        assert_eq!(printable_word("a\nb\tc"), "a\\u000ab\\u0009c");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "a": "\u{9b}\u{202e}\u{e0041}\x1b\n\"" });
        let text = format!("{value:#}\n");
        assert!(text.contains('\u{9b}') && !printable(&text).contains('\u{9b}'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printable(&text)).unwrap(), value);
    }
}
