//! One load of one cell: Chromium with what the arm has, from the start to the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::Node;
use headstart_openers::site::Site;
use headstart_pageload::page::{Page, Protocol, Resource};
use serde::Serialize;
use serde_json::Value;

use super::agent::Openings;
use super::arm::Arm;
use super::databases::Served;
use super::extension;
use super::servers::Front;
use super::stage::Stage;
use super::visit::Visit;
use super::whole;
use crate::chromium::BrowserTls;
use crate::chromium::session::{Seen, Session, Start, Stopped};
use crate::interrupt::Interrupt;
use crate::lab::cell::{Agent, Counts};
use crate::lab::process::Broken;
use crate::lab::tor;
use crate::lab::trial::rounded;

/// Time that Chromium rests before a counted load, in all arms: after its start, and after leaving
/// a page, it has work of its own. Counters of an agent rest if they are the same after this time:
/// it is more than a round trip of what is measured.
const REST: Duration = Duration::from_millis(1_000);

/// Connections at a time through an agent, the most that the policy MaxConnectionsPerProxy allows:
/// Chromium's own 32 are fewer than those that databases open ahead.
const PER_PROXY: u8 = 99;

/// Time that counting may take.
const COUNTED: Duration = Duration::from_secs(10);

/// Page and arm of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) site: &'w Site,
    pub(super) arm: Arm,
    pub(super) visit: Visit,
    pub(super) timeout: Duration,
}

/// Resources of loads beside the stage.
#[derive(Debug)]
pub(super) struct Lane<'l> {
    pub(super) stage: &'l Stage,
    pub(super) number: usize,
    pub(super) chromium: &'l Path,
    /// Without a post-quantum key share, if there is one.
    pub(super) classical: Option<&'l Path>,
    pub(super) interrupt: &'l Interrupt,
    /// Databases on the client's node, where the extension finds them.
    pub(super) served: Option<&'l Served>,
}

/// A load that came to its end.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) times: Times,
    /// Start of what is counted, on the clock of this process.
    pub(super) from: Instant,
    pub(super) to: Instant,
    /// URLs that did not come.
    pub(super) missing: Vec<String>,
    pub(super) openings: Openings,
    /// Tor's names of those that connections were on at the end.
    pub(super) circuits: BTreeSet<String>,
    pub(super) seen: Seen,
    pub(super) browser: String,
    /// The extension's own account.
    pub(super) extension: Option<Value>,
}

/// Times in ms since the first request, and what came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Times {
    /// Time until 95 % of the resources were there.
    pub(super) page_load_ms: Option<f64>,
    pub(super) largest_paint_ms: Option<f64>,
    pub(super) on_load_ms: Option<f64>,
    pub(super) first_request_ms: Option<f64>,
    pub(super) first_response_ms: Option<f64>,
    /// Time until all of them were there.
    pub(super) all_ms: Option<f64>,
    pub(super) resources: usize,
    /// Requests that are no resources: cached, failed and so on.
    pub(super) ignored: usize,
    /// Resources that the site does not have: what a database that is out of date asked for.
    pub(super) in_vain: usize,
    pub(super) connections: usize,
    pub(super) bytes: u64,
}

impl Loaded {
    /// Returns true if what the arm has beside Chromium did nothing for the page, as far as it
    /// tells: the extension, unless it is asleep again, or Early Hints.
    pub(super) fn is_idle(&self, arm: Arm) -> bool {
        self.extension.as_ref().is_some_and(extension::is_idle)
            || arm.hinting().is_some_and(Front::is_early) && self.seen.hinted == 0
    }
}

