use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use headstart_proto::cookie::Cookie;
use headstart_proto::limits::COOKIE_LIFE;
use headstart_sessions::{CookieJar, Visit, Visited};
use rustix::io::Errno;

use super::kernel::Kernel;
use crate::clock::BootClock;
use crate::netlink::Change;
use crate::report::FastOpenNotUsed;

/// Lifetime of the kernel's answer: programs are attached and detached while this one runs.
const PROBE_LIFE: Duration = Duration::from_secs(60);

/// The cookies of all connections of a connector, and whether this machine can spend them.
pub(super) struct Cookies {
    jar: Mutex<CookieJar>,
    kernel: Box<dyn Kernel>,
    probed: Mutex<Option<Probed>>,
    /// Runs on during sleep: a laptop that slept through a cookie's life must not show it.
    clock: BootClock,
}

#[derive(Clone, Copy)]
struct Probed {
    at: Instant,
    available: bool,
}

impl Cookies {
    pub(super) fn new(kernel: Box<dyn Kernel>) -> Self {
        let clock = BootClock::start();
        Self { jar: Mutex::default(), kernel, probed: Mutex::default(), clock }
    }

    /// Returns the time by which cookies expire.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    pub(super) fn jar(&self) -> MutexGuard<'_, CookieJar> {
        lock(&self.jar)
    }

    /// Returns true if a SYN of this machine can carry a cookie at all.
    pub(super) fn is_available(&self, now: Instant) -> bool {
        let mut probed = lock(&self.probed);
        let last = *probed;
        match last {
            Some(last) if now.saturating_duration_since(last.at) < PROBE_LIFE => {
                return last.available;
            }
            _ => {}
        }
        let answer = self.kernel.probe();
        let available = answer.is_ok();
        *probed = Some(Probed { at: now, available });
        if last.is_none_or(|last| last.available != available) {
            match answer {
                Ok(()) => tracing::info!("Fast Open with cookies is available"),
                Err(reason) => tracing::info!(%reason, "Fast Open with cookies is not available"),
            }
        }
        available
    }

    /// Handles a refusal by the kernel: if programs were detached or Fast Open was switched off,
    /// the probe's result changes.
    pub(super) fn on_error(&self, error: &io::Error, now: Instant) {
        if matches!(Errno::from_io_error(error), Some(Errno::NOPROTOOPT | Errno::OPNOTSUPP)) {
            *lock(&self.probed) = Some(Probed { at: now, available: false });
        }
    }

    /// Returns the cookie to open with and spends it: that of the client's own ticket, if it fits
    /// the last visit, or a stored one.
    pub(super) fn spend(
        &self,
        visit: &Visit<'_>,
        ticket: Option<Cookie>,
        last: Visited,
    ) -> Result<Cookie, FastOpenNotUsed> {
        let (mut jar, now) = (self.jar(), self.now());
        let reason = match (ticket, last) {
            (None, _) => FastOpenNotUsed::NoCookie,
            (Some(_), Visited::Elsewhere) => FastOpenNotUsed::OtherNetwork,
            // Tickets outlive their cookies, whose expiry only servers can read. A refused cookie
            // costs the round trip that TurboTLS would have saved.
            (Some(_), Visited::Here { ago }) if ago >= COOKIE_LIFE => FastOpenNotUsed::TicketOld,
            (Some(cookie), _) => match jar.spend(cookie, visit.context.uid, now) {
                Ok(()) => return Ok(cookie),
                Err(reason) => FastOpenNotUsed::Unspendable(reason),
            },
        };
        jar.take(visit, now).ok_or(reason)
    }

    /// Drops cookies when the machine has moved, or may have.
    pub(super) fn leave(&self, change: Change) {
        self.jar().leave(|network| match change {
            Change::Address(address) => network.local == address,
            Change::Interface(interface) => network.interface == interface,
            Change::Anything => true,
        });
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

/// Locks a mutex, poisoned or not: no invariant spans two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
