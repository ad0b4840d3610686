/// Makes a recorded text safe for terminals and SVG files: replaces control characters, characters
/// that change the direction of text, and characters that XML does not allow by spaces.
///
/// Recordings come from anywhere, and what they name is shown to people.
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if is_plain(char) { char } else { ' ' }).collect()
}

fn is_plain(char: char) -> bool {
    let orders = matches!(char,
        // Marks, embeddings, overrides and isolates of the bidirectional algorithm (UAX 9, section
        // 2).
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Ends of lines and paragraphs.
        | '\u{2028}' | '\u{2029}'
        // Not in XML 1.0 (section 2.2).
        | '\u{fffe}' | '\u{ffff}');
    !orders && !char.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(printable("a\x1b[31mb\u{9b}2J\n\0\x7f"), "a [31mb 2J   ");
        assert_eq!(printable("a\u{202e}gpj.exe\u{2066}\u{200f}"), "a gpj.exe  ");
        assert_eq!(printable("\u{2028}\u{ffff}\u{fffe}"), "   ");
        let plain = "https://例え.test/ä?q=\u{1f600}&<'\">…";
        assert_eq!(printable(plain), plain);
    }
}
