//! Work of the cells of a variant.

use std::time::Duration;

use headstart_openers::Arm;
use serde::Deserialize;

use super::{
    ADDRESSES_MAX, Balance, Experiment, LinkSpec, OriginKind, TRIALS_MAX, Variant, Wrong, text,
    within, wrong,
};
use crate::lab::privacy::Boundary;
use crate::lab::workload::{HOSTS_MAX, SHARES_MAX, Shares};
use crate::value::Connections;

/// Visits of a host: as many as the published table has, a first one and three more.
const VISITS: u32 = 4;

/// Times of a download that are counted, and how many there may be.
const BESIDE_MIN: Duration = Duration::from_millis(100);
const BESIDE_MAX: Duration = Duration::from_secs(600);
const BESIDE_TIMES: usize = 8;

/// Work of a cell in its turn: under `work` in a variant, such as `work.rate = 100.0`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// One connection at a time, or as many as the experiment's `in_flight` says.
    #[default]
    Connections,
    /// Connections at a time, as many as get done.
    InFlight(u32),
    /// Connections a second, begun at random moments whether earlier ones are done or not.
    Rate(f64),
    /// Connections in a row after everything was forgotten; the first counts apart from the later
    /// ones.
    FirstAndLater(u32),
    /// Visits to hosts with several addresses; first visits count apart from each revisit.
    Visits(HostVisits),
    /// Visits in front of a boundary and behind it; captures decide whether they can be linked.
    Privacy(Boundary),
    /// One load of a recorded page.
    Page(PageWork),
    /// One connection of one of several unmodified programs, started for it, to a virtual host.
    Programs(ProgramWork),
    /// One connection beside a download by plain TCP; the download counts apart, by times from the
    /// connection's start.
    Beside(BesideWork),
}

/// Hosts, each of which has its turn.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostVisits {
    /// Number of hosts with one address, with two and so on.
    pub(crate) hosts: Vec<u32>,
    /// Visits to each host, the first one included.
    #[serde(default = "usual_visits")]
    pub(crate) each: u32,
}

/// A recorded page, and the way to load it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageWork {
    /// A file, here or in the folder that HEADSTART_DATA names.
    pub(crate) file: String,
    /// Number of the page in that file, from 1.
    #[serde(default = "first")]
    pub(crate) number: u16,
    /// Connections to each server of the page.
    #[serde(default, deserialize_with = "text::some")]
    pub(crate) connections: Option<Connections>,
    /// Addresses of each host of the page.
    #[serde(default = "one")]
    pub(crate) addresses: u8,
    /// True if everything is forgotten before each load.
    #[serde(default)]
    pub(crate) fresh: bool,
}

/// Programs with their shares of the connections.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramWork {
    pub(crate) shares: Shares,
    /// Shares of the virtual hosts in the connections of those programs that have no host of their
    /// own.
    pub(crate) hosts: Vec<u32>,
}

/// A download that shares the path of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BesideWork {
    /// Time that it has before the connection begins.
    #[serde(deserialize_with = "text::time")]
    pub(crate) ahead: Duration,
    /// Times from the connection's start in which its bytes are counted.
    #[serde(deserialize_with = "text::times")]
    pub(crate) times: Vec<Duration>,
}

const fn usual_visits() -> u32 {
    VISITS
}

const fn first() -> u16 {
    1
}

const fn one() -> u8 {
    1
}

impl Work {
    pub(crate) const fn page(&self) -> Option<&PageWork> {
        match self {
            Self::Page(page) => Some(page),
            _ => None,
        }
    }

    pub(crate) const fn visits(&self) -> Option<&HostVisits> {
        match self {
            Self::Visits(visits) => Some(visits),
            _ => None,
        }
    }

    pub(crate) const fn programs(&self) -> Option<&ProgramWork> {
        match self {
            Self::Programs(programs) => Some(programs),
            _ => None,
        }
    }

    pub(crate) const fn beside(&self) -> Option<&BesideWork> {
        match self {
            Self::Beside(beside) => Some(beside),
            _ => None,
        }
    }

