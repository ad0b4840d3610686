//! One socket for all datagrams, or one for each of two tasks (SO_REUSEPORT).

use std::net::{Ipv4Addr, SocketAddr};

use super::process::{self, Program};
use super::relay::ratios;
use super::report::Report;
use super::turbo::{self, Handshakes};
use super::{Failure, Plan, tcp};

/// Clients with a connection each.
const CLIENTS: u16 = 64;

/// The fixed load, as a part of what one worker bears.
const FIXED: f64 = 0.5;

struct Arm {
    name: &'static str,
    program: Program,
    address: SocketAddr,
    rates: Vec<f64>,
    costs: Vec<f64>,
    medians: Vec<f64>,
    tails: Vec<f64>,
}

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<bool, Failure> {
    let origin = tcp::start_origin()?;
    let mut arms = [start(plan, origin, "1 worker", "1")?, start(plan, origin, "2 workers", "2")?];
    for round in 0..plan.rounds {
        turn(&mut arms, round, |arm| {
            let before = arm.program.cpu()?;
            let done = turbo::handshakes(arm.address, CLIENTS, None, plan.turn)?;
            report.sample("closed loop", round, arm.name, "handshakes per s", done.rate());
            report.sample("closed loop", round, arm.name, "failed", done.failed as f64);
            arm.rates.push(done.rate());
            arm.costs.push((arm.program.cpu()? - before) / done.times.len() as f64 * 1e3);
            Ok(())
        })?;
    }
    let load = arms
        .first()
        .map_or(0.0, |arm| FIXED * super::stats::Median::from_samples(&arm.rates).value);
    for round in 0..plan.rounds {
        turn(&mut arms, round, |arm| {
            let done = turbo::handshakes(arm.address, CLIENTS, Some(load), plan.turn)?;
            sample(report, round, arm.name, &done);
            arm.medians.push(done.quantile(0.5) * 1e3);
            arm.tails.push(done.quantile(0.99) * 1e3);
            Ok(())
        })?;
    }
    report.figure("fixed load", "handshakes per s", load);
    let [one, two] = &arms;
    for arm in [one, two] {
        report.median("closed loop", &format!("{}: handshakes per s", arm.name), &arm.rates);
        report.median("closed loop", &format!("{}: CPU s per 1000", arm.name), &arm.costs);
        report.median("fixed load", &format!("{}: median ms to flight", arm.name), &arm.medians);
        report.median("fixed load", &format!("{}: p99 ms to flight", arm.name), &arm.tails);
    }
    report.median("closed loop", "2 workers / 1, rate", &ratios(&two.rates, &one.rates));
    report.median("closed loop", "2 workers / 1, CPU", &ratios(&two.costs, &one.costs));
    report.median("fixed load", "2 workers / 1, median", &ratios(&two.medians, &one.medians));
    report.median("fixed load", "2 workers / 1, p99", &ratios(&two.tails, &one.tails));
    Ok(true)
}

fn start(
    plan: &Plan,
    origin: SocketAddr,
    name: &'static str,
    workers: &str,
) -> Result<Arm, Failure> {
    let port = 9100 + workers.parse::<u16>()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let threads = plan.threads.to_string();
    let program = process::edge(
        plan.beside.as_deref(),
        address,
        origin,
        &["--workers", &threads, "--udp-workers", workers],
    )?;
    let (rates, costs, medians, tails) = Default::default();
    Ok(Arm { name, program, address, rates, costs, medians, tails })
}

/// Gives each arm its turn, first one then the other first.
fn turn(
    arms: &mut [Arm; 2],
    round: usize,
    mut measure: impl FnMut(&mut Arm) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let [first, second] = arms;
    let order = if round.is_multiple_of(2) { [first, second] } else { [second, first] };
    order.into_iter().try_for_each(&mut measure)
}

fn sample(report: &mut Report, round: usize, arm: &str, done: &Handshakes) {
    let values = [
        ("handshakes per s", done.rate()),
        ("failed", done.failed as f64),
        ("p50 ms to flight", done.quantile(0.5) * 1e3),
        ("p99 ms to flight", done.quantile(0.99) * 1e3),
    ];
    values
        .iter()
        .for_each(|(metric, value)| report.sample("fixed load", round, arm, metric, *value));
}
