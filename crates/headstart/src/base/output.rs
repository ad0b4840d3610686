//! Data on standard output.

use std::io::{self, IsTerminal, Write};

use crate::base::failure::Failure;

/// Writes `text` to standard output. A reader that has had enough (`| head`) is not an error.
///
/// # Errors
/// Any other write error, for example a full disk.
pub fn print(text: &[u8]) -> Result<(), Failure> {
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
