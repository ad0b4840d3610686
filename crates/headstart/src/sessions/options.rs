//! Options of `headstart sessions`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  Which sessions the agent keeps for me:
      headstart sessions list

  Forget one server, or all of a context with its cookies and its policy:
      headstart sessions forget www.example.com
      headstart sessions forget --context work --end

  No session of a context is kept or used any more; then again as ever:
      headstart sessions policy --context work --sharing off
      headstart sessions policy --context work --default

The agent has to run with --socket. Exit codes: 0 done; 1 the agent refused; 2 wrong usage, or no
agent there.";

/// See, forget and rule the sessions that the agent keeps for programs
///
/// Of your own user, unless you are root. No secret is ever shown.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
#[command(disable_help_subcommand = true)]
pub struct SessionsOptions {
    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub agent: AgentSocket,

    /// Action
    #[command(subcommand)]
    pub command: SessionsCommand,
}

/// Actions of `headstart sessions`.
#[derive(Debug, Clone, Subcommand)]
#[allow(missing_docs)] // a comment here would replace the command's own help text
pub enum SessionsCommand {
    List(SessionsListOptions),
    Forget(SessionsForgetOptions),
    Policy(SessionsPolicyOptions),
}

/// Where the agent is, and how to print what it says.
#[derive(Debug, Clone, Args)]
pub struct AgentSocket {
    /// Socket of the agent [default: headstart.sock in XDG_RUNTIME_DIR]
    #[arg(
        long,
        env = "HEADSTART_SOCKET",
        hide_env_values = true,
        value_name = "PATH",
        global = true
    )]
    pub socket: Option<PathBuf>,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// Show what is kept
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SessionsListOptions {}

/// Forget sessions; connections that are open bring none back
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SessionsForgetOptions {
    /// Host to forget; none: all, and cookies with them
    #[arg(value_name = "HOST")]
    pub server: Option<String>,

    /// In this context only; empty: that without a name [default: in all of the user]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// The context is over: forget its policy, too
    #[arg(long, conflicts_with = "server")]
    pub end: bool,

    /// Another user's, by number, or those of all users: `all`; for root
    #[arg(long, value_name = "UID", conflicts_with = "end")]
    pub user: Option<String>,
}

/// Show policies, or set that of a context
///
/// Without anything to set: shows that of --context, or all.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct SessionsPolicyOptions {
    /// Context to rule; empty, or none where something is set: that without a name
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Sharing of what a connection has brought
    #[arg(long, value_name = "WHO")]
    pub sharing: Option<SharingName>,

    /// For how long after a full handshake (10m, 8h); the server can follow for so long
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lifetime: Option<Duration>,

    /// Early data, where a program asks for it
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    pub early_data: Option<bool>,

    /// Take the context's own policy away
    #[arg(long, conflicts_with_all = ["sharing", "lifetime", "early_data"])]
    pub default: bool,
}

/// Sharing of what a connection has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SharingName {
    /// Every later connection of the context to the same name
    Share,
    /// Also those to other names of the same certificate
    Certificate,
    /// No other connection
    Isolate,
    /// Nobody: no session is kept or used
    Off,
}

impl SharingName {
    /// Returns the name on the socket.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Certificate => "certificate",
            Self::Isolate => "isolate",
            Self::Off => "off",
        }
    }
}
