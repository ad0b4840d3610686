//! Costs of headstart under load and under attack: `bench/README.md` has the commands and the
//! results.
//!
//! Everything happens in a network namespace of its own, on its loopback: 198.18.0.0/15 (RFC 2544,
//! for benchmarks) is local there, so that traffic has as many true source addresses as it needs.

mod attack;
mod flood;
mod handshakes;
mod managed;
mod namespace;
mod originators;
mod process;
#[path = "../../tests/support/programs.rs"]
mod programs;
mod relay;
mod report;
mod stats;
mod sys;
mod tcp;
mod terminators;
mod tls13;
mod turbo;
mod udp_workers;
mod visits;
mod ways;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use report::Report;

/// Any failure of the bench itself, with its words.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: load relay|handshakes|managed|attack|udp-workers [--rounds N] \
    [--seconds N] [--rate N] [--threads N] [--only WORD] [--beside PROGRAM] [--out DIR]";

/// Measurements to run, and their duration.
#[derive(Clone, Debug)]
struct Plan {
    what: String,
    /// Number of turns of each arm.
    rounds: usize,
    /// Duration of a turn.
    turn: Duration,
    /// Datagrams of an attacker in a second.
    rate: u32,
    /// Threads of each proxy; programs that speak TLS always have one.
    threads: usize,
    /// Only loads and attacks whose name has this word.
    only: String,
    /// Another build of headstart: a further arm beside other programs, else in the place of this
    /// one.
    beside: Option<PathBuf>,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match plan(std::env::args().skip(1)) {
        Ok(Some(plan)) => match run(&plan) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(1),
            Err(failure) => {
                eprintln!("error: {failure}");
                ExitCode::from(2)
            }
        },
        // `cargo test --benches` has nothing to run here.
        Ok(None) => {
            println!("skipped: {USAGE}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {failure}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn plan(args: impl Iterator<Item = String>) -> Result<Option<Plan>, Failure> {
    let mut plan = Plan {
        what: String::new(),
        rounds: 10,
        turn: Duration::from_secs(3),
        rate: 50_000,
        threads: 2,
        only: String::new(),
        beside: None,
        out: None,
    };
    let mut args = args.filter(|arg| arg != "--bench" && arg != "--test");
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--rounds" => plan.rounds = value()?.parse()?,
            "--seconds" => plan.turn = Duration::from_secs_f64(value()?.parse()?),
            "--rate" => plan.rate = value()?.parse()?,
            "--threads" => plan.threads = value()?.parse()?,
            "--only" => plan.only = value()?,
            "--beside" => plan.beside = Some(value()?.into()),
            "--out" => plan.out = Some(value()?.into()),
            "relay" | "handshakes" | "managed" | "attack" | "udp-workers" => plan.what = arg,
            _ => return Err(format!("unknown: {arg}").into()),
        }
    }
    Ok(Some(plan).filter(|plan| !plan.what.is_empty()))
}

/// Runs the plan, and returns true if all bars were met.
fn run(plan: &Plan) -> Result<bool, Failure> {
    if !namespace::is_inside() {
        return namespace::run_again_inside();
    }
    namespace::prepare()?;
    process::raise_file_limit()?;
    let mut report = Report::new(plan);
    let met = match plan.what.as_str() {
        "relay" => relay::run(plan, &mut report)?,
        "handshakes" => handshakes::run(plan, &mut report)?,
        "managed" => managed::run(plan, &mut report)?,
        "attack" => attack::run(plan, &mut report)?,
        _ => udp_workers::run(plan, &mut report)?,
    };
    report.write()?;
    Ok(met)
}
