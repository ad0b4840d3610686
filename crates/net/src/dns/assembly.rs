//! Merges the three answers of a lookup into one sequence of events; no clock, no IO.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use super::{
    ADVERT_DELAY, ALIAS_ONLY_DELAY, DnsError, EdgeAdvert, Event, RESOLUTION_DELAY,
    offer::{Answer, Discovered, FamilyAddresses, Offer},
};

/// Next step of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Event(Event),
    /// Wait until an answer comes or this instant is reached.
    Wait(Option<Instant>),
    Done,
}

/// Answers so far. Feed it with `on_*`, then take steps until it waits.
#[derive(Debug)]
pub(super) struct Assembly {
    port: u16,
    v4: Family,
    v6: Family,
    service: Option<Discovered>,
    /// Addresses handed over.
    reported: Vec<FamilyAddresses>,
    deadline: Option<Instant>,
    advert: AdvertState,
    failed: bool,
}

/// One address family's answer.
#[derive(Debug)]
enum Family {
    Pending,
    /// Addresses not yet handed over.
    Ready(FamilyAddresses),
    /// Answered, and its addresses, if any, handed over.
    Settled,
    Failed(DnsError),
}

#[derive(Debug, PartialEq, Eq)]
enum AdvertState {
    /// Not reported yet.
    Open,
    /// Reported for the first n addresses; further ones widen it.
    Reported { addresses: usize },
    /// Reported for good.
    Final,
}

impl Assembly {
    /// Starts without answers, for a connection to `port`; `service` is true if an HTTPS answer
    /// will come too.
    pub(super) fn new(port: u16, service: bool) -> Self {
        Self {
            port,
            v4: Family::Pending,
            v6: Family::Pending,
            service: (!service).then_some(Discovered::Nothing),
            reported: Vec::new(),
            deadline: None,
            advert: AdvertState::Open,
            failed: false,
        }
    }

    /// Creates an assembly of addresses that need no query; they have no advertisement.
    pub(super) fn known(addresses: Vec<IpAddr>) -> Self {
        let found =
            FamilyAddresses { owner: String::new(), addresses, valid_until: Instant::now() };
        Self { v4: Family::Ready(found), v6: Family::Settled, ..Self::new(0, false) }
    }

    pub(super) fn on_v6(&mut self, answer: Answer) {
        self.v6 = Family::from(answer);
    }

    pub(super) fn on_v4(&mut self, answer: Answer, now: Instant) {
        self.v4 = Family::from(answer);
        let waits = matches!(self.v4, Family::Ready(_)) && !self.v6.is_answered();
        if self.reported.is_empty() && waits {
            self.deadline = Some(now + RESOLUTION_DELAY);
        }
    }

    pub(super) fn on_service(&mut self, found: Discovered) {
        self.service = Some(found);
    }

    pub(super) fn step(&mut self, now: Instant) -> Step {
        if self.failed {
            return Step::Done;
        }
        if let Some(addresses) = self.take_addresses(now) {
            return Step::Event(Event::Addresses(addresses));
        }
        if self.reported.is_empty() {
            self.step_without_addresses(now)
        } else {
            self.step_advert(now)
        }
    }

    /// Takes the addresses due now: IPv6 immediately, IPv4 with it or when the Resolution Delay is
    /// over.
    fn take_addresses(&mut self, now: Instant) -> Option<Vec<IpAddr>> {
        let late =
            !self.reported.is_empty() || self.deadline.is_some_and(|deadline| now >= deadline);
        if !self.v6.is_answered() && !late {
            return None;
        }
        let ready: Vec<_> = [self.v6.take(), self.v4.take()].into_iter().flatten().collect();
        (!ready.is_empty()).then(|| self.give(ready, now))
    }

    fn give(&mut self, new: Vec<FamilyAddresses>, now: Instant) -> Vec<IpAddr> {
        if self.reported.is_empty() {
            self.deadline = Some(now + ADVERT_DELAY);
        }
        let addresses = new.iter().flat_map(|found| &found.addresses).copied().collect();
        self.reported.extend(new);
        addresses
    }

