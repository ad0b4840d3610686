//! Options about logs, the same for every command.

use clap::{Args, ValueEnum};

/// Contents and form of the log. Logs go to standard error.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogOptions {
    /// Levels to log: error, warn, info, debug, trace or MODULE=LEVEL,... [default: info for edge
    /// and agent, else warn]
    #[arg(long, env = "HEADSTART_LOG", hide_env_values = true, value_name = "FILTER")]
    pub log: Option<String>,

    /// Form of a log line
    #[arg(
        long,
        env = "HEADSTART_LOG_FORMAT",
        hide_env_values = true,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people; coloured on a terminal
    #[default]
    Text,
    /// One JSON object a line
    Json,
}
