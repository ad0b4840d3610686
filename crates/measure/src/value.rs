//! Values of options and of experiment files.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use headstart_openers::CONNECTIONS_MAX;
use headstart_pageload::sim::tcp::Pools;

/// Longest round trip of an emulated link: three of them fit the time a connection has (30 s), and
/// a calibration's echoes of one the queue of the link.
const RTT_MAX: Duration = Duration::from_secs(5);

/// A round trip to emulate.
pub(crate) fn emulated_rtt(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(rtt) if rtt <= RTT_MAX => Ok(rtt),
        Ok(_) => Err("longer than 5s".into()),
        Err(error) => Err(format!("{error}; write for example 100ms")),
    }
}

/// Slowest link that is simulated, in bits a second: below, a page takes hours.
const RATE_MIN: u64 = 8_000;

/// Bytes a second of a rate in bits.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9), ("bit", 1.0)];
    let bits = units.into_iter().find_map(|(unit, factor): (&str, f64)| {
        let count: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        count.is_finite().then_some(count * factor)
    });
    let bits = bits.ok_or("not a rate; write for example 8Mbit, 512kbit or 1Gbit")?;
    match bits {
        bits if bits < RATE_MIN as f64 => Err("less than 8kbit".into()),
        bits if bits > 1e12 => Err("more than 1000Gbit".into()),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within these bounds
        bits => Ok((bits / 8.0) as u64),
    }
}

/// Over which connections a page is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// At most this many to each server at a time, each for any waiting resource.
    Pool(usize),
    /// Each resource over that on which it was recorded.
    Recorded,
}

impl Default for Connections {
    /// The pools of browsers.
    fn default() -> Self {
        Self::Pool(Pools::default().connections)
    }
}

impl FromStr for Connections {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "recorded" {
            return Ok(Self::Recorded);
        }
        let number = text.parse().ok().filter(|number| (1..=CONNECTIONS_MAX).contains(number));
        number.map(Self::Pool).ok_or_else(|| {
            format!("'{text}' is neither `recorded` nor a number up to {CONNECTIONS_MAX}")
        })
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(number) => write!(f, "{number}"),
            Self::Recorded => f.write_str("recorded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_bits() {
        assert_eq!(rate("8Mbit"), Ok(1_000_000));
        assert_eq!((rate("512kbit"), rate("1.5 Mbit")), (Ok(64_000), Ok(187_500)));
        assert_eq!((rate("8kbit"), rate("8000bit")), (Ok(1_000), Ok(1_000)));
        for wrong in ["", "8", "Mbit", "8MB", "0Mbit", "7999bit", "-8Mbit", "NaNMbit", "infMbit"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
