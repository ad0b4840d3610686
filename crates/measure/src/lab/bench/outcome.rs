//! Turns of a benchmark and their comparison: turns.json.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use headstart_openers::Trial;
use serde::Serialize;

use super::TCP_CLIENTS;
use super::programs::Contender;
use super::siege::Done;
use super::spec::{Variant, Work as Load};
use super::work::{Counts, Work};
use crate::lab::cell::LoadTotals;
use crate::lab::process::{Program, busy, cpu_of};
use crate::lab::summary::Kept;
use crate::stats::Summary;
use crate::table::{header, table};

/// The file in a folder of results.
pub(super) const FILE: &str = "turns.json";

/// Bytes of an exchange of bulk, by which rates and costs are counted.
const BULK_UNIT: u64 = 1_000_000;

/// Share of exchanges that resume where all should: the first have nothing to resume.
const RESUMED_MIN: f64 = 0.99;

/// All turns, and the first arm set against the others.
#[derive(Debug, Serialize)]
pub(in crate::lab) struct Outcome {
    #[serde(skip)]
    pub(super) arms: Vec<String>,
    pub(super) turns: Vec<Turn>,
    comparisons: Vec<Comparison>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Turn {
    variant: String,
    arm: String,
    round: u32,
    seconds: f64,
    /// Exchanges, or megabytes of bulk.
    done: u64,
    failed: u64,
    resumed: u64,
    bytes: u64,
    per_s: f64,
    /// Processor time for each of those done, in ms: of the program that is measured, of the
    /// clients with whatever else is in their process, and of both.
    program_ms: f64,
    client_ms: f64,
    both_ms: f64,
    /// Share of the time in which the program's CPU was not idle, where it has one, and the rate in
    /// a second of such time: where clients are what limits, it is idle now and then.
    busy: Option<f64>,
    per_busy_s: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    siege: Option<Besieged>,
}

/// An attacked turn beside the time before it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Besieged {
    /// Rate and times of honest exchanges that began before the attack, and of those that began
    /// meanwhile; in ms, `null` if they failed.
    pub(super) quiet_per_s: f64,
    pub(super) quiet_p50_ms: f64,
    pub(super) quiet_p99_ms: f64,
    pub(super) honest_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// The most resident memory less that before the first attack, in MB of 10^6 bytes.
    pub(super) grown_mb: f64,
    /// Resident memory in the middle of the attack less that before the first, for each connection
    /// that the attackers then held, in KiB.
    pub(super) held_kib: Option<f64>,
    /// Growth of resident memory in the second half of the attack, which held what it could before.
    pub(super) late_mb: f64,
    /// Time from the attack's end until honest exchanges were as quick as before.
    pub(super) recovery_s: f64,
    /// Connections that the attackers held and lost, and messages that they sent.
    #[serde(flatten)]
    pub(super) attackers: Done,
}

impl Besieged {
    /// Not by all exchanges that ended meanwhile: some had only been held up when the attack began.
    fn rate_kept(&self) -> f64 {
        kept(self.honest_per_s / self.quiet_per_s)
    }

    fn p99_kept(&self) -> f64 {
        kept(self.quiet_p99_ms / self.p99_ms)
    }
}

/// Returns what was kept: nothing, if there was nothing before either.
const fn kept(ratio: f64) -> f64 {
    if ratio.is_nan() { 0.0 } else { ratio }
}

/// Reads a figure of a turn, if it has one.
type Figure = fn(&Turn) -> Option<f64>;

