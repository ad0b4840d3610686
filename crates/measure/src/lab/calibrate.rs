//! `headstart lab calibrate`: round trips asked for against round trips seen, on this machine.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use headstart_emulation::{
    Exactness, Host, Lab, LabOptions, Lateness, ProbeOptions, Scheduling, Seen, probe,
};
use headstart_pageload::statistics::Quantiles;
use serde_json::{Value, json};

use crate::network;
use crate::table::{header, table};
use crate::value::emulated_rtt;
use headstart::base::failure::{Failure, NEGATIVE};
use headstart::base::logging::LogOptions;
use headstart::base::output;

/// Error that 99 of 100 UDP echoes may have, where forwarder and programs are pinned and real-time.
const BAR: Duration = Duration::from_micros(300);

/// UDP echoes for each TCP connection: as many connections would take much longer.
const ECHOES_PER_CONNECT: u16 = 5;

const EXAMPLES: &str = "\
Examples:
  As exact as this machine can:
      sudo headstart lab calibrate
  One round trip, many samples:
      headstart lab calibrate --rtt 20ms --samples 10000

The error holds the time of forwarder, kernel and programs, and is never taken off results. The
column 'over' counts packets that the forwarder itself sent more than 0.3 ms late: trials in which
that happens are flagged.
Exit code 1: the forwarder and the programs were real-time and pinned, and the bar was missed.";

/// Check how exact emulated links are: round trips asked for against round trips seen
///
/// Sends UDP echoes and opens TCP connections over an idle link of each round-trip time, and shows
/// how much longer they take. As root, forwarder and programs are pinned to CPUs and go before
/// everything else, which is several times as exact.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub(crate) struct CalibrateOptions {
    /// Round-trip times, each at most 5s
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = emulated_rtt)]
    #[arg(default_value = "300us,5ms,50ms,150ms,270ms")]
    pub rtt: Vec<Duration>,

    /// UDP echoes for each; a fifth as many TCP connections
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u16).range(100..))]
    pub samples: u16,

    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub log: LogOptions,
}

/// Measures and prints. Call it while the process has one thread.
pub(crate) fn run(options: &CalibrateOptions) -> Result<ExitCode, Failure> {
    network::become_privileged()?;
    let programs = [0, 1].map(|number| Scheduling::exact(number).granted());
    let mut links = Vec::new();
    for (number, rtt) in (1..).zip(&options.rtt) {
        let all = options.rtt.len();
        output::progress(&format!("round trip {number} of {all}: {}", millis(*rtt)));
        links.push(measure(*rtt, options, programs)?);
    }
    output::progress("");
    let calibration = Calibration { programs, links };
    let text = match options.json {
        true => format!("{:#}\n", calibration.json()),
        false => calibration.text(),
    };
    output::print(text.as_bytes())?;
    Ok(if calibration.is_exact() && !calibration.is_met() {
        ExitCode::from(NEGATIVE)
    } else {
        ExitCode::SUCCESS
    })
}

fn measure(
    rtt: Duration,
    options: &CalibrateOptions,
    [client, server]: [Scheduling; 2],
) -> Result<Calibrated, Failure> {
    let hosts = vec![Host::new("client").delay(rtt / 2), Host::new("server")];
    let lab = Lab::build_with(hosts, LabOptions { pinned: true, ..LabOptions::default() })
        .map_err(|error| network::not_built(&error))?;
    let [near, far] = lab.nodes() else { return Err(Failure::usage("the lab has no nodes")) };
    let connects = usize::from(options.samples / ECHOES_PER_CONNECT);
    let echoes = usize::from(options.samples);
    let start = Instant::now();
    let probed = probe(near, far, ProbeOptions { rtt, echoes, connects, client, server });
    let seen = probed.map_err(|error| network::not_started(&error))?;
    let late = lab.disturbance(start, Instant::now()).late;
    let forwarder =
        Forwarding { lateness: lab.counters().lateness, late, exactness: lab.exactness() };
    Ok(Calibrated::new(rtt, &seen, forwarder))
}

/// All links.
struct Calibration {
    programs: [Scheduling; 2],
    links: Vec<Calibrated>,
}

/// One link.
struct Calibrated {
    rtt: Duration,
    echo: Errors,
    connect: Errors,
    lost: usize,
    forwarder: Forwarding,
}

