//! The commands and what they are called with.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::options::{
    AgentOptions, DemoOptions, DnsRecordOptions, DoctorOptions, EdgeOptions, FastopenOptions,
    GetOptions, KeysOptions, LabOptions, PageloadOptions, RunOptions, SessionsOptions,
};
use crate::settings::{Invocation, Stop};
use crate::shell::{self, CompletionsOptions, ManOptions};
use crate::{
    agent, demo, dns_record, doctor, edge, fastopen, get, keys, lab, logging, pageload,
    run as run_program, runtime, sessions,
};

const AFTER_HELP: &str = "\
`headstart COMMAND --help` explains a command, with examples.

Exit codes: 0 done; 1 negative answer (no connection, check failed); 2 wrong usage or environment.";

/// Opens TLS connections in one round trip
///
/// While TCP connects, the first flight of TLS already travels over UDP (TurboTLS). `headstart
/// edge` stands before a TLS server, `headstart agent` beside applications; neither the server nor
/// the applications change, and where UDP is blocked or one side lacks headstart, connections are
/// ordinary TLS.
#[derive(Debug, Parser)]
#[command(name = "headstart", version, after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Name,
}

#[derive(Debug, Subcommand)]
enum Name {
    Edge(Box<EdgeOptions>),
    Agent(AgentOptions),
    Get(GetOptions),
    Demo(DemoOptions),
    Doctor(DoctorOptions),
    Fastopen(FastopenOptions),
    Keys(KeysOptions),
    Lab(LabOptions),
    Pageload(PageloadOptions),
    Run(RunOptions),
    Sessions(SessionsOptions),
    DnsRecord(DnsRecordOptions),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

/// Runs the command that `argv` (with the program's name first) asks for, and reports failures.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = Invocation::new(Program::command(), argv);
    match run(&invocation) {
        Ok(code) => code,
        Err(stop) => end(stop),
    }
}

fn run(invocation: &Invocation) -> Result<ExitCode, Stop> {
    let program: Program = invocation.program()?;
    let done = match program.command {
        Name::Edge(options) => {
            logging::start(&options.log, logging::DAEMON)?;
            runtime::run(options.workers, edge::run(*options, invocation))
        }
        Name::Agent(options) => {
            logging::start(&options.log, logging::DAEMON)?;
            runtime::run(None, agent::run(options, invocation))
        }
        Name::Get(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            runtime::run_here(get::run(options))
        }
        // No runtime: it enters namespaces, which the kernel allows to a single thread.
        Name::Demo(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            demo::run(&options)
        }
        Name::Keys(options) => keys::run(&options),
        // No runtime: it enters namespaces, too.
        Name::Lab(options) => lab::run(&options),
        Name::Pageload(options) => pageload::run(&options),
        // No runtime yet: it tries a user namespace in a child.
        Name::Doctor(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            doctor::run(&options)
        }
        Name::Run(options) => run_program::run(&options),
        Name::Sessions(options) => runtime::run_here(sessions::run(&options)),
        Name::Fastopen(options) => fastopen::run(&options),
        Name::DnsRecord(options) => dns_record::run(&options),
        Name::Completions(options) => shell::completions(&options, invocation.command()),
        Name::Man(options) => shell::man(&options, invocation.command()),
    };
    Ok(done?)
}

fn end(stop: Stop) -> ExitCode {
    match stop {
        Stop::Answer(answer) => {
            // Nobody is left to tell when the terminal itself fails.
            let _ = answer.print();
            u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Stop::Failure(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
