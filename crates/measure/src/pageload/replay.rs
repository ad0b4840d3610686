//! `headstart pageload replay`: recorded pages over real sockets.
//!
//! It is an experiment of the lab whose trials are loads of a page: origins, clients, links, turns
//! and results are those of `headstart lab run` (lab/README.md), and the client is that of
//! `headstart-openers`, whose rules stand there (`page.rs`). Here the options become an experiment,
//! and its loads a table. docs/replay.md says what is real and what is not.

mod outcome;
mod text;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use headstart_emulation::PRESETS;
use headstart_pageload::page::Page;
use toml::Value;

use self::outcome::Outcome;
use crate::json::json;
use crate::lab::experiment::{Experiment, NAME_MAX};
use crate::lab::openings::Openings;
use crate::lab::runner::carry_out;
use crate::lab::{RunSize, round_trip};
use crate::pageload::options::ReplayOptions;
use crate::recordings;
use headstart::base::failure::Failure;
use headstart::base::{logging, output};

/// Loads that are not counted: they bring sessions and cookies, and start the programs.
const WARM_UP: u32 = 1;

/// Replays the pages and prints what came of it. Call it while the process has one thread.
pub(super) fn run(options: &ReplayOptions) -> Result<ExitCode, Failure> {
    logging::start(&options.log, logging::COMMAND)?;
    let files = options.files.iter().enumerate();
    let pages = files.map(|(number, file)| Recorded::read(number, file, options));
    let pages = pages.collect::<Result<Vec<_>, _>>()?;
    let links = (1..).zip(&options.links).map(|(number, link)| Link::new(number, link));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let text = experiment(options, &pages, &links);
    let experiment = Experiment::parse("the options", &text)?;
    let scenario = Openings::new(experiment, text, RunSize::Usual, Some(options.seed))?;
    let scenario = scenario.with_captures(options.pcap);
    let (finished, loads) = carry_out(scenario, options.out.clone())?;
    let outcome = Outcome::new(&pages, options, &links, &finished, &loads);
    let text = if options.json { json(&outcome)? } else { text::text(&outcome) };
    output::print(text.as_bytes())?;
    Ok(finished.conclusion())
}

/// A page, and what it is called.
struct Recorded {
    /// Name of the page; empty for the only one.
    name: String,
    file: PathBuf,
    page: Page,
}

impl Recorded {
    fn read(number: usize, file: &Path, options: &ReplayOptions) -> Result<Self, Failure> {
        let page = recordings::read_page(file, options.page.into())?;
        let file = std::fs::canonicalize(file).map_err(|error| {
            Failure::usage(format!("cannot read {}: {error}", file.display()))
                .hint("a replay needs pages as files")
        })?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_name = name.len() <= NAME_MAX && !name.chars().any(char::is_control);
        let stems = options.files.iter().filter(|other| other.file_stem() == file.file_stem());
        let name = match options.files.len() {
            1 => String::new(),
            _ if is_name && stems.count() < 2 => name.into_owned(),
            _ => format!("page {}", number + 1),
        };
        Ok(Self { name, file, page })
    }
}

/// A path between client and servers.
struct Link {
    name: String,
    path: String,
    rtt: Duration,
}

impl Link {
    /// Parses the name of a preset, or elements.
    fn new(number: usize, text: &str) -> Result<Self, Failure> {
        let is_preset = PRESETS.iter().any(|preset| preset.name == text);
        let path = if is_preset { format!("preset {text}") } else { text.to_owned() };
        let is_name = path.len() <= NAME_MAX;
        let name = if is_name { path.clone() } else { format!("link {number}") };
        Ok(Self { rtt: round_trip(&path)?, name, path })
    }
}

/// A text as TOML and JSON write it.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// The experiment as a file of the lab has it.
fn experiment(options: &ReplayOptions, pages: &[Recorded], links: &[Link]) -> String {
    let arms: Vec<_> = options.arms.iter().map(|arm| quoted(arm.name())).collect();
    let mut text = format!(
        "name = \"replay\"\ntitle = {}\nabout = \"\"\ntrials = {loads}\nquick_trials = {loads}\n\
         warmup = {WARM_UP}\ntimeout = \"{}s\"\narms = [{}]\nsuites = [{}]\n",
        quoted(&match options.files.as_slice() {
            [file] => format!("Replay of {}", file.display()),
            files => format!("Replay of {} pages", files.len()),
        }),
        options.timeout,
        arms.join(", "),
        quoted(options.suite.name()),
        loads = options.loads,
    );
    for link in links {
        let rtt = link.rtt.as_nanos() as f64 / 1e3;
        let (name, path) = (quoted(&link.name), quoted(&link.path));
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[[link]]\nname = {name}\nrtt = \"{rtt}us\"\npath = {path}\n");
    }
    for page in pages {
        let _ = write!(
            text,
            "\n[[variant]]\nname = {}\nwork.page = {{ file = {}, number = {}, connections = {}, \
             addresses = {}, fresh = {} }}\n",
            quoted(&page.name),
            quoted(&page.file.display().to_string()),
            options.page,
            quoted(&options.connections),
            options.addresses,
            options.first_visit,
        );
    }
    text
}
