//! Options of `headstart agent`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::agent::inside::Inside;
use crate::agent::managed::options::ManagedOptions;
use crate::agent::port_context::PortContext;
use crate::agent::upstream::UpstreamOptions;
use crate::base::edge_address;
use crate::base::edge_address::{EdgeAddress, EdgeAddresses};
use crate::base::failure::Failure;
use crate::base::logging::LogOptions;
use crate::base::names::NameMap;
use crate::base::own_address::leave_out_ipv6;
use crate::base::settings::SOURCES;
use crate::base::value::{SecondSyn, Spares, listen_address, opening_policy};
use crate::check::CheckOptions;
use crate::metrics::options::MetricsOptions;
use crate::qlog::options::QlogOptions;
use crate::takeover::options::TakeoverOptions;
use headstart_net::OpeningPolicy;

const EXAMPLES: &str = r#"Examples:
  Connections to www.example.com go to the edge at 192.0.2.1, others as ever:
      headstart agent --edge www.example.com=192.0.2.1:443
      curl --proxy socks5h://localhost:1080 https://www.example.com/

  The same to an edge that hands out Fast Open cookies:
      headstart agent --edge www.example.com=192.0.2.1:443,fop=1

  Browsers and most programs: set the SOCKS5 or HTTP proxy to localhost:1080, or
      export https_proxy=http://localhost:1080

  The same from a file, with --config agent.toml:
      [agent]
      edge = ["www.example.com=192.0.2.1:443"]
      idle-timeout = "30m"

  A browser's profiles, each with a context of its own (docs/browsers.md):
      headstart agent --listen-for work=127.0.0.1:1081 --listen-for private=127.0.0.1:1082
      chromium --user-data-dir=work --proxy-server=socks5://127.0.0.1:1081

  Without changing programs, redirect their connections (here those of group web):
      nft add rule ip nat output meta skgid web tcp dport 443 redirect to :1080

Without --edge, only names that advertise TurboTLS in DNS (see headstart dns-record) get any
datagram; all others are reached by TCP, as without headstart.

Where a name advertises fop=1, or --edge says so, and the programs of `headstart fastopen attach
client` are attached, a client that resumes a TLS 1.3 session opens with its ClientHello in the SYN:
the cookie comes out of its own session ticket. What the agent keeps is kept by user and, within a
user, by SOCKS5 user name.

  Programs that let the agent speak TLS for them share sessions (see docs/managed.md):
      headstart agent --socket $XDG_RUNTIME_DIR/headstart.sock

  Through Tor, each user and each SOCKS5 user name on circuits of its own:
      headstart agent --upstream socks5://localhost:9050 --upstream-isolation context
      curl --proxy socks5h://work:x@localhost:1080 https://www.example.com/

Signals: SIGHUP reads --config again and keeps connections, and names changes that need a restart;
SIGTERM and SIGINT stop accepting and wait up to --shutdown-timeout for connections to end, a
second one ends them at once."#;

/// Stand beside applications and open their TLS connections in one round trip
///
/// One port takes SOCKS5, HTTP CONNECT and redirected connections, on which applications do TLS
/// themselves, end to end: the agent sees no plaintext and needs no certificate of its own. Only
/// programs that ask for it, on --socket, have the agent do TLS for them.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = format!("{SOURCES}\nIn the environment --idle-timeout is \
    HEADSTART_AGENT_IDLE_TIMEOUT; lists are separated by commas.\nIn the file it is the key \
    idle-timeout in the table [agent].\n\n{EXAMPLES}"))]