impl Lane<'_> {
    /// Loads a page; tells a failure apart from the user's interrupt.
    pub(super) fn load(&self, wanted: Wanted<'_>) -> Result<Result<Loaded, String>, Stopped> {
        match self.try_load(wanted) {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(Stopped::Failed(why)) => Ok(Err(why)),
            Err(Stopped::Interrupted) => Err(Stopped::Interrupted),
        }
    }

    fn try_load(&self, wanted: Wanted<'_>) -> Result<Loaded, Stopped> {
        let (node, url) = (self.node()?, wanted.site.url());
        // Stopped last, because Chromium's connections go through it.
        let mut agent = self.agent(wanted, node)?;
        let start = self.browser(wanted)?;
        let mut session = Session::start(&start, node)?;
        if wanted.arm.has_extension() {
            self.install(&mut session, wanted.arm)?;
        }
        if wanted.visit.again {
            session.load(&url, wanted.timeout)?;
            session.leave()?;
        }
        let rested = Instant::now() + REST;
        let before = agent.as_mut().map(settled).transpose()?;
        thread::sleep(rested.saturating_duration_since(Instant::now()));
        let from = Instant::now();
        let seen = session.load(&url, wanted.timeout)?;
        let to = Instant::now();
        let circuits = self.stage.circuits(wanted.site);
        let asked = wanted.arm.has_extension().then(|| extension::state(&mut session));
        let (extension, browser) = (asked.flatten(), session.version().to_owned());
        // Agents count connections when they end.
        drop(session);
        let openings = match (agent.as_mut(), before) {
            (Some(agent), Some(before)) => Openings::between(&before, &settled(agent)?),
            _ => Openings::default(),
        };
        let (times, page) = (Times::from_seen(&seen, wanted.site), &seen.recording.page);
        let missing = whole::missing(wanted.site, page);
        let other = wanted.visit.http1.then(|| other_protocol(page)).flatten();
        if let Some(why) = whole::too_many(&missing, wanted.site).or(other) {
            return Err(Stopped::Failed(why));
        }
        Ok(Loaded { times, from, to, missing, openings, circuits, browser, extension, seen })
    }

    fn browser(&self, wanted: Wanted<'_>) -> Result<Start, Stopped> {
        let Wanted { arm, visit, .. } = wanted;
        let program = if visit.classical { self.classical } else { Some(self.chromium) };
        let program = program.ok_or_else(|| Stopped::Failed("there is no such Chromium".into()))?;
        let early = arm.sends_early_data().then_some(BrowserTls::EarlyData);
        // With Encrypted ClientHello, an agent does not read the ticket that has the cookie.
        let no_ech = visit.classical.then_some(BrowserTls::NoEch);
        let mut arguments = self.arguments(arm);
        arguments.extend(visit.http1.then(|| "--disable-http2".to_owned()));
        Ok(Start {
            program: program.to_owned(),
            arguments,
            interrupt: self.interrupt.clone(),
            extensions: arm.has_extension(),
            tls: early.into_iter().chain(no_ech).collect(),
            per_proxy: self.is_proxied(arm).then_some(PER_PROXY),
        })
    }

    fn node(&self) -> Result<&Node, Stopped> {
        let node = self.stage.client(self.number);
        node.map_err(|failure| Stopped::Failed(failure.message().to_owned()))
    }

    fn agent(&self, wanted: Wanted<'_>, node: &Node) -> Result<Option<Agent>, Stopped> {
        let arm = wanted.arm;
        if self.stage.has_tor() {
            let optimistic = if arm.is_optimistic() { "always" } else { "never" };
            let program = &self.stage.place().program;
            // One login, and so one circuit, for each site; the same in both arms.
            let command = tor::agent_command(node, program, wanted.site.name(), optimistic);
            return self.start(command, node).map(Some);
        }
        if !arm.has_agent() {
            return Ok(None);
        }
        let (front, offer) = match arm {
            Arm::ZeroRtt if self.stage.place().fast_open.is_some() => {
                (Front::Terminating, ",fop=1,ed=1")
            }
            Arm::ZeroRtt => (Front::Terminating, ",ed=1"),
            _ => match arm.hinting() {
                // The sites behind it take early data.
                Some(front) => (front, ",ed=1"),
                None => (Front::PassThrough, ""),
            },
        };
        let mut command = node.command(&self.stage.place().program);
        command.arg("agent");
        for (at, host) in self.stage.hosts.iter().enumerate() {
            command.args(["--edge", &format!("{host}={}:443{offer}", front.address(at))]);
        }
        let agent = self.start(command, node)?;
        if let Some(side) = self.stage.place().fast_open.as_ref().filter(|_| arm == Arm::ZeroRtt) {
            side.take(agent.program())?;
        }
        Ok(Some(agent))
    }

    fn start(&self, mut command: Command, node: &Node) -> Result<Agent, Stopped> {
        command.args(["--log", "error"]);
        Ok(Agent::start(node, "agent".into(), command, self.number, self.interrupt)?)
    }

    const fn is_proxied(&self, arm: Arm) -> bool {
        arm.has_agent() || self.stage.has_tor()
    }

    fn arguments(&self, arm: Arm) -> Vec<String> {
        let mut arguments = match self.is_proxied(arm) {
            true => self.stage.proxied(&format!("socks5://{}", Agent::listen(self.number))),
            false => self.stage.arguments(arm.hinting().unwrap_or(Front::Origin)),
        };
        arguments.push("--accept-lang=en-US".into());
        arguments
    }

    fn install(&self, session: &mut Session, arm: Arm) -> Result<(), Stopped> {
        let served = self.served.ok_or_else(|| Stopped::Failed("there is no database".into()))?;
        extension::install(session, &served.url(arm), served.key())
    }
}

