//! `headstart lab peer`: the client and server programs that experiments start on their nodes.

use std::io::{stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::{Args, Subcommand};
use headstart_openers::{
    Arm, ClientOptions, NAME, OpeningPolicy, PageClientOptions, PeerError, ServerOptions, Suite,
    run_client, run_page_client, run_server,
};

use crate::lab::soak;
use crate::network::failed;
use headstart::base::failure::Failure;
use headstart::metrics::Outcome;
use headstart::qlog::options::QlogOptions;
use headstart::qlog::{Directory, Trace, Vantage};

/// Upper bound of `--timeout`, in seconds; experiments allow 600 s at most.
const TIMEOUT_MAX_S: f64 = 3600.0;

/// Connections that wait for their qlog files; further ones have none.
const REPORTS: usize = 256;

/// One end of an experiment's connections, driven by lines on standard input
#[derive(Debug, Clone, Args)]
pub(crate) struct PeerOptions {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Clone, Subcommand)]
enum Side {
    /// Serves until standard input ends
    Server(ServerArgs),
    /// Takes the orders open, load, rate and forget
    Client(ClientArgs),
    /// Takes the orders load and forget
    Page(PageArgs),
    /// Serves a soak by plain HTTP, until it is killed
    Origin(OriginArgs),
}

#[derive(Debug, Clone, Args)]
struct Common {
    /// Arm that opens the connections
    #[arg(long)]
    arm: Arm,

    /// Key exchange and certificates
    #[arg(long)]
    suite: Suite,

    /// Folder of the servers' certificates and keys; the first server creates missing files
    #[arg(long, value_name = "DIR")]
    identity: PathBuf,

    /// The server's name
    #[arg(long, default_value = NAME)]
    name: String,

    /// Number of worker threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

#[derive(Debug, Clone, Args)]
struct ServerArgs {
    #[command(flatten)]
    common: Common,

    /// Address to listen on
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// Further addresses, for arms that support several
    #[arg(long, value_name = "IP:PORT")]
    also: Vec<SocketAddr>,

    /// Pad the certificate so that the first flight has this many bytes
    #[arg(long, value_name = "BYTES")]
    flight: Option<usize>,

    /// Folder with the pinned maps of `headstart fastopen attach server`, for private cookies
    #[arg(long, value_name = "DIR")]
    fast_open_maps: Option<PathBuf>,

    /// Lifetime of private cookies
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    cookie_life: Option<Duration>,

    /// Threads that read the datagrams of TurboTLS
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    udp_workers: Option<u16>,
}

#[derive(Debug, Clone, Args)]
struct ClientArgs {
    #[command(flatten)]
    common: Common,

    /// Address of the server
    #[arg(long, value_name = "IP:PORT")]
    to: SocketAddr,

    /// Further addresses of the server, which the order open names by number
    #[arg(long, value_name = "IP:PORT")]
    also: Vec<SocketAddr>,

    /// SOCKS5 proxy to ask for the server's name at the port of --to
    #[arg(long, value_name = "IP:PORT")]
    proxy: Option<SocketAddr>,

    /// The server's ECHConfigList, for arms with Encrypted ClientHello
    #[arg(long, value_name = "BASE64")]
    ech: Option<String>,

    /// Openings that TurboTLS may use: auto, turbo, plain
    #[arg(long, default_value_t)]
    policy: OpeningPolicy,

    /// Empty slots in a flight of TurboTLS
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    slots: Option<u8>,

    /// Milliseconds that TurboTLS waits for the first datagram once TCP is connected [default:
    /// learned from earlier connections]
    #[arg(long, value_name = "MS")]
    grace: Option<u32>,

    /// Timeout of a connection, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    #[command(flatten)]
    qlog: QlogOptions,

    /// Seed for the arrival times of rate
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Args)]
struct PageArgs {
    /// Arm that opens the connections
    #[arg(long)]
    arm: Arm,

    /// Key exchange and certificates
    #[arg(long)]
    suite: Suite,

    /// Folder of the servers' certificates and keys
    #[arg(long, value_name = "DIR")]
    identity: PathBuf,

    /// Page to load, as JSON
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,

    /// Timeout of a load, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    /// Seed for the addresses that connections go to
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Args)]
struct OriginArgs {
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
}

impl PageArgs {
    fn options(self) -> Result<PageClientOptions, PeerError> {
        let Self { arm, suite, identity, plan, timeout, seed } = self;
        let read = std::fs::read(&plan).and_then(|text| Ok(serde_json::from_slice(&text)?));
        let plan = read
            .map_err(|error| PeerError::new(format!("cannot read {}: {error}", plan.display())))?;
        Ok(PageClientOptions { arm, suite, plan, identity, timeout, seed })
    }
}

/// Runs one end until standard input ends.
pub(crate) fn run(options: &PeerOptions) -> Result<ExitCode, Failure> {
    let result = match options.side.clone() {
        Side::Server(server) => run_server(server.into(), stdin(), stdout()),
        Side::Client(client) => return run_logged(client),
        Side::Origin(origin) => {
            return soak::origin::serve(origin.listen).map(|()| ExitCode::SUCCESS);
        }
        Side::Page(page) => {
            page.options().and_then(|options| run_page_client(options, stdin(), stdout()))
        }
    };
    result.map(|()| ExitCode::SUCCESS).map_err(|error| failed(&error))
}

/// Runs a client, and writes the qlog files of its connections if that is wanted.
fn run_logged(client: ClientArgs) -> Result<ExitCode, Failure> {
    let path = client.qlog.qlog.clone();
    let directory = path.map(|path| Directory::open(&path, Vantage::Lab)).transpose()?;
    let mut options = ClientOptions::from(client);
    let writer = directory.map(|mut directory| {
        let (sender, reports) = sync_channel(REPORTS);
        options.reports = Some(sender);
        thread::spawn(move || {
            for (report, ok) in reports {
                directory.write(&Trace::own(&report, Outcome::of_own(&report, ok).label()));
            }
        })
    });
    let result = run_client(options, stdin(), stdout());
    let _ = writer.map(JoinHandle::join);
    result.map(|()| ExitCode::SUCCESS).map_err(|error| failed(&error))
}

impl From<ServerArgs> for ServerOptions {
    fn from(args: ServerArgs) -> Self {
        let Common { arm, suite, identity, name, threads } = args.common;
        let defaults = Self::new(arm, suite, args.listen, identity);
        Self {
            name,
            more: args.also,
            flight: args.flight,
            threads: threads.map_or(defaults.threads, usize::from),
            udp_workers: args.udp_workers.map_or(defaults.udp_workers, usize::from),
            fast_open_maps: args.fast_open_maps,
            cookie_life: args.cookie_life,
            ..defaults
        }
    }
}

impl From<ClientArgs> for ClientOptions {
    fn from(args: ClientArgs) -> Self {
        let Common { arm, suite, identity, name, threads } = args.common;
        let defaults = Self::new(arm, suite, args.to, identity);
        Self {
            name,
            more: args.also,
            proxy: args.proxy,
            ech: args.ech,
            policy: args.policy,
            slots: args.slots,
            grace: args.grace.map(|ms| Duration::from_millis(ms.into())),
            timeout: args.timeout,
            threads: threads.map_or(defaults.threads, usize::from),
            seed: args.seed,
            ..defaults
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= TIMEOUT_MAX_S);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("not a number of seconds above 0 and at most {TIMEOUT_MAX_S}"))
}
