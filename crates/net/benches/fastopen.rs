//! Cost of the server's Fast Open program per packet, by `BPF_PROG_TEST_RUN` without a network; see
//! bench/README.md.
//!
//! `cargo bench -p headstart-net --bench fastopen -- [--rounds N] [--out DIR]` as root.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // the tests use all of it
#[path = "../tests/fastopen_bpf/frame.rs"]
mod frame;
#[allow(dead_code)] // the tests use all of it
#[path = "../tests/fastopen_bpf/program.rs"]
mod program;
#[allow(dead_code)] // the tests use all of it
#[path = "../tests/fastopen_support/mod.rs"]
mod support;

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use headstart_proto::cookie::CookieRing;

use frame::{ACK, Frame, Link, PORT};
use program::{LIFE, Loaded, NOW, Runs};
use support::{key, mint};

/// Runs of one packet in a round, where it leaves the program unchanged.
const REPEATED: u32 = 100_000;

/// Runs in a round where each needs a packet of its own, because the program takes the cookie out.
const SINGLE: usize = 500;

/// Rounds without `--rounds`; each runs every case once.
const ROUNDS: usize = 21;

fn main() -> ExitCode {
    // `cargo test --all-targets` runs it too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    support::within(|| {
        measure(&Plan::from_arguments());
        ExitCode::SUCCESS
    })
}

/// Options of the command line.
struct Plan {
    rounds: usize,
    out: Option<PathBuf>,
}

impl Plan {
    fn from_arguments() -> Self {
        let rounds = argument_of("--rounds").map(|text| text.to_str().unwrap().parse().unwrap());
        Self { rounds: rounds.unwrap_or(ROUNDS), out: argument_of("--out").map(PathBuf::from) }
    }
}

fn argument_of(option: &str) -> Option<OsString> {
    std::env::args_os().skip_while(|argument| argument != option).nth(1)
}

/// A kind of packet, and how its cost is measured.
struct Case {
    what: &'static str,
    sampling: Sampling,
}

enum Sampling {
    /// Mean of many runs in a row.
    Repeated(Frame),
    /// Median of single runs, each with a new packet.
    Single(fn() -> Frame),
    /// Median of second runs, each with a new packet; the first run is not counted.
    Second(fn() -> Frame),
}

fn client() -> IpAddr {
    [198, 51, 100, 7].into()
}

/// Returns a SYN with Linux's options: MSS, SACK, timestamps, window scale.
fn plain_syn() -> Frame {
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 10];
    Frame { options: options.into(), ..Frame::syn(client()) }
}

fn not_a_syn() -> Frame {
    Frame { flags: ACK, ..plain_syn() }
}

fn valid() -> Frame {
    plain_syn().fast_open(mint(&key(1), NOW + LIFE, client()).as_bytes())
}

/// Returns a SYN with a forged cookie, which the program tries with all three keys.
fn forged() -> Frame {
    plain_syn().fast_open(&rand::random::<[u8; 16]>())
}

fn cases() -> Vec<Case> {
    let other_port = Frame { port: PORT + 1, ..plain_syn() };
    [
        ("TCP to another port", Sampling::Repeated(other_port)),
        ("no SYN", Sampling::Repeated(not_a_syn())),
        ("SYN without Fast Open", Sampling::Repeated(plain_syn())),
        ("no SYN, single runs", Sampling::Single(not_a_syn)),
        ("SYN without Fast Open, single runs", Sampling::Single(plain_syn)),
        ("valid cookie, taken", Sampling::Single(valid)),
        ("cookie seen before", Sampling::Second(valid)),
        ("forged cookie, three keys", Sampling::Single(forged)),
    ]
    .into_iter()
    .map(|(what, sampling)| Case { what, sampling })
    .collect()
}

fn measure(plan: &Plan) {
    let mut loaded = Loaded::new();
    let ring = CookieRing { previous: Some(key(2)), current: key(1), next: Some(key(3)) };
    loaded.set_keys(&ring, LIFE);
    let cases = cases();
    let mut samples = vec![Vec::new(); cases.len()];
    for _ in 0..plan.rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            samples.push(loaded.within(|runs| cost(runs, &case.sampling)));
        }
    }
    println!("{:36} {:>8}  95 % interval        least .. most", "ns a packet", "median");
    let mut table = "case,round,ns\n".to_owned();
    for (case, samples) in cases.iter().zip(&samples) {
        show(case.what, samples);
        for (round, ns) in samples.iter().enumerate() {
            writeln!(table, "{},{round},{ns:.1}", case.what.replace(',', "")).unwrap();
        }
    }
    let steered = loaded.maps().stats().unwrap();
    assert!(steered.no_listener > 0 && steered.replayed > 0 && steered.forged > 0, "{steered:?}");
    if let Some(out) = &plan.out {
        fs::create_dir_all(out).unwrap();
        fs::write(out.join("samples.csv"), table).unwrap();
        fs::write(out.join("environment.txt"), environment(plan)).unwrap();
    }
}

/// Returns nanoseconds per packet in one round.
fn cost(runs: &Runs<'_>, sampling: &Sampling) -> f64 {
    let all: Vec<_> = match sampling {
        Sampling::Repeated(frame) => vec![run(runs, frame, REPEATED)],
        Sampling::Single(make) => (0..SINGLE).map(|_| run(runs, &make(), 1)).collect(),
        Sampling::Second(make) => (0..SINGLE)
            .map(|_| {
                let frame = make();
                run(runs, &frame, 1);
                run(runs, &frame, 1)
            })
            .collect(),
    };
    Median::from_samples(&all).value
}

/// Returns the mean nanoseconds of `times` runs.
fn run(runs: &Runs<'_>, frame: &Frame, times: u32) -> f64 {
    runs.run_bytes(Link::Ethernet, &frame.bytes(), times).time.as_nanos() as f64
}

fn show(what: &str, samples: &[f64]) {
    let Median { value, low, high, .. } = Median::from_samples(samples);
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(0.0, f64::max);
    println!("{what:36} {value:8.0}  [{low:.0} .. {high:.0}]{:10} {least:.0} .. {most:.0}", "");
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn environment(plan: &Plan) -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    format!(
        "command: cargo bench -p headstart-net --bench fastopen -- --rounds {}\ncommit: {}{model}\n\
         kernel: {}bpf_jit_enable: {}load average at the end: {}rustc: {}",
        plan.rounds,
        output_of("git", &["rev-parse", "HEAD"]),
        read("/proc/sys/kernel/osrelease"),
        read("/proc/sys/net/core/bpf_jit_enable"),
        read("/proc/loadavg"),
        output_of("rustc", &["--version"]),
    )
}

/// A median with its interval.
struct Median {
    value: f64,
    /// An interval of at least 95 % by order statistics (binomial, no assumption about the
    /// distribution); the whole range where there are fewer than six samples.
    low: f64,
    high: f64,
}

impl Median {
    fn from_samples(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let left = left_out(count);
        let value = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        Self { value, low: sorted[left], high: sorted[count - 1 - left] }
    }
}

/// Samples to leave out at each end: the most for which the rest covers the median in 95 of 100
/// cases.
fn left_out(count: usize) -> usize {
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for index in 0..count / 2 {
        tail += probability;
        if tail > 0.025 {
            return index;
        }
        probability *= (count - index) as f64 / (index + 1) as f64;
    }
    count / 2
}