    fn step_advert(&mut self, now: Instant) -> Step {
        if self.advert == AdvertState::Final {
            return self.rest();
        }
        match &self.service {
            Some(Discovered::Own(offer)) => match self.widened(offer) {
                Some(edge) => {
                    self.advert = AdvertState::Reported { addresses: edge.addresses.len() };
                    Step::Event(Event::Advert(Some(edge)))
                }
                None if self.advert == AdvertState::Open => self.step_elsewhere(now),
                None => self.rest(),
            },
            Some(Discovered::Elsewhere(edge)) => {
                let edge = edge.clone();
                self.give_final_advert(Some(edge))
            }
            Some(Discovered::Nothing | Discovered::Alias(_)) => self.give_final_advert(None),
            None if self.deadline.is_some_and(|deadline| now >= deadline) => {
                self.give_final_advert(None)
            }
            None => Step::Wait(self.deadline),
        }
    }

    /// Waits on if the offer holds for no address so far: a slow family can still add one in time.
    fn step_elsewhere(&mut self, now: Instant) -> Step {
        let late = self.deadline.is_some_and(|deadline| now >= deadline);
        if late || self.rest() == Step::Done {
            return self.give_final_advert(None);
        }
        Step::Wait(self.deadline)
    }

    /// Returns the offer for those handed-over addresses that it covers, unless it was already
    /// reported for all of them.
    fn widened(&self, offer: &Offer) -> Option<EdgeAdvert> {
        let edge = offer.at(self.reported.iter().filter(|found| offer.holds_for(found)));
        let advertised = match self.advert {
            AdvertState::Reported { addresses } => addresses,
            _ => 0,
        };
        (edge.addresses.len() > advertised).then_some(edge)
    }

    fn give_final_advert(&mut self, edge: Option<EdgeAdvert>) -> Step {
        self.advert = AdvertState::Final;
        Step::Event(Event::Advert(edge))
    }

    /// Returns the step after the advertisement: only a slow family can still come.
    fn rest(&self) -> Step {
        if self.v4.is_answered() && self.v6.is_answered() { Step::Done } else { Step::Wait(None) }
    }

    fn step_without_addresses(&mut self, now: Instant) -> Step {
        let (Family::Failed(v4), Family::Failed(v6)) = (&self.v4, &self.v6) else {
            return Step::Wait(self.deadline);
        };
        let error = more_specific(*v4, *v6);
        let behind = self.behind_alias();
        if !behind.is_empty() {
            let found =
                FamilyAddresses { owner: String::new(), addresses: behind, valid_until: now };
            return Step::Event(Event::Addresses(self.give(vec![found], now)));
        }
        // NXDOMAIN holds for every type (RFC 8020), so no alias can follow.
        if self.service.is_none() && error != DnsError::NoSuchName {
            let deadline = *self.deadline.get_or_insert(now + ALIAS_ONLY_DELAY);
            if now < deadline {
                return Step::Wait(Some(deadline));
            }
        }
        self.failed = true;
        Step::Event(Event::Failed(error))
    }

