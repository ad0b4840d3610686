//! The `headstart` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart_cli::main(std::env::args_os())
}
