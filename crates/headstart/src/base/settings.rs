//! Sources of options: flags, then the environment, then a TOML file, then defaults.
//!
//! The clap definition of an option is its only definition. Its environment variable is
//! `HEADSTART_<COMMAND>_<OPTION>`, its key in the file is its long name in the command's table:
//! `--idle-timeout` of `edge` is `HEADSTART_EDGE_IDLE_TIMEOUT` and `idle-timeout` in `[edge]`.
//! Options from the file that neither the user nor the environment gave are inserted into the
//! command line, before the user's own arguments, so one parser reads all of them.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use toml::{Table, Value};

use crate::base::failure::Failure;
use crate::base::files;

/// Help text that explains where a daemon's options come from.
pub const SOURCES: &str = "\
Every option may also come from the environment or from the file given with --config.
A flag overrides the environment, the environment overrides the file, and the file
overrides the default.";

/// Option that names the file; commands without it read neither a file nor the environment.
const FILE_OPTION: &str = "config";

/// Similarity above which a key is taken for a misspelt option; clap uses the same for flags.
const SIMILARITY_MIN: f64 = 0.7;

/// Variables that begin as the agent's, and are those of `headstart run` and its library.
const FOREIGN_VARIABLES: [&str; 1] = ["HEADSTART_AGENT_UID"];

/// One run of the program: the command line as typed, which can be parsed repeatedly.
///
/// To reload, a daemon calls [`load`](Self::load) again, which rereads the file.
#[derive(Debug, Clone)]
pub struct Invocation {
    command: Command,
    argv: Vec<OsString>,
}

impl Invocation {
    /// Creates an invocation of `command` with `argv`, whose first element is the program's name.
    pub fn new(command: Command, argv: impl IntoIterator<Item = OsString>) -> Self {
        let mut command = command.mut_subcommands(with_environment);
        command.build();
        let argv = argv.into_iter().collect();
        Self { command, argv }
    }

    /// Returns the command with its environment variables, for help and manual pages.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Returns the whole program's options, from all sources.
    ///
    /// # Errors
    /// [`Stop::Answer`] if help or the version was requested, [`Stop::Failure`] if the command
    /// line, the environment or the file does not parse.
    pub fn program<P: FromArgMatches>(&self) -> Result<P, Stop> {
        P::from_arg_matches(&self.matches()?).map_err(mismatch)
    }

    /// Returns the options of the subcommand, from the current state of all sources.
    ///
    /// # Errors
    /// See [`program`](Self::program).
    pub fn load<T: FromArgMatches>(&self) -> Result<T, Stop> {
        let matches = self.matches()?;
        let (_, options) = matches.subcommand().ok_or_else(no_command)?;
        T::from_arg_matches(options).map_err(mismatch)
    }

    /// Returns the values of the subcommand's option `--name` as they are written now.
    ///
    /// # Errors
    /// See [`program`](Self::program).
    pub fn values(&self, name: &str) -> Result<Vec<OsString>, Stop> {
        let matches = self.matches()?;
        let (_, options) = matches.subcommand().ok_or_else(no_command)?;
        let values = options.try_get_raw(&name.replace('-', "_")).ok().flatten();
        Ok(values.into_iter().flatten().map(OsStr::to_owned).collect())
    }

    /// Returns variables of the environment that look as if they were the subcommand's, and are no
    /// option's.
    pub fn unknown_variables(&self) -> Vec<String> {
        let name = self.argv.get(1).and_then(|name| name.to_str()).unwrap_or_default();
        let Some(command) = self.command.find_subcommand(name) else { return Vec::new() };
        let prefix = format!("HEADSTART_{}_", name.to_ascii_uppercase());
        let is_known = |variable: &str| {
            FOREIGN_VARIABLES.contains(&variable)
                || command.get_arguments().any(|option| {
                    option.get_env().is_some_and(|known| known == OsStr::new(variable))
                })
        };
        let mut unknown: Vec<_> = std::env::vars_os()
            .filter_map(|(variable, _)| variable.into_string().ok())
            .filter(|variable| variable.starts_with(&prefix) && !is_known(variable))
            .collect();
        unknown.sort();
        unknown
    }

    fn matches(&self) -> Result<ArgMatches, Stop> {
        let typed = self.parse(&self.argv)?;
        let Some((name, options)) = typed.subcommand() else {
            return Ok(typed);
        };
        let Some(path) = file_of(options) else {
            return Ok(typed);
        };
        let from_file = self.read_file(name, &path)?;
        let missing = from_file.into_iter().filter(|(id, _)| !is_given(options, id));
        self.parse(&self.insert_arguments(missing.map(|(_, argument)| argument)))
    }

