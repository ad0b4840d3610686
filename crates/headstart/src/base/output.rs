//! Data on standard output.

use std::io::{self, IsTerminal, Write};

use crate::base::failure::Failure;
use crate::base::printable::printable;

/// Writes text or JSON to standard output, with what is not [`printable`] escaped: much of it is
/// what servers, pages and other users say. A reader that has had enough (`| head`) is not an
/// error.
///
/// # Errors
/// Any other write error, for example a full disk.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    print_raw(printable(&String::from_utf8_lossy(text)).as_bytes())
}

/// Writes bytes as they are: a page that was asked for, or text with colours of ours.
///
/// # Errors
/// As [`print()`].
pub fn print_raw(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::usage(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Shows a line on standard error that replaces the last one, on a terminal only; an empty one
/// removes it.
pub fn progress(line: &str) {
    let mut stderr = io::stderr().lock();
    if stderr.is_terminal() {
        // Nobody is left to tell when standard error itself fails.
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
    }
}
