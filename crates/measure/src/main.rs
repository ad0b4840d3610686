//! The `headstart-lab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart_measure::main(std::env::args_os())
}
