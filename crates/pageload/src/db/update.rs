//! Decides when to fetch a newer database, and whether to accept it.

use std::fmt;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use sha2::{Digest, Sha256};

use super::database::Database;
use super::file::{FileError, HEADER_BYTES, Header, PublicKey, read};
use super::limits::FILE_BYTES;

/// Maximum time that a maker's clock may be ahead. A file from the future would keep all later ones
/// out.
pub const CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// Minimum time between two fetches: no client needs more, and none should be able to burden a
/// server with more.
pub const PERIOD_MIN: Duration = Duration::from_secs(3600);

/// Attempts within a period, with retries after failures.
pub const TRIES: u32 = 4;

/// When to fetch: at moments that a seed and the clock alone decide.
///
/// Time is divided into periods, and each period into [`TRIES`] parts. In each part one moment is
/// drawn from the seed: the first is that of the fetch, the others are those of further tries. So
/// neither the start of the program nor what is visited, nor whether a try failed, moves a fetch;
/// and many clients do not come at once.
#[derive(Clone, Debug)]
pub struct Schedule {
    period: u64,
    seed: [u8; 32],
}

/// Time by which a fetch may miss its moment. Only a machine that slept, or whose clock was set, is
/// later: a fetch at once would reveal that.
pub const LATE: Duration = Duration::from_secs(60);

/// Facts about the file in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its date.
    pub created: UnixSeconds,
    /// True if the file is undamaged: the same file need not be fetched again.
    pub is_whole: bool,
}

impl InUse {
    /// Reads a file in use. `None` if none of `keys` signed its header: its date then proves
    /// nothing, and no update is rejected as older.
    #[must_use]
    pub fn from_file(file: &[u8], keys: &[PublicKey]) -> Option<Self> {
        let header = Header::read(file).ok()?;
        header.verify(keys).ok()?;
        Some(Self { created: header.created, is_whole: header.is_of(file) })
    }
}

/// Decision about a fetched file.
#[derive(Clone, Debug)]
pub enum Update {
    /// The file is newer and valid: it may replace the file in use.
    Take(Box<Database>),
    /// The file is the one in use.
    Same,
}

impl Schedule {
    /// Makes a schedule from random bytes, which the caller keeps: a restart then changes nothing.
    #[must_use]
    pub fn new(period: Duration, seed: [u8; 32]) -> Self {
        Self { period: period.max(PERIOD_MIN).as_secs(), seed }
    }

    /// Returns the next moment after `now`: of a fetch if the last one succeeded, otherwise of a
    /// retry.
    #[must_use]
    pub fn next(&self, now: UnixSeconds, fetched: Option<UnixSeconds>) -> UnixSeconds {
        let period = now.0 / self.period;
        let done = fetched.is_some_and(|at| at <= now && at.0 / self.period >= period);
        let from = if done { period.saturating_add(1) } else { period };
        let moments = (from..=from.saturating_add(1))
            .flat_map(|period| (0..TRIES).map(move |part| self.moment(period, part)));
        // The parts of a whole period that follows are all later than now.
        moments.into_iter().find(|moment| *moment > now).unwrap_or(now)
    }

    /// Returns true if `now` is too late for a fetch at that moment: the next one has its own.
    #[must_use]
    pub fn is_missed(moment: UnixSeconds, now: UnixSeconds) -> bool {
        now.since(moment) > LATE
    }

    fn moment(&self, period: u64, part: u32) -> UnixSeconds {
        let length = self.period / u64::from(TRIES);
        let hash = Sha256::new()
            .chain_update(self.seed)
            .chain_update(period.to_be_bytes())
            .chain_update(part.to_be_bytes())
            .finalize();
        let drawn = hash.iter().take(8).fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let start = period.saturating_mul(self.period);
        UnixSeconds(start.saturating_add(u64::from(part) * length).saturating_add(drawn % length))
    }
}

/// Decides whether to read on behind the header: the rest of a file that is not newer need not come
/// at all.
///
/// # Errors
/// It would not be taken: not signed by one of `keys`, too large, from the future, or older than
/// the one in use.
pub fn judge_header(
    header: &[u8],
    in_use: Option<InUse>,
    keys: &[PublicKey],
    now: UnixSeconds,
) -> Result<Wanted, UpdateError> {
    let header = Header::read(header).map_err(UpdateError::File)?;
    header.verify(keys).map_err(UpdateError::File)?;
    if header.created > now + CLOCK_SKEW {
        return Err(UpdateError::Future(header.created));
    }
    match in_use {
        Some(InUse { created, .. }) if header.created < created => {
            Err(UpdateError::Older { offered: header.created, in_use: created })
        }
        Some(InUse { created, is_whole: true }) if header.created == created => Ok(Wanted::Nothing),
        _ => Ok(Wanted::Bytes(HEADER_BYTES + header.compressed_bytes)),
    }
}

