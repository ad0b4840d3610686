//! A common interface to both profiles: what a page takes with given techniques.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::Load;
use super::blast::{self, Features};
use super::tcp::{self, Technique, Techniques};
use crate::page::Page;

/// Separates the draw of whether databases know a page from all other draws of a load.
const HITS: u64 = 0x6869_7473;

/// The rules of a simulation.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // there is one, not many
pub enum Profile {
    /// The rules published with BLAST.
    Blast(blast::Settings),
    /// The network as it is. [`tcp::Settings::techniques`] and [`tcp::Settings::hit_rate`] do not
    /// count here.
    Tcp(tcp::Settings),
}

impl Profile {
    /// Returns true if its rules include a technique.
    pub fn knows(&self, technique: Technique) -> bool {
        matches!(self, Self::Tcp(_))
            || features(Techniques::default().with(technique)) != Features::default()
    }

    /// Returns the techniques that it knows, those that shorten openings first.
    pub fn techniques(&self) -> impl Iterator<Item = Technique> + '_ {
        Technique::ALL.into_iter().filter(|&technique| self.knows(technique))
    }

    /// Techniques in the order in which one is added to the other, if nobody says another.
    ///
    /// Of `blast` that of the paper. Over TCP first what an edge does, then what databases do. Fast
    /// Open and its private cookies save the round trip that TurboTLS saves; optimistic data are
    /// for proxies, and HTTP/3 is another protocol: they are not in it.
    pub fn in_order(&self) -> &'static [Technique] {
        match self {
            Self::Blast(_) => &[
                Technique::FastOpen,
                Technique::OptimisticData,
                Technique::ZeroRtt,
                Technique::RedirectDatabase,
                Technique::Http2Database,
                Technique::PrefetchDatabase,
            ],
            Self::Tcp(_) => &[
                Technique::TurboTls,
                Technique::Resumption,
                Technique::SessionSharing,
                Technique::ZeroRtt,
                Technique::RedirectDatabase,
                Technique::Http2Database,
                Technique::ServerDatabase,
                Technique::EarlyHints,
                Technique::PrefetchDatabase,
            ],
        }
    }

    /// Changes the round-trip time.
    #[must_use]
    pub(crate) fn with_rtt(&self, rtt: Duration) -> Self {
        match self.clone() {
            Self::Blast(settings) => Self::Blast(blast::Settings { rtt, ..settings }),
            Self::Tcp(mut settings) => {
                settings.link.rtt = rtt;
                Self::Tcp(settings)
            }
        }
    }

    /// Changes the bandwidth to the client, in bytes a second.
    #[must_use]
    pub(crate) fn with_rate(&self, rate: u64) -> Self {
        match self.clone() {
            Self::Blast(settings) => {
                let rate = u32::try_from(rate).unwrap_or(u32::MAX);
                Self::Blast(blast::Settings { rate, ..settings })
            }
            Self::Tcp(mut settings) => {
                settings.link.down = Some(rate);
                Self::Tcp(settings)
            }
        }
    }

    /// Returns true if every seed gives the same load, given what databases know.
    pub fn is_certain(&self) -> bool {
        let Self::Tcp(settings) = self else { return false };
        let revisit = &settings.revisit;
        let shares = [
            revisit.cookies,
            revisit.moved,
            revisit.sessions,
            revisit.shared_sessions,
            revisit.addresses,
            revisit.connections,
        ];
        settings.link.loss <= 0.0 && shares.iter().all(|share| *share <= 0.0 || *share >= 1.0)
    }

    fn prepare<'a>(&self, page: &'a Page, techniques: Techniques) -> Prepared<'a> {
        match self {
            Self::Blast(settings) => {
                let features = features(techniques);
                let settings = blast::Settings { features, ..*settings };
                Prepared::Blast(blast::Plan::new(page, &settings), settings)
            }
            Self::Tcp(settings) => {
                let settings = tcp::Settings { techniques, hit_rate: 1.0, ..settings.clone() };
                Prepared::Tcp(page, Box::new(settings))
            }
        }
    }
}

