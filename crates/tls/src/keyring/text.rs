//! The ring as text, one line per epoch:
//!
//! ```text
//! headstart key ring 1
//! period 43200
//! previous 6 1790000000 0a1b...
//! current 7 1790043200 2c3d...
//! next 8 1790086400 4e5f...
//! ```
//!
//! The numbers are the id and the second since 1970 from which the epoch is current; 64 hex digits
//! of secret follow. Empty lines and lines that begin with `#` are skipped.

use std::fmt::{self, Write};
use std::time::Duration;

use headstart_proto::UnixSeconds;
use zeroize::Zeroizing;

use super::epoch::{Epoch, SECRET_LEN, Secret};
use super::{KeyRing, KeyRingError, PERIOD_MAX, PERIOD_MIN};

/// The first line.
const VERSION: &str = "headstart key ring 1";

/// More than any ring needs, so that growing leaves no partial copy behind.
const TEXT_MAX: usize = 512;

/// Epochs start before the year 9999, the last that dates can show.
const FROM_MAX: u64 = 253_370_764_800;

/// Role of an epoch in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The epoch was current before.
    Previous,
    /// The epoch makes tickets and cookies.
    Current,
    /// The epoch will be current.
    Next,
}

impl Role {
    /// Returns the first word of its line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Previous => "previous",
            Self::Current => "current",
            Self::Next => "next",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Previous, Self::Current, Self::Next].into_iter().find(|role| role.name() == name)
    }
}

impl KeyRing {
    /// Returns the content of a file, secrets included.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(TEXT_MAX));
        // Writing to a string does not fail.
        let _ = write!(text, "{VERSION}\nperiod {}\n", self.period.as_secs());
        for (role, epoch) in self.roles() {
            let _ = write!(text, "{} {} {} ", role.name(), epoch.id, epoch.from.0);
            put_secret(&mut text, epoch.secret());
            text.push('\n');
        }
        text
    }

    /// Reads text from [`to_text`](Self::to_text).
    ///
    /// # Errors
    /// The fault and its line. Errors contain nothing of the text.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut lines = numbered_lines(text);
        let (version, first) = lines.next().unwrap_or(("", 1));
        if version != VERSION {
            return Err(TextFault::Version.at(first));
        }
        let mut parts = Parts::default();
        let mut last = first;
        for (line, number) in lines {
            parts.read(line).map_err(|fault| fault.at(number))?;
            last = number;
        }
        parts.ring().map_err(|fault| fault.at(last))
    }

    /// Returns the epochs in order of time.
    pub fn roles(&self) -> impl Iterator<Item = (Role, &Epoch)> {
        let previous = self.previous.iter().map(|epoch| (Role::Previous, epoch));
        previous.chain([(Role::Current, &self.current), (Role::Next, &self.next)])
    }
}

/// The parts of a ring read so far.
#[derive(Default)]
struct Parts {
    period: Option<Duration>,
    previous: Option<Epoch>,
    current: Option<Epoch>,
    next: Option<Epoch>,
}

impl Parts {
    fn read(&mut self, line: &str) -> Result<(), TextFault> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        if name == "period" {
            let period = period(words)?;
            return put(&mut self.period, period);
        }
        let role = Role::from_name(name).ok_or(TextFault::Word)?;
        let epoch = epoch(words)?;
        if self.epochs().any(|other| other.id == epoch.id || other.secret() == epoch.secret()) {
            return Err(TextFault::Repeated);
        }
        put(self.place(role), epoch)
    }

    fn epochs(&self) -> impl Iterator<Item = &Epoch> {
        self.previous.iter().chain(&self.current).chain(&self.next)
    }

    const fn place(&mut self, role: Role) -> &mut Option<Epoch> {
        match role {
            Role::Previous => &mut self.previous,
            Role::Current => &mut self.current,
            Role::Next => &mut self.next,
        }
    }

    fn ring(self) -> Result<KeyRing, TextFault> {
        Ok(KeyRing {
            previous: self.previous,
            current: self.current.ok_or(TextFault::Missing)?,
            next: self.next.ok_or(TextFault::Missing)?,
            period: self.period.ok_or(TextFault::Missing)?,
        })
    }
}

fn put<T>(place: &mut Option<T>, value: T) -> Result<(), TextFault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(TextFault::Repeated),
    }
}

fn period<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Duration, TextFault> {
    let period = Duration::from_secs(number(words.next())?);
    if words.next().is_some() {
        return Err(TextFault::Fields);
    }
    let allowed = (PERIOD_MIN..=PERIOD_MAX).contains(&period);
    allowed.then_some(period).ok_or(TextFault::Ring(KeyRingError::Period))
}

fn epoch<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Epoch, TextFault> {
    let id = u8::try_from(number(words.next())?).map_err(|_| TextFault::Fields)?;
    let from = number(words.next())?;
    let secret = words.next().and_then(secret).ok_or(TextFault::Secret)?;
    if from > FROM_MAX || words.next().is_some() {
        return Err(TextFault::Fields);
    }
    Epoch::new(id, UnixSeconds(from), secret).map_err(TextFault::Ring)
}

/// Parses digits only: `parse` accepts a sign too.
fn number(word: Option<&str>) -> Result<u64, TextFault> {
    let digits = word.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(TextFault::Fields)
}

/// Returns the lines with content, and their numbers from 1.
pub(super) fn numbered_lines(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let lines = text.lines().map(str::trim).zip(1..);
    lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
}

/// Writes 64 hex digits.
pub(super) fn put_secret(text: &mut String, secret: &Secret) {
    let _ = secret.iter().try_for_each(|byte| write!(text, "{byte:02x}"));
}

/// Reads 64 hex digits.
pub(super) fn secret(word: &str) -> Option<Secret> {
    let mut secret = Secret::default();
    if word.len() != 2 * SECRET_LEN || !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in secret.iter_mut().zip(word.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(secret)
}

/// The error for text that is not a key ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// Its fault.
    pub fault: TextFault,
}

/// A fault of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFault {
    /// The first line is not that of a key ring of this version.
    Version,
    /// It begins with an unknown word.
    Word,
    /// A number is missing, too large or invalid, or something follows the last field.
    Fields,
    /// The secret is not 64 hex digits.
    Secret,
    /// Its role, id or secret appeared before.
    Repeated,
    /// It is the last, and the period, the current or the next epoch is missing.
    Missing,
    /// The period is out of bounds, or OpenSSL derived no keys.
    Ring(KeyRingError),
}

impl TextFault {
    const fn at(self, line: usize) -> TextError {
        TextError { line, fault: self }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            TextFault::Version => "this is not a key ring, or has another version",
            TextFault::Word => "lines begin with period, previous, current or next",
            TextFault::Fields => "a number is missing or wrong, or there is too much in the line",
            TextFault::Secret => "the secret is not 64 hex digits",
            TextFault::Repeated => "this role, number or secret is repeated",
            TextFault::Missing => "the period, the current or the next epoch is missing",
            TextFault::Ring(error) => return write!(f, "line {}: {error}", self.line),
        };
        write!(f, "line {}: {fault}", self.line)
    }
}

impl std::error::Error for TextError {}
