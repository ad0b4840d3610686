//! Text without meaning, the same in every run.

/// Words of which text is made.
const WORDS: [&str; 32] = [
    "river", "market", "of", "the", "early", "morning", "and", "a", "quiet", "letter", "from",
    "north", "they", "found", "under", "paper", "with", "seven", "lights", "on", "every", "bridge",
    "until", "people", "came", "home", "to", "read", "about", "weather", "in", "spring",
];

/// A generator of numbers (Knuth's MMIX): only that they differ counts.
#[derive(Clone, Copy, Debug)]
struct Numbers(u64);

impl Numbers {
    /// For something of this name: others have others.
    fn from_name(name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    fn byte(&mut self) -> u8 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.to_be_bytes()[0]
    }
}

/// Returns this many bytes of words, for an item of this name; nothing in them ends a comment.
pub(super) fn words(name: &str, bytes: usize) -> String {
    let mut numbers = Numbers::from_name(name);
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[usize::from(numbers.byte()) % WORDS.len()]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_long_as_asked_and_always_the_same() {
        for bytes in [0, 1, 7, 5000] {
            assert_eq!(words("a", bytes).len(), bytes);
        }
        assert_eq!(words("a", 500), words("a", 500));
        assert_ne!(words("a", 500), words("b", 500));
        assert!(words("a", 5000).bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()));
    }
}
