//! Runs the program as a process.

use std::process::{Command, Output};

/// The program of the package that these tests are of.
const PROGRAM: &str =
    match (option_env!("CARGO_BIN_EXE_headstart"), option_env!("CARGO_BIN_EXE_headstart-lab")) {
        (Some(program), _) | (None, Some(program)) => program,
        (None, None) => panic!("this package has no program"),
    };

/// Exit code, standard output and standard error.
pub(crate) type Outcome = (Option<i32>, String, String);

/// Returns its output with nothing in its environment.
pub(crate) fn call(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(PROGRAM);
    outcome(command.args(arguments).env_clear().output().unwrap())
}

pub(crate) fn outcome(output: Output) -> Outcome {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