/// The figures that arms are compared by.
const FIGURES: [(&str, Figure); 12] = [
    ("per s", |turn| Some(turn.per_s)),
    ("per busy s", |turn| turn.per_busy_s),
    ("program ms", |turn| Some(turn.program_ms)),
    // With the attackers' it would be no figure of honest clients.
    ("client ms", |turn| turn.siege.is_none().then_some(turn.client_ms)),
    ("both ms", |turn| turn.siege.is_none().then_some(turn.both_ms)),
    ("p99 ms", |turn| Some(turn.siege.as_ref()?.p99_ms)),
    ("rate kept", |turn| Some(turn.siege.as_ref()?.rate_kept())),
    ("p99 kept", |turn| Some(turn.siege.as_ref()?.p99_kept())),
    ("grown MB", |turn| Some(turn.siege.as_ref()?.grown_mb)),
    ("held KiB", |turn| turn.siege.as_ref()?.held_kib),
    ("late MB", |turn| Some(turn.siege.as_ref()?.late_mb)),
    ("recovery s", |turn| Some(turn.siege.as_ref()?.recovery_s)),
];

/// The first arm beside another one: medians of the ratios of turns of one round, by figure.
#[derive(Debug, Serialize)]
struct Comparison {
    variant: String,
    arm: String,
    to: String,
    ratios: BTreeMap<&'static str, Summary>,
}

/// Work done and time spent up to a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    at: Instant,
    counts: Counts,
    client: Duration,
    program: Duration,
    busy: Option<Duration>,
}

impl Reading {
    pub(super) const fn at(&self) -> Instant {
        self.at
    }

    /// Reads all of it now; `cpu` is that of the programs.
    pub(super) fn take(work: &Work, on: &Contender, cpu: Option<usize>) -> Self {
        Self {
            counts: work.counts(),
            client: cpu_of(std::process::id()).unwrap_or_default(),
            program: on.program.as_ref().and_then(Program::cpu).unwrap_or_default(),
            busy: cpu.and_then(busy),
            at: Instant::now(),
        }
    }
}

impl Turn {
    pub(super) fn new(
        variant: &Variant,
        arm: &str,
        round: u32,
        before: Reading,
        after: Reading,
    ) -> Self {
        let counts = after.counts.since(before.counts);
        let seconds = (after.at - before.at).as_secs_f64();
        let done = match variant.work {
            Load::Bulk(_) => counts.bytes / BULK_UNIT,
            _ => counts.done,
        };
        let [client, program] = [after.client - before.client, after.program - before.program]
            .map(|spent| spent.as_secs_f64() * 1e3 / done as f64);
        let busy = after.busy.zip(before.busy).map(|(after, before)| after - before);
        Self {
            variant: variant.name.clone(),
            arm: arm.to_owned(),
            round,
            seconds,
            done,
            failed: counts.failed,
            resumed: counts.resumed,
            bytes: counts.bytes,
            per_s: done as f64 / seconds,
            program_ms: program,
            client_ms: client,
            both_ms: client + program,
            busy: busy.map(|busy| busy.as_secs_f64() / seconds),
            per_busy_s: busy.map(|busy| done as f64 / busy.as_secs_f64()),
            siege: None,
        }
    }

    /// Adds what the attack in it came to.
    pub(super) fn besieged(self, siege: Besieged) -> Self {
        Self { per_busy_s: None, siege: Some(siege), ..self }
    }

    pub(super) fn arm(&self) -> &str {
        &self.arm
    }

    /// Returns the row of a turn: its exchanges took as long on average as their number and rate
    /// say.
    pub(super) fn trial(&self, variant: &Variant, trials: &[Trial]) -> Trial {
        if let Some(siege) = &self.siege {
            // What failed under attack is in the rate that was kept.
            let ok = trials.iter().any(|trial| trial.ok);
            let error = if ok { "" } else { "nothing was done" };
            return Trial {
                ok,
                ms_to_last_response_byte: Some(siege.p50_ms).filter(|ms| ms.is_finite()),
                bytes: self.bytes,
                error: error.to_owned(),
                ..Trial::default()
            };
        }
        let at_once = match variant.work {
            Load::Connections(count) => count.get(),
            Load::Bulk(count) => count.get().into(),
            Load::Flood(_) | Load::Siege(_) => TCP_CLIENTS,
        };
        let resumed = self.resumed as f64 / self.done as f64;
        let failed = trials.iter().find(|trial| !trial.ok).map(|trial| trial.error.clone());
        let error = match (failed, variant.resumes) {
            _ if self.done == 0 => "nothing was done".to_owned(),
            (Some(error), _) if self.failed > 0 => format!("{} failed: {error}", self.failed),
            (_, true) if resumed < RESUMED_MIN => format!("{} were resumed", self.resumed),
            (_, false) if self.resumed > 0 => format!("{} were resumed", self.resumed),
            _ => String::new(),
        };
        Trial {
            ok: error.is_empty(),
            resumed: variant.resumes,
            ms_to_last_response_byte: Some(f64::from(at_once) * 1e3 / self.per_s)
                .filter(|ms| ms.is_finite()),
            bytes: self.bytes,
            error,
            ..Trial::default()
        }
    }

