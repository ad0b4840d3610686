use super::*;

/// `TCP_INFINITE_SSTHRESH` of Linux: the threshold of a connection that has lost nothing.
const INFINITE: u32 = 0x7fff_ffff;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(600);
const SEGMENT: u32 = 1448;

/// The example in RFC 9959 appendix A: a saved window of 300 segments, a jump to 150.
const SAVED: Observed = Observed { window: 300 * SEGMENT as u64, rtt: RTT };

fn confirmed() -> Reconnaissance {
    Reconnaissance { rtt: RTT, segment: SEGMENT, window: 10, acknowledged: Some(3 * SEGMENT) }
}

/// The window of a jump with this round trip.
fn window_at(rtt: Duration) -> Result<u32, NoJump> {
    decide(&SAVED, &Reconnaissance { rtt, ..confirmed() }).map(|jump| jump.window)
}

fn resumed() -> Resume {
    let now = confirmed();
    Resume::new(decide(&SAVED, &now).unwrap(), &now)
}

fn bytes(segments: u32) -> u64 {
    u64::from(segments) * u64::from(SEGMENT)
}

/// So many segments sent and delivered.
fn sample(sent: u32, delivered: u32) -> Sample {
    Sample {
        window: 150,
        threshold: INFINITE,
        in_flight: sent - delivered,
        delivered,
        sent: bytes(sent),
        acknowledged: bytes(delivered),
        ..Sample::default()
    }
}

/// The same with losses: `acknowledged` before the first hole, and none in flight but `in_flight`.
fn lossy(sent: u32, delivered: u32, acknowledged: u32, in_flight: u32) -> Sample {
    let acknowledged = bytes(acknowledged);
    let congested =
        Sample { is_congested: true, is_recovering: true, in_flight, ..sample(sent, delivered) };
    Sample { acknowledged, ..congested }
}

/// All is acknowledged but some that was sent behind a retreat.
fn later(window: u32, threshold: u32) -> Sample {
    Sample { window, threshold, ..sample(200, 160) }
}

#[test]
fn a_jump_is_half_the_saved_window_at_the_pace_of_the_current_round_trip() {
    let now = Reconnaissance { rtt: RTT * 2, ..confirmed() };
    let jump = decide(&SAVED, &now).unwrap();
    assert_eq!(jump.window, 150);
    assert_eq!(jump.rate, 150 * u64::from(SEGMENT) * 1000 / 1200);
    let large = Observed { window: u64::MAX, ..SAVED };
    assert_eq!(decide(&large, &now).unwrap().bytes, JUMP_MAX);
}

#[test]
fn the_round_trip_confirms_the_path_at_the_limits_and_not_beyond() {
    assert_eq!(window_at(RTT / 2), Err(NoJump::RttSmall));
    assert_eq!(window_at(RTT / 2 + MS), Ok(150));
    assert_eq!(window_at(RTT * 10), Ok(150));
    assert_eq!(window_at(RTT * 10 + MS), Err(NoJump::RttLarge));
    assert_eq!(window_at(Duration::ZERO), Err(NoJump::Unconfirmed));
}

#[test]
fn initial_data_has_to_be_acknowledged() {
    for acknowledged in [None, Some(0)] {
        let now = Reconnaissance { acknowledged, ..confirmed() };
        assert_eq!(decide(&SAVED, &now), Err(NoJump::Unconfirmed));
    }
}

#[test]
fn a_jump_no_larger_than_the_initial_window_is_none() {
    let small = Observed { window: bytes(21), ..SAVED };
    assert_eq!(decide(&small, &confirmed()), Err(NoJump::Small));
    let enough = Observed { window: bytes(22), ..SAVED };
    assert_eq!(decide(&enough, &confirmed()).unwrap().window, 11);
    // A route that sets it: `ip route ... initcwnd 30`.
    let route = Reconnaissance { window: 30, ..confirmed() };
    assert_eq!(decide(&enough, &route), Err(NoJump::Small));
    let enough = Observed { window: bytes(62), ..SAVED };
    assert_eq!(decide(&enough, &route).unwrap().window, 31);
}

/// RFC 9959 appendix A.1.
#[test]
fn without_loss_the_window_is_validated_and_the_path_released() {
    let mut resume = resumed();
    assert_eq!(resume.handle(100 * MS, &sample(60, 0)), []);
    assert_eq!(resume.phase(), Phase::Unvalidated);
    assert_eq!(resume.handle(590 * MS, &sample(150, 0)), [Action::Unpace], "the window is used");
    assert_eq!(resume.phase(), Phase::Validating);
    assert_eq!(resume.handle(1000 * MS, &sample(250, 149)), [], "slow start is the kernel's");
    assert_eq!(resume.phase(), Phase::Validating);
    let validated = resume.handle(1200 * MS, &sample(290, 150));
    assert_eq!(validated, [Action::Unpace, Action::Release]);
    assert_eq!((resume.phase(), resume.wait()), (Phase::Normal, None));
    assert_eq!(resume.handle(1300 * MS, &lossy(300, 200, 160, 90)), [], "the kernel's alone");
}

