//! The `headstart` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart::main(std::env::args_os())
}
