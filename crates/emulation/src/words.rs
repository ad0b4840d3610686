//! The words that elements are written in.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::presets::PRESETS;
use crate::{Pick, Protocol};

/// Changes the seeds of inbound elements, so that they do not draw what the outbound ones draw (any
/// odd bits will do).
const INBOUND_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The least a link must carry unsplit (RFC 791 section 3.2).
const LEAST_MTU: u16 = 68;

/// Reason why a text is no list of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Words that may stand there.
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

/// Direction of an element's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the node.
    Outbound,
    /// To the node.
    Inbound,
}

/// The words that are left to read.
#[derive(Clone, Debug)]
pub(crate) struct Words<'t> {
    rest: Vec<&'t str>,
    /// For whose packets the elements are read.
    pub(crate) direction: Direction,
    /// Place of the element that is read, from 1.
    pub(crate) place: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn new(text: &'t str) -> Words<'t> {
        let mut rest: Vec<_> = split(text).collect();
        rest.reverse();
        Words { rest, direction: Direction::Outbound, place: 0 }
    }

    pub(crate) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next word if `read` makes something of it.
    pub(crate) fn take<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = read(self.rest.last()?)?;
        self.rest.pop();
        Some(value)
    }

    /// Takes this very word if it is the next.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        self.take(|next| (next == word).then_some(())).is_some()
    }

    /// An error: `what` should stand here.
    pub(crate) fn expected(&self, what: &str) -> ParseError {
        ParseError {
            expected: what.to_owned(),
            found: self.rest.last().map(|word| (*word).to_owned()),
        }
    }

    /// Place of the element that was read last, from 1.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Takes this very word.
    pub(crate) fn expect(&mut self, word: &str) -> Result<(), ParseError> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

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
        let Some(share) = self.take(probability) else {
            return Err(self.expected("a share from 0% to 100%, or `packets` and their numbers"));
        };
        Ok(Pick::random(share, self.seed()?))
    }

    /// Takes `[seed NUMBER]`.
    pub(crate) fn seed(&mut self) -> Result<u64, ParseError> {
        let seed = if self.take_word("seed") {
            self.take(|word| word.parse().ok())
                .ok_or_else(|| self.expected("a seed, 0 to 18446744073709551615"))?
        } else {
            self.place as u64
        };
        Ok(match self.direction {
            Direction::Outbound => seed,
            Direction::Inbound => seed ^ INBOUND_SEED,
        })
    }

    /// Takes a share in percent.
    pub(crate) fn share(&mut self) -> Result<f64, ParseError> {
        self.take(probability).ok_or_else(|| self.expected("a share from 0% to 100%"))
    }

    /// Takes the mean length of bursts.
    pub(crate) fn mean_length(&mut self) -> Result<f64, ParseError> {
        self.take(|word| word.parse().ok().filter(|length: &f64| *length >= 1.0))
            .ok_or_else(|| self.expected("a mean length in packets, from 1 on"))
    }

    /// Takes a number of packets, if there is one.
    pub(crate) fn take_count(&mut self) -> Option<u64> {
        self.take(packet_number)
    }

    /// Takes bits per second.
    pub(crate) fn rate(&mut self) -> Result<u64, ParseError> {
        let units = [("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];
        self.take(|word| with_unit(word, &units))
            .ok_or_else(|| self.expected("a rate such as 10Mbit, 512kbit or 1Gbit"))
    }

    /// Takes bytes.
    pub(crate) fn size(&mut self) -> Result<u64, ParseError> {
        let units = [("B", 1), ("kB", 1_000), ("MB", 1_000_000)];
        self.take(|word| with_unit(word, &units))
            .ok_or_else(|| self.expected("a size such as 64kB, 1MB or 1500B"))
    }

    /// Takes the longest length of packets.
    pub(crate) fn mtu(&mut self) -> Result<u16, ParseError> {
        self.take(|word: &str| word.parse().ok().filter(|mtu| *mtu >= LEAST_MTU))
            .ok_or_else(|| self.expected("a length of packets, 68 to 65535"))
    }

    pub(crate) fn port(&mut self) -> Result<u16, ParseError> {
        self.take(|word| word.parse().ok()).ok_or_else(|| self.expected("a port, 0 to 65535"))
    }

    /// Takes at least one IP address.
    pub(crate) fn addresses(&mut self) -> Result<Vec<IpAddr>, ParseError> {
        let mut addresses = Vec::new();
        while let Some(address) = self.take(|word| word.parse().ok()) {
            addresses.push(address);
        }
        if addresses.is_empty() { Err(self.expected("an IP address")) } else { Ok(addresses) }
    }

    /// Takes at least one domain name of two labels or more.
    pub(crate) fn names(&mut self) -> Result<Vec<String>, ParseError> {
        let is_name = |word: &str| word.contains('.').then(|| word.to_owned());
        let names: Vec<String> = std::iter::from_fn(|| self.take(is_name)).collect();
        if names.is_empty() { Err(self.expected("a domain name")) } else { Ok(names) }
    }

    /// Takes the name of a preset and puts what it stands for in its place.
    pub(crate) fn expand_preset(&mut self) -> Result<(), ParseError> {
        let Some(preset) = self.take(|word| PRESETS.iter().find(|preset| preset.name == word))
        else {
            let names = PRESETS.iter().map(|preset| preset.name);
            return Err(self.expected(&one_of("a preset", names)));
        };
        self.rest.extend(Words::new(preset.path).rest);
        Ok(())
    }

    /// Takes at least one number of a packet.
    pub(crate) fn packet_numbers(&mut self) -> Result<Vec<u64>, ParseError> {
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

pub(crate) fn one_of(what: &str, names: impl Iterator<Item = &'static str>) -> String {
    format!("{what} ({})", names.collect::<Vec<_>>().join(", "))
}

pub(crate) fn protocol(word: &str) -> Option<Protocol> {
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

/// A whole number above 0 with one of these units.
fn with_unit(word: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let number: u64 = word.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(*factor).filter(|value| *value > 0)
}

/// Words and brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let pieces = words.flat_map(|word| word.split_inclusive(['(', ')']));
    let parts = pieces.flat_map(|piece| {
        let bracket = usize::from(piece.ends_with(['(', ')']));
        let (word, bracket) = piece.split_at(piece.len() - bracket);
        [word, bracket]
    });
    parts.filter(|part| !part.is_empty())
}

fn packet_number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
