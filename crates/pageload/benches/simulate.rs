//! Rate of simulated loads of a page, on one core; bench/README.md.
//!
//! `cargo bench -p headstart-pageload --bench simulate -- [--rounds N]`. Exit code 1 if the bar is
//! missed.

#![allow(clippy::unwrap_used)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use headstart_pageload::page::{Dependency, Page, Part, Protocol, Resource, Server};
use headstart_pageload::sim::{blast, tcp};

/// Loads a second by the published rules, at least: the published program does 5 to 24.
const BAR: f64 = 20_000.0;

/// Rounds without `--rounds`, in each of which every case has its turn.
const ROUNDS: usize = 11;

/// Duration of a turn.
const TURN: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    // `cargo test --all-targets` runs it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let page = page();
    let http2 = blast::Settings::default();
    let pipelining = blast::Settings { http2: false, depth: 6, ..http2 };
    let link = tcp::Link { down: Some(1_000_000), up: Some(250_000), ..tcp::Link::default() };
    let network = tcp::Settings { link, ..tcp::Settings::default() };
    let mut simulator = blast::Simulator::new();
    let mut other = blast::Simulator::new();
    let plans = [http2, pipelining].map(|settings| blast::Plan::new(&page, &settings));
    let mut cases = [
        Case::new("blast, HTTP/2", BAR, |seed| drop(simulator.load(&plans[0], &http2, seed))),
        Case::new("blast, pipelining", BAR, |seed| drop(other.load(&plans[1], &pipelining, seed))),
        Case::new("tcp, 8 Mbit/s", 0.0, |seed| drop(tcp::load(&page, &network, seed))),
    ];
    for _ in 0..rounds() {
        for case in &mut cases {
            case.turn();
        }
    }
    let missed = cases.iter_mut().map(Case::say).fold(false, |any, missed| any | missed);
    if missed {
        println!("fewer than {BAR} loads a second by the published rules");
    }
    ExitCode::from(u8::from(missed))
}

struct Case<'a> {
    name: &'static str,
    /// Loads a second, at least.
    bar: f64,
    load: Box<dyn FnMut(u64) + 'a>,
    /// Loads a second, of each turn.
    rates: Vec<f64>,
}

impl<'a> Case<'a> {
    fn new(name: &'static str, bar: f64, load: impl FnMut(u64) + 'a) -> Self {
        Self { name, bar, load: Box::new(load), rates: Vec::new() }
    }

    fn turn(&mut self) {
        let begin = Instant::now();
        let mut loads = 0;
        while begin.elapsed() < TURN {
            for _ in 0..20 {
                (self.load)(loads);
                loads += 1;
            }
        }
        self.rates.push(loads as f64 / begin.elapsed().as_secs_f64());
    }

    /// Prints the rates; whether the bar is missed.
    fn say(&mut self) -> bool {
        self.rates.sort_by(f64::total_cmp);
        let [low, median, high] =
            [0, self.rates.len() / 2, self.rates.len() - 1].map(|place| self.rates[place]);
        println!("{:18} {median:7.0} loads a second ({low:.0} .. {high:.0})", self.name);
        median < self.bar
    }
}

fn rounds() -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--rounds");
    arguments.nth(1).map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

fn server(id: usize) -> Server {
    let protocol = if id.is_multiple_of(2) { Protocol::Http2 } else { Protocol::Http1 };
    let server = Server::https(format!("host{id}.test"), protocol);
    Server { tls: id % 5 != 4, pipelining: id % 3 != 2, ..server }
}

/// Much like the mean page of BLAST: 100 resources from 20 servers, a third of them from one; 2 MB,
/// of which most are small; a tree of height 15.
fn page() -> Page {
    let resources = (0..100)
        .map(|id: usize| {
            let parent = if id.is_multiple_of(7) { id.saturating_sub(7) } else { id - id % 7 };
            let bytes = [700, 1_500, 3_000, 6_000, 12_000, 30_000, 88_000][id * 5 % 7];
            let part = Part::Bytes(id as u64 * 997 % 30_000);
            let dependency = Dependency { on: parent, part, then: Duration::ZERO };
            Resource {
                dependencies: if id == 0 { vec![] } else { vec![dependency] },
                server: if id.is_multiple_of(3) { 0 } else { id % 20 },
                response_bytes: bytes,
                ..Resource::default()
            }
        })
        .collect();
    Page::new("bench".into(), (0..20).map(server).collect(), resources).unwrap()
}