    /// Returns the rows of a turn of which each exchange is one.
    pub(super) fn trials(&self, variant: &Variant, all: Vec<Trial>, before: Reading) -> Vec<Trial> {
        let first = usize::try_from(before.counts.done + before.counts.failed).unwrap_or_default();
        let count = usize::try_from(self.done + self.failed).unwrap_or_default();
        let own = all.into_iter().skip(first).take(count);
        own.map(|trial| match !trial.ok || trial.resumed == variant.resumes {
            true => trial,
            false => {
                let error = format!("resumed: {}", trial.resumed);
                Trial { ok: false, error, ..trial }
            }
        })
        .collect()
    }
}

impl Outcome {
    pub(super) const fn new(arms: Vec<String>) -> Self {
        Self { arms, turns: Vec::new(), comparisons: Vec::new() }
    }

    pub(super) fn totals(&self, variant: &str, arm: &str) -> LoadTotals {
        self.turns_of(variant, arm).fold(LoadTotals::default(), |mut sum, turn| {
            let [client, program] = [turn.client_ms, turn.program_ms]
                .map(|each| Duration::try_from_secs_f64(each / 1e3 * turn.done as f64));
            sum.connections += turn.done;
            sum.completed += turn.done as f64;
            sum.time += Duration::from_secs_f64(turn.seconds);
            sum.client_cpu += client.unwrap_or_default();
            sum.server_cpu += program.unwrap_or_default();
            sum
        })
    }

    /// Returns what an arm kept under attack, if it was under one.
    pub(super) fn kept(&self, variant: &str, arm: &str) -> Option<Kept> {
        let names = ["rate kept", "p99 kept", "grown MB", "held KiB", "recovery s"];
        let [rate, p99, grown_mb, held_kib, recovery_s] = names.map(|wanted| {
            let (_, figure) = FIGURES.into_iter().find(|(name, _)| *name == wanted)?;
            self.median(variant, arm, figure)
        });
        let (rate, p99, grown_mb, recovery_s) = (rate?, p99?, grown_mb?, recovery_s?);
        Some(Kept { rate, p99, grown_mb, held_kib, recovery_s })
    }

    fn median(&self, variant: &str, arm: &str, figure: Figure) -> Option<f64> {
        let all: Vec<_> = self.turns_of(variant, arm).filter_map(figure).collect();
        Summary::from_samples(&all)?.p50
    }

    /// Sets the first arm against each other one.
    pub(super) fn compare(&mut self) {
        let Some((arm, others)) = self.arms.split_first() else { return };
        let mut comparisons = Vec::new();
        for variant in self.variants() {
            for to in others {
                let ratios = FIGURES.into_iter().filter_map(|(name, figure)| {
                    Some((name, self.ratio(variant, [arm, to], figure)?))
                });
                comparisons.push(Comparison {
                    ratios: ratios.collect(),
                    variant: variant.to_owned(),
                    arm: arm.clone(),
                    to: to.clone(),
                });
            }
        }
        self.comparisons = comparisons;
    }

