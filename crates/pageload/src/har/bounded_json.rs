use std::io::{self, Read};

use super::limits::{HAR_DEPTH, HAR_STRING};

/// A JSON text that is read with little memory, whatever it says: its strings are cut to
/// [`HAR_STRING`] bytes, and it ends with an error where more than [`HAR_DEPTH`] lists and objects
/// are within each other.
#[derive(Debug)]
pub(crate) struct BoundedJson<R> {
    pub(crate) input: R,
    pub(crate) is_too_deep: bool,
    depth: usize,
    string: Option<InString>,
}

/// Position of the text within a string.
#[derive(Clone, Copy, Debug, Default)]
struct InString {
    length: usize,
    is_cut: bool,
    /// Bytes of an escape that are still to come; [`ESCAPE`] directly behind the backslash.
    escape: u8,
}

/// Longest rest of an escape: its kind, and the four digits of `\u`.
const ESCAPE: u8 = 5;

impl<R> BoundedJson<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, is_too_deep: false, depth: 0, string: None }
    }

    /// Returns true if a byte is kept.
    fn stays(&mut self, byte: u8) -> bool {
        match (&mut self.string, byte) {
            (Some(string), b'"') if string.escape == 0 => self.string = None,
            (Some(string), _) => return string.stays(byte),
            (None, b'"') => self.string = Some(InString::default()),
            (None, b'[' | b'{') => self.depth = self.depth.saturating_add(1),
            (None, b']' | b'}') => self.depth = self.depth.saturating_sub(1),
            (None, _) => {}
        }
        true
    }

    /// Moves the bytes that are kept to the front; returns their number.
    fn compact(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut kept = 0;
        for at in 0..bytes.len() {
            let Some(byte) = bytes.get(at).copied() else { break };
            if !self.stays(byte) {
                continue;
            }
            if let Some(place) = bytes.get_mut(kept) {
                *place = byte;
            }
            kept += 1;
            if self.depth > HAR_DEPTH {
                self.is_too_deep = true;
                return Err(io::Error::other("too deep"));
            }
        }
        Ok(kept)
    }
}

impl InString {
    fn stays(&mut self, byte: u8) -> bool {
        // No escape and no multi-byte character is cut in two.
        let is_within = self.escape > 0 || byte & 0b1100_0000 == 0b1000_0000;
        self.is_cut |= self.length >= HAR_STRING && !is_within;
        self.length = self.length.saturating_add(1);
        self.escape = match (self.escape, byte) {
            (0, b'\\') => ESCAPE,
            (ESCAPE, b'u') => ESCAPE - 1,
            (0 | ESCAPE, _) => 0,
            (more, _) => more - 1,
        };
        !self.is_cut
    }
}

impl<R: Read> Read for BoundedJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.input.read(buffer)?;
            let kept = self.compact(buffer.get_mut(..count).unwrap_or_default())?;
            // No bytes mean the end only if the input has ended, too.
            if kept > 0 || count == 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads in pieces of this size.
    fn read(text: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let mut json = BoundedJson::new(text);
        let mut all = Vec::new();
        let mut buffer = vec![0; piece];
        loop {
            match json.read(&mut buffer)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    fn string(text: &str) -> Option<String> {
        let read = read(text.as_bytes(), 1000).unwrap();
        serde_json::from_slice(&read).ok()
    }

    #[test]
    fn long_strings_are_cut_and_nothing_else() {
        let long = "x".repeat(HAR_STRING);
        let text = format!("{{\"a\": \"{long}yyy\", \"{long}y\": [\"{long}\", 1, \"\\\"{{[\"]}}");
        let cut = format!("{{\"a\": \"{long}\", \"{long}\": [\"{long}\", 1, \"\\\"{{[\"]}}");
        for piece in [1, 7, 4096, 1 << 20] {
            assert_eq!(read(text.as_bytes(), piece).unwrap(), cut.as_bytes(), "{piece}");
        }
    }

    #[test]
    fn truncated_strings_remain_valid() {
        for end in ["äöü", "\\u00e4b", "\\\\\\\\", "\\\"\\\"", "\u{1f600}\u{1f600}"] {
            for before in HAR_STRING - 8..=HAR_STRING {
                let text = format!("\"{}{end}\"", "x".repeat(before));
                let whole: String = serde_json::from_str(&text).unwrap();
                let read = string(&text).unwrap_or_else(|| panic!("{before} and {end}"));
                assert!(whole.starts_with(&read) && read.len() >= before.min(HAR_STRING));
                assert!(read.len() <= HAR_STRING + 6);
            }
        }
    }

    #[test]
    fn depth_is_bounded() {
        for (depth, is_read) in [(HAR_DEPTH, true), (HAR_DEPTH + 1, false)] {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(read(nested.as_bytes(), 4096).is_ok(), is_read, "{depth}");
        }
        // Brackets in strings, or side by side, add no depth.
        let beside = format!("[\"{}\", {}]", "[".repeat(HAR_DEPTH), "[],".repeat(HAR_DEPTH));
        assert!(read(beside.as_bytes(), 4096).is_ok());
    }

    proptest! {
        #[test]
        fn short_texts_come_through(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            piece in 1usize..100,
        ) {
            prop_assert_eq!(read(&bytes, piece).unwrap(), bytes);
        }
    }
}