/// RFC 9959 appendix A.2: the window is set to what is in flight, and grows from there.
#[test]
fn a_window_that_is_used_in_part_is_bound_to_that_until_it_is_validated() {
    let mut resume = resumed();
    assert_eq!(resume.handle(10 * MS, &sample(50, 0)), []);
    let bound = resume.handle(600 * MS, &sample(51, 1));
    assert_eq!(bound, [], "the first segment beyond the initial window is not acknowledged");
    let bound = resume.handle(620 * MS, &sample(52, 2));
    assert_eq!(bound, [Action::Clamp(50), Action::Unpace], "a round trip has passed");
    assert_eq!(resume.handle(640 * MS, &sample(60, 12)), [Action::Clamp(60)]);
    let validated = resume.handle(900 * MS, &sample(100, 52));
    assert_eq!(validated, [Action::Unpace, Action::Release, Action::Unclamp]);
}

#[test]
fn an_acknowledgement_of_unvalidated_data_begins_the_validating_phase() {
    let mut resume = resumed();
    assert_eq!(resume.handle(10 * MS, &sample(100, 0)), []);
    assert_eq!(resume.handle(20 * MS, &sample(100, 10)), [], "that was within the initial window");
    let bound = resume.handle(30 * MS, &sample(100, 11));
    assert_eq!(bound, [Action::Clamp(89), Action::Unpace]);
}

#[test]
fn a_sender_without_data_keeps_its_jump_for_a_while() {
    let mut resume = resumed();
    assert_eq!(resume.handle(600 * MS, &sample(10, 10)), []);
    assert_eq!(resume.handle(1200 * MS, &sample(11, 10)), [], "begins to use it");
    assert_eq!(resume.handle(1900 * MS, &sample(12, 12)), [], "and has no more");
    assert_eq!(resume.handle(2000 * MS, &sample(150, 12)), []);
    assert_eq!(resume.handle(2100 * MS, &sample(162, 12)), [Action::Unpace]);
    assert_eq!(resume.phase(), Phase::Validating);
}

#[test]
fn a_jump_that_is_not_used_ends() {
    let mut resume = resumed();
    let over = RTT * UNUSED_RTTS;
    assert_eq!(resume.handle(over - MS, &sample(5, 5)), []);
    assert_eq!(resume.handle(over, &sample(5, 5)), [Action::Unpace, Action::Release]);
    let mut resume = resumed();
    let taken_back = Sample { window: 75, ..sample(5, 5) };
    assert_eq!(resume.handle(MS, &taken_back), [Action::Unpace, Action::Release]);
}

/// RFC 9959 appendix A.4: the 35th unvalidated segment is lost.
#[test]
fn a_loss_halves_what_was_validated_and_forgets_the_path() {
    let mut resume = resumed();
    resume.handle(590 * MS, &sample(150, 0));
    let retreat = resume.handle(900 * MS, &lossy(154, 37, 34, 116));
    assert_eq!(retreat, [Action::Forget, Action::Clamp((3 + 37) / 2)]);
    assert_eq!(resume.phase(), Phase::SafeRetreat);
    let still = resume.handle(1000 * MS, &lossy(154, 100, 34, 50));
    assert_eq!(still, [], "the window is not increased");
    let over = resume.handle(1200 * MS, &lossy(154, 149, 34, 0));
    assert_eq!(over, [Action::Clamp((3 + 149) / 2), Action::Unpace], "PipeSize * Beta");
    assert_eq!(resume.phase(), Phase::Retreated);
}

#[test]
fn a_loss_before_the_window_is_used_up_ends_in_a_retreat_as_well() {
    let mut resume = resumed();
    let retreat = resume.handle(300 * MS, &lossy(80, 0, 0, 79));
    assert_eq!(retreat, [Action::Forget, Action::Clamp(RETREAT_MIN)]);
    let over = resume.handle(400 * MS, &lossy(80, 80, 80, 0));
    assert_eq!(over, [Action::Clamp(83 / 2), Action::Unpace]);
}

#[test]
fn pipe_size_is_no_more_than_could_be_unvalidated() {
    let mut resume = resumed();
    resume.handle(590 * MS, &sample(150, 0));
    let retreat = resume.handle(900 * MS, &lossy(900, 800, 34, 60));
    assert_eq!(retreat, [Action::Forget, Action::Clamp((3 + 150) / 2)]);
}