/// Part of a file to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing more: the file is the one in use.
    Nothing,
    /// This many bytes in total, at most [`FILE_BYTES`].
    Bytes(usize),
}

/// Judges a whole file.
///
/// # Errors
/// It is not taken; the file in use stays.
pub fn judge(
    file: &[u8],
    in_use: Option<InUse>,
    keys: &[PublicKey],
    now: UnixSeconds,
) -> Result<Update, UpdateError> {
    if file.len() > FILE_BYTES {
        return Err(UpdateError::File(FileError::TooLarge));
    }
    match judge_header(file, in_use, keys, now)? {
        Wanted::Nothing => Ok(Update::Same),
        Wanted::Bytes(_) => {
            let database = read(file, keys).map_err(UpdateError::File)?;
            Ok(Update::Take(Box::new(database)))
        }
    }
}

/// Reason why a fetched file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The file is invalid.
    File(FileError),
    /// The file is older than the one in use: somebody may want to bring back old errors.
    Older {
        /// Date of the fetched file.
        offered: UnixSeconds,
        /// Date of the file in use.
        in_use: UnixSeconds,
    },
    /// The file's date is more than [`CLOCK_SKEW`] ahead.
    Future(UnixSeconds),
}

impl UpdateError {
    /// Returns advice on how to fix it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File(error) => error.hint(),
            Self::Older { .. } => {
                "its maker has to publish one with a later date; the file in use stays"
            }
            Self::Future(_) => "set the clock of this machine, or ask its maker to set theirs",
        }
    }
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Older { .. } => f.write_str("it is older than the one in use"),
            Self::Future(_) => f.write_str("its date lies in the future"),
        }
    }
}

