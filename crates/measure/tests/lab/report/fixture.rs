//! Results folders as a run writes them, with times drawn from a seeded law: not measurements.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::samples;

/// The columns of samples.csv, in their order.
const COLUMNS: &str = "experiment,arm,suite,link,trial,opening,ms_to_first_request_byte,\
    ms_to_first_response_byte,ms_to_last_response_byte,rtts,reason,flagged,variant,ok,resumed,\
    early_data,bytes,error,round";

/// Arms and their round trips to the first request byte (the design's ledger).
pub(crate) const ARMS: [(&str, &str, f64); 10] = [
    ("tls13", "plain", 2.0),
    ("tls13-resumed", "plain", 2.0),
    ("tls13-0rtt", "plain", 1.0),
    ("tfo", "tfo", 1.0),
    ("turbo", "turbo", 1.0),
    ("turbo-resumed", "turbo", 1.0),
    ("turbo-0rtt", "turbo", 0.0),
    ("turbo-agent", "turbo", 1.0),
    ("quic", "quic", 1.0),
    ("quic-0rtt", "quic", 0.0),
];

pub(crate) struct Link {
    pub(crate) name: &'static str,
    pub(crate) rtt_ms: f64,
    /// The share of connections that lose a packet and wait a second for it, and of those that
    /// fail.
    pub(crate) slow: f64,
    pub(crate) fails: f64,
}

pub(crate) struct Fixture {
    pub(crate) links: Vec<Link>,
    pub(crate) suites: Vec<&'static str>,
    pub(crate) arms: Vec<(&'static str, &'static str, f64)>,
    pub(crate) trials: u32,
    pub(crate) reference: Option<&'static str>,
}

/// A trial that completed, in ms.
type Times = [f64; 3];

impl Fixture {
    /// A small run that compares two arms over one link.
    pub(crate) fn small() -> Self {
        Self {
            links: vec![Link { name: "paris-oregon", rtt_ms: 133.021, slow: 0.0, fails: 0.0 }],
            suites: vec!["p256"],
            arms: ARMS.into_iter().filter(|(arm, ..)| ["tls13", "turbo"].contains(arm)).collect(),
            trials: 40,
            reference: Some("turbotls"),
        }
    }

    /// Writes the files.
    pub(crate) fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut samples = format!("{COLUMNS}\n");
        let mut summary = Vec::new();
        for link in &self.links {
            for suite in &self.suites {
                for arm in &self.arms {
                    summary.push(self.cell(link, suite, *arm, &mut samples, &mut random));
                }
            }
        }
        write(&dir.join("samples.csv.zst"), &samples);
        write_json(dir, "summary.json", &Value::Array(summary));
        write_json(dir, "bars.json", &self.verdicts());
        write_json(dir, "environment.json", &environment());
        fs::write(dir.join("experiment.toml"), self.experiment()).unwrap();
    }

    fn cell(
        &self,
        link: &Link,
        suite: &str,
        (arm, opening, round_trips): (&str, &str, f64),
        samples: &mut String,
        random: &mut Xoshiro256PlusPlus,
    ) -> Value {
        let mut completed: Vec<Times> = Vec::new();
        let mut openings: BTreeMap<&str, usize> = BTreeMap::new();
        let mut flagged = 0;
        for trial in 1..=self.trials {
            let fell_back = opening == "turbo" && random.random_bool(link.slow);
            let opened = if fell_back { "plain" } else { opening };
            let reason = if fell_back { "no answer over UDP in time" } else { "" };
            let flag = random.random_bool(0.02);
            flagged += usize::from(flag);
            let times = (!random.random_bool(link.fails))
                .then(|| times(link, round_trips + f64::from(u8::from(fell_back)), random));
            let cells = match times {
                Some([request, response, last]) => {
                    completed.push([request, response, last]);
                    *openings.entry(opened).or_default() += 1;
                    format!("{request},{response},{last},{}", request / link.rtt_ms)
                }
                None => ",,,".into(),
            };
            let (ok, error) = (times.is_some(), if times.is_some() { "" } else { "timed out" });
            let link = quoted(link.name);
            let arm = quoted(arm);
            samples.push_str(&format!(
                "fixture,{arm},{suite},{link},{trial},{opened},{cells},{reason},{flag},,{ok},\
                 false,false,1000,{error},1\n"
            ));
        }
        let trials = self.trials as usize;
        let [request, response, last] = [0, 1, 2].map(|at: usize| {
            percentiles(completed.iter().map(|times| times[at]).collect(), trials)
        });
        let rtts = request["p50"].as_f64().map(|p50| p50 / link.rtt_ms);
        json!({
            "experiment": "fixture", "arm": arm, "suite": suite, "link": link.name, "variant": "",
            "rtt_ms": link.rtt_ms, "n": trials, "failed": trials - completed.len(),
            "flagged": flagged, "first_request_byte": request, "first_response_byte": response,
            "last_response_byte": last, "rtts": rtts, "openings": openings,
        })
    }

    fn verdicts(&self) -> Value {
        self.links
            .iter()
            .map(|link: &Link| {
                let found = if link.rtt_ms > 1.0 { 0.5 } else { 0.56 };
                json!({
                    "bar": {
                        "arm": "turbo", "against": "tls13", "of": "first_request_byte",
                        "ratio_max": 0.505,
                    },
                    "arm": "turbo", "suite": self.suites[0], "link": link.name, "variant": "",
                    "condition": "ratio_max", "limit": 0.505, "found": found, "met": found <= 0.505,
                })
            })
            .collect()
    }

    fn experiment(&self) -> String {
        let mut text = String::from(
            "title = \"A fixture, drawn and not measured\"\nabout = \"\"\"\nTimes here are drawn \
                from a seeded law, to test the report.\"\"\"\n",
        );
        if let Some(reference) = self.reference {
            text.push_str(&format!("reference = \"{reference}\"\n"));
        }
        let arms: Vec<&str> = self.arms.iter().map(|(arm, ..)| *arm).collect();
        for (key, names) in [("suites", self.suites.clone()), ("arms", arms)] {
            text.push_str(&format!("{key} = {}\n", toml::Value::from(names)));
        }
        for link in &self.links {
            let name = toml::Value::from(link.name);
            let half = link.rtt_ms / 2.0;
            text.push_str(&format!(
                "[[link]]\nname = {name}\nrtt = \"{}ms\"\npath = \"delay {half}ms\"\n",
                link.rtt_ms
            ));
        }
        text
    }
}