/// The counters of an agent whose connections have been closed, once they rest.
fn settled(agent: &mut Agent) -> Result<Counts, Broken> {
    let until = Instant::now() + COUNTED;
    let mut last = agent.counts()?;
    loop {
        thread::sleep(REST);
        let next = agent.counts()?;
        if next == last || Instant::now() > until {
            return Ok(next);
        }
        last = next;
    }
}

impl From<Broken> for Stopped {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Program(why) => Self::Failed(why),
            Broken::Interrupted => Self::Interrupted,
        }
    }
}

/// Returns the reason why a load by HTTP/1.1 alone is none.
fn other_protocol(page: &Page) -> Option<String> {
    let mut others = page.servers().iter().filter(|server| server.protocol != Protocol::Http1);
    others.next().map(|server| format!("{} speaks {}", server.host, server.protocol.name()))
}

impl Times {
    /// Returns the times of what the site has: what was asked for in vain is not waited for.
    pub(super) fn from_seen(seen: &Seen, site: &Site) -> Self {
        let page = &seen.recording.page;
        let resources = page.resources().iter();
        let own: Vec<&Resource> = resources.filter(|one| whole::is_of(site, &one.url)).collect();
        let mut ends: Vec<Duration> =
            own.iter().filter_map(|one| one.measured.map(|measured| measured.end())).collect();
        ends.sort_unstable();
        let first = own.iter().find_map(|one| one.measured);
        let sent = first.map(|it| it.started + it.queued + it.dns + it.connect + it.tls + it.send);
        let mut connections: Vec<u32> =
            page.resources().iter().filter_map(|resource| resource.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        Self {
            // As recordings have it: BLAST, section 3.3.
            page_load_ms: ends.get(ends.len() * 95 / 100).copied().map(ms),
            largest_paint_ms: seen.largest_paint_ms.map(rounded),
            on_load_ms: page.recorded().on_load.map(ms),
            first_request_ms: sent.map(ms),
            first_response_ms: sent.zip(first).map(|(sent, first)| ms(sent + first.wait)),
            all_ms: ends.last().copied().map(ms),
            resources: own.len(),
            ignored: page.ignored().total(),
            in_vain: page.resources().len() - own.len(),
            connections: connections.len(),
            bytes: page.resources().iter().map(|resource| resource.response_bytes).sum(),
        }
    }
}

fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

/// Writes a recording, compressed: it has some 300 kB of text.
pub(super) fn keep(har: &[u8], file: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    let file = fs::File::create(file)?;
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    packed.write_all(har)?;
    packed.finish().map(drop)
}
