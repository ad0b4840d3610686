//! Linking of a client's connections, decided from captures, row by row of table 4 of Sy et al.
//! 2019.
//!
//! A case is some visits of a client, and some more behind a [`Boundary`]: under another name, in
//! another program, from another address. Forgetting everything comes before each case. What counts
//! is what connections show in clear: cookies in Fast Open options, and tickets in ClientHellos.
//! Whether the later visits can be linked to the earlier ones is then seen without any secret:
//!
//! * Something shown in a later one was shown, or handed out in clear, in an earlier one, or stands
//!   anywhere else in its packets: everybody on the path can link them, and as long as that goes
//!   on.
//! * The first visit behind the boundary shows something that nobody saw before. Nothing was handed
//!   out to it behind the boundary, so it comes from in front of it: whoever issued it can link the
//!   two. An observer cannot, and each such thing is shown once.
//! * It shows nothing, and a later one does: neither can.
//!
//! Where no visit in front of the boundary shows anything, or none behind it, Fast Open did not
//! work there, and nothing is decided: that nobody can be linked by what is never shown says
//! nothing of cookies. The same holds of an observer where fewer than two visits show anything, and
//! of a visit whose ClientHello the capture lacks.
//!
//! Two devices behind one address are the other way round: their visits are linked by the address,
//! and what each shows again, and the other does not, tells them apart. Where both show the same,
//! nothing does; where nothing is shown twice, only who issued it knows to whom.
//!
//! What a later visit behind the boundary shows may have been given in front of it, too. Captures
//! cannot tell, since private cookies are handed out under encryption; that contexts share none is
//! what the tests of `headstart-sessions` are for.

mod observe;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use observe::{Connection, connections};
use observe::{Identifier, Kind};

/// Boundary between the visits that are compared: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Boundary {
    /// Nothing: any two visits, seen by an observer of the network.
    Network,
    /// The same server, as a part of pages of two others.
    ThirdParties,
    /// Two names at one address.
    VirtualHosts,
    /// A private mode, while the program goes on.
    PrivateMode,
    Restart,
    /// Two programs of one user.
    Applications,
    /// Another address of the client.
    AddressChange,
    /// Another public address, of a NAT before the client.
    Nat,
    /// Another device behind the same NAT: here visits are told apart, not linked.
    Devices,
    /// More time than a cookie lives.
    Period,
}

/// Degree to which visits can be linked; in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Linkable {
    /// Not linkable by the identifiers shown.
    Blocked,
    /// Linkable by the issuer of each identifier, once, until it expires.
    Bounded,
    /// Linkable by everybody who sees the connections, without limit.
    Viable,
}

/// Finding from captures about one row and one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) boundary: Boundary,
    /// The worst of all cases. None if captures do not show that there was anything to link by.
    pub(crate) linkable: Option<Linkable>,
    /// Cases by what was found.
    pub(crate) viable: u32,
    pub(crate) bounded: u32,
    pub(crate) blocked: u32,
    pub(crate) undecided: u32,
    /// Evidence that decided the first cases.
    pub(crate) evidence: Vec<String>,
}

/// Sentences of evidence that are kept.
const EVIDENCE_MAX: usize = 3;

/// Visits of a client, in order; everything is forgotten before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) visits: Vec<Visit>,
}

/// A visit, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visit {
    /// Time at which it began, since 1970.
    pub(crate) begun: Duration,
    /// True if the visit is behind the boundary.
    pub(crate) behind: bool,
}

/// Time by which a connection may pass the interface before its visit began: two readings of one
/// clock.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Decides a row: `connections` are those of a capture of the client, of which those to `servers`
/// are of the arm.
pub(crate) fn decide(
    boundary: Boundary,
    servers: &[IpAddr],
    cases: &[Case],
    connections: &[Connection],
) -> Finding {
    let own: Vec<&Connection> =
        connections.iter().filter(|one| servers.contains(&one.server.ip())).collect();
    let mut finding = Finding::none(boundary);
    for (number, case) in (1..).zip(cases) {
        let until = cases.get(number).and_then(|next| next.visits.first());
        let seen = Seen::new(case, until.map(|visit| visit.begun), &own);
        finding.add(number, seen.decide(boundary));
    }
    finding
}

