//! Progress of reading, on a terminal.

use std::io::Read;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of bytes on standard error; nothing where that is no terminal.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Progress of reading this many bytes, if their number is known.
    pub(super) fn new(bytes: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr_with_hz(4));
        let template = match bytes {
            Some(_) => "{elapsed_precise} {bar:30} {percent:>3} %  {bytes} of {total_bytes}  {msg}",
            None => "{elapsed_precise} {spinner}  {bytes}  {msg}",
        };
        let style = ProgressStyle::with_template(template);
        Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
    }

    pub(super) fn stage(&self, name: String) {
        self.0.set_message(name);
    }

    /// Counts what is read.
    pub(super) fn wrap<R: Read>(&self, input: R) -> impl Read + use<R> {
        self.0.wrap_read(input)
    }

    /// A line that stays, above the bar.
    pub(super) fn note(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    pub(super) fn done(&self) {
        self.0.finish_and_clear();
    }
}
