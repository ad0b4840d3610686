//! Options of `headstart run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  Connections of curl go through the agent, and its TLS sessions outlive it:
      headstart agent --socket $XDG_RUNTIME_DIR/headstart.sock &
      headstart run -- curl https://www.example.com/

  Different programs share sessions; each of them can be the server to the others:
      headstart run --context work -- python3 fetch.py
      headstart run --context work -- curl https://www.example.com/

The agent has to listen at --proxy, as root, this user or --agent-uid: another user there could
read and change what programs send. Hosts in NO_PROXY are reached directly. docs/applications.md
says which programs get what.

Exit codes: those of COMMAND; 125 no trusted user listens at --proxy; 126 COMMAND cannot be run;
127 it is not there; 2 wrong usage.";

/// Run an unmodified program through the agent
///
/// Sets the proxy variables and, for programs that are linked to OpenSSL 3 dynamically, loads a
/// library that shares TLS sessions through the agent. A program for which neither works runs as
/// ever.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples.")]
pub struct RunOptions {
    /// Share sessions with all programs that name this context [default: with the same executable]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Socket of the agent [default: headstart.sock in XDG_RUNTIME_DIR]
    #[arg(long, env = "HEADSTART_SOCKET", hide_env_values = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Proxy port of the agent, as of its --listen; empty: no proxy
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:1080")]
    pub proxy: String,

    /// User whose agent is trusted, by number, beside this user and root
    #[arg(long, env = "HEADSTART_AGENT_UID", hide_env_values = true, value_name = "UID")]
    pub agent_uid: Option<u32>,

    /// The library to load; empty: none [default: libheadstart_preload.so beside headstart or in
    /// ../lib/headstart]
    #[arg(long, env = "HEADSTART_PRELOAD", hide_env_values = true, value_name = "FILE")]
    pub preload: Option<OsString>,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}
