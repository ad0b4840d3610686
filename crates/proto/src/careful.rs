//! The phases of Careful Resume (RFC 9959 section 3), for one connection.
//!
//! [`decide`] says whether a connection jumps; a [`Resume`] follows one that has. Segments are
//! Linux's unit of congestion windows, and the unit here.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Largest jump, in bytes: the configured maximum of RFC 9959 section 3.3.
///
/// Enough for 14 Mbit/s over 600 ms. A jump that turns out to be wrong harms others by no more.
pub const JUMP_MAX: u64 = 1 << 20;

/// Minimum window after a retreat, in segments: that of any loss (RFC 5681 section 3.1).
const RETREAT_MIN: u32 = 2;

/// Shortest and longest time between two looks at a connection that has retreated, of whose time
/// since then one is a sixteenth.
const RETREATED_MIN: Duration = Duration::from_millis(100);
const RETREATED_MAX: Duration = Duration::from_secs(5);

/// Looks at an idle connection that has retreated, each [`RETREATED_MAX`] after the one before: a
/// minute of them. From then on, those at its path will do.
const IDLE_LOOKS: u32 = 12;

/// Round trips for which a window waits for data, while other connections of its path have none.
/// The kernel has taken it back until then: it halves an unused window each retransmission timeout.
const UNUSED_RTTS: u32 = 16;

/// Observation of a path by one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Bytes acknowledged in a round trip (saved_cwnd).
    pub window: u64,
    /// Least round trip (saved_rtt).
    pub rtt: Duration,
}

/// Reason why a connection begins with the initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoJump {
    /// Nothing is known of the path.
    Unknown,
    /// The path's state is too old.
    Expired,
    /// Another connection uses the path's state.
    InUse,
    /// The round trip is half of the saved one, or less.
    RttSmall,
    /// The round trip is more than ten times the saved one.
    RttLarge,
    /// Not all of the initial data was acknowledged.
    Unconfirmed,
    /// Half of the saved window is no more than the initial one.
    Small,
    /// The kernel refuses the window.
    Kernel,
}

impl NoJump {
    /// Returns a short stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::InUse => "in_use",
            Self::RttSmall => "rtt_small",
            Self::RttLarge => "rtt_large",
            Self::Unconfirmed => "unconfirmed",
            Self::Small => "small",
            Self::Kernel => "kernel",
        }
    }
}

/// The state of a connection when its Reconnaissance Phase ends.
#[derive(Clone, Copy, Debug)]
pub struct Reconnaissance {
    /// Least round trip of this connection.
    pub rtt: Duration,
    /// Payload of a segment.
    pub segment: u32,
    /// Congestion window, in segments: the initial one, as nothing was sent.
    pub window: u32,
    /// Bytes of initial data that the peer has acknowledged; `None` if some are missing.
    pub acknowledged: Option<u32>,
}

/// A jump: the window with which a connection goes on, and its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Segments.
    pub window: u32,
    /// Bytes per second.
    pub rate: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The kernel's account of a connection at one moment, since the jump.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Congestion window, in segments.
    pub window: u32,
    /// Slow start threshold, in segments.
    pub threshold: u32,
    /// Segments sent and neither acknowledged nor declared lost.
    pub in_flight: u32,
    /// Segments delivered, by acknowledgements of any kind.
    pub delivered: u32,
    /// Bytes sent, but for repeated ones.
    pub sent: u64,
    /// Bytes acknowledged, all before them included.
    pub acknowledged: u64,
    /// True once a segment was lost, or marked by the network (CE).
    pub is_congested: bool,
    /// True while the kernel repairs losses.
    pub is_recovering: bool,
    /// True after a retransmission timeout.
    pub has_timed_out: bool,
}

/// Change of a connection that a phase asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bound window and slow start to this many segments.
    Clamp(u32),
    /// Remove the bound of window and slow start.
    Unclamp,
    /// Remove the bound of the pace.
    Unpace,
    /// Remove the state of the path, which proved wrong.
    Forget,
    /// Let other connections use the state of the path.
    Release,
}

/// Phase of a connection after its Reconnaissance Phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The window is the jump's; nothing beyond the initial window may have been sent yet.
    Unvalidated,
    /// All of the jump is on its way.
    Validating,
    /// A segment was lost: the path drains.
    SafeRetreat,
    /// The capacity was there, or was not used: the kernel's congestion control goes on alone.
    Normal,
    /// After a retreat: the kernel's congestion control goes on, as fast as the bound rises.
    Retreated,
}

impl Phase {
    /// Returns a short stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unvalidated => "unvalidated",
            Self::Validating => "validating",
            Self::SafeRetreat => "safe_retreat",
            Self::Normal => "normal",
            Self::Retreated => "retreated",
        }
    }
}

