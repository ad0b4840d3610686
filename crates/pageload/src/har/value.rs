//! Values of HAR files, as different programs write them.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::limits::LONGEST;

/// A value of any type: some programs write numbers as text, and everyone uses `_fields` as they
/// like.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Scalar {
    /// Nothing, a list or an object.
    #[default]
    None,
    Bool(bool),
    Number(f64),
    Text(String),
}

impl Scalar {
    /// Returns text that is not empty.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns a number, even if written as text.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
    }

    /// Returns true for a yes.
    pub(crate) fn is_set(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(yes) => *yes,
            Self::Number(number) => *number != 0.0,
            Self::Text(text) => !matches!(text.as_str(), "" | "0" | "false"),
        }
    }

    /// Returns the name: text, or a number.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Self::Number(number) => Some(number.to_string()),
            _ => self.text().map(str::to_owned),
        }
    }
}

/// Written by hand: serde's untagged enums buffer a value before looking at it, however large it
/// is.
impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        #[allow(clippy::cast_precision_loss)] // identifiers are far below 2^53
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_bool<E: Error>(self, yes: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(yes))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
                Ok(Scalar::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::None)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// Converts milliseconds; `None` where they make no sense. No time of a page exceeds a day.
pub(crate) fn time(ms: Option<f64>) -> Duration {
    let ms = ms.filter(|ms| ms.is_finite()).unwrap_or_default();
    let longest = LONGEST.as_secs_f64() * 1e3;
    Duration::try_from_secs_f64(ms.clamp(0.0, longest) / 1e3).unwrap_or_default()
}

/// Returns the time since 1970 of an RFC 3339 time with any offset from UTC.
pub(crate) fn unix_time(text: &str) -> Option<Duration> {
    let (local, offset, is_east) = split_offset(text)?;
    let local = humantime::parse_rfc3339_weak(local).ok()?.duration_since(UNIX_EPOCH).ok()?;
    if is_east { local.checked_sub(offset) } else { local.checked_add(offset) }
}

/// Returns the time without its offset, the offset, and true if it is east of UTC.
fn split_offset(text: &str) -> Option<(&str, Duration, bool)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, Duration::ZERO, true));
    }
    let at = text.rfind(['+', '-']).filter(|at| *at > "2026-11-21".len())?;
    let (local, offset) = text.split_at_checked(at)?;
    let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let offset_time = Duration::from_secs(hours * 3600 + minutes * 60);
    (digits.len() == 4).then_some((local, offset_time, offset.starts_with('+')))
}

/// Reads an address, with brackets or a zone, as some programs write it.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let text = text.split_once('%').map_or(text, |(address, _zone)| address);
    text.parse().ok()
}

/// Returns the beginning of a text, at most `bytes` long.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn any_value_is_taken() {
        assert_eq!(scalar("\"a\""), Scalar::Text("a".into()));
        assert_eq!(scalar("[1, {\"a\": []}]"), Scalar::None);
        assert_eq!(scalar("{\"a\": [1]}"), Scalar::None);
        assert_eq!(scalar("null"), Scalar::None);
        assert_eq!(scalar("435174").name().unwrap(), "435174");
        assert_eq!(scalar("\" 12.5 \"").number(), Some(12.5));
        let set = ["1", "true", "\"disk\"", "\"1\""].map(|text| scalar(text).is_set());
        assert_eq!(set, [true; 4]);
        let unset = ["0", "false", "\"\"", "\"0\"", "null", "{}"].map(|text| scalar(text).is_set());
        assert_eq!(unset, [false; 6]);
    }

    fn scalar(text: &str) -> Scalar {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn times_with_offsets() {
        for (text, millis) in [
            ("1970-01-01T00:00:01.500Z", 1500),
            ("1970-01-01T02:00:01+02:00", 1000),
            ("1970-01-01T00:00:00-0130", 5_400_000),
        ] {
            assert_eq!(unix_time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        let before_1970 = "1970-01-01T00:00:00+02:00";
        for other in [
            before_1970,
            "",
            "Z",
            "yesterday",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-11-21T10:00+1",
        ] {
            assert_eq!(unix_time(other), None, "{other}");
        }
    }

    #[test]
    fn times_that_make_no_sense_count_as_none() {
        for ms in [None, Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(time(ms), Duration::ZERO);
        }
        assert_eq!(time(Some(1.5)), Duration::from_micros(1500));
        assert_eq!(time(Some(1e300)), LONGEST);
    }

    #[test]
    fn addresses_as_programs_write_them() {
        let loopback: IpAddr = "::1".parse().unwrap();
        assert_eq!(["::1", "[::1]", "::1%eth0"].map(address), [Some(loopback); 3]);
        assert_eq!(["", "host", "[::1", "1.2.3"].map(address), [None; 4]);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("abc".into(), 3), "abc");
        assert_eq!(cut("abcd".into(), 3), "abc");
        assert_eq!(cut("aä".into(), 2), "a");
        assert_eq!(cut("ä".into(), 1), "");
    }
}
