//! The commands and their options.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use headstart::base::logging;
use headstart::base::settings::{Invocation, Stop};
use headstart::base::shell::{self, CompletionsOptions, ManOptions};
use headstart::companion;

use crate::demo::options::DemoOptions;
use crate::doctor::DoctorOptions;
use crate::interop::options::InteropOptions;
use crate::lab::options::LabOptions;
use crate::pageload::options::PageloadOptions;
use crate::{demo, doctor, interop, lab, pageload};

const AFTER_HELP: &str = "\
`headstart-lab COMMAND --help` explains a command, with examples. `headstart lab`, `pageload` and
`demo` are the same commands.

Exit codes: 0 done; 1 negative answer (no connection, check failed); 2 wrong usage or environment.";

/// Measures what opening connections and loading pages costs
///
/// Builds emulated networks out of namespaces of this machine, and runs real clients and servers
/// over them; records, replays and simulates page loads.
#[derive(Debug, Parser)]
#[command(name = "headstart-lab", version, after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Name,
}

#[derive(Debug, Subcommand)]
enum Name {
    Demo(DemoOptions),
    Lab(LabOptions),
    Pageload(PageloadOptions),
    Interop(InteropOptions),
    Doctor(DoctorOptions),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

/// Runs the command that `argv` (with the program's name first) asks for, and reports failures.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    run(argv.into_iter().collect()).unwrap_or_else(Stop::end)
}

/// No runtime is started here: most commands enter namespaces, which the kernel allows to a process
/// of one thread.
fn run(mut argv: Vec<OsString>) -> Result<ExitCode, Stop> {
    let mut command = Program::command();
    if companion::take_caller(&mut argv)? {
        // Help and usage show the command as the user typed it.
        command = command.name("headstart");
    }
    let invocation = Invocation::new(command, argv);
    let program: Program = invocation.program()?;
    let done = match program.command {
        Name::Demo(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            demo::run(&options)
        }
        Name::Lab(options) => lab::run(&options),
        Name::Pageload(options) => pageload::run(&options),
        Name::Interop(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            interop::run(&options)
        }
        Name::Doctor(options) => doctor::run(&options),
        Name::Completions(options) => shell::completions(&options, invocation.command()),
        Name::Man(options) => shell::man(&options, invocation.command()),
    };
    Ok(done?)
}
