//! The commands and their options.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::agent::options::AgentOptions;
use crate::base::failure::Failure;
use crate::base::logging::LogOptions;
use crate::base::settings::Invocation;
use crate::base::settings::Stop;
use crate::base::shell::{self, CompletionsOptions, ManOptions};
use crate::base::{logging, runtime};
use crate::careful::options::CarefulOptions;
use crate::dns_record::options::DnsRecordOptions;
use crate::doctor::options::DoctorOptions;
use crate::edge::options::EdgeOptions;
use crate::fastopen::options::FastopenOptions;
use crate::get::options::GetOptions;
use crate::keys::options::KeysOptions;
use crate::run::options::RunOptions;
use crate::sessions::options::SessionsOptions;
use crate::takeover::options::TakeoverOptions;
use crate::up::options::{DownOptions, UpOptions};
use crate::{
    agent, careful, companion, dns_record, doctor, edge, fastopen, get, keys, master,
    run as run_program, sessions, up,
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
#[command(max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Name,
}

#[derive(Debug, Subcommand)]
enum Name {
    Up(UpOptions),
    Down(DownOptions),
    Edge(Box<EdgeOptions>),
    Agent(Box<AgentOptions>),
    Get(GetOptions),
    Doctor(DoctorOptions),
    Fastopen(FastopenOptions),
    CarefulResume(CarefulOptions),
    Keys(KeysOptions),
    Run(RunOptions),
    Sessions(SessionsOptions),
    DnsRecord(DnsRecordOptions),
    /// Show plain TLS and TurboTLS side by side over an emulated link (headstart-lab)
    Demo(LabArguments),
    /// Measure openings over emulated networks on this machine (headstart-lab)
    Lab(LabArguments),
    /// Record, replay and simulate page loads (headstart-lab)
    Pageload(LabArguments),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

/// The words behind a command of `headstart-lab`, which reads them itself, `--help` among them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = "`--help` behind the command shows what headstart-lab says.")]
struct LabArguments {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the command that `argv` (with the program's name first) asks for, and reports failures.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let invocation = Invocation::new(Program::command(), argv);
    run(&invocation).unwrap_or_else(Stop::end)
}

fn run(invocation: &Invocation) -> Result<ExitCode, Stop> {
    let program: Program = invocation.program()?;
    let done = match program.command {
        Name::Edge(options) if options.check.check => {
            runtime::run_here(edge::check(&options, invocation))
        }
        Name::Agent(options) if options.check.check => {
            runtime::run_here(async { agent::check(&options, invocation) })
        }
        Name::Up(options) => up::run(&options),
        Name::Down(options) => up::down(&options),
        Name::Edge(options) => {
            start_logging(&options.log, options.access_log, invocation)?;
            let takeover = options.takeover.clone();
            serve(&takeover, options.workers, edge::run(*options, invocation))
        }
        Name::Agent(options) => {
            start_logging(&options.log, false, invocation)?;
            let takeover = options.takeover.clone();
            serve(&takeover, None, agent::run(*options, invocation))
        }
        Name::Get(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            runtime::run_here(get::run(options))
        }
        Name::Keys(options) => keys::run(&options),
        Name::Doctor(options) => {
            logging::start(&options.log, logging::COMMAND)?;
            doctor::run(&options)
        }
        Name::Run(options) => run_program::run(&options),
        Name::Sessions(options) => runtime::run_here(sessions::run(&options)),
        Name::Fastopen(options) => fastopen::run(&options),
        Name::CarefulResume(options) => careful::run(&options),
        Name::DnsRecord(options) => dns_record::run(&options),
        Name::Demo(words) => Err(companion::become_lab("demo", &words.arguments)),
        Name::Lab(words) => Err(companion::become_lab("lab", &words.arguments)),
        Name::Pageload(words) => Err(companion::become_lab("pageload", &words.arguments)),
        Name::Completions(options) => shell::completions(&options, invocation.command()),
        Name::Man(options) => shell::man(&options, invocation.command()),
    };
    Ok(done?)
}

/// Runs a daemon, or its master.
fn serve(
    options: &TakeoverOptions,
    workers: Option<NonZeroUsize>,
    daemon: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    if options.master_worker {
        if !master::is_worker() {
            return runtime::run_here(master::run());
        }
        master::bind()?;
    }
    runtime::run(workers, daemon)
}

/// Starts the log of a daemon, and says there which variables nobody reads.
fn start_logging(
    options: &LogOptions,
    access: bool,
    invocation: &Invocation,
) -> Result<(), Failure> {
    logging::start_with(options, logging::DAEMON, access)?;
    for variable in invocation.unknown_variables() {
        tracing::warn!(variable, "no option has this environment variable");
    }
    Ok(())
}