    /// Returns the number of trials that count apart: each has a value of its own in the column
    /// `variant`.
    pub(super) fn kinds(&self) -> u32 {
        match self {
            Self::FirstAndLater(_) => 2,
            Self::Visits(visits) => visits.each,
            Self::Beside(beside) => 1 + u32::try_from(beside.times.len()).unwrap_or(u32::MAX),
            _ => 1,
        }
    }

    /// Returns the part of the column `variant` that trial `trial` of a group has, from 1.
    pub(super) fn column(&self, trial: u32) -> Option<String> {
        match (self, trial) {
            (Self::FirstAndLater(_), 1) => Some("first".to_owned()),
            (Self::FirstAndLater(_), _) => Some("later".to_owned()),
            (Self::Visits(_), 1) => Some("visit".to_owned()),
            (Self::Visits(_), later) => Some(format!("revisit {}", later - 1)),
            (Self::Beside(beside), trial) => Some(beside.column(trial)),
            _ => None,
        }
    }

    /// Checks that a variant with these arms can do it.
    pub(super) fn check(
        &self,
        variant: &Variant,
        arms: &[Arm],
        experiment: &Experiment,
    ) -> Result<(), Wrong> {
        if self.page().is_none()
            && let Some(arm) = arms.iter().find(|arm| arm.is_clear())
        {
            let hint = "give work.page, or list arms with TLS in the variant's `arms`";
            return wrong("variant.work", format!("{arm} loads whole pages only"), hint);
        }
        let has_programs = self.programs().is_some();
        if let Some(arm) = arms.iter().find(|arm| arm.is_of_programs() != has_programs) {
            let hint = "arms of programs are today, client, client-server and what begins so; \
                        list them or the others in `arms`";
            let what = match has_programs {
                true => format!("{arm} is no arm of programs"),
                false => format!("{arm} has none"),
            };
            return wrong("variant.work.programs", what, hint);
        }
        match self {
            Self::Connections => Ok(()),
            Self::InFlight(count) => within("variant.work.in_flight", *count, 1..=10_000),
            Self::Rate(rate) => within("variant.work.rate", *rate, 0.1..=100_000.0),
            Self::FirstAndLater(count) => within("variant.work.first_and_later", *count, 2..=1000),
            Self::Visits(visits) => visits.check(variant, arms),
            Self::Privacy(boundary) => check_case(*boundary, variant, arms, experiment),
            Self::Page(page) => page.check(variant, arms),
            Self::Programs(programs) => programs.check(variant, arms),
            Self::Beside(beside) => beside.check(),
        }
    }
}

impl HostVisits {
    fn check(&self, variant: &Variant, arms: &[Arm]) -> Result<(), Wrong> {
        let hosts = &self.hosts;
        within("variant.work.visits.hosts", hosts.len(), 1..=ADDRESSES_MAX)?;
        within("variant.work.visits.each", self.each, 2..=10)?;
        if hosts.iter().all(|count| *count == 0) || hosts.iter().any(|count| *count > TRIALS_MAX) {
            let hint = "give the numbers of hosts with one address, with two and so on: [19, 62]";
            return wrong("variant.work.visits", format!("{hosts:?} are no hosts"), hint);
        }
        if variant.servers.unwrap_or(1) > 1 {
            let hint = "a host is one server here";
            return wrong("variant.work.visits", "given beside servers", hint);
        }
        if !arms.iter().all(|arm| arm.has_several_addresses()) {
            let hint = "list tls13, tfo, fop and their kin in the variant's `arms`";
            return wrong("variant.work.visits", "an arm is at one address only", hint);
        }
        Ok(())
    }
}