    fn parse(&self, argv: &[OsString]) -> Result<ArgMatches, Stop> {
        let parsed = self.command.clone().try_get_matches_from(argv);
        parsed.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Stop::Answer(error),
            _ => Stop::Failure(usage_failure(&error).hint(self.advice(&error))),
        })
    }

    /// Returns advice about `error`: clap's suggestion, else the source of the value, else help.
    fn advice(&self, error: &clap::Error) -> String {
        let command = self.argv.get(1).and_then(|name| self.command.find_subcommand(name));
        let name = command.map(|command| format!(" {}", command.get_name()));
        suggestion_of(error).or_else(|| variable_of(error, command?, &self.argv)).unwrap_or_else(
            || {
                let program = self.command.get_name();
                format!("`{program}{} --help` explains the options", name.unwrap_or_default())
            },
        )
    }

    /// Reads the file as arguments, each with its option's id, and checks that they parse alone.
    fn read_file(&self, name: &str, path: &Path) -> Result<Vec<(String, OsString)>, Failure> {
        let file = File::read(path)?;
        let command = self.command.find_subcommand(name).ok_or_else(no_command)?;
        let arguments = file.arguments(command, &self.command)?;
        let alone = self.argv.iter().take(2).cloned();
        let alone = alone.chain(arguments.iter().map(|(_, argument)| argument.clone()));
        let parsed = self.command.clone().try_get_matches_from(alone);
        parsed.map_err(|error| file.failure(usage_failure(&error).message()))?;
        Ok(arguments)
    }

    /// Returns the command line with `arguments` inserted after the subcommand.
    fn insert_arguments(&self, arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
        let (head, tail) = self.argv.split_at(self.argv.len().min(2));
        let head = head.iter().cloned();
        head.chain(arguments).chain(tail.iter().cloned()).collect()
    }
}

/// Reason why a command is not run.
#[derive(Debug)]
pub enum Stop {
    /// The user asked for help or the version, which clap has rendered.
    Answer(clap::Error),
    /// An error prevents the command from running.
    Failure(Failure),
}

impl Stop {
    /// Prints the answer or the failure, and returns its exit code.
    pub fn end(self) -> ExitCode {
        match self {
            Self::Answer(answer) => {
                // If this output fails, there is nowhere left to report it.
                let _ = answer.print();
                u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            Self::Failure(failure) => {
                failure.report();
                failure.exit_code()
            }
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// A parsed configuration file.
struct File {
    path: PathBuf,
    tables: Table,
}

impl File {
    fn read(path: &Path) -> Result<Self, Failure> {
        let mut file = files::open_configuration(path).map_err(|fault| fault.failure(path))?;
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        let tables: Table = text.parse().map_err(|error: toml::de::Error| {
            // Reports where and why, but not the line itself, which may contain a password.
            let shown = error.to_string();
            let place = shown.lines().next().unwrap_or_default();
            Failure::usage(format!("{} is not TOML: {place}: {}", path.display(), error.message()))
        })?;
        if tables.values().any(holds_password) {
            files::check_unread(&file).map_err(|fault| fault.failure(path))?;
        }
        let path = path.to_owned();
        Ok(Self { path, tables })
    }

    /// Converts the table of `command` to arguments, each with its option's id.
    fn arguments(
        &self,
        command: &Command,
        program: &Command,
    ) -> Result<Vec<(String, OsString)>, Failure> {
        self.check_tables(program)?;
        let Some(table) = self.tables.get(command.get_name()) else {
            return Ok(Vec::new());
        };
        let table = table
            .as_table()
            .ok_or_else(|| self.failure(&format!("'{}' is not a table", command.get_name())))?;
        let mut arguments = Vec::new();
        for (key, value) in table {
            let option = self.option(command, key)?;
            let values = self.values(option, key, value)?;
            arguments.extend(
                values
                    .into_iter()
                    .map(|value| (option.get_id().to_string(), format!("--{key}={value}").into())),
            );
        }
        Ok(arguments)
    }

    fn check_tables(&self, program: &Command) -> Result<(), Failure> {
        let known: Vec<_> = program
            .get_subcommands()
            .filter(|command| reads_file(command))
            .map(Command::get_name)
            .collect();
        match self.tables.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let tables: Vec<_> = known.iter().map(|name| format!("[{name}]")).collect();
                Err(self.failure(&format!("unknown table '{key}'")).hint(format!(
                    "put options in the table of their command: {}",
                    tables.join(", ")
                )))
            }
        }
    }

    fn option<'c>(&self, command: &'c Command, key: &str) -> Result<&'c Arg, Failure> {
        options(command).find(|option| option.get_long() == Some(key)).ok_or_else(|| {
            self.failure(&format!("unknown key '{key}' in [{}]", command.get_name()))
                .hint(suggestion(command, key))
        })
    }

