//! The terminal that standard output goes to.

use std::io::{IsTerminal, stdout};

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;

use headstart::base::failure::colours_wanted;

/// Returns the columns of the terminal, or what `COLUMNS` says; `None` if neither says anything.
pub(crate) fn columns() -> Option<usize> {
    let size = stdout().is_terminal().then(|| tcgetwinsize(stdout()).ok()).flatten();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    columns.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
}

/// When to colour output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Wherever it goes
    Always,
    /// Never
    Never,
}

impl Color {
    pub(crate) fn is_wanted(self) -> bool {
        match self {
            Self::Auto => colours_wanted(stdout().is_terminal()),
            Self::Always => true,
            Self::Never => false,
        }
    }
}