#[command(after_help = "See --help for examples, or `headstart man` for the manual page.")]
pub struct AgentOptions {
    /// Address to listen on; may be given several times
    #[arg(
        long, value_name = "ADDR:PORT", value_delimiter = ',', value_parser = listen_address,
        default_values = ["127.0.0.1:1080", "[::1]:1080"]
    )]
    pub listen: Vec<SocketAddr>,

    /// A further address to listen on, for one context; may be given several times
    ///
    /// For programs that cannot give a SOCKS5 user name, such as browsers: a port for each profile
    /// (docs/browsers.md). What is kept of those who connect there is kept apart from all else,
    /// within their user; a SOCKS5 user name goes before it.
    #[arg(long, value_name = "CONTEXT=ADDR:PORT", value_delimiter = ',')]
    pub listen_for: Vec<PortContext>,

    /// Allow --listen on addresses that other machines can reach
    ///
    /// Any host that reaches the port can open connections from this machine. Let a firewall
    /// choose.
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", default_value = "false",
          action = ArgAction::Set)]
    pub allow_remote: bool,

    /// Edge for connections to NAME or *.NAME; may be given several times
    ///
    /// It goes before what DNS says. The edge speaks TurboTLS on TCP and UDP of that port. What
    /// else it offers stands behind, as in DNS: slots=6, the answers that its first flight takes;
    /// udp=8853, its UDP port is another; fop=1, it hands out Fast Open cookies; ed=1, early data
    /// may go over UDP.
    #[arg(long, value_name = "NAME=HOST:PORT[,fop=1...]")]
    pub edge: Vec<EdgeAddresses>,

    /// DNS server to ask [default: those of the system]; may be given several times
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    pub resolver: Vec<SocketAddr>,

    /// Let DNS lead names to addresses inside: NAME, *.NAME, a network, or all
    ///
    /// Anybody can have a name of theirs lead to this machine or its private network, and so have
    /// a browser read what is there. So names reach loopback, link-local and private addresses
    /// only if given here, in /etc/hosts or by --edge. Addresses that programs ask for themselves
    /// are not affected.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub allow_inside: Vec<Inside>,

    /// Openings that connections may use
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = opening_policy())]
    pub opening: OpeningPolicy,

    /// Open a second connection beside a SYN that is not answered in time
    ///
    /// The first to be answered goes on, and the other is closed before a byte. Without it, a lost
    /// SYN or its answer costs a second.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub second_syn: SecondSyn,

    /// Hold idle connections to hosts that are likely to be needed next: auto, off, or at most N
    ///
    /// A connection without TurboTLS or Fast Open then sends its ClientHello at once, a round trip
    /// sooner. The agent learns by context when connections follow each other, and no spare goes
    /// from one context to another. Servers and the network see connections on which nothing may
    /// ever be sent, and so when a visit is expected (docs/spares.md). auto is 64.
    #[arg(long, value_name = "auto|off|N", default_value = "off")]
    pub spares: Spares,

    /// Give applications no server bytes before the edge has accepted the TCP connection
    ///
    /// Saves nothing and risks nothing: for networks where connections break (see KNOWN-LIMITS).
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", default_value = "false",
          action = ArgAction::Set)]
    pub hold: bool,

    /// Answer SOCKS and CONNECT only when the connection exists
    ///
    /// By default clients of TLS ports are answered at once and a failure shows as a closed
    /// connection. With this, the proxy protocol reports it, and the saving is lost.
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", default_value = "false",
          action = ArgAction::Set)]
    pub late_answer: bool,

    /// Ports on which the client speaks TLS first
    ///
    /// On other ports the server may speak first: connections pass at once and unchanged.
    #[arg(long, value_name = "PORT,...", value_delimiter = ',',
          default_values = ["443", "465", "636", "853", "989", "990", "992", "993", "995",
                            "5061", "8443"])]
    pub tls_ports: Vec<u16>,

    /// TOML file with options, in its table named agent; paths in it begin where the agent starts
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Connections at one time, and as many for managed TLS; further ones are refused
    ///
    /// A user, or another machine, has three quarters of what others leave free, so that nobody
    /// takes them all. A client that has not asked for anything yet does not count.
    #[arg(long, value_name = "N", default_value = "4096", help_heading = "Limits")]
    pub max_connections: NonZeroUsize,

    /// Give up connecting after this long (500ms, 10s)
    #[arg(long, value_name = "TIME", default_value = "10s",
          value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub connect_timeout: Duration,

    /// Close a connection on which nothing was sent either way for this long (30s, 5m, 1h)
    #[arg(long, value_name = "TIME", default_value = "1h",
          value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub idle_timeout: Duration,

    /// Close a connection after this long whatever happens [default: never]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
          help_heading = "Limits")]
    pub total_timeout: Option<Duration>,

    /// Time that a stop waits for connections to end
    #[arg(long, value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration, help_heading = "Limits")]
    pub shutdown_timeout: Duration,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub check: CheckOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub takeover: TakeoverOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub upstream: UpstreamOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub metrics: MetricsOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub qlog: QlogOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub managed: ManagedOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}

impl AgentOptions {
    /// The edges by server name.
    ///
    /// # Errors
    /// Two edges for the same name.
    pub fn edges(&self) -> Result<NameMap<EdgeAddress>, Failure> {
        edge_address::by_name(self.edge.iter().flat_map(|edges| &edges.0))
    }

    /// The addresses to listen on, with the contexts of those that are for one.
    ///
    /// # Errors
    /// An address that is not loopback, without `--allow-remote`.
    pub fn listen(&self) -> Result<Vec<(SocketAddr, Option<&str>)>, Failure> {
        let mut common = self.listen.clone();
        leave_out_ipv6(&mut common);
        let common = common.into_iter().map(|at| (at, None));
        let apart = self.listen_for.iter().map(|one| (one.address, Some(one.context.as_str())));
        let all: Vec<_> = common.chain(apart).collect();
        let open = all.iter().find(|(at, _)| !at.ip().to_canonical().is_loopback());
        match open {
            Some((at, _)) if !self.allow_remote => Err(Failure::usage(format!(
                "{at} is reachable by other machines, which could use this one as their proxy"
            ))
            .hint("listen on 127.0.0.1 or [::1], or add --allow-remote and let a firewall choose")),
            _ => Ok(all),
        }
    }

    /// Returns true if connections to `port` begin with a ClientHello.
    pub fn is_tls_port(&self, port: u16) -> bool {
        self.tls_ports.contains(&port)
    }
}
