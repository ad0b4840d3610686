//! Progress on a terminal.

use std::io::Read;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws a second: drawing takes processor time from what is measured.
const REDRAWS: u8 = 4;

/// A bar on standard error; nothing if that is not a terminal.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Progress of a run with this many turns.
    pub(crate) fn with_turns(turns: u64) -> Self {
        Self::new(Some(turns), "{elapsed_precise} {bar:30} {percent:>3} %  {msg}")
    }

    /// Progress of reading this many bytes, if their number is known.
    pub(crate) fn with_bytes(bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => "{elapsed_precise} {bar:30} {percent:>3} %  {bytes} of {total_bytes}  {msg}",
            None => "{elapsed_precise} {spinner}  {bytes}  {msg}",
        };
        Self::new(bytes, template)
    }

    fn new(length: Option<u64>, template: &str) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS);
        let bar = ProgressBar::with_draw_target(length, target);
        let style = ProgressStyle::with_template(template);
        Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
    }

    pub(crate) fn stage(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Counts the bytes read from `input`.
    pub(crate) fn wrap<R: Read>(&self, input: R) -> impl Read + use<R> {
        self.0.wrap_read(input)
    }

    /// Prints a line that stays, above the bar.
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