/// Decides about a jump at the end of the Reconnaissance Phase (RFC 9959 section 3.2).
///
/// # Errors
/// The reason why normal congestion control goes on.
pub fn decide(saved: &Observed, now: &Reconnaissance) -> Result<Jump, NoJump> {
    // Section 3.2: congestion, or data that is not acknowledged: "MUST continue using normal CC".
    if now.acknowledged.is_none_or(|bytes| bytes == 0) || now.segment == 0 || now.rtt.is_zero() {
        return Err(NoJump::Unconfirmed);
    }
    // Section 3.2: a minimum round trip of at most half the saved one "MUST stop".
    if now.rtt <= saved.rtt / 2 {
        return Err(NoJump::RttSmall);
    }
    // Section 4.2.1: more than ten times the saved one indicates another path.
    if now.rtt > saved.rtt * 10 {
        return Err(NoJump::RttLarge);
    }
    // Section 3.3: the jump "MUST be no more than half of the saved_cwnd".
    let bytes = (saved.window / 2).min(JUMP_MAX);
    let window = u32::try_from(bytes / u64::from(now.segment)).unwrap_or(u32::MAX);
    if window <= now.window {
        return Err(NoJump::Small);
    }
    // Sections 3.3 and 4.3.2: "MUST use pacing based on the current rtt".
    let micros = u64::try_from(now.rtt.as_micros()).unwrap_or(u64::MAX).max(1);
    let rate = bytes.saturating_mul(1_000_000) / micros;
    Ok(Jump { window, rate: rate.max(1), bytes })
}

/// A connection that has jumped.
#[derive(Debug)]
pub struct Resume {
    phase: Phase,
    jump: Jump,
    rtt: Duration,
    segment: u32,
    /// Initial window in segments, which needs no validation.
    free: u32,
    /// Validated capacity in segments (PipeSize), without those delivered since the jump.
    initial: u32,
    /// When the first bytes beyond the initial window were seen to be on their way.
    since: Option<Duration>,
    /// Bytes sent when the sender was last found to be limited by the data there is.
    settled: u64,
    /// Bytes sent when the Unvalidated Phase ended.
    last: u64,
    /// Segments in flight when the Unvalidated Phase ended, if it did not use its window up.
    unused_from: Option<(u32, u32)>,
    /// When a retreat ended, and when the bound was last looked at since.
    retreated: Duration,
    raised: Duration,
    /// Looks in a row at which nothing was in flight, after a retreat.
    idle: u32,
}

impl Resume {
    /// Enters the Unvalidated Phase. PipeSize begins as what was acknowledged: all that was in
    /// flight before (section 3.3).
    #[must_use]
    pub fn new(jump: Jump, now: &Reconnaissance) -> Self {
        let initial = now.acknowledged.unwrap_or_default().div_ceil(now.segment.max(1));
        Self {
            phase: Phase::Unvalidated,
            jump,
            rtt: now.rtt,
            segment: now.segment.max(1),
            free: now.window,
            initial,
            since: None,
            settled: 0,
            last: 0,
            unused_from: None,
            retreated: Duration::ZERO,
            raised: Duration::ZERO,
            idle: 0,
        }
    }

