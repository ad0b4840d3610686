//! Text of others on a page.

use std::fmt::{self, Write};

/// Text of others, harmless between tags and in quoted attributes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Control characters are not for pages; those that turn the writing direction would
                // show another name than there is.
                '\0'..='\x1f'
                | '\x7f'..='\u{9f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => f.write_char('\u{fffd}')?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_do_not_pass() {
        assert_eq!(Escaped("<a b=\"'&\">").to_string(), "&lt;a b=&quot;&#39;&amp;&quot;&gt;");
        assert_eq!(Escaped("a\n\u{202e}b\0").to_string(), "a\u{fffd}\u{fffd}b\u{fffd}");
    }
}