/// Round trips, work of some hundred microseconds, and now and then a lost packet.
fn times(link: &Link, round_trips: f64, random: &mut Xoshiro256PlusPlus) -> Times {
    let work = [(); 3].map(|()| 0.1 - 0.25 * random.random_range(0.001_f64..1.0).ln());
    let request = round_trips * link.rtt_ms + 0.5 * work[0];
    let response = request + link.rtt_ms + work[1];
    let last = response + 0.2 * work[2];
    let lost = if random.random_bool(link.slow) { 1_000.0 } else { 0.0 };
    [request, response + lost, last + lost].map(|ms: f64| (ms * 1e3).round() / 1e3)
}

/// Returns percentiles by nearest rank; the interval is made up, as the report only passes it on.
fn percentiles(mut samples: Vec<f64>, count: usize) -> Value {
    samples.sort_by(f64::total_cmp);
    // None where it lies among those that failed.
    let [low, p50, high, p90, p99, max] = [40, 50, 60, 90, 99, 100]
        .map(|percent: usize| samples.get((percent * count).div_ceil(100).max(1) - 1).copied());
    let p99 = p99.filter(|_| count >= 100);
    json!({"n": count, "p50": p50, "p90": p90, "p99": p99, "max": max, "ci95": [low, high]})
}

fn environment() -> Value {
    json!({
        "command": ["headstart", "lab", "run", "fixture"],
        "date": "2026-11-21T12:00:00Z", "commit": "0000000", "kernel": "Linux 0.0",
        "cpu": "none: drawn by a test", "privilege": "root", "seed": 7,
        "exactness": {"realtime": true, "pinned": true, "timestamps": true},
        "stages": [{
            "name": "all links", "packets": 1000, "lateness_us": {"p50": 14, "p99": 78},
            "missed": 0,
        }],
    })
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn write_json(dir: &Path, name: &str, value: &Value) {
    fs::write(dir.join(name), serde_json::to_vec_pretty(value).unwrap()).unwrap();
}

/// Changes a file of a folder.
pub(crate) fn edit(dir: &Path, name: &str, change: impl Fn(String) -> String) -> PathBuf {
    let path = dir.join(name);
    let text = match is_compressed(&path) {
        true => samples::text(dir),
        false => fs::read_to_string(&path).unwrap(),
    };
    let changed = change(text.clone());
    assert_ne!(text, changed, "the edit of {name} changes nothing");
    write(&path, &changed);
    path
}

fn write(path: &Path, text: &str) {
    let bytes = match is_compressed(path) {
        true => zstd::encode_all(text.as_bytes(), 1).unwrap(),
        false => text.as_bytes().to_vec(),
    };
    fs::write(path, bytes).unwrap();
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}