    fn values(&self, option: &Arg, key: &str, value: &Value) -> Result<Vec<String>, Failure> {
        let many = matches!(option.get_action(), ArgAction::Append);
        let values = match value {
            Value::Array(items) if many => items.iter().map(scalar).collect(),
            Value::Array(_) => {
                return Err(self.failure(&format!("'{key}' takes one value, not a list")));
            }
            one => scalar(one).map(|value| vec![value]),
        };
        values.ok_or_else(|| {
            let kinds = if many {
                "strings, numbers or a list of them"
            } else {
                "a string, number or boolean"
            };
            self.failure(&format!("'{key}' takes {kinds}"))
        })
    }

    fn failure(&self, message: &str) -> Failure {
        Failure::usage(format!("{}: {message}", self.path.display()))
    }
}

/// Returns true if a value is or contains a URL with a password.
fn holds_password(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let rest = text.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
            rest.is_some_and(|(login, _)| login.contains(':'))
        }
        Value::Array(items) => items.iter().any(holds_password),
        Value::Table(table) => table.values().any(holds_password),
        _ => false,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Returns the options of `command` that a file can set.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| {
        option.get_long().is_some_and(|long| long != FILE_OPTION)
            && matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
    })
}

fn suggestion(command: &Command, key: &str) -> String {
    let names = options(command).filter_map(Arg::get_long);
    let nearest = names
        .map(|name| (strsim::jaro_winkler(name, key), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((similarity, name)) if similarity > SIMILARITY_MIN => {
            format!("did you mean '{name}'?")
        }
        _ => format!(
            "keys are the options of `headstart {} --help` without the dashes; a newer headstart \
             than this one ({}) may have more",
            command.get_name(),
            env!("CARGO_PKG_VERSION")
        ),
    }
}

fn reads_file(command: &Command) -> bool {
    command.get_arguments().any(|option| option.get_id() == FILE_OPTION)
}

fn file_of(options: &ArgMatches) -> Option<PathBuf> {
    options.try_get_one::<PathBuf>(FILE_OPTION).ok()?.cloned()
}

fn is_given(options: &ArgMatches, id: &str) -> bool {
    matches!(options.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// Gives each option of `command` an environment variable, unless it has one already.
fn with_environment(command: Command) -> Command {
    if !reads_file(&command) {
        return command;
    }
    let name = command.get_name().to_owned();
    command.mut_args(|option| match option.get_long() {
        Some(long) if option.get_env().is_none() && option.get_action().takes_values() => {
            let variable = format!("headstart_{name}_{long}");
            let variable = variable.replace('-', "_").to_ascii_uppercase();
            option.env(variable).hide_env(true)
        }
        _ => option,
    })
}

/// Returns a failure with clap's first paragraph: the mistake and the possible values.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    Failure::usage(first.strip_prefix("error: ").unwrap_or(first).trim_end())
}

fn suggestion_of(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    let tip = text.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
    tip.map(str::to_owned)
}

/// Returns advice if the value that `error` rejects came from an environment variable.
fn variable_of(error: &clap::Error, command: &Command, argv: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(about)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let option = command.get_arguments().find(|option| option.to_string() == *about)?;
    let flag = format!("--{}", option.get_long()?);
    let typed = argv.iter().any(|argument| argument.to_string_lossy().starts_with(&flag));
    let variable = option.get_env().filter(|name| !typed && std::env::var_os(name).is_some())?;
    Some(format!("the value comes from the environment variable {}", variable.display()))
}

/// Reports options that parsed but do not fit their type: a bug in the clap definition.
fn mismatch(error: clap::Error) -> Stop {
    Stop::Failure(usage_failure(&error))
}

fn no_command() -> Failure {
    Failure::usage("no command given").hint("`headstart --help` lists the commands")
}
