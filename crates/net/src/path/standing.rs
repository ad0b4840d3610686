//! Tracks whether a path is trusted with datagrams, and when to try it again otherwise.

use std::fmt;
use std::time::{Duration, Instant};

/// Consecutive silent openings that block a path.
///
/// One lost ClientHello is one silence. With two datagrams and 5 % loss, that is one opening in
/// ten, and four in a row are one in 10,000. Two in a row were one in a hundred, and kept most
/// connections of such a link from saving anything. Where UDP is blocked, four connections pay the
/// grace of at most 25 ms before the first back-off.
pub const SILENCES_TO_BLOCK: u8 = 4;

/// Openings that gained nothing, less those that gained, which block a path.
///
/// Each costs datagrams and a socket, and hardly any time. A busy machine delays one answer or
/// another, but not this many more than it lets through. In a row they would be rare on a path on
/// which one of four gains.
pub(super) const GAINLESS_TO_BLOCK: u8 = 16;

/// First back-off: short enough for a network that was just joined (a captive portal), long enough
/// that the grace is paid at most once a minute.
pub(super) const BACKOFF_FIRST: Duration = Duration::from_secs(60);

/// Longest back-off: a network that blocks UDP for good costs one grace an hour.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// Time that one probe may take before another may start.
///
/// Covers TCP's connection, the grace and a datagram 2 s late.
pub(super) const PROBE_LIFE: Duration = Duration::from_secs(10);

/// Reason why a path is not used for TurboTLS, or for data in the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathReason {
    /// Datagrams do not come back.
    Silent,
    /// Datagrams come later than any grace.
    Late,
    /// Datagrams are answered no sooner than TLS over TCP.
    Gainless,
    /// ICMP: the edge's UDP port cannot be reached.
    Unreachable,
    /// The edge refuses joins, though it advertises.
    Refused,
    /// The edge refused a join to which an application was committed.
    Reset,
    /// Another connection is probing whether the path works again.
    Probing,
    /// SYNs are answered, but their data are not accepted.
    SynDataRefused,
    /// SYNs with data are not answered.
    SynLost,
}

impl fmt::Display for PathReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "datagrams do not come back",
            Self::Late => "datagrams come too late to help",
            Self::Gainless => "TCP is no slower than datagrams",
            Self::Unreachable => "the edge's UDP port cannot be reached",
            Self::Refused => "the edge refused the join",
            Self::Reset => "the edge lost a connection half-way",
            Self::Probing => "another connection is probing it",
            Self::SynDataRefused => "data in the SYN are not accepted",
            Self::SynLost => "SYNs with data are not answered",
        })
    }
}

/// State of one path after recent openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// No failures.
    #[default]
    Good,
    /// This many consecutive failures, too few to block.
    Registered(u8),
    /// Not used until then or while a probe runs, after `times` consecutive back-offs.
    Blocked { reason: PathReason, until: Instant, times: u32, probe_until: Option<Instant> },
}

impl Standing {
    /// Returns whether this use of the path is a probe; an error with reason and end if the path is
    /// blocked.
    pub(super) fn ask(&mut self, now: Instant) -> Result<bool, (PathReason, Instant)> {
        self.permits(now)?;
        let Self::Blocked { probe_until, .. } = self else {
            return Ok(false);
        };
        *probe_until = Some(now + PROBE_LIFE);
        Ok(true)
    }

    /// Checks that the path may be used, without using it.
    pub(super) fn permits(&self, now: Instant) -> Result<(), (PathReason, Instant)> {
        match self {
            Self::Good | Self::Registered(_) => Ok(()),
            Self::Blocked { reason, until, .. } if now < *until => Err((*reason, *until)),
            Self::Blocked { probe_until, .. } => match probe_until.filter(|probe| now < *probe) {
                Some(probe) => Err((PathReason::Probing, probe)),
                None => Ok(()),
            },
        }
    }

    /// Records that a datagram came in time, or nearly.
    pub(super) fn good(&mut self) {
        *self = Self::Good;
    }

    /// Records that no datagram came in time.
    pub(super) fn silent(&mut self, now: Instant) {
        self.failed(PathReason::Silent, SILENCES_TO_BLOCK, now);
    }

    /// Records one more failure; `to_block` consecutive ones block the path.
    pub(super) fn failed(&mut self, reason: PathReason, to_block: u8, now: Instant) {
        let before = match self {
            Self::Good => 0,
            Self::Registered(failures) => *failures,
            Self::Blocked { .. } => to_block,
        };
        let failures = before.saturating_add(1);
        if failures < to_block {
            *self = Self::Registered(failures);
        } else {
            self.block(reason, now);
        }
    }

    /// Corrects a silence reported before: a datagram came later than any grace, which is the same
    /// failure.
    pub(super) fn late(&mut self, now: Instant) {
        match self {
            Self::Blocked { reason, until, .. } if now < *until => {
                if *reason == PathReason::Silent {
                    *reason = PathReason::Late;
                }
            }
            Self::Good => *self = Self::Registered(1),
            Self::Registered(_) | Self::Blocked { .. } => {}
        }
    }

    /// Backs off, twice as long as the previous time. Failures during a back-off are ignored: their
    /// connections started before it.
    pub(super) fn block(&mut self, reason: PathReason, now: Instant) {
        let before = match self {
            Self::Blocked { until, .. } if now < *until => return,
            Self::Blocked { times, .. } => *times,
            Self::Good | Self::Registered(_) => 0,
        };
        let until = now + backoff(before);
        let times = before.saturating_add(1);
        *self = Self::Blocked { reason, until, times, probe_until: None };
    }
}

/// Returns the back-off after `before` others in a row.
fn backoff(before: u32) -> Duration {
    let factor = 1u32.checked_shl(before).unwrap_or(u32::MAX);
    BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MAX)
}