/// The forwarder's account of itself.
#[derive(Clone, Copy, Default)]
struct Forwarding {
    lateness: Lateness,
    /// Packets that it held up for longer than a lab allows: not the link's doing, but that of
    /// other programs.
    late: u64,
    exactness: Exactness,
}

/// Time by which round trips were longer than asked for, in microseconds.
#[derive(Clone, Copy)]
struct Errors {
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Calibrated {
    fn new(rtt: Duration, seen: &Seen, forwarder: Forwarding) -> Self {
        let (echo, connect) = (Errors::new(rtt, &seen.echoes), Errors::new(rtt, &seen.connects));
        Self { rtt, echo, connect, lost: seen.lost, forwarder }
    }

    fn json(&self) -> Value {
        let Forwarding { lateness, late, .. } = self.forwarder;
        json!({
            "rtt_ms": self.rtt.as_secs_f64() * 1e3,
            "udp_echo": self.echo.json(),
            "tcp_connect": self.connect.json(),
            "lost": self.lost,
            "forwarder_late_us": {
                "n": lateness.count,
                "p50": rounded(micros(lateness.p50)),
                "p99": rounded(micros(lateness.p99)),
                "max": rounded(micros(lateness.max)),
                "over_300": late,
            },
        })
    }
}

impl Errors {
    /// Computes the errors of round trips; none are numbers without any.
    fn new(expected: Duration, seen: &[Duration]) -> Self {
        let errors = seen.iter().map(|seen| micros(*seen) - micros(expected));
        let Some(Quantiles { count, p50, p99, max, .. }) = Quantiles::from_values(errors) else {
            return Self { count: 0, p50: f64::NAN, p99: f64::NAN, max: f64::NAN };
        };
        Self { count, p50, p99, max }
    }

    fn json(&self) -> Value {
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(rounded);
        json!({ "n": self.count, "error_us": { "p50": p50, "p99": p99, "max": max } })
    }
}

impl Calibration {
    /// Returns true if everything was obtained that makes the bar apply.
    fn is_exact(&self) -> bool {
        let exactness = self.exactness();
        self.programs.iter().all(|program: &Scheduling| program.realtime && program.cpu.is_some())
            && exactness.realtime
            && exactness.pinned
    }

    /// Returns the exactness of every link.
    fn exactness(&self) -> Exactness {
        let all = Exactness { realtime: true, pinned: true, timestamps: true };
        let links = self.links.iter().map(|link| link.forwarder.exactness);
        links.fold(all, |all, own| Exactness {
            realtime: all.realtime && own.realtime,
            pinned: all.pinned && own.pinned,
            timestamps: all.timestamps && own.timestamps,
        })
    }

    fn is_met(&self) -> bool {
        self.links.iter().all(|link| link.lost == 0 && link.echo.p99 <= micros(BAR))
    }

    fn json(&self) -> Value {
        let exactness = self.exactness();
        let [realtime, pinned] = self.programs_granted();
        json!({
            "forwarder": {
                "realtime": exactness.realtime,
                "pinned": exactness.pinned,
                "timestamps": exactness.timestamps,
            },
            "programs": { "realtime": realtime, "pinned": pinned },
            "links": self.links.iter().map(Calibrated::json).collect::<Vec<_>>(),
            "bar": {
                "udp_echo_p99_us": micros(BAR),
                "applies": self.is_exact(),
                "met": self.is_met(),
            },
        })
    }

    fn programs_granted(&self) -> [bool; 2] {
        let programs = &self.programs;
        [programs.iter().all(|it| it.realtime), programs.iter().all(|it| it.cpu.is_some())]
    }

    fn text(&self) -> String {
        let [realtime, pinned] = self.programs_granted();
        let [realtime, pinned] =
            [realtime, pinned].map(|granted| if granted { "" } else { "not " });
        let mut rows = vec![header(&HEADING)];
        rows.extend(self.links.iter().map(row));
        format!(
            "{}; programs {realtime}real-time, {pinned}pinned\n\nUDP echoes and TCP connections: \
             us too long; forwarder: us late\n{}{}",
            self.exactness(),
            table(&rows, &[0]),
            self.conclusion(),
        )
    }

