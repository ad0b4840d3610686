use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::element::{Element, KINDS, Only};
use crate::{Pick, Protocol};

/// Seed of a random pick whose text names none; fixed, so that a run can be repeated.
const DEFAULT_SEED: u64 = 1;

/// The text forms of all elements, for help texts.
pub fn element_forms() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.form)
}

/// Parses a list of elements such as `delay 50ms, udp loss packets 2,5`; empty text is an empty list.
///
/// Commas and line ends are blanks. Times are written `50ms`, `200us` or `1.5s`; packets are counted from 1; a seed
/// that is not given is 1.
pub fn parse_elements(text: &str) -> Result<Vec<Box<dyn Element>>, ParseError> {
    let mut words = Words::new(text);
    let mut elements = Vec::new();
    while !words.at_end() {
        elements.push(element(&mut words)?);
    }
    Ok(elements)
}

/// Why a text is no list of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What may stand there.
    pub expected: String,
    /// The word that stands there instead; `None` at the end of the text.
    pub found: Option<String>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(word) => write!(f, "expected {}, found `{word}`", self.expected),
            None => write!(f, "expected {}, found the end", self.expected),
        }
    }
}

impl std::error::Error for ParseError {}

fn element(words: &mut Words<'_>) -> Result<Box<dyn Element>, ParseError> {
    let narrowed = words.take(protocol);
    let Some(kind) = words.take(|word| KINDS.iter().find(|kind| kind.name == word)) else {
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(words.expected(&format!("an element ({})", names.join(", "))));
    };
    let element = (kind.parse)(words)?;
    Ok(match narrowed {
        Some(protocol) => Box::new(Only::new(protocol, element)),
        None => element,
    })
}

fn protocol(word: &str) -> Option<Protocol> {
    match word {
        "udp" => Some(Protocol::Udp),
        "tcp" => Some(Protocol::Tcp),
        _ => None,
    }
}