    /// Returns the phase it is in.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns when to look at the connection again; `None` if there is no need.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let eighth = (self.rtt / 8).clamp(Duration::from_millis(2), Duration::from_millis(50));
        match self.phase {
            Phase::Unvalidated | Phase::Validating | Phase::SafeRetreat => Some(eighth),
            Phase::Retreated if self.idle == 0 => Some(self.raise_after()),
            Phase::Retreated => (self.idle < IDLE_LOOKS).then_some(RETREATED_MAX),
            Phase::Normal => None,
        }
    }

    /// Returns the time between two looks after a retreat: long ones matter less as it goes on.
    fn raise_after(&self) -> Duration {
        let passed = self.raised.saturating_sub(self.retreated);
        (passed / 16).clamp(RETREATED_MIN, RETREATED_MAX).max(self.rtt)
    }

    /// Leaves the rest to the kernel's congestion control, where a change was refused.
    pub fn give_up(&mut self) -> Vec<Action> {
        self.end()
    }

    /// Handles what the kernel says at `now`, a time since the jump; does at most one step.
    pub fn handle(&mut self, now: Duration, sample: &Sample) -> Vec<Action> {
        match self.phase {
            // Sections 3.3 and 3.4: "the Safe Retreat Phase MUST be entered".
            Phase::Unvalidated | Phase::Validating if sample.is_congested => self.retreat(sample),
            Phase::Unvalidated => self.handle_unvalidated(now, sample),
            Phase::Validating => self.handle_validating(sample),
            Phase::SafeRetreat => self.handle_retreat(now, sample),
            Phase::Retreated => self.handle_retreated(now, sample),
            Phase::Normal => Vec::new(),
        }
    }

    /// Ends the Unvalidated Phase once the window is used up, its first segment is acknowledged, or
    /// a round trip has passed (section 3.3).
    fn handle_unvalidated(&mut self, now: Duration, sample: &Sample) -> Vec<Action> {
        // Section 3.2: the transition "MAY be deferred to the time at which more data is sent".
        let pipe = self.pipe(sample);
        let free = self.settled.saturating_add(u64::from(self.free) * u64::from(self.segment));
        if sample.sent <= free {
            // An idle connection's window is taken back by the kernel, when it sends again.
            let is_over = sample.window < self.jump.window || now >= self.rtt * UNUSED_RTTS;
            return if is_over { self.end() } else { Vec::new() };
        }
        let since = *self.since.get_or_insert(now);
        let is_full = sample.in_flight >= self.jump.window;
        let is_over = sample.acknowledged > free || now.saturating_sub(since) >= self.rtt;
        if !is_full && !is_over {
            return Vec::new();
        }
        // "sender checks if (flight_size is less than IW) or (flight_size is less than or equal to
        // the PipeSize)": limited by the data there is. It waits for more, as section 4.2 allows.
        if sample.in_flight < self.free || sample.in_flight <= pipe {
            (self.settled, self.since) = (sample.sent, None);
            return if pipe >= self.jump.window { self.end() } else { Vec::new() };
        }
        self.phase = Phase::Validating;
        self.last = sample.sent;
        if is_full {
            return vec![Action::Unpace];
        }
        // "Otherwise, the CWND MUST be set to the flight_size".
        self.unused_from = Some((sample.in_flight, sample.delivered));
        vec![Action::Clamp(sample.in_flight), Action::Unpace]
    }

    /// Ends the Validating Phase once its last segment is acknowledged (section 3.4).
    fn handle_validating(&mut self, sample: &Sample) -> Vec<Action> {
        if sample.acknowledged >= self.last {
            let was_bound = self.unused_from.is_some();
            let mut actions = self.end();
            actions.extend(was_bound.then_some(Action::Unclamp));
            return actions;
        }
        // "CWND is updated using the normal rules": slow start, for each acknowledgement.
        let grown = self.unused_from.map(|(flight, delivered)| {
            flight.saturating_add(sample.delivered.saturating_sub(delivered))
        });
        grown.map(Action::Clamp).into_iter().collect()
    }

    /// Enters the Safe Retreat Phase (section 3.5): the state is removed, and the window "MUST be
    /// reduced to no more than (PipeSize/2)".
    fn retreat(&mut self, sample: &Sample) -> Vec<Action> {
        self.phase = Phase::SafeRetreat;
        if self.last == 0 {
            self.last = sample.sent;
        }
        let window = (self.pipe(sample) / 2).max(RETREAT_MIN);
        vec![Action::Forget, Action::Clamp(window)]
    }

    /// Ends the Safe Retreat Phase once all that was sent unvalidated is acknowledged or lost. The
    /// threshold "MUST be set to no larger than the most recently measured PipeSize * Beta".
    ///
    /// Until then the window is not increased. After a timeout normal congestion control goes on at
    /// once (section 3.6), within the same bound.
    fn handle_retreat(&mut self, now: Duration, sample: &Sample) -> Vec<Action> {
        let is_drained = sample.acknowledged >= self.last || sample.in_flight == 0;
        if !is_drained && !sample.has_timed_out {
            return Vec::new();
        }
        self.phase = Phase::Retreated;
        (self.retreated, self.raised) = (now, now);
        // Beta of 0.5.
        vec![Action::Clamp((self.pipe(sample) / 2).max(RETREAT_MIN)), Action::Unpace]
    }

    /// Lets a window that is at its bound grow by one segment each round trip: congestion
    /// avoidance (RFC 5681 section 3.1), as the kernel cannot raise the bound without raising the
    /// threshold. The kernel fills the bound at once, so that it rises by no more than an eighth.
    fn handle_retreated(&mut self, now: Duration, sample: &Sample) -> Vec<Action> {
        self.idle = if sample.in_flight == 0 { self.idle + 1 } else { 0 };
        let passed = now.saturating_sub(self.raised);
        if passed < self.raise_after() {
            return Vec::new();
        }
        self.raised = now;
        if sample.is_recovering || sample.window < sample.threshold {
            return Vec::new();
        }
        let rtts = passed.as_micros() / self.rtt.as_micros().max(1);
        let rise = u32::try_from(rtts).unwrap_or(u32::MAX).min(sample.window / 8).max(1);
        vec![Action::Clamp(sample.window.saturating_add(rise))]
    }

    fn end(&mut self) -> Vec<Action> {
        self.phase = Phase::Normal;
        vec![Action::Unpace, Action::Release]
    }

    /// PipeSize: all that was acknowledged (sections 3.3 to 3.5), and no more than could be
    /// unvalidated.
    fn pipe(&self, sample: &Sample) -> u32 {
        let most = self.initial.saturating_add(self.jump.window);
        self.initial.saturating_add(sample.delivered).min(most)
    }
}

#[cfg(test)]
mod tests;