    /// Returns the distribution of the ratios of a figure, round by round.
    fn ratio(&self, variant: &str, [arm, to]: [&str; 2], figure: Figure) -> Option<Summary> {
        let ratios = self.turns_of(variant, arm).filter_map(|turn| {
            let other = self.turns_of(variant, to).find(|other| other.round == turn.round)?;
            Some(figure(turn)? / figure(other)?).filter(|ratio| ratio.is_finite())
        });
        Summary::from_samples(&ratios.collect::<Vec<_>>())
    }

    fn turns_of<'o>(&'o self, variant: &'o str, arm: &'o str) -> impl Iterator<Item = &'o Turn> {
        self.turns.iter().filter(move |turn| turn.variant == variant && turn.arm == arm)
    }

    fn variants(&self) -> Vec<&str> {
        let mut variants: Vec<_> = self.turns.iter().map(|turn| turn.variant.as_str()).collect();
        variants.dedup();
        variants
    }

    /// Returns lines of the table: medians of an arm, and the ratios of the first arm to it.
    fn rows(&self, variant: &str, arm: &str, figures: &[(&str, Figure)]) -> [Vec<String>; 2] {
        let mut comparisons = self.comparisons.iter();
        let to = comparisons.find(|one| one.variant == variant && one.to == arm);
        let medians = figures.iter().map(|(_, figure)| {
            let median = self.median(variant, arm, *figure);
            median.map_or("–".to_owned(), |median| format!("{median:.4}"))
        });
        let ratios = figures.iter().map(|(name, _)| match to.and_then(|to| to.ratios.get(name)) {
            Some(Summary { p50: Some(p50), ci95: [Some(low), Some(high)], .. }) => {
                format!("{p50:.2} [{low:.2} .. {high:.2}]")
            }
            _ => String::new(),
        });
        let first = self.arms.first().map_or("", String::as_str);
        let against = if to.is_some() { format!("{first} / {arm}") } else { String::new() };
        let names = [[variant, arm].map(str::to_owned), [String::new(), against]];
        let [one, other] = names.map(Vec::from);
        [one.into_iter().chain(medians).collect(), other.into_iter().chain(ratios).collect()]
    }
}