fn time(word: &str) -> Option<Duration> {
    let units = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = f64::from_str(word.strip_suffix(units)?).ok()?;
    let seconds = match units {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn probability(word: &str) -> Option<f64> {
    let percent = f64::from_str(word.strip_suffix('%')?).ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

fn packet_number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number > 0)
}

/// The words that are left to read.
pub(crate) struct Words<'t> {
    rest: Vec<&'t str>,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Words<'t> {
        let mut rest: Vec<_> =
            text.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty()).collect();
        rest.reverse();
        Words { rest }
    }

    fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next word if `read` makes something of it.
    fn take<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = read(self.rest.last()?)?;
        self.rest.pop();
        Some(value)
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.take(|next| (next == word).then_some(())).is_some()
    }

    fn expected(&self, what: &str) -> ParseError {
        ParseError {
            expected: what.to_owned(),
            found: self.rest.last().map(|word| (*word).to_owned()),
        }
    }

    /// Takes this very word.
    pub(crate) fn expect(&mut self, word: &str) -> Result<(), ParseError> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Takes a time.
    pub(crate) fn time(&mut self) -> Result<Duration, ParseError> {
        self.take(time).ok_or_else(|| self.expected("a time such as 50ms, 200us or 1.5s"))
    }

    /// Takes `udp` or `tcp`.
    pub(crate) fn protocol(&mut self) -> Result<Protocol, ParseError> {
        self.take(protocol).ok_or_else(|| self.expected("udp or tcp"))
    }

    /// Takes `PERCENT [seed NUMBER]` or `packets NUMBER NUMBER...`.
    pub(crate) fn pick(&mut self) -> Result<Pick, ParseError> {
        if self.take_word("packets") {
            return self.packet_numbers().map(Pick::exact);
        }
        let Some(probability) = self.take(probability) else {
            return Err(self.expected("a share from 0% to 100%, or `packets` and their numbers"));
        };
        let seed = if self.take_word("seed") { self.seed()? } else { DEFAULT_SEED };
        Ok(Pick::random(probability, seed))
    }

    fn seed(&mut self) -> Result<u64, ParseError> {
        self.take(|word| word.parse().ok())
            .ok_or_else(|| self.expected("a seed, 0 to 18446744073709551615"))
    }

    fn packet_numbers(&mut self) -> Result<Vec<u64>, ParseError> {
        let mut numbers = Vec::new();
        while let Some(number) = self.take(packet_number) {
            numbers.push(number);
        }
        if numbers.is_empty() {
            Err(self.expected("packet numbers, counted from 1"))
        } else {
            Ok(numbers)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        format!("{:?}", parse_elements(text).unwrap())
    }

    fn refused(text: &str) -> String {
        parse_elements(text).unwrap_err().to_string()
    }

    #[test]
    fn times() {
        for (word, micros) in
            [("50ms", 50_000), ("200us", 200), ("1.5s", 1_500_000), ("0ms", 0), (".5ms", 500)]
        {
            assert_eq!(time(word), Some(Duration::from_micros(micros)), "{word}");
        }
        for word in [
            "",
            "ms",
            "50",
            "50m",
            "-1ms",
            "1e3ms",
            "1.2.3s",
            "99999999999999999999s",
            "nans",
            "50 ms",
        ] {
            assert_eq!(time(word), None, "{word}");
        }
    }

    #[test]
    fn lists() {
        assert_eq!(parsed(""), "[]");
        assert_eq!(parsed(" ,\n"), "[]");
        assert_eq!(parsed("delay 50ms"), "[Delay(50ms)]");
        assert_eq!(
            parsed("delay 1ms,delay 2ms\ndelay 3ms"),
            "[Delay(1ms), Delay(2ms), Delay(3ms)]"
        );
        assert_eq!(
            parsed("udp loss packets 2,5, delay 1ms"),
            "[Only { protocol: Udp, inner: Loss(Pick { seen: 0, rule: Exact({2, 5}) }) }, Delay(1ms)]"
        );
        assert_eq!(
            parsed("drop tcp"),
            "[Only { protocol: Tcp, inner: Loss(Pick { seen: 0, rule: Every }) }]"
        );
        assert_eq!(
            parsed("reorder packets 3 by 10ms"),
            "[Reorder { picked: Pick { seen: 0, rule: Exact({3}) }, hold: 10ms }]"
        );
        assert!(
            parsed("duplicate 5% seed 7")
                .starts_with("[Duplicate(Pick { seen: 0, rule: Random { probability: 0.05")
        );
    }

    #[test]
    fn a_seed_not_given_is_one() {
        assert_eq!(parsed("loss 5%"), parsed("loss 5% seed 1"));
        assert_ne!(parsed("loss 5%"), parsed("loss 5% seed 2"));
    }

    #[test]
    fn errors_name_the_word_and_what_may_stand_there() {
        assert_eq!(refused("delay"), "expected a time such as 50ms, 200us or 1.5s, found the end");
        assert_eq!(refused("delay 50"), "expected a time such as 50ms, 200us or 1.5s, found `50`");
        assert_eq!(
            refused("delay 5ms jitter"),
            "expected an element (delay, drop, duplicate, loss, reorder), found `jitter`"
        );
        assert_eq!(
            refused("udp"),
            "expected an element (delay, drop, duplicate, loss, reorder), found the end"
        );
        assert_eq!(refused("drop"), "expected udp or tcp, found the end");
        assert_eq!(refused("loss packets 0"), "expected packet numbers, counted from 1, found `0`");
        assert_eq!(refused("reorder 5% 10ms"), "expected `by`, found `10ms`");
        assert_eq!(
            refused("loss 5% seed -1"),
            "expected a seed, 0 to 18446744073709551615, found `-1`"
        );
        for share in ["101%", "-1%", "5", "nan%"] {
            let expected = "expected a share from 0% to 100%, or `packets` and their numbers";
            assert_eq!(refused(&format!("loss {share}")), format!("{expected}, found `{share}`"));
        }
    }

    #[test]
    fn every_form_starts_with_its_name() {
        for kind in KINDS {
            assert!(kind.form.split(' ').any(|word| word == kind.name), "{}", kind.form);
        }
        assert_eq!(element_forms().count(), KINDS.len());
    }
}