impl Boundary {
    /// Returns true if the observer of the network is meant, and not the server.
    pub(crate) const fn is_of_network(self) -> bool {
        matches!(self, Self::Network | Self::Devices)
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Network => "network attacker",
            Self::ThirdParties => "third parties",
            Self::VirtualHosts => "virtual hosts",
            Self::PrivateMode => "private mode",
            Self::Restart => "restart",
            Self::Applications => "applications",
            Self::AddressChange => "change of address",
            Self::Nat => "NAT that changes its address",
            Self::Devices => "devices behind one address",
            Self::Period => "tracking period",
        }
    }
}

impl Linkable {
    /// Its number in bars: 0, 1 or 2.
    pub(crate) const fn level(self) -> u8 {
        match self {
            Self::Blocked => 0,
            Self::Bounded => 1,
            Self::Viable => 2,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Bounded => "bounded",
            Self::Viable => "viable",
        }
    }
}

impl Finding {
    fn none(boundary: Boundary) -> Self {
        Self {
            boundary,
            linkable: None,
            viable: 0,
            bounded: 0,
            blocked: 0,
            undecided: 0,
            evidence: Vec::new(),
        }
    }

    /// Takes a case; one that is not decided leaves the row undecided unless another shows the
    /// worst.
    fn add(&mut self, number: usize, (linkable, why): (Option<Linkable>, String)) {
        let count = match linkable {
            Some(Linkable::Viable) => &mut self.viable,
            Some(Linkable::Bounded) => &mut self.bounded,
            Some(Linkable::Blocked) => &mut self.blocked,
            None => &mut self.undecided,
        };
        *count += 1;
        if self.evidence.len() < EVIDENCE_MAX {
            self.evidence.push(format!("case {number}: {why}"));
        }
        self.linkable = match (self.viable, self.undecided, self.bounded, self.blocked) {
            (1.., ..) => Some(Linkable::Viable),
            (_, 1.., ..) => None,
            (_, _, 1.., _) => Some(Linkable::Bounded),
            (_, _, _, 1..) => Some(Linkable::Blocked),
            _ => None,
        };
    }

    /// The tracking period in words, for the row that is about it.
    pub(crate) fn period(&self) -> Option<&'static str> {
        let linkable = self.linkable.filter(|_| self.boundary == Boundary::Period)?;
        Some(if linkable == Linkable::Viable { "unrestricted" } else { "until expiry" })
    }
}

/// The visits of a case with the connections seen of each.
struct Seen<'c> {
    visits: Vec<(Visit, Vec<&'c Connection>)>,
}

