//! The edge beside HAProxy in TCP mode: same origin, same load, turn by turn.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::process::{self, Program};
use super::report::{self, Report};
use super::tcp::{self, Done};
use super::{Failure, Plan};

/// Floors for the edge, as parts of what HAProxy does.
const BULK_FLOOR: f64 = 0.9;
const CONNECTIONS_FLOOR: f64 = 0.7;

/// HAProxy doing what the edge does as well: it reads the ClientHello, and waits for it before it
/// connects.
const INSPECT: &str = "tcp-request inspect-delay 10s
    tcp-request content accept if { req.ssl_hello_type 1 }
    use_backend origin if { req.ssl_sni -m found }";

/// Work of a proxy.
#[derive(Clone, Copy)]
enum Load {
    Bulk(usize),
    Connections,
}

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Self::Bulk(1) => "bulk, 1 flow",
            Self::Bulk(_) => "bulk, 8 flows",
            Self::Connections => "connections",
        }
    }

    /// Returns the unit of a rate, its size, and the same of processor time.
    const fn units(self) -> (&'static str, f64, &'static str, f64) {
        match self {
            Self::Bulk(_) => ("Gbit/s", 8e-9, "CPU s per GB", 1e9),
            Self::Connections => ("per s", 1.0, "CPU s per 1000", 1e3),
        }
    }

    const fn floor(self) -> f64 {
        match self {
            Self::Bulk(_) => BULK_FLOOR,
            Self::Connections => CONNECTIONS_FLOOR,
        }
    }
}

struct Arm {
    name: &'static str,
    program: Program,
    address: SocketAddr,
}

/// Results of an arm in each round.
struct Series {
    rates: Vec<f64>,
    costs: Vec<f64>,
}

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<bool, Failure> {
    let folder = tempfile::tempdir()?;
    let origin = tcp::start_origin()?;
    let threads = plan.threads;
    let haproxy =
        |name, options, port| start_haproxy(threads, origin, folder.path(), name, options, port);
    let mut arms = vec![
        start_edge(threads, origin)?,
        haproxy("haproxy", "", 9000)?,
        haproxy("haproxy-splice", "option splice-auto", 9001)?,
        haproxy("haproxy-sni", INSPECT, 9002)?,
    ];
    if let Some(program) = &plan.beside {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9110));
        let workers = threads.to_string();
        let program = process::edge(Some(program), address, origin, &["--workers", &workers])?;
        arms.push(Arm { name: "other edge", program, address });
    }
    print!("{}", report::output("haproxy", &["-v"]).lines().next().unwrap_or_default());
    println!("; {threads} threads each");
    let mut met = true;
    let loads = [Load::Bulk(1), Load::Bulk(8), Load::Connections];
    for load in loads.into_iter().filter(|load| load.name().contains(&plan.only)) {
        met &= compare(plan, report, &arms, load)?;
    }
    Ok(met)
}

fn start_edge(threads: usize, origin: SocketAddr) -> Result<Arm, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9100));
    let program = process::edge(None, address, origin, &["--workers", &threads.to_string()])?;
    Ok(Arm { name: "edge", program, address })
}

fn start_haproxy(
    threads: usize,
    origin: SocketAddr,
    folder: &Path,
    name: &'static str,
    options: &str,
    port: u16,
) -> Result<Arm, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let file = folder.join(name);
    let (everywhere, frontend) = if options == INSPECT { ("", options) } else { (options, "") };
    fs::write(
        &file,
        format!(
            "global
    nbthread {threads}
    maxconn 4096
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
    {everywhere}
frontend in
    bind {address}
    {frontend}
    default_backend origin
backend origin
    server origin {origin}
"
        ),
    )?;
    let program = Program::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file), address)?;
    Ok(Arm { name, program, address })
}

fn compare(plan: &Plan, report: &mut Report, arms: &[Arm], load: Load) -> Result<bool, Failure> {
    let test = load.name();
    let (rate_unit, _, cost_unit, _) = load.units();
    let mut all: Vec<Series> =
        arms.iter().map(|_| Series { rates: Vec::new(), costs: Vec::new() }).collect();
    for round in 0..plan.rounds {
        // Another order each round: what a turn leaves behind meets each arm alike.
        for turn in 0..arms.len() {
            let index = (round + turn) % arms.len();
            let (Some(arm), Some(series)) = (arms.get(index), all.get_mut(index)) else { continue };
            let (rate, cost) = measure(plan, arm, load)?;
            report.sample(test, round, arm.name, rate_unit, rate);
            report.sample(test, round, arm.name, cost_unit, cost);
            series.rates.push(rate);
            series.costs.push(cost);
        }
    }
    let mut met = true;
    let Some((edge, others)) = all.split_first() else { return Ok(met) };
    for (arm, series) in arms.iter().zip(&all) {
        report.median(test, &format!("{} {rate_unit}", arm.name), &series.rates);
        report.median(test, &format!("{} {cost_unit}", arm.name), &series.costs);
    }
    for (arm, other) in arms.iter().skip(1).zip(others) {
        let ratio = report.median(
            test,
            &format!("edge / {}, rate", arm.name),
            &ratios(&edge.rates, &other.rates),
        );
        report.median(
            test,
            &format!("edge / {}, CPU", arm.name),
            &ratios(&edge.costs, &other.costs),
        );
        if arm.name == "haproxy" {
            let floor = load.floor();
            met &= report.bar(test, &format!("at least {floor} of haproxy"), ratio.value >= floor);
        }
    }
    Ok(met)
}

/// Rate and processor time, each in the load's units.
fn measure(plan: &Plan, arm: &Arm, load: Load) -> Result<(f64, f64), Failure> {
    let before = arm.program.cpu()?;
    let done: Done = match load {
        Load::Bulk(flows) => tcp::bulk(arm.address, flows, plan.turn)?,
        Load::Connections => tcp::connections(arm.address, plan.turn)?,
    };
    let cpu = arm.program.cpu()? - before;
    if done.failed > 0 {
        return Err(format!("{}: {} failed", arm.name, done.failed).into());
    }
    let (_, rate, _, cost) = load.units();
    Ok((done.rate() * rate, cpu / done.total() * cost))
}

pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}