impl std::error::Error for UpdateError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::database::Parts;
    use super::super::file::{SecretKey, write};
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn each_period_has_one_fetch_and_tries_behind_it() {
        let schedule = Schedule::new(Duration::from_secs(DAY), [7; 32]);
        let mut now = UnixSeconds(1000 * DAY);
        let mut moments = Vec::new();
        for period in 1000..1100 {
            let first = schedule.next(now, Some(UnixSeconds(now.0.saturating_sub(DAY))));
            assert_eq!(first.0 / DAY, period);
            assert!(first.0 % DAY < DAY / u64::from(TRIES));
            let again = schedule.next(first, Some(UnixSeconds(first.0 - DAY)));
            assert!(again > first && again.0 / DAY == period);
            assert_eq!(schedule.next(again, Some(again)).0 / DAY, period + 1);
            moments.push(first.0 % DAY);
            now = UnixSeconds((period + 1) * DAY);
        }
        // Spread over the first part of a day: a hundred draws out of 21,600 hardly meet.
        assert!(moments.iter().collect::<BTreeSet<_>>().len() > 90);
    }

    #[test]
    fn neither_the_start_nor_failures_move_a_fetch() {
        let schedule = Schedule::new(Duration::from_secs(DAY), [1; 32]);
        let fetch = schedule.next(UnixSeconds(50 * DAY), None);
        for start in [50 * DAY + 1, fetch.0 - 1] {
            assert_eq!(schedule.next(UnixSeconds(start), None), fetch);
        }
        assert!(
            (0..20)
                .map(|seed: u8| {
                    let schedule = Schedule::new(Duration::from_secs(DAY), [seed; 32]);
                    schedule.next(UnixSeconds(50 * DAY), None)
                })
                .collect::<BTreeSet<_>>()
                .len()
                > 15
        );
    }

    #[test]
    fn periods_have_a_least_length_and_time_an_end() {
        let schedule = Schedule::new(Duration::ZERO, [1; 32]);
        assert!(schedule.next(UnixSeconds(0), None).0 < PERIOD_MIN.as_secs());
        let end = schedule.next(UnixSeconds(u64::MAX), None);
        assert_eq!(end, UnixSeconds(u64::MAX));
    }

    fn file(created: u64, key: &SecretKey) -> Vec<u8> {
        let created = UnixSeconds(created);
        let database = Database::new(created, Parts::ALL, vec![], BTreeMap::new()).unwrap();
        write(&database, Some(key)).unwrap()
    }

    #[test]
    fn newer_files_are_taken_older_ones_not() {
        let key = SecretKey::from_bytes(&[9; 32]);
        let keys = [key.public()];
        let now = UnixSeconds(100 * DAY);
        let in_use = InUse::from_file(&file(50 * DAY, &key), &keys);
        assert_eq!(in_use, Some(InUse { created: UnixSeconds(50 * DAY), is_whole: true }));
        let created = [50 * DAY + 1, 50 * DAY, 50 * DAY - 1, 101 * DAY, 101 * DAY + 1];
        let [newer, same, older, ahead, future] =
            created.map(|created| judge(&file(created, &key), in_use, &keys, now));
        assert!(matches!(newer, Ok(Update::Take(_))));
        assert!(matches!(same, Ok(Update::Same)));
        assert!(matches!(older, Err(UpdateError::Older { .. })));
        assert!(matches!(ahead, Ok(Update::Take(_))));
        assert!(matches!(future, Err(UpdateError::Future(_))));
        let first = judge(&file(1, &key), None, &keys, now);
        assert!(matches!(first, Ok(Update::Take(_))));
    }

    #[test]
    fn damaged_state_is_repaired_and_blocks_no_update() {
        let key = SecretKey::from_bytes(&[9; 32]);
        let keys = [key.public()];
        let now = UnixSeconds(100 * DAY);
        let good = file(50 * DAY, &key);
        let damaged = [good.len() - 1, 13].map(|place| {
            let mut damaged = good.clone();
            damaged[place] ^= 0x40;
            let in_use = InUse::from_file(&damaged, &keys);
            let created = [50 * DAY, 50 * DAY - 1];
            (in_use, created.map(|created| judge(&file(created, &key), in_use, &keys, now)))
        });
        let [(content, [same, older]), (date, any)] = damaged;
        // Damaged content: the same file is taken again, an older one is not.
        assert!(content.is_some_and(|of| !of.is_whole) && matches!(same, Ok(Update::Take(_))));
        assert!(matches!(older, Err(UpdateError::Older { .. })));
        // A damaged date, which nobody signed: otherwise no newer file might come for thousands of
        // years.
        assert_eq!(date, None);
        assert!(matches!(any, [Ok(Update::Take(_)), Ok(Update::Take(_))]));
        // Files signed by another key, and parts of files, do not count either.
        assert_eq!(
            InUse::from_file(&file(99 * DAY, &SecretKey::from_bytes(&[8; 32])), &keys),
            None
        );
        assert_eq!(InUse::from_file(&good[..HEADER_BYTES - 1], &keys), None);
        assert!(InUse::from_file(&good[..HEADER_BYTES], &keys).is_some_and(|of| !of.is_whole));
    }

    #[test]
    fn a_moment_that_was_slept_through_is_missed() {
        let [moment, late] = [UnixSeconds(1000), UnixSeconds(1000 + LATE.as_secs())];
        assert!(!Schedule::is_missed(moment, UnixSeconds(999)));
        assert!(!Schedule::is_missed(moment, moment) && !Schedule::is_missed(moment, late));
        assert!(Schedule::is_missed(moment, UnixSeconds(late.0 + 1)));
    }

    #[test]
    fn the_header_alone_says_whether_the_rest_is_wanted() {
        let key = SecretKey::from_bytes(&[9; 32]);
        let keys = [key.public()];
        let file = file(10, &key);
        let header = &file[..HEADER_BYTES];
        let now = UnixSeconds(20);
        assert_eq!(judge_header(header, None, &keys, now), Ok(Wanted::Bytes(file.len())));
        let in_use = Some(InUse { created: UnixSeconds(10), is_whole: true });
        assert_eq!(judge_header(header, in_use, &keys, now), Ok(Wanted::Nothing));
        let other = [SecretKey::from_bytes(&[8; 32]).public()];
        let refused = judge_header(header, None, &other, now);
        assert_eq!(refused, Err(UpdateError::File(FileError::Key(key.public().id()))));
        let cut = judge_header(&header[1..], None, &keys, now);
        assert_eq!(cut, Err(UpdateError::File(FileError::Magic)));
    }
}