impl<'c> Seen<'c> {
    /// Each connection belongs to the visit that began last before it.
    fn new(case: &Case, until: Option<Duration>, connections: &[&'c Connection]) -> Self {
        let starts = case.visits.iter().skip(1).map(|visit| visit.begun).map(Some);
        let ends = starts.chain([until]);
        Self {
            visits: case
                .visits
                .iter()
                .zip(ends)
                .map(|(visit, end): (&Visit, Option<Duration>)| {
                    (
                        *visit,
                        connections
                            .iter()
                            .filter(|one: &&&Connection| {
                                let at = one.at + TOLERANCE;
                                at >= visit.begun && end.is_none_or(|end| at < end)
                            })
                            .copied()
                            .collect(),
                    )
                })
                .collect(),
        }
    }

    fn decide(&self, boundary: Boundary) -> (Option<Linkable>, String) {
        if self.visits.iter().any(|(_, connections)| connections.is_empty()) {
            return (None, "the capture lacks a visit".into());
        }
        let mut numbers = self.numbers();
        let cut =
            numbers.find(|number| !self.connections(*number).iter().any(|one| one.whole_hello));
        if let Some(number) = cut {
            return (None, format!("the capture lacks the ClientHello of visit {}", number + 1));
        }
        match boundary {
            Boundary::Network => self.by_observer(),
            Boundary::Devices => self.apart(),
            _ => self.by_server(boundary),
        }
    }

    /// Any two visits that have something in common.
    fn by_observer(&self) -> (Option<Linkable>, String) {
        let mut pairs = self.numbers().flat_map(|b| (0..b).map(move |a| (a, b)));
        if let Some(why) = pairs.find_map(|(a, b)| self.repeated(a, b)) {
            return (Some(Linkable::Viable), why);
        }
        match self.numbers().filter(|number| self.shows(*number).is_some()).count() {
            0 => (None, "no visit shows anything: Fast Open did not work".into()),
            1 => (None, "one visit shows something, and there is none to compare it with".into()),
            count => (Some(Linkable::Blocked), format!("no two of {count} visits show the same")),
        }
    }

    /// The visits of two devices: what one shows again, and the other never shows, tells them
    /// apart.
    fn apart(&self) -> (Option<Linkable>, String) {
        if ![false, true].iter().all(|side| self.side(*side).any(|one| self.shows(one).is_some())) {
            return (None, "a device shows nothing: Fast Open did not work there".into());
        }
        let mut across = self.side(false).flat_map(|a| self.side(true).map(move |b| (a, b)));
        if let Some(why) = across.find_map(|(a, b)| self.repeated(a, b)) {
            return (Some(Linkable::Blocked), format!("{why}, of two devices"));
        }
        let mut pairs = self.numbers().flat_map(|b| (0..b).map(move |a| (a, b)));
        match pairs.find_map(|(a, b)| self.repeated(a, b)) {
            Some(why) => (Some(Linkable::Viable), format!("{why}, of one device")),
            None => {
                let why = "no two visits show the same: who issued it knows, once".into();
                (Some(Linkable::Bounded), why)
            }
        }
    }

    /// A visit in front of the boundary, and one behind it.
    fn by_server(&self, boundary: Boundary) -> (Option<Linkable>, String) {
        if !self.side(false).any(|number| self.shows(number).is_some()) {
            return (None, "no visit in front shows anything: Fast Open did not work".into());
        }
        let Some(first) = self.side(true).next() else {
            return (None, "no visit is behind".into());
        };
        let mut pairs = self.side(false).flat_map(|a| self.side(true).map(move |b| (a, b)));
        if let Some(why) = pairs.find_map(|(a, b)| self.repeated(a, b)) {
            return (Some(Linkable::Viable), why);
        }
        if let Some(identifier) = self.shows(first) {
            let visit = format!("visit {}", first + 1);
            return match boundary {
                Boundary::Period if identifier.kind == Kind::Ticket => {
                    let why = format!("{visit} shows {identifier}, which lives longer");
                    (Some(Linkable::Bounded), why)
                }
                Boundary::Period => {
                    (Some(Linkable::Viable), format!("{visit} shows {identifier} beyond its time"))
                }
                _ => {
                    let why = format!(
                        "{visit}, the first behind, shows {identifier}, which it was given before"
                    );
                    (Some(Linkable::Bounded), why)
                }
            };
        }
        if !self.side(true).any(|number| self.shows(number).is_some()) {
            return (None, "no visit behind shows anything: Fast Open did not work there".into());
        }
        match boundary {
            Boundary::Period => {
                (Some(Linkable::Bounded), format!("visit {} shows nothing any more", first + 1))
            }
            _ => {
                let why = format!("visit {}, the first behind, shows nothing", first + 1);
                (Some(Linkable::Blocked), why)
            }
        }
    }

    /// Numbers of the visits on one side of the boundary.
    fn side(&self, behind: bool) -> impl Iterator<Item = usize> {
        self.numbers().filter(move |number| {
            self.visits.get(*number).is_some_and(|(visit, _)| visit.behind == behind)
        })
    }

    /// Returns what visit `a` showed or was handed in clear, and the later visit `b` shows; or what
    /// one of them shows or was handed, and stands elsewhere in the other's packets.
    fn repeated(&self, a: usize, b: usize) -> Option<String> {
        let (earlier, later) = (self.connections(a), self.connections(b));
        let mut shown = later.iter().flat_map(|one| &one.shown);
        let mut given = earlier.iter().flat_map(|one| one.shown.iter().chain(&one.handed_out));
        let alike = shown.clone().find(|shown| given.clone().any(|given| given.is_alike(shown)));
        if let Some(identifier) = alike {
            return Some(format!("visits {} and {} have {identifier} in common", a + 1, b + 1));
        }
        let before = shown.find(|identifier| earlier.iter().any(|one| one.has(identifier)));
        let after = given.find(|identifier| later.iter().any(|one| one.has(identifier)));
        let (identifier, at) = before.map(|one| (one, a)).or(after.map(|one| (one, b)))?;
        Some(format!("{identifier} stands in the packets of visit {} as well", at + 1))
    }

    fn numbers(&self) -> std::ops::Range<usize> {
        0..self.visits.len()
    }

    fn connections(&self, number: usize) -> &[&'c Connection] {
        self.visits.get(number).map(|(_, all)| all.as_slice()).unwrap_or_default()
    }

    /// The first thing that a visit shows.
    fn shows(&self, number: usize) -> Option<&'c Identifier> {
        self.connections(number).iter().find_map(|one| one.shown.first())
    }
}

#[cfg(test)]
mod tests;
