//! Samples as they come, on the terminal and in files.

use std::fmt::Write;
use std::fs;

use super::stats::Median;
use super::{Failure, Plan};

/// Results of a measurement.
pub(crate) struct Report {
    plan: Plan,
    samples: String,
    summary: Vec<String>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Self {
        let samples = "experiment,round,arm,metric,value\n".into();
        Self { plan: plan.clone(), samples, summary: Vec::new(), notes: Vec::new() }
    }

    /// Something about the run, for its environment.
    pub(crate) fn note(&mut self, note: &str) {
        println!("{note}");
        self.notes.push(note.to_owned());
    }

    pub(crate) fn sample(&mut self, test: &str, round: usize, arm: &str, metric: &str, value: f64) {
        // Some names of tests and metrics have commas.
        let _ = writeln!(self.samples, "\"{test}\",{round},{arm},\"{metric}\",{value:.6}");
    }

    /// A line of the summary: a median over all rounds.
    pub(crate) fn median(&mut self, test: &str, what: &str, samples: &[f64]) -> Median {
        self.add_median(test, what, Median::from_samples(samples))
    }

    /// The same with an interval by bootstrap.
    pub(crate) fn bootstrap(&mut self, test: &str, what: &str, samples: &[f64]) -> Median {
        self.add_median(test, what, Median::bootstrapped(samples))
    }

    fn add_median(&mut self, test: &str, what: &str, median: Median) -> Median {
        let Median { value, low, high, samples } = median;
        println!("{test:24} {what:44} {value:12.4}  [{low:.4} .. {high:.4}]  n={samples}");
        self.summary.push(format!(
            "{{\"experiment\":\"{test}\",\"what\":\"{what}\",\"median\":{value:.6},\"ci95\":[{low:.6},{high:.6}],\"n\":{samples}}}"
        ));
        median
    }

    /// A line of the summary: one figure.
    pub(crate) fn figure(&mut self, test: &str, what: &str, value: f64) {
        println!("{test:24} {what:44} {value:12.4}");
        self.summary.push(format!(
            "{{\"experiment\":\"{test}\",\"what\":\"{what}\",\"value\":{value:.6}}}"
        ));
    }

    /// A line of the summary: whether a bar was met.
    pub(crate) fn bar(&mut self, test: &str, what: &str, met: bool) -> bool {
        let word = if met { "met" } else { "MISSED" };
        println!("{test:24} {what:44} {word:>12}");
        self.summary
            .push(format!("{{\"experiment\":\"{test}\",\"bar\":\"{what}\",\"met\":{met}}}"));
        met
    }

    pub(crate) fn write(&self) -> Result<(), Failure> {
        let Some(out) = &self.plan.out else { return Ok(()) };
        fs::create_dir_all(out)?;
        let name = |end: &str| out.join(format!("{}-{end}", self.plan.what));
        fs::write(name("samples.csv"), &self.samples)?;
        fs::write(name("summary.json"), format!("[\n{}\n]\n", self.summary.join(",\n")))?;
        fs::write(name("environment.txt"), self.environment())?;
        Ok(())
    }

    fn environment(&self) -> String {
        let Plan { what, rounds, turn, rate, threads, .. } = &self.plan;
        let seconds = turn.as_secs_f64();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
        // Not those that this thread may use: it may be pinned.
        let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let speaks_tls = matches!(what.as_str(), "handshakes" | "managed");
        let library = if speaks_tls { "OPENSSL_NO_VENDOR=1 " } else { "" };
        format!(
            "command: {library}cargo bench -p headstart-measure --bench load -- {what} --rounds \
                {rounds} --seconds {seconds} --rate {rate} --threads {threads}\n\
             commit: {}\n{model}\nCPUs: {cpus}\nkernel: {}load average at the end: {}rustc: {}",
            output("git", &["rev-parse", "HEAD"]).trim(),
            read("/proc/sys/kernel/osrelease"),
            read("/proc/loadavg"),
            output("rustc", &["--version"]),
        ) + &self.notes.iter().map(|note| format!("{note}\n")).collect::<String>()
    }
}

/// Returns the output of a command; nothing if it cannot be run.
pub(crate) fn output(program: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
