//! The key ring of a site: what its tickets and cookies are made with.
//!
//! A ring holds three epochs: the one in use, the one before and the one to come. Each is an
//! independent random secret, from which HKDF derives a key for each [`Purpose`]. Tickets and
//! cookies are made with the current epoch and taken with any, so that servers need not change in
//! the same instant; the secret of an epoch is wiped when it leaves `previous`. `docs/fop.md`
//! specifies the keys.
//!
//! All edges of a site have the same ring: in a file, see [`KeyRing::load`] and [`KeyFile`]; sealed
//! by a [`FleetKey`] at a place that need not be trusted, see [`KeyRing::seal`]; or one alone in
//! memory.

mod epoch;
mod export;
mod file;
mod fleet;
mod sealed;
mod text;
mod ticket;

use std::fmt;
use std::time::Duration;

use headstart_proto::cookie::CookieRing;
use headstart_proto::{RouteRing, UnixSeconds};

pub use epoch::{Epoch, Purpose, SECRET_LEN};
pub use export::TICKET_KEY_LEN;
pub use file::{FILE_MAX, FileFault, KeyFile, KeyFileError, store_private};
pub(crate) use fleet::LINK;
pub use fleet::{FLEET_FILE_MAX, Fleet, FleetFault, FleetFileError, FleetKey};
pub use sealed::{Newest, RingRefused, SEALED_MAX, SealFault, Sealed};
pub use text::{Role, TextError, TextFault};

/// Default time that an epoch is current: half a day.
///
/// Its secret then exists for a day and a half. Who gets hold of it can read early data and TLS 1.2
/// sessions of that time, and nothing older.
pub const PERIOD: Duration = Duration::from_secs(12 * 60 * 60);

/// An epoch is current for this long at least.
///
/// What an epoch made is taken for one period after it ended; with less than the usual life of a
/// cookie, cookies would end early.
pub const PERIOD_MIN: Duration = headstart_proto::limits::COOKIE_LIFE;

/// An epoch is current for this long at most: a ticket may not live longer than 7 days (RFC 8446
/// section 4.6.1).
pub const PERIOD_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The epochs of a site; their ids and secrets differ.
#[derive(Clone, Debug)]
pub struct KeyRing {
    /// The epoch before; `None` in a new ring.
    pub previous: Option<Epoch>,
    /// The epoch that tickets and cookies are made with.
    pub current: Epoch,
    /// The next epoch, known beforehand.
    pub next: Epoch,
    /// Time that an epoch is current; whole seconds. No ticket should live longer.
    pub period: Duration,
}

impl KeyRing {
    /// A new ring, whose current epoch starts `now`. Fractions of a second of `period` are dropped.
    ///
    /// # Errors
    /// [`KeyRingError::Period`] outside [`PERIOD_MIN`] and [`PERIOD_MAX`]; no randomness, or no
    /// OpenSSL.
    pub fn generate(now: UnixSeconds, period: Duration) -> Result<Self, KeyRingError> {
        let period = Duration::from_secs(period.as_secs());
        if !(PERIOD_MIN..=PERIOD_MAX).contains(&period) {
            return Err(KeyRingError::Period);
        }
        let id = epoch::random_id()?;
        Ok(Self {
            previous: None,
            current: Epoch::generate(id, now)?,
            next: Epoch::generate(id.wrapping_add(1), now + period)?,
            period,
        })
    }

    /// The ring one step on: next becomes current `now`, whether that is due or not.
    ///
    /// Servers that have the old ring and servers that have the new one take each other's tickets
    /// and cookies, but for those that the old `previous` made.
    ///
    /// # Errors
    /// No randomness, or no OpenSSL.
    pub fn rotated(&self, now: UnixSeconds) -> Result<Self, KeyRingError> {
        let mut current = self.next.clone();
        current.from = now;
        Ok(Self {
            previous: Some(self.current.clone()),
            current,
            next: Epoch::generate(self.free_id(), now + self.period)?,
            period: self.period,
        })
    }

    /// When the ring should be rotated.
    #[must_use]
    pub fn rotation_due(&self) -> UnixSeconds {
        self.current.from + self.period
    }

    /// Returns true if it should be rotated now.
    ///
    /// Also if it starts more than a period ahead: the clock was wrong then, and nobody would
    /// rotate it for as long as it was ahead.
    #[must_use]
    pub fn is_due(&self, now: UnixSeconds) -> bool {
        now >= self.rotation_due() || self.current.from > now + self.period
    }

    /// The epoch of that id, which a ticket names.
    #[must_use]
    pub fn epoch(&self, id: u8) -> Option<&Epoch> {
        self.epochs().find(|epoch| epoch.id == id)
    }

    /// All epochs, the current one first.
    pub fn epochs(&self) -> impl Iterator<Item = &Epoch> {
        [&self.current].into_iter().chain(&self.previous).chain([&self.next])
    }

    /// The keys of Fast Open cookies.
    #[must_use]
    pub fn cookies(&self) -> CookieRing {
        CookieRing {
            previous: self.previous.as_ref().map(Epoch::cookie_key),
            current: self.current.cookie_key(),
            next: Some(self.next.cookie_key()),
        }
    }

    /// The masks of route tags in a fleet.
    #[must_use]
    pub fn routes(&self) -> RouteRing {
        RouteRing {
            previous: self.previous.as_ref().map(Epoch::route_key),
            current: self.current.route_key(),
            next: self.next.route_key(),
        }
    }

    /// The id of the epoch that follows next.
    fn free_id(&self) -> u8 {
        let id = self.next.id.wrapping_add(1);
        // Only a file written by hand has ids that do not follow each other.
        if id == self.current.id { id.wrapping_add(1) } else { id }
    }
}

/// Reason why there is no key ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRingError {
    /// The period is shorter than [`PERIOD_MIN`] or longer than [`PERIOD_MAX`].
    Period,
    /// The operating system gave no random bytes.
    Random,
    /// OpenSSL derived no keys: it is out of memory, or was built without HKDF.
    Derive,
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Period => "keys are renewed every hour at most and every 7 days at least",
            Self::Random => "the operating system gave no random bytes",
            Self::Derive => "OpenSSL could not derive keys",
        })
    }
}

impl std::error::Error for KeyRingError {}
