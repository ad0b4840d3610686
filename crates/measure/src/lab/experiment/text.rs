//! Values that a file writes as text.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

/// A time such as `133.021ms`, `200us` or `1.5s`, as in the text of a link.
pub(in crate::lab) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    read_time(&String::deserialize(from)?)
}

/// The same where it may be left out.
pub(in crate::lab) fn some_time<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

/// A list of times.
pub(super) fn times<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| read_time(text)).collect()
}

/// A list of values that have names.
pub(super) fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| name.parse().map_err(D::Error::custom)).collect()
}

/// The same where it may be left out.
pub(super) fn some_list<'de, D, T>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    list(from).map(Some)
}

/// A value that has a name, where it may be left out.
pub(super) fn some<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

fn read_time<E: Error>(text: &str) -> Result<Duration, E> {
    parse_time(text).ok_or_else(|| {
        E::custom(format!("'{text}' is no time; write for example 50ms, 200us or 1.5s"))
    })
}

pub(super) fn parse_time(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit.trim_start() {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}