#[test]
fn after_a_timeout_normal_control_goes_on_at_once() {
    let mut resume = resumed();
    resume.handle(590 * MS, &sample(150, 0));
    let timeout = Sample { has_timed_out: true, ..lossy(150, 20, 20, 1) };
    assert_eq!(resume.handle(2000 * MS, &timeout), [Action::Forget, Action::Clamp(11)]);
    assert_eq!(resume.handle(2050 * MS, &timeout), [Action::Clamp(11), Action::Unpace]);
}

#[test]
fn a_larger_initial_window_needs_no_validation() {
    let route = Reconnaissance { window: 30, ..confirmed() };
    let mut resume = Resume::new(decide(&SAVED, &route).unwrap(), &route);
    resume.handle(10 * MS, &sample(100, 0));
    assert_eq!(resume.handle(20 * MS, &sample(100, 30)), []);
    assert_eq!(resume.handle(30 * MS, &sample(100, 31)), [Action::Clamp(69), Action::Unpace]);
}

#[test]
fn a_connection_is_left_to_the_kernel_where_a_change_is_refused() {
    let mut resume = resumed();
    resume.handle(590 * MS, &sample(150, 0));
    resume.handle(900 * MS, &lossy(154, 37, 34, 116));
    assert_eq!(resume.give_up(), [Action::Unpace, Action::Release]);
    assert_eq!((resume.phase(), resume.wait()), (Phase::Normal, None));
}

/// A retreat that ended at 1200 ms, on a path with this round trip.
fn retreated(rtt: Duration) -> Resume {
    let now = Reconnaissance { rtt, ..confirmed() };
    let saved = Observed { rtt, ..SAVED };
    let mut resume = Resume::new(decide(&saved, &now).unwrap(), &now);
    resume.handle(MS, &sample(150, 0));
    resume.handle(900 * MS, &lossy(154, 100, 34, 50));
    resume.handle(1200 * MS, &lossy(154, 149, 154, 0));
    assert_eq!(resume.phase(), Phase::Retreated);
    resume
}

#[test]
fn after_a_retreat_the_bound_rises_by_a_segment_each_round_trip() {
    let mut resume = retreated(RTT);
    assert_eq!(resume.wait(), Some(RTT));
    assert_eq!(resume.handle(1700 * MS, &later(76, 76)), [], "a round trip has not passed");
    assert_eq!(resume.handle(1800 * MS, &later(76, 76)), [Action::Clamp(77)]);
    assert_eq!(resume.handle(2399 * MS, &later(77, 77)), [], "not before the next");
    assert_eq!(resume.handle(2400 * MS, &later(40, 77)), [], "slow start below the threshold");
    let repairing = Sample { is_recovering: true, ..later(77, 53) };
    assert_eq!(resume.handle(3000 * MS, &repairing), []);
    assert_eq!(resume.handle(3600 * MS, &later(53, 53)), [Action::Clamp(54)], "below a new loss");
}

#[test]
fn looks_after_a_retreat_become_rare_and_the_bound_keeps_up_with_them() {
    let mut resume = retreated(20 * MS);
    assert_eq!(resume.wait(), Some(RETREATED_MIN));
    assert_eq!(resume.handle(1300 * MS, &later(76, 76)), [Action::Clamp(81)], "five round trips");
    let mut now = 1300 * MS;
    let mut looks = 0;
    while now < Duration::from_secs(60) {
        now += resume.wait().unwrap();
        let actions = resume.handle(now, &later(80, 80));
        let [Action::Clamp(bound)] = actions[..] else { panic!("{actions:?} at {now:?}") };
        assert!((81..=90).contains(&bound), "{bound}: an eighth more at most");
        looks += 1;
    }
    assert!(looks < 100, "{looks} looks, of 3,000 round trips");
    now += Duration::from_secs(3600);
    resume.handle(now, &later(80, 80));
    assert_eq!(resume.wait(), Some(RETREATED_MAX));
}

#[test]
fn an_idle_connection_that_has_retreated_is_looked_at_no_more() {
    let mut resume = retreated(RTT);
    let idle = Sample { in_flight: 0, ..later(76, 76) };
    let mut looks = 0;
    let mut now = 1200 * MS;
    while let Some(wait) = resume.wait() {
        now += wait;
        resume.handle(now, &idle);
        looks += 1;
    }
    assert_eq!(looks, IDLE_LOOKS);
    resume.handle(now + RTT, &later(76, 76));
    assert!(resume.wait().is_some(), "it sends again");
}