impl PageWork {
    fn check(&self, variant: &Variant, arms: &[Arm]) -> Result<(), Wrong> {
        if let Some(arm) = arms.iter().find(|arm| !arm.loads_pages()) {
            let hint = "list arms without an agent and without ECH in the variant's `arms`";
            return wrong("variant.work.page", format!("{arm} loads no pages"), hint);
        }
        let others = variant.clients.unwrap_or(1) > 1
            || variant.servers.unwrap_or(1) > 1
            || variant.origin != OriginKind::Builtin
            || variant.slots.is_some()
            || variant.grace.is_some()
            || variant.policy.is_some()
            || variant.flight.is_some()
            || variant.response.is_some();
        if others {
            let hint =
                "leave out clients, servers, origin, slots, grace, policy, flight and response";
            return wrong("variant.work.page", "given beside what is no part of a page", hint);
        }
        within("variant.work.page.addresses", self.addresses, 1..=8)
    }
}

impl ProgramWork {
    fn check(&self, variant: &Variant, arms: &[Arm]) -> Result<(), Wrong> {
        within("variant.work.programs.hosts", self.hosts.len(), 1..=HOSTS_MAX)?;
        for share in self.shares.values().chain(&self.hosts) {
            within("variant.work.programs", *share, 0..=SHARES_MAX)?;
        }
        let no_programs = self.shares.values().all(|share| *share == 0);
        if no_programs || self.hosts.iter().all(|share| *share == 0) {
            let hint = "write for example { shares = { curl = 2, nginx = 1 }, hosts = [3, 1] }";
            return wrong("variant.work.programs", "all shares are 0", hint);
        }
        if variant.clients.unwrap_or(1) > 1 {
            let what = "programs are those of one machine";
            return wrong("variant.clients", what, "leave out clients");
        }
        let keeps_clients = matches!(variant.balance, None | Some(Balance::Source));
        if let Some(arm) = arms.iter().find(|arm| arm.sends_early_data() && !keeps_clients) {
            let what = format!("{arm} needs a balancer that keeps each client at one edge");
            let hint = "give balance = \"source\", or leave it out of the variant's `arms`";
            return wrong("variant.balance", what, hint);
        }
        Ok(())
    }
}

impl BesideWork {
    /// Returns the time after which nothing is counted any more.
    pub(crate) fn last(&self) -> Duration {
        self.times.iter().max().copied().unwrap_or_default()
    }

    /// Returns the part of the column `variant` of the connection, or of one of the times.
    fn column(&self, trial: u32) -> String {
        let number = trial.checked_sub(2).and_then(|number| usize::try_from(number).ok());
        let time = number.and_then(|number| self.times.get(number));
        time.map_or("answer".to_owned(), |time| format!("{time:?} of the download"))
    }

    fn check(&self) -> Result<(), Wrong> {
        within("variant.work.beside.ahead", self.ahead, Duration::ZERO..=BESIDE_MAX)?;
        within("variant.work.beside.times", self.times.len(), 1..=BESIDE_TIMES)?;
        self.times.iter().try_for_each(|time: &Duration| {
            within("variant.work.beside.times", *time, BESIDE_MIN..=BESIDE_MAX)
        })
    }
}

fn check_case(
    boundary: Boundary,
    variant: &Variant,
    arms: &[Arm],
    experiment: &Experiment,
) -> Result<(), Wrong> {
    if let Some(arm) = arms.iter().find(|arm| !arm.can_cross()) {
        let hint = "list tfo, fop and their kin in the variant's `arms`";
        return wrong("variant.work.privacy", format!("{arm} cannot do that"), hint);
    }
    if variant.clients.unwrap_or(1) > 1 {
        return wrong("variant.work.privacy", "a case is of one client", "leave out clients");
    }
    let mut links = experiment.link.iter().filter(|link: &&LinkSpec| variant.on(link));
    let lacking = links.find(|link| link.changed_path.is_none());
    if let Some(link) = lacking.filter(|_| boundary == Boundary::Nat) {
        let what = format!("link '{}' has no changed_path", link.name);
        return wrong("variant.work.privacy", what, "say there what the NAT is afterwards");
    }
    if boundary == Boundary::Period
        && variant.cookie_life.is_none_or(|life: Duration| life.is_zero())
    {
        let hint = "give cookie_life = \"5s\", so that a run needs no hour";
        return wrong("variant.work.privacy", "nobody waits for the usual life", hint);
    }
    Ok(())
}
