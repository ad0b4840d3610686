//! The key ring of a site: the secrets behind its tickets and cookies.
//!
//! A ring holds three epochs: the current, the previous and the next one. Each is an independent
//! random secret, from which HKDF derives a key for each [`Purpose`]. The current epoch makes
//! tickets and cookies, and any epoch verifies them, so that servers need not rotate at the same
//! instant; the secret of an epoch is wiped when it leaves `previous`. `docs/fop.md` specifies the
//! keys.
//!
//! All edges of a site have the same ring: in a file, see [`KeyRing::load`] and [`KeyFile`]; sealed
//! by a [`FleetKey`] in untrusted storage, see [`KeyRing::seal`]; or, on a single edge, in memory.

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

pub use epoch::{Epoch, Purpose};
pub use file::{FILE_MAX, FileFault, KeyFile, KeyFileError, store_private};
pub(crate) use fleet::LINK;
pub use fleet::{Fleet, FleetFault, FleetFileError, FleetKey};
pub use sealed::{Newest, RingRefused, SealFault, Sealed};
pub use text::{Role, TextError, TextFault};

/// Default time during which an epoch is current: half a day.
///
/// Its secret then exists for a day and a half. A thief of the secret can read early data and TLS
/// 1.2 sessions of that time, and nothing older.
pub const PERIOD: Duration = Duration::from_secs(12 * 60 * 60);

/// Minimum time during which an epoch is current.
///
/// Tickets and cookies of an epoch are accepted for one period after its end; with a period below
/// the usual life of a cookie, cookies would end early.
pub const PERIOD_MIN: Duration = headstart_proto::limits::COOKIE_LIFE;

/// Maximum time during which an epoch is current: a ticket may not live longer than 7 days (RFC
/// 8446 section 4.6.1).
pub const PERIOD_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The epochs of a site; their ids and secrets differ.
#[derive(Clone, Debug)]
pub struct KeyRing {
    /// The epoch that was current before; `None` in a new ring.
    pub previous: Option<Epoch>,
    /// The epoch that makes tickets and cookies.
    pub current: Epoch,
    /// The epoch that will be current, known in advance.
    pub next: Epoch,
    /// Time during which an epoch is current; whole seconds. No ticket should live longer.
    pub period: Duration,
}

impl KeyRing {
    /// Creates a ring whose current epoch starts `now`. Drops fractions of a second of `period`.
    ///
    /// # Errors
    /// [`KeyRingError::Period`] outside [`PERIOD_MIN`] to [`PERIOD_MAX`]; a failure of randomness
    /// or OpenSSL.
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

    /// Returns the ring after one rotation: next becomes current `now`, whether that is due or not.
    ///
    /// Servers with the old ring and servers with the new one accept each other's tickets and
    /// cookies, except those that the old `previous` made.
    ///
    /// # Errors
    /// A failure of randomness or OpenSSL.
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

    /// Returns the time at which the ring should be rotated.
    #[must_use]
    pub fn rotation_due(&self) -> UnixSeconds {
        self.current.from + self.period
    }

    /// Returns true if the ring should be rotated now.
    ///
    /// Also if it starts more than a period ahead: then the clock was wrong, and without this the
    /// ring would not rotate for as long as the clock was ahead.
    #[must_use]
    pub fn is_due(&self, now: UnixSeconds) -> bool {
        now >= self.rotation_due() || self.current.from > now + self.period
    }

    /// Returns the epoch with that id, which a ticket names.
    #[must_use]
    pub fn epoch(&self, id: u8) -> Option<&Epoch> {
        self.epochs().find(|epoch| epoch.id == id)
    }

    /// Returns all epochs, the current one first.
    pub fn epochs(&self) -> impl Iterator<Item = &Epoch> {
        [&self.current].into_iter().chain(&self.previous).chain([&self.next])
    }

    /// Returns the keys of Fast Open cookies.
    #[must_use]
    pub fn cookies(&self) -> CookieRing {
        CookieRing {
            previous: self.previous.as_ref().map(Epoch::cookie_key),
            current: self.current.cookie_key(),
            next: Some(self.next.cookie_key()),
        }
    }

    /// Returns the masks of route tags in a fleet.
    #[must_use]
    pub fn routes(&self) -> RouteRing {
        RouteRing {
            previous: self.previous.as_ref().map(Epoch::route_key),
            current: self.current.route_key(),
            next: self.next.route_key(),
        }
    }

    /// Returns the id of the epoch after next.
    fn free_id(&self) -> u8 {
        let id = self.next.id.wrapping_add(1);
        // Only a hand-written file has ids that do not follow each other.
        if id == self.current.id { id.wrapping_add(1) } else { id }
    }
}

/// Reason why there is no key ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRingError {
    /// The period is shorter than [`PERIOD_MIN`] or longer than [`PERIOD_MAX`].
    Period,
    /// The operating system returned no random bytes.
    Random,
    /// OpenSSL derived no keys: it is out of memory, or was built without HKDF.
    Derive,
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Period => "the rotation period must be between an hour and 7 days",
            Self::Random => "the operating system gave no random bytes",
            Self::Derive => "OpenSSL could not derive keys",
        })
    }
}

impl std::error::Error for KeyRingError {}