fn features(techniques: Techniques) -> Features {
    Features {
        fast_open: techniques.fast_open,
        optimistic_data: techniques.optimistic_data,
        zero_rtt: techniques.zero_rtt,
        redirect_database: techniques.redirect_database,
        http2_database: techniques.http2_database,
        prefetch_database: techniques.prefetch_database,
    }
}

/// A page, prepared for loads with some techniques.
enum Prepared<'a> {
    Blast(blast::Plan, blast::Settings),
    Tcp(&'a Page, Box<tcp::Settings>),
}

impl Prepared<'_> {
    fn load(
        &self,
        simulator: &mut blast::Simulator,
        takes_part: &dyn Fn(usize) -> bool,
        seed: u64,
    ) -> Load {
        match self {
            Self::Blast(plan, settings) => simulator.load(plan, settings, seed),
            Self::Tcp(page, settings) => tcp::load_with(page, settings, takes_part, seed),
        }
    }
}

/// Rules, and how often they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The rules.
    pub profile: Profile,
    /// Probability that databases know a page.
    pub hit_rate: f64,
    /// Seed of the first load; each further load has the next.
    pub seed: u64,
    /// Number of loads of a page that are averaged.
    pub draws: u64,
}

/// Means over the loads of a page, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Expected {
    /// Time until 95 % of the resources are loaded.
    pub page_load_ms: f64,
    /// Time of a resource, from when it was known to be needed.
    pub resource_ms: f64,
    /// Time of the largest contentful paint, where recorded ([`Load::largest_paint`]).
    pub largest_paint_ms: Option<f64>,
    /// Time of the load event, where recorded ([`Load::on_load`]).
    pub on_load_ms: Option<f64>,
}

impl Expected {
    fn from_load(load: &Load) -> Self {
        Self {
            page_load_ms: ms(load.page_load_time()),
            resource_ms: ms(load.mean_resource_time()),
            largest_paint_ms: load.largest_paint.map(ms),
            on_load_ms: load.on_load.map(ms),
        }
    }

    /// Weighs two outcomes: the first has probability `share`.
    fn mixed(share: f64, first: Self, other: Self) -> Self {
        let mix = |first: f64, other: f64| share * first + (1.0 - share) * other;
        let both = |first: Option<f64>, other: Option<f64>| Some(mix(first?, other?));
        Self {
            page_load_ms: mix(first.page_load_ms, other.page_load_ms),
            resource_ms: mix(first.resource_ms, other.resource_ms),
            largest_paint_ms: both(first.largest_paint_ms, other.largest_paint_ms),
            on_load_ms: both(first.on_load_ms, other.on_load_ms),
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Model {
    /// Passes each load with its seed to `each`. Draws for each load whether databases know the
    /// page.
    pub fn loads(&self, page: &Page, techniques: Techniques, mut on: impl FnMut(u64, Load)) {
        let hit = self.profile.prepare(page, techniques);
        let miss = self.profile.prepare(page, techniques.without_databases());
        let mut simulator = blast::Simulator::new();
        for seed in self.seeds() {
            let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed ^ HITS);
            let prepared = if draws.random::<f64>() < self.hit_rate { &hit } else { &miss };
            on(seed, prepared.load(&mut simulator, &|_| true, seed));
        }
    }

    /// Returns the expected times, weighing whether databases know the page.
    pub fn expected(&self, page: &Page, techniques: Techniques) -> Expected {
        self.expected_with(page, techniques, &|_| true)
    }

    /// Returns the expected times if only some of [`Page::servers`] have an edge; see
    /// [`tcp::load_with`]. By the published rules all have.
    pub(crate) fn expected_with(
        &self,
        page: &Page,
        techniques: Techniques,
        takes_part: &dyn Fn(usize) -> bool,
    ) -> Expected {
        let without = techniques.without_databases();
        let share = if without == techniques { 1.0 } else { self.hit_rate.clamp(0.0, 1.0) };
        if share <= 0.0 {
            return self.mean(page, without, takes_part);
        }
        let known = self.mean(page, techniques, takes_part);
        if share >= 1.0 {
            return known;
        }
        Expected::mixed(share, known, self.mean(page, without, takes_part))
    }

    fn mean(
        &self,
        page: &Page,
        techniques: Techniques,
        takes_part: &dyn Fn(usize) -> bool,
    ) -> Expected {
        let prepared = self.profile.prepare(page, techniques);
        let mut simulator = blast::Simulator::new();
        let seeds = if self.profile.is_certain() { self.seed..=self.seed } else { self.seeds() };
        let (mut mean, mut count) = (Expected::default(), 0.0);
        for seed in seeds {
            let load = Expected::from_load(&prepared.load(&mut simulator, takes_part, seed));
            count += 1.0;
            mean = if count > 1.0 { Expected::mixed(1.0 / count, load, mean) } else { load };
        }
        mean
    }

    fn seeds(&self) -> std::ops::RangeInclusive<u64> {
        self.seed..=self.seed.saturating_add(self.draws.max(1) - 1)
    }
}

/// Writes the names, separated by `+`; `none` if empty.
impl fmt::Display for Techniques {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut has = Technique::ALL.into_iter().filter(|&technique| self.has(technique));
        match has.next() {
            None => f.write_str("none"),
            Some(first) => {
                write!(f, "{first}")?;
                has.try_for_each(|technique| write!(f, "+{technique}"))
            }
        }
    }
}

/// Name of an unknown technique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTechnique(String);

impl fmt::Display for UnknownTechnique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Technique::ALL.map(Technique::name).join(", ");
        write!(f, "'{}' is no technique; there are none, {names}", self.0)
    }
}

