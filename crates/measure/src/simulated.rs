//! Loads of replays in simulated time, by the profile `tcp`, beside what was measured.

use std::time::Duration;

use headstart_openers::{Arm, Suite};
use headstart_pageload::page::{Page, Protocol, Resource, Server};
use headstart_pageload::sim::tcp::{self, Link, Pools, Revisit, Settings, Technique, Techniques};

use crate::value::{Connections, rate};

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Bytes of ClientHellos in a lab, with one group and one cipher, and what a session adds.
const HELLO: u64 = 265;
const SESSION: u64 = 378;
const HYBRID_HELLO: u64 = 1_407;

/// Presets that are nothing but a delay.
const STEADY: [&str; 2] = ["preset satellite", "preset transatlantic"];

/// Settings of a replayed page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplaySettings {
    pub(crate) connections: Connections,
    /// True if all was forgotten before.
    pub(crate) first_visit: bool,
    pub(crate) suite: Suite,
}

/// A page as replays load it, for the simulator.
#[derive(Debug)]
pub(crate) struct Simulated {
    /// Over HTTP/1.1, with TLS and without, and with one connection for each server.
    tls: Page,
    clear: Page,
    multiplexed: Page,
    way: ReplaySettings,
}

impl Simulated {
    /// Prepares a replay; `None` if the page cannot be told apart from one with other servers,
    /// which no page that was read is.
    pub(crate) fn new(page: &Page, way: ReplaySettings) -> Option<Self> {
        let recorded = way.connections == Connections::Recorded;
        let own = if recorded { page.by_connection() } else { page.clone() };
        Some(Self {
            tls: with_servers(&own, true, Protocol::Http1)?,
            clear: with_servers(&own, false, Protocol::Http1)?,
            multiplexed: with_servers(&by_host(page)?, true, Protocol::Http3)?,
            way,
        })
    }

    /// Time until all resources are there, in ms.
    pub(crate) fn full_load_ms(&self, arm: Arm, link: Link) -> f64 {
        let (page, techniques) = self.for_arm(arm);
        let connections = match self.way.connections {
            Connections::Pool(connections) => connections,
            Connections::Recorded => Pools::default().connections,
        };
        let mut settings = Settings {
            link,
            techniques,
            pools: Pools { connections, depth: 1 },
            revisit: if self.way.first_visit { Revisit::default() } else { Revisit::again() },
            ..Settings::default()
        };
        settings.tls.client_hello =
            if self.way.suite == Suite::X25519MlKem768 { HYBRID_HELLO } else { HELLO };
        settings.tls.resumed_hello = settings.tls.client_hello + SESSION;
        tcp::load(page, &settings, SEED).full_load_time().as_secs_f64() * 1e3
    }

    fn for_arm(&self, arm: Arm) -> (&Page, Techniques) {
        let name = arm.name();
        let techniques = [
            (name.contains("tfo"), Technique::FastOpen),
            (name.starts_with("fop"), Technique::FastOpenPrivacy),
            (name.starts_with("turbo"), Technique::TurboTls),
            (name.starts_with("quic"), Technique::Http3),
            (arm.resumes(), Technique::Resumption),
            (arm.sends_early_data(), Technique::ZeroRtt),
        ];
        let used = techniques.into_iter().filter(|(used, _)| *used);
        let techniques = Techniques::from_list(&used.map(|(_, one)| one).collect::<Vec<_>>());
        let page = match () {
            () if arm.is_clear() => &self.clear,
            () if name.starts_with("quic") => &self.multiplexed,
            () => &self.tls,
        };
        (page, techniques)
    }
}

/// The page from servers that all speak one protocol.
fn with_servers(page: &Page, tls: bool, protocol: Protocol) -> Option<Page> {
    let servers = page.servers().iter();
    let servers = servers.map(|server: &Server| Server { tls, protocol, ..server.clone() });
    Page::new(page.name().to_owned(), servers.collect(), page.resources().to_vec()).ok()
}

/// The page with one server for each host: QUIC has one connection to each.
fn by_host(page: &Page) -> Option<Page> {
    let servers = page.servers();
    let resources = page.resources().iter().map(|one: &Resource| {
        let host = servers.get(one.server).map(|server| &server.host);
        let first = servers.iter().position(|other| Some(&other.host) == host);
        Resource { server: first.unwrap_or(one.server), ..one.clone() }
    });
    let resources = resources.collect();
    Page::new(page.name().to_owned(), servers.to_vec(), resources).ok()
}

/// The simulator's link for a path of the lab; none of paths that are more than a delay and a rate,
/// which it is not told.
pub(crate) fn network(path: &str, rtt: Duration) -> Option<Link> {
    let mut link = Link { rtt, ..Link::default() };
    if STEADY.contains(&path) {
        return Some(link);
    }
    for element in path.split(',') {
        match element.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["delay", _] => {}
            ["rate", bits, "queue", bytes] => {
                let bytes_per_second = rate(bits).ok()?;
                link.down = Some(bytes_per_second);
                link.up = Some(bytes_per_second);
                link.queue = size(bytes)?;
            }
            _ => return None,
        }
    }
    Some(link)
}

/// Bytes as paths have them.
fn size(text: &str) -> Option<u64> {
    let units = [("MB", 1_000_000), ("kB", 1_000), ("B", 1)];
    units.into_iter().find_map(|(unit, factor): (&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_match_the_simulators() {
        let rtt = Duration::from_millis(80);
        let delayed = network("delay 40ms", rtt);
        assert_eq!(delayed, Some(Link { rtt, ..Link::default() }));
        assert_eq!(network("preset transatlantic", rtt), delayed);
        let limited = network("delay 40ms, rate 8Mbit queue 64kB", rtt).unwrap();
        assert_eq!((limited.down, limited.up), (Some(1_000_000), Some(1_000_000)));
        assert_eq!(limited.queue, 64_000);
        for other in
            ["delay 40ms jitter 2ms", "delay 40ms, loss 1%", "preset wifi", "udp delay 1ms", ""]
        {
            assert_eq!(network(other, rtt), None, "{other}");
        }
    }
}
