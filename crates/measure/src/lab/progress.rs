//! Progress of a run, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error; nothing where that is no terminal.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Progress of a run with this many turns.
    pub(crate) fn new(turns: u64) -> Self {
        // Four redraws a second: drawing takes processor time from what is measured.
        let bar = ProgressBar::with_draw_target(Some(turns), ProgressDrawTarget::stderr_with_hz(4));
        let style =
            ProgressStyle::with_template("{elapsed_precise} {bar:30} {percent:>3} %  {msg}");
        Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
    }

    pub(crate) fn stage(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// A line that stays, above the bar.
    pub(crate) fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// A time for people: `3 min 20 s`.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, _) if minutes >= 10 => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}