impl std::error::Error for UnknownTechnique {}

impl FromStr for Technique {
    type Err = UnknownTechnique;

    fn from_str(text: &str) -> Result<Self, UnknownTechnique> {
        Self::named(text).ok_or_else(|| UnknownTechnique(text.to_owned()))
    }
}

/// Reads what `Display` writes; commas are accepted for `+`.
impl FromStr for Techniques {
    type Err = UnknownTechnique;

    fn from_str(text: &str) -> Result<Self, UnknownTechnique> {
        if text == "none" {
            return Ok(Self::default());
        }
        let mut names = text.split(['+', ',']);
        names.try_fold(Self::default(), |techniques, name| Ok(techniques.with(name.parse()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Dependency, Protocol, Resource, Server};

    const RTT: Duration = Duration::from_millis(100);

    /// A document, and `count` resources that it names, over TLS and HTTP/2.
    fn page(count: usize) -> Page {
        let server = Server::https("a.test", Protocol::Http2);
        Page::new(
            "page".into(),
            vec![server],
            (0..=count)
                .map(|id: usize| Resource {
                    dependencies: (id > 0).then_some(Dependency::whole(0)).into_iter().collect(),
                    response_bytes: 1_000,
                    in_prefetch_database: true,
                    ..Resource::default()
                })
                .collect(),
        )
        .unwrap()
    }

    impl Model {
        /// One load over 100 ms, where nothing but round trips takes time.
        pub(crate) fn of_round_trips(revisit: tcp::Revisit) -> Self {
            let link = tcp::Link { rtt: RTT, ..tcp::Link::default() };
            let none = Duration::ZERO;
            let tls = tcp::Handshake { full: none, resumed: none, ..tcp::Handshake::default() };
            let settings = tcp::Settings { link, tls, revisit, ..tcp::Settings::default() };
            Self { profile: Profile::Tcp(settings), hit_rate: 1.0, seed: 0, draws: 1 }
        }
    }

    fn model(hit_rate: f64) -> Model {
        Model { hit_rate, ..Model::of_round_trips(tcp::Revisit::default()) }
    }

    #[test]
    fn loads_over_tcp_take_the_round_trips_of_the_ledger() {
        // TCP, TLS, the document, what it names; with the database, that is requested with it.
        let ledger = [("none", 4.0), ("turbotls", 3.0), ("turbotls+prefetch-db", 2.0)];
        for (names, round_trips) in ledger {
            let expected = model(1.0).expected(&page(5), names.parse().unwrap());
            let found = expected.page_load_ms / 100.0;
            assert!((found - round_trips).abs() < 0.05, "{names}: {found}");
        }
    }

    #[test]
    fn round_trips_are_those_that_are_waited_for() {
        let names = ["none", "turbotls", "http3", "optimistic-data", "optimistic-data+turbotls"];
        assert_eq!(
            names.map(|names: &str| {
                let mut all = Vec::new();
                let model = model(1.0);
                model.loads(&page(0), names.parse().unwrap(), |_, load| all.push(load));
                let [load] = all.as_slice() else { panic!() };
                // All of them, and the request's own.
                let waited = load.page_load_time().as_secs_f64() / RTT.as_secs_f64() - 1.0;
                assert!((waited - f64::from(load.round_trips)).abs() < 0.05, "{names}: {waited}");
                load.round_trips
            }),
            [2, 1, 1, 1, 1]
        );
    }

    #[test]
    fn databases_count_as_often_as_they_know_the_page() {
        let prefetch: Techniques = "prefetch-db".parse().unwrap();
        let [never, sometimes, always] =
            [0.0, 0.25, 1.0].map(|rate| model(rate).expected(&page(5), prefetch));
        let mixed = 0.25 * always.page_load_ms + 0.75 * never.page_load_ms;
        assert!((sometimes.page_load_ms - mixed).abs() < 1e-9);
        assert!(always.page_load_ms < never.page_load_ms);
        let often = Model { draws: 400, ..model(0.25) };
        let mut hits = 0.0;
        often.loads(&page(5), prefetch, |_, load| {
            let ms = load.page_load_time().as_secs_f64() * 1e3;
            hits += f64::from(u8::from(ms < mixed));
        });
        // Four standard deviations of 400 draws.
        assert!((hits / 400.0_f64 - 0.25).abs() < 0.087, "{hits}");
    }

    #[test]
    fn the_published_rules_know_six_techniques() {
        let blast = Profile::Blast(blast::Settings::default());
        let mut known: Vec<_> = blast.techniques().collect();
        let mut order = blast.in_order().to_vec();
        known.sort();
        order.sort();
        assert_eq!(known, order);
        let expected =
            Model { profile: blast, ..model(1.0) }.expected(&page(0), Techniques::default());
        // TCP, TLS and the request, 0.8 s each; three cells of 498 bytes at 164 kB/s.
        assert!(
            (expected.page_load_ms - (2_400.0 + 3.0 * 498.0 / 164.0)).abs() < 0.01,
            "{expected:?}"
        );
        assert!((expected.page_load_ms - expected.resource_ms).abs() < 1e-6);
    }

    #[test]
    fn settings_with_loss_or_fractions_are_not_certain() {
        let Profile::Tcp(plain) = model(1.0).profile else { panic!() };
        let again = tcp::Settings { revisit: tcp::Revisit::again(), ..plain.clone() };
        let link = tcp::Link { loss: 0.01, ..plain.link };
        let lossy = tcp::Settings { link, ..plain.clone() };
        let revisit = tcp::Revisit { sessions: 0.5, ..plain.revisit };
        let sometimes = tcp::Settings { revisit, ..plain.clone() };
        let certain = [plain, again, lossy, sometimes].map(|one| Profile::Tcp(one).is_certain());
        assert_eq!(certain, [true, true, false, false]);
        assert!(!Profile::Blast(blast::Settings::default()).is_certain());
    }

    #[test]
    fn techniques_are_named_together() {
        for text in ["none", "tfo", "turbotls+0rtt+prefetch-db"] {
            assert_eq!(text.parse::<Techniques>().unwrap().to_string(), text);
        }
        assert_eq!("0rtt,turbotls".parse::<Techniques>().unwrap().to_string(), "turbotls+0rtt");
        let error = "turbotls+quick".parse::<Techniques>().unwrap_err().to_string();
        assert!(error.starts_with("'quick' is no technique; there are none, tfo, "), "{error}");
        assert!("".parse::<Techniques>().is_err());
    }
}