    fn conclusion(&self) -> String {
        let bar = millis(BAR);
        let verdict = match (self.is_exact(), self.is_met()) {
            (true, true) => "holds",
            (true, false) => "is MISSED",
            (false, true) => "would hold; it is for real-time, pinned programs (root, two CPUs)",
            (false, false) => {
                "would be missed; it is for real-time, pinned programs (root, two CPUs)"
            }
        };
        let mut text = format!("\nThe bar, 99 of 100 UDP echoes within {bar}, {verdict}.\n");
        let late: u64 = self.links.iter().map(|link| link.forwarder.late).sum();
        if late > 0 {
            let _ = writeln!(
                text,
                "{late} packets were held up on this machine for longer than {bar}: is it idle?"
            );
        }
        text
    }
}

const HEADING: [&str; 11] = [
    "asked",
    "echo p50",
    "p99",
    "max",
    "connect p50",
    "p99",
    "max",
    "late p50",
    "p99",
    "max",
    "over",
];

fn row(link: &Calibrated) -> Vec<String> {
    let Lateness { p50, p99, max, .. } = link.forwarder.lateness;
    let errors = [link.echo, link.connect].map(|of| [of.p50, of.p99, of.max]);
    let figures = errors.into_iter().flatten().chain([p50, p99, max].map(micros));
    let mut row = vec![millis(link.rtt)];
    row.extend(figures.map(|figure| format!("{figure:.0}")));
    row.push(link.forwarder.late.to_string());
    if link.lost > 0 {
        row.push(format!("{} LOST", link.lost));
    }
    row
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn millis(duration: Duration) -> String {
    format!("{} ms", duration.as_secs_f64() * 1e3)
}

fn rounded(micros: f64) -> f64 {
    (micros * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Scheduling = Scheduling { cpu: Some(0), realtime: true };

    fn calibration(error: Duration, programs: Scheduling, lost: usize) -> Calibration {
        let rtt = Duration::from_millis(5);
        let echoes = vec![rtt + error; 100];
        let seen = Seen { connects: echoes.clone(), echoes, lost };
        let exactness = Exactness { realtime: true, pinned: true, timestamps: true };
        let forwarder = Forwarding { exactness, ..Forwarding::default() };
        let link = Calibrated::new(rtt, &seen, forwarder);
        Calibration { programs: [programs; 2], links: vec![link] }
    }

    #[test]
    fn errors_are_what_is_too_much_by_nearest_rank() {
        let expected = Duration::from_millis(1);
        let seen: Vec<_> = (1..=200).map(|us| expected + Duration::from_micros(us)).collect();
        let errors = Errors::new(expected, &seen);
        assert_eq!([errors.p50, errors.p99, errors.max].map(rounded), [100.0, 198.0, 200.0]);
        assert!(Errors::new(expected, &[]).p99.is_nan());
    }

    #[test]
    fn bars_apply_to_capable_arms() {
        for (error, programs, lost, expected) in [
            (BAR, EXACT, 0, "holds"),
            (BAR + Duration::from_micros(1), EXACT, 0, "MISSED"),
            (BAR, EXACT, 1, "1 LOST\n\nThe bar"),
            (BAR, EXACT, 1, "MISSED"),
            (BAR, Scheduling::default(), 0, "would hold"),
            (2 * BAR, Scheduling::default(), 0, "would be missed"),
        ] {
            let text = calibration(error, programs, lost).text();
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn disturbance_by_other_programs_is_reported() {
        let mut calibration = calibration(BAR, EXACT, 0);
        assert!(!calibration.text().contains("held up"));
        calibration.links[0].forwarder.late = 3;
        assert!(calibration.text().contains("\n3 packets were held up"));
    }

    #[test]
    fn a_calibration_without_measurements_fails() {
        let mut calibration = calibration(BAR, EXACT, 0);
        calibration.links[0].echo = Errors::new(BAR, &[]);
        assert!(!calibration.is_met());
    }

    #[test]
    fn the_table_is_aligned() {
        let text = calibration(BAR, EXACT, 0).text();
        let lines: Vec<_> = text.lines().skip(3).take(2).collect();
        assert_eq!(lines[0].len(), lines[1].len(), "{text}");
    }

    #[test]
    fn json_says_the_same() {
        let json = calibration(BAR, EXACT, 0).json();
        assert_eq!(json["links"][0]["udp_echo"]["error_us"]["p99"], 300.0);
        assert_eq!(json["bar"]["met"], true);
        assert_eq!(json["programs"]["realtime"], true);
    }
}