    /// Returns addresses that only the HTTPS records lead to, at the requested port.
    fn behind_alias(&self) -> Vec<IpAddr> {
        match &self.service {
            Some(Discovered::Alias(addresses)) => addresses.clone(),
            Some(Discovered::Elsewhere(edge)) => {
                let same_port = edge.addresses.iter().filter(|a| a.port() == self.port);
                same_port.map(SocketAddr::ip).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Family {
    fn is_answered(&self) -> bool {
        !matches!(self, Self::Pending)
    }

    fn take(&mut self) -> Option<FamilyAddresses> {
        match std::mem::replace(self, Self::Settled) {
            Self::Ready(found) => Some(found),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl From<Answer> for Family {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(found) => Self::Ready(found),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Returns the error that says more: that the name does not exist or must not lead there, else the
/// reason why one family is not known.
fn more_specific(one: DnsError, other: DnsError) -> DnsError {
    if one == DnsError::NoSuchName || other == DnsError::NoSuchName {
        DnsError::NoSuchName
    } else if one == DnsError::NotPermitted || other == DnsError::NotPermitted {
        DnsError::NotPermitted
    } else if one == DnsError::NoAddress {
        other
    } else {
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advert::Advert;
    use proptest::prelude::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);
    const LIFE: Duration = Duration::from_secs(60);

    fn v4() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    fn v6() -> IpAddr {
        "2001:db8::1".parse().unwrap()
    }

    fn www() -> String {
        "www.example".into()
    }

    fn found(address: IpAddr, now: Instant) -> Answer {
        Ok(FamilyAddresses { owner: www(), addresses: vec![address], valid_until: now + LIFE })
    }

    /// Returns an address to which the CNAME chain of another answer led.
    fn with_other_owner(address: IpAddr, now: Instant) -> Answer {
        let owner = "cdn.example".into();
        Ok(FamilyAddresses { owner, addresses: vec![address], valid_until: now })
    }

    fn own(now: Instant) -> Discovered {
        let advert = Advert::default();
        Discovered::Own(Offer { advert, port: 443, target: www(), valid_until: now + LIFE })
    }

    fn addresses(addresses: &[IpAddr]) -> Step {
        Step::Event(Event::Addresses(addresses.to_vec()))
    }

    fn offered(step: Step) -> Vec<IpAddr> {
        match step {
            Step::Event(Event::Advert(Some(edge))) => {
                edge.addresses.iter().map(|a| a.ip()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ipv6_is_handed_over_at_once() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assert_eq!(assembly.step(now), Step::Wait(None));
        assembly.on_v6(found(v6(), now));
        assert_eq!(assembly.step(now), addresses(&[v6()]));
        assembly.on_v4(found(v4(), now), now + MS);
        assert_eq!(assembly.step(now + MS), addresses(&[v4()]));
    }

    #[test]
    fn ipv4_waits_for_ipv6_during_the_delay() {
        let now = Instant::now();
        let end = now + RESOLUTION_DELAY;
        let mut assembly = Assembly::new(443, true);
        assembly.on_v4(found(v4(), now), now);
        assert_eq!(assembly.step(now), Step::Wait(Some(end)));
        assert_eq!(assembly.step(end - MS), Step::Wait(Some(end)));
        assert_eq!(assembly.step(end), addresses(&[v4()]));
    }

    #[test]
    fn both_go_together_ipv6_first() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assembly.on_v4(found(v4(), now), now);
        assembly.on_v6(found(v6(), now));
        assert_eq!(assembly.step(now), addresses(&[v6(), v4()]));
    }

    #[test]
    fn ipv4_goes_at_once_when_there_is_no_ipv6() {
        let now = Instant::now();
        for error in [DnsError::NoAddress, DnsError::Timeout] {
            let mut assembly = Assembly::new(443, true);
            assembly.on_v4(found(v4(), now), now);
            assembly.on_v6(Err(error));
            assert_eq!(assembly.step(now), addresses(&[v4()]));
        }
    }

    #[test]
    fn the_wait_for_an_advertisement_starts_at_the_first_address() {
        let now = Instant::now();
        let end = now + ADVERT_DELAY;
        let mut assembly = Assembly::new(443, true);
        assembly.on_v6(found(v6(), now));
        assembly.on_v4(Err(DnsError::NoAddress), now);
        assert_eq!(assembly.step(now), addresses(&[v6()]));
        assert_eq!(assembly.step(end - MS), Step::Wait(Some(end)));
        assert_eq!(assembly.step(end), Step::Event(Event::Advert(None)));
        assembly.on_service(own(now));
        assert_eq!(assembly.step(end + MS), Step::Done);
    }

    #[test]
    fn a_timely_advertisement_is_reported_and_widened() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assembly.on_service(own(now));
        assert_eq!(assembly.step(now), Step::Wait(None));
        assembly.on_v6(found(v6(), now));
        assert_eq!(assembly.step(now), addresses(&[v6()]));
        assert_eq!(offered(assembly.step(now)), [v6()]);
        assert_eq!(assembly.step(now + LIFE), Step::Wait(None));
        assembly.on_v4(found(v4(), now), now + LIFE);
        assert_eq!(assembly.step(now + LIFE), addresses(&[v4()]));
        assert_eq!(offered(assembly.step(now + LIFE)), [v6(), v4()]);
        assert_eq!(assembly.step(now + LIFE), Step::Done);
    }

    // W-DNS-1
    #[test]
    fn the_offer_covers_only_addresses_of_its_own_name() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assembly.on_service(own(now));
        assembly.on_v4(found(v4(), now), now);
        assembly.on_v6(with_other_owner(v6(), now));
        assert_eq!(assembly.step(now), addresses(&[v6(), v4()]));
        let Step::Event(Event::Advert(Some(edge))) = assembly.step(now) else { panic!() };
        assert!(edge.covers(v4()) && !edge.covers(v6()));
        // The TTL of the other name's records is irrelevant here.
        assert_eq!(edge.valid_until, now + LIFE);
        assert_eq!(assembly.step(now), Step::Done);
    }

    /// Returns an assembly with an offer for no address so far, waiting for IPv4.
    fn waiting_for_v4(now: Instant) -> Assembly {
        let end = now + ADVERT_DELAY;
        let mut assembly = Assembly::new(443, true);
        assembly.on_service(own(now));
        assembly.on_v6(with_other_owner(v6(), now));
        assert_eq!(assembly.step(now), addresses(&[v6()]));
        assert_eq!(assembly.step(end - MS), Step::Wait(Some(end)));
        assembly
    }

    #[test]
    fn an_offer_for_no_address_waits_for_the_other_family() {
        let now = Instant::now();
        let end = now + ADVERT_DELAY;
        let mut late = waiting_for_v4(now);
        assert_eq!(late.step(end), Step::Event(Event::Advert(None)));
        late.on_v4(found(v4(), now), end);
        assert_eq!(late.step(end), addresses(&[v4()]));
        assert_eq!(late.step(end), Step::Done);

        let mut in_time = waiting_for_v4(now);
        in_time.on_v4(found(v4(), now), end - MS);
        assert_eq!(in_time.step(end - MS), addresses(&[v4()]));
        assert_eq!(offered(in_time.step(end - MS)), [v4()]);

        let mut both_other_owner = waiting_for_v4(now);
        both_other_owner.on_v4(with_other_owner(v4(), now), end - MS);
        assert_eq!(both_other_owner.step(end - MS), addresses(&[v4()]));
        assert_eq!(both_other_owner.step(end - MS), Step::Event(Event::Advert(None)));
        assert_eq!(both_other_owner.step(end - MS), Step::Done);
    }

    #[test]
    fn without_addresses_the_lookup_waits_for_the_alias() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assembly.on_v4(Err(DnsError::NoAddress), now);
        assert_eq!(assembly.step(now), Step::Wait(None));
        assembly.on_v6(Err(DnsError::NoAddress));
        let end = now + ALIAS_ONLY_DELAY;
        assert_eq!(assembly.step(now), Step::Wait(Some(end)));
        assert_eq!(assembly.step(end - MS), Step::Wait(Some(end)));
        assert_eq!(assembly.step(end), Step::Event(Event::Failed(DnsError::NoAddress)));
        assert_eq!(assembly.step(end), Step::Done);
    }

    #[test]
    fn a_nonexistent_name_has_no_alias() {
        let now = Instant::now();
        let mut assembly = Assembly::new(443, true);
        assembly.on_v4(Err(DnsError::NoSuchName), now);
        assembly.on_v6(Err(DnsError::Timeout));
        assert_eq!(assembly.step(now), Step::Event(Event::Failed(DnsError::NoSuchName)));
    }

    #[test]
    fn an_edge_on_another_port_adds_no_address() {
        let now = Instant::now();
        for (port, expected) in
            [(443, addresses(&[v4()])), (8443, Step::Event(Event::Failed(DnsError::NoAddress)))]
        {
            let mut assembly = Assembly::new(443, true);
            assembly.on_v4(Err(DnsError::NoAddress), now);
            assembly.on_v6(Err(DnsError::NoAddress));
            assembly.on_service(Discovered::Elsewhere(EdgeAdvert {
                advert: Advert::default(),
                addresses: vec![SocketAddr::new(v4(), port)],
                target: "edge.example".into(),
                valid_until: now + LIFE,
            }));
            assert_eq!(assembly.step(now), expected);
        }
    }

    #[test]
    fn the_more_specific_error_wins() {
        use DnsError::{NoAddress, NoSuchName, Refused, Timeout};
        assert_eq!(more_specific(NoAddress, Timeout), Timeout);
        assert_eq!(more_specific(Refused, NoAddress), Refused);
        assert_eq!(more_specific(NoAddress, NoAddress), NoAddress);
        assert_eq!(more_specific(Timeout, NoSuchName), NoSuchName);
    }

    proptest! {
        /// For any answers in any order: time advances at every wait, addresses come before the
        /// offer, each once, and the lookup ends.
        #[test]
        fn every_order_ends(
            order in Just(vec![0u8, 1, 2]).prop_shuffle(),
            gaps in prop::collection::vec(0u64..3000, 3),
            v4_ok: bool, v6_ok: bool, v6_own: bool, kind in 0u8..3,
        ) {
            let mut now = Instant::now();
            let mut assembly = Assembly::new(443, true);
            let mut answers = order.into_iter().zip(gaps);
            let mut told: Vec<IpAddr> = Vec::new();
            let (mut offers, mut failures) = (0, 0);
            loop {
                match assembly.step(now) {
                    Step::Done => break,
                    Step::Event(Event::Addresses(new)) => {
                        prop_assert!(!new.is_empty() && new.iter().all(|a| !told.contains(a)));
                        told.extend(new);
                    }
                    Step::Event(Event::Advert(edge)) => {
                        prop_assert!(!told.is_empty());
                        let mut offered = edge.iter().flat_map(|edge| &edge.addresses);
                        prop_assert!(offered.all(|a| told.contains(&a.ip())));
                        offers += 1;
                    }
                    Step::Event(Event::Failed(_)) => failures += 1,
                    Step::Wait(until) => {
                        prop_assert!(until.is_none_or(|until| until > now), "a busy loop");
                        let Some((which, gap)) = answers.next() else {
                            now = until.expect("waits for nothing");
                            continue;
                        };
                        now += Duration::from_millis(gap);
                        match which {
                            0 if v4_ok => assembly.on_v4(found(v4(), now), now),
                            0 => assembly.on_v4(Err(DnsError::NoAddress), now),
                            1 => assembly.on_v6(match (v6_ok, v6_own) {
                                (false, _) => Err(DnsError::Timeout),
                                (true, true) => found(v6(), now),
                                (true, false) => with_other_owner(v6(), now),
                            }),
                            _ => assembly.on_service(match kind {
                                0 => Discovered::Nothing,
                                1 => own(now),
                                _ => Discovered::Alias(vec![]),
                            }),
                        }
                    }
                }
            }
            prop_assert_eq!(told.len(), usize::from(v4_ok) + usize::from(v6_ok));
            prop_assert_eq!(failures, usize::from(told.is_empty()));
            prop_assert_eq!(offers > 0, !told.is_empty());
        }
    }
}
