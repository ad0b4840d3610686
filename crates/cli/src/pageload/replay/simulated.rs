//! The same loads in simulated time, by the profile `tcp`, beside what was measured.

use headstart_pageload::page::{Page, Protocol, Resource, Server};
use headstart_pageload::sim::tcp::{self, Pools, Revisit, Settings, Technique, Techniques};
use headstart_peers::{Arm, Suite};

use super::Link;
use crate::lab::experiment::Connections;
use crate::options::ReplayOptions;

/// Seed of the simulator. Without loss it draws nothing that matters.
const SEED: u64 = 1;

/// Bytes of ClientHellos in a lab: with one group and one cipher.
const HELLO: u64 = 300;
const HYBRID_HELLO: u64 = 1_407;

/// Presets that are nothing but a delay.
const STEADY: [&str; 2] = ["preset satellite", "preset transatlantic"];

/// A page as replays load it, for the simulator.
pub(super) struct Simulated<'o> {
    /// Over HTTP/1.1, with TLS and without, and with one connection for each server.
    tls: Page,
    clear: Page,
    multiplexed: Page,
    options: &'o ReplayOptions,
}

impl<'o> Simulated<'o> {
    /// None if the page cannot be told apart from one with other servers, which no page that was read is.
    pub(super) fn new(page: &Page, options: &'o ReplayOptions) -> Option<Self> {
        let recorded = matches!(options.connections.parse(), Ok(Connections::Recorded));
        let own = if recorded { page.by_connection() } else { page.clone() };
        let over = |page: &Page, tls: bool, protocol: Protocol| {
            let server = |server: &Server| Server { tls, protocol, ..server.clone() };
            let servers = page.servers().iter().map(server).collect();
            Page::new(page.name().to_owned(), servers, page.resources().to_vec()).ok()
        };
        Some(Self {
            tls: over(&own, true, Protocol::Http1)?,
            clear: over(&own, false, Protocol::Http1)?,
            multiplexed: over(&by_host(page)?, true, Protocol::Http3)?,
            options,
        })
    }

    /// Until all resources are there, in ms; none of links that are more than a delay, which the simulator is not told.
    pub(super) fn full_load_ms(&self, arm: Arm, link: &Link) -> Option<f64> {
        let steady = STEADY.contains(&link.path.as_str());
        let is_delay = link.path.starts_with("delay ") && !link.path.contains(',');
        if !steady && (!is_delay || link.path.contains("jitter")) {
            return None;
        }
        let (page, techniques) = self.of(arm);
        let connections = match self.options.connections.parse() {
            Ok(Connections::Pool(connections)) => connections,
            _ => Pools::default().connections,
        };
        let mut settings = Settings {
            techniques,
            pools: Pools { connections, depth: 1 },
            revisit: if self.options.first_visit { Revisit::default() } else { Revisit::again() },
            ..Settings::default()
        };
        settings.link.rtt = link.rtt;
        settings.tls.client_hello =
            if self.options.suite == Suite::X25519MlKem768 { HYBRID_HELLO } else { HELLO };
        Some(tcp::load(page, &settings, SEED).full_load_time().as_secs_f64() * 1e3)
    }

    fn of(&self, arm: Arm) -> (&Page, Techniques) {
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
        let techniques = Techniques::of(&used.map(|(_, one)| one).collect::<Vec<_>>());
        let page = match () {
            () if arm.is_clear() => &self.clear,
            () if name.starts_with("quic") => &self.multiplexed,
            () => &self.tls,
        };
        (page, techniques)
    }
}

/// The page with one server for each host: QUIC has one connection to each.
fn by_host(page: &Page) -> Option<Page> {
    let servers = page.servers();
    let place = |server: usize| {
        let host = servers.get(server).map(|server| &server.host);
        servers.iter().position(|other| Some(&other.host) == host).unwrap_or(server)
    };
    let resource = |one: &Resource| Resource { server: place(one.server), ..one.clone() };
    let resources = page.resources().iter().map(resource).collect();
    Page::new(page.name().to_owned(), servers.to_vec(), resources).ok()
}