/// Shows medians of all arms, and the ratios of the first one to each.
pub(in crate::lab) fn text(outcome: &Outcome) -> String {
    let mut figures = FIGURES.to_vec();
    figures.retain(|(_, figure)| outcome.turns.iter().any(|turn| figure(turn).is_some()));
    let mut rows = vec![header(&["variant", "arm"])];
    rows[0].extend(figures.iter().map(|(name, _)| (*name).to_owned()));
    for variant in outcome.variants() {
        let had = |arm: &&String| outcome.turns_of(variant, arm).next().is_some();
        let arms = outcome.arms.iter().filter(had);
        rows.extend(arms.flat_map(|arm| outcome.rows(variant, arm, &figures)));
    }
    rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
    table(&rows, &[0, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(arm: &str, round: u32, done: u64, program_ms: f64) -> Turn {
        Turn {
            variant: "all".to_owned(),
            arm: arm.to_owned(),
            round,
            seconds: 2.0,
            done,
            failed: 0,
            resumed: 0,
            bytes: 0,
            per_s: done as f64 / 2.0,
            program_ms,
            client_ms: 1.0,
            both_ms: program_ms + 1.0,
            busy: None,
            per_busy_s: None,
            siege: None,
        }
    }

    /// Arms differ less than rounds do.
    #[test]
    fn arms_are_compared_round_by_round() {
        let mut outcome = Outcome::new(["edge", "haproxy"].map(str::to_owned).to_vec());
        for (round, machine) in [(1, 1), (2, 3), (3, 9)] {
            outcome.turns.push(turn("haproxy", round, 100 * machine, 1.0));
            outcome.turns.push(turn("edge", round, 80 * machine, 2.0));
        }
        outcome.compare();
        let [one] = &outcome.comparisons[..] else { panic!("{:?}", outcome.comparisons) };
        assert_eq!((one.arm.as_str(), one.to.as_str()), ("edge", "haproxy"));
        assert_eq!(one.ratios["per s"].p50, Some(0.8));
        assert_eq!(one.ratios["program ms"].p50, Some(2.0));
        assert!(!one.ratios.contains_key("per busy s"));
        let totals = outcome.totals("all", "edge");
        assert_eq!((totals.connections, totals.time), (1_040, Duration::from_secs(6)));
        assert_eq!(totals.server_cpu.as_millis(), 2_080);
        let text = text(&outcome);
        let line = text.lines().nth(3).unwrap();
        assert!(line.contains("edge / haproxy  0.80 [0.80 .. 0.80]"), "{text}");
    }

    /// Half the rate is left, and exchanges take four times as long.
    #[test]
    fn what_is_kept_under_attack_is_set_against_the_time_before() {
        let mut outcome = Outcome::new(["edge", "nginx"].map(str::to_owned).to_vec());
        let besieged = Besieged {
            quiet_per_s: 100.0,
            quiet_p50_ms: 1.0,
            quiet_p99_ms: 2.0,
            honest_per_s: 50.0,
            p50_ms: 3.0,
            p99_ms: 8.0,
            grown_mb: 5.0,
            held_kib: Some(7.0),
            late_mb: 0.0,
            recovery_s: 0.1,
            attackers: Done::default(),
        };
        outcome.turns.push(turn("edge", 1, 100, 1.0).besieged(besieged.clone()));
        let worse = Besieged {
            quiet_per_s: 0.0,
            quiet_p99_ms: f64::INFINITY,
            honest_per_s: 0.0,
            p99_ms: f64::INFINITY,
            ..besieged
        };
        let idle = turn("nginx", 1, 0, 1.0).besieged(worse);
        let variant: Variant =
            toml::from_str("name = \"all\"\nwork.siege.kind = \"silent\"").unwrap();
        assert!(!idle.trial(&variant, &[]).ok, "nothing was done before the attack either");
        outcome.turns.push(idle);
        outcome.compare();
        let kept = outcome.kept("all", "edge").unwrap();
        let (held_kib, recovery_s) = (Some(7.0), 0.1);
        assert_eq!(kept, Kept { rate: 0.5, p99: 0.25, grown_mb: 5.0, held_kib, recovery_s });
        let kept = outcome.kept("all", "nginx").unwrap();
        assert_eq!((kept.rate, kept.p99, kept.grown_mb), (0.0, 0.0, 5.0));
        assert_eq!(outcome.kept("all", "haproxy"), None);
        let text = text(&outcome);
        assert!(text.contains("rate kept") && !text.contains("client ms"), "{text}");
        let good = Trial { ok: true, ..Trial::default() };
        assert!(outcome.turns[1].trial(&variant, &[good]).ok);
    }

    #[test]
    fn a_turn_is_wrong_if_sessions_are_not_as_asked_for() {
        let [full, resumed] = [false, true].map(|resumes| -> Variant {
            let text = format!("name = \"all\"\nwork.connections = 8\nresumes = {resumes}");
            toml::from_str(&text).unwrap()
        });
        let good = turn("direct", 1, 2_000, 1.0);
        let row = good.trial(&full, &[]);
        assert_eq!((row.ok, row.ms_to_last_response_byte), (true, Some(8.0)));
        assert!(!good.trial(&resumed, &[]).ok);
        let some = Turn { resumed: 1_990, ..good.clone() };
        assert!(some.trial(&resumed, &[]).ok);
        assert_eq!(some.trial(&full, &[]).error, "1990 were resumed");
        let failed = Trial { error: "reset".into(), ..Trial::default() };
        let one = Turn { failed: 1, ..good.clone() };
        assert_eq!(one.trial(&full, &[failed]).error, "1 failed: reset");
        let idle = Turn { done: 0, per_s: 0.0, ..good };
        let row = idle.trial(&full, &[]);
        assert_eq!((row.ok, row.ms_to_last_response_byte), (false, None));
    }
}
