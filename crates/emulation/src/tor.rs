//! A private Tor network on the nodes of a lab: three authorities, two other relays, an exit and a
//! client.
//!
//! It is a whole network of the `tor` that is installed, with its own directory, and knows no
//! other: the nodes have no way out. Its clocks are short (a consensus every ten seconds), all else
//! is as it comes. Circuits have three hops, of which the last is the exit and the others are
//! relays or authorities.
//!
//! ```no_run
//! use std::time::Duration;
//! use headstart_emulation::{Host, Lab, TorNetwork};
//!
//! let mut hosts = vec![Host::new("client"), Host::new("origin")];
//! hosts.extend(TorNetwork::hosts(Duration::from_millis(20)));
//! let lab = Lab::build(hosts)?;
//! let work = std::env::temp_dir().join("private-tor");
//! let origin = ("www.test".to_owned(), lab.node("origin").unwrap().ipv4().unwrap());
//! let tor = TorNetwork::start(&lab, "client", &[origin], &work)?;
//! let proxy = format!("socks5h://{}", TorNetwork::SOCKS);
//! let mut curl = lab.node("client").unwrap().command("curl");
//! curl.args(["--proxy", &proxy, "http://www.test/"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod keys;
mod names;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use control::{TorCircuit, TorStream};

use crate::error::LabError;
use crate::error::no_node;
use crate::{Host, Lab, Node};
use control::Control;
use keys::Authority;
use names::Names;

/// Enough for a majority of two when one is late.
const AUTHORITIES: usize = 3;

/// Besides authorities, which are relays as well.
const RELAYS: usize = 2;

/// Name that the exit looks up to find out whether it can look up anything.
const EXIT_NAME: &str = "exit.test";

/// Between Tor processes. Each has an address of its own, so all have the same ports.
const OR_PORT: u16 = 5001;
const DIRECTORY_PORT: u16 = 7001;

/// Address of the client's control port, in its own namespace.
const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9051);

/// Seconds from one consensus to the next, and how long before it authorities vote and sign: the
/// least that Tor allows, and what three processes on a busy machine keep.
const INTERVAL: u32 = 10;
const DELAY: u32 = 2;

/// Interval at which the progress is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Lines of a log that an error shows.
const TAIL: usize = 6;

/// For all of them. The flags are those that relays of a network that is older than a minute would
/// get.
const COMMON: &str = "\
TestingTorNetwork 1
RunAsDaemon 0
ShutdownWaitLength 0
SafeLogging 0
AssumeReachable 1
PathsNeededToBuildCircuits 0.6
ClientUseIPv6 0
";

/// Circuits live as long as the network, and streams of one login share one: so that what is
/// compared went the same way. Conflux would lead a stream over two.
const CLIENT: &str = "\
MaxCircuitDirtiness 6 hours
NewCircuitPeriod 1 hour
CircuitsAvailableTimeout 6 hours
LearnCircuitBuildTimeout 0
CircuitBuildTimeout 30
ConfluxEnabled 0
StrictNodes 1
SocksTimeout 120
";

const AUTHORITY: &str = "\
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
ContactInfo lab@localhost
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
TestingDirAuthVoteHSDir *
TestingMinExitFlagThreshold 0
ExitPolicy reject *:*
";

/// A running network; it ends with this value, or with the lab.
#[derive(Debug)]
pub struct TorNetwork {
    processes: Vec<Process>,
    control: Control,
    _names: Names,
    stood_after: Duration,
}

/// Killed when dropped.
#[derive(Debug)]
struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

/// Limits of a wait.
#[derive(Clone, Copy)]
struct Limits<'w> {
    until: Instant,
    wanted: &'w (dyn Fn() -> bool + Sync),
}

impl Limits<'_> {
    /// Returns the reason to wait no more, if there is one; `what` is not there yet.
    fn over(self, what: &str) -> Option<String> {
        if !(self.wanted)() {
            return Some(format!("given up: {what}"));
        }
        (Instant::now() >= self.until).then(|| what.to_owned())
    }
}

/// A relay, or the client.
struct Member<'l> {
    name: String,
    node: &'l Node,
    directory: PathBuf,
}

impl TorNetwork {
    /// Time in which the whole network has to stand. It takes 20 to 40 s, most of them two
    /// consensuses: relays publish themselves when they have seen the first.
    pub const PATIENCE: Duration = Duration::from_secs(240);

    /// Returns the client's SOCKS5 address, in its own network namespace.
    pub const SOCKS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9050);

    /// The nodes that a lab needs for it, with links that delay by this much each way.
    ///
    /// So one hop between two of them takes twice as long, and a circuit's round trip twelve times,
    /// besides the links of client and origin.
    #[must_use]
    pub fn hosts(each_way: Duration) -> Vec<Host> {
        node_names().map(|name| Host::new(name).delay(each_way)).collect()
    }

    /// The names of its nodes.
    pub fn nodes() -> impl Iterator<Item = String> {
        node_names()
    }

    /// Starts it on the nodes of [`hosts`](Self::hosts), with a client on node `client`, and waits
    /// until that has a circuit. The exit can look up `names`, and no others.
    ///
    /// Keys, descriptors and logs are kept below `work`, which must not hold another network. It
    /// takes 20 to 40 s.
    ///
    /// # Errors
    /// Tor is not installed, or the network does not stand in time: the error shows what the logs
    /// say.
    pub fn start(
        lab: &Lab,
        client: &str,
        names: &[(String, Ipv4Addr)],
        work: &Path,
    ) -> Result<Self, LabError> {
        Self::start_while(lab, client, names, work, Self::PATIENCE, &|| true)
    }

    /// Starts the network with another timeout, and gives up once it is no longer `wanted`, which
    /// it checks several times a second.
    ///
    /// # Errors
    /// As [`start`](Self::start); and it was given up.
    pub fn start_while(
        lab: &Lab,
        client: &str,
        names: &[(String, Ipv4Addr)],
        work: &Path,
        patience: Duration,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, LabError> {
        let begun = Instant::now();
        let limits = Limits { until: begun + patience, wanted };
        lab.node(client).ok_or_else(|| no_node(client))?;
        let relays: Vec<_> = node_names()
            .map(|name| Member::new(lab, &name, &name, work))
            .collect::<Result<_, _>>()?;
        let exit = relays.last().ok_or_else(|| no_node("exit"))?;
        let served = Names::serve(exit.node, names)?;
        let authorities = authorities(&relays, limits)?;
        let listed: String = authorities.iter().map(Authority::line).collect();
        let mut processes = Vec::new();
        for relay in &relays {
            relay.configure(&listed, &relay.options())?;
            processes.push(relay.run()?);
        }
        let (first, last) = (<[Process]>::first, <[Process]>::last);
        let what = "no consensus has all relays";
        wait(limits, &mut processes, what, first, || is_complete(&relays))?;
        let client = Member::new(lab, client, "tor-client", work)?;
        client.configure(&listed, &client_options(&relays))?;
        processes.push(client.run()?);
        let control = Control::new(client.node.namespace().clone(), CONTROL);
        wait(limits, &mut processes, "the client has no circuit", last, || {
            control.has_circuit("torexit1")
        })?;
        Ok(Self { processes, control, _names: served, stood_after: begun.elapsed() })
    }

    /// Returns the time from the beginning to the client's first circuit.
    #[must_use]
    pub const fn stood_after(&self) -> Duration {
        self.stood_after
    }

    /// The client's circuits that stand.
    ///
    /// # Errors
    /// The client has gone.
    pub fn circuits(&self) -> io::Result<Vec<TorCircuit>> {
        self.control.circuits()
    }

    /// The client's streams that are open now, with their circuits.
    ///
    /// # Errors
    /// The client has gone.
    pub fn streams(&self) -> io::Result<Vec<TorStream>> {
        self.control.streams()
    }

    /// Has the client ask the exit for these addresses in place of names from now on; streams that
    /// are open stay.
    ///
    /// # Errors
    /// The client has gone, or refuses.
    pub fn map_addresses(&self, names: &[(String, Ipv4Addr)]) -> io::Result<()> {
        self.control.map_addresses(names)
    }

    /// Returns true if all of its processes run.
    pub fn is_running(&mut self) -> bool {
        self.processes.iter_mut().all(|process| matches!(process.child.try_wait(), Ok(None)))
    }
}

fn node_names() -> impl Iterator<Item = String> {
    let named =
        |role: &'static str, count| (1..=count).map(move |number| format!("tor-{role}-{number}"));
    named("authority", AUTHORITIES).chain(named("relay", RELAYS)).chain(named("exit", 1))
}

impl<'l> Member<'l> {
    fn new(lab: &'l Lab, node: &str, name: &str, work: &Path) -> Result<Self, LabError> {
        let node = lab.node(node).ok_or_else(|| no_node(node))?;
        let directory = work.join(name);
        create_private(&directory).map_err(LabError::system("making a folder for Tor"))?;
        Ok(Self { name: name.to_owned(), node, directory })
    }

    /// Name in Tor: letters and digits.
    fn nickname(&self) -> String {
        self.name.replace('-', "")
    }

    fn address(&self) -> Ipv4Addr {
        self.node.ipv4().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    fn is(&self, role: &str) -> bool {
        self.name.contains(role)
    }

    fn options(&self) -> String {
        let (nickname, address) = (self.nickname(), self.address());
        let mut options = format!(
            "Nickname {nickname}\nAddress {address}\nORPort {address}:{OR_PORT} \
                IPv4Only\nSocksPort 0\n"
        );
        if self.is("authority") {
            options.push_str(AUTHORITY);
            options.push_str(&format!(
                "DirPort {address}:{DIRECTORY_PORT}\n\
                 V3AuthVotingInterval {INTERVAL}\nV3AuthVoteDelay {DELAY}\nV3AuthDistDelay \
                 {DELAY}\n\
                 TestingV3AuthInitialVotingInterval {INTERVAL}\nTestingV3AuthInitialVoteDelay \
                 {DELAY}\n\
                 TestingV3AuthInitialDistDelay {DELAY}\n"
            ));
        } else if self.is("exit") {
            options.push_str("ExitRelay 1\nExitPolicy accept *:*\nServerDNSDetectHijacking 0\n");
            let resolver = self.resolver().display().to_string();
            options.push_str(&format!(
                "ServerDNSResolvConfFile {resolver}\nServerDNSTestAddresses {EXIT_NAME}\n\
                 ServerDNSSearchDomains 0\n"
            ));
        } else {
            options.push_str("ExitPolicy reject *:*\n");
        }
        options
    }

    fn torrc(&self) -> PathBuf {
        self.directory.join("torrc")
    }

    fn resolver(&self) -> PathBuf {
        self.directory.join("resolv.conf")
    }

    /// Writes its configuration; `listed` are the authorities' lines.
    fn configure(&self, listed: &str, options: &str) -> Result<(), LabError> {
        let directory = self.directory.display();
        let log = "Log notice stdout";
        let text = format!("DataDirectory {directory}\n{log}\n{COMMON}{listed}{options}");
        let resolver = format!("nameserver {}\n", names::AT.ip());
        fs::write(self.torrc(), text)
            .and_then(|()| fs::write(self.resolver(), resolver))
            .map_err(LabError::system("writing Tor's configuration"))
    }

    /// This Tor with nothing of the machine's own configuration.
    fn command(&self) -> Command {
        let mut command = self.node.command("tor");
        command.arg("-f").arg(self.torrc()).args([
            "--defaults-torrc",
            "/dev/null",
            "--ignore-missing-torrc",
        ]);
        command.stdin(Stdio::null());
        command
    }

    fn run(&self) -> Result<Process, LabError> {
        let log = self.directory.join("log");
        let file = File::create(&log).map_err(LabError::system("writing Tor's log"))?;
        let copy = file.try_clone().map_err(LabError::system("writing Tor's log"))?;
        let mut command = self.command();
        command.stdout(file).stderr(copy);
        let child = self.node.spawn(command).map_err(not_started)?;
        Ok(Process { name: self.name.clone(), log, child })
    }
}

/// The authorities among the relays, with their keys: made at the same time, since that is all
/// arithmetic.
fn authorities(relays: &[Member<'_>], limits: Limits<'_>) -> Result<Vec<Authority>, LabError> {
    let own: Vec<_> = relays.iter().filter(|relay| relay.is("authority")).collect();
    thread::scope(|scope| {
        let making: Vec<_> = own
            .into_iter()
            .map(|relay| scope.spawn(move || Authority::make(relay, limits)))
            .collect();
        let made = making
            .into_iter()
            .map(|making| making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        made.collect()
    })
}

/// The exit is known by its address, and is nothing else: the way to the origin is the same for
/// all. Guards must be stable, which relays are after a while, and authorities at once.
fn client_options(relays: &[Member<'_>]) -> String {
    let [guards, exits] = [false, true].map(|exit| {
        let listed = relays.iter().filter(|relay| relay.is("exit") == exit);
        listed.map(|relay| relay.address().to_string()).collect::<Vec<_>>().join(",")
    });
    let socks = TorNetwork::SOCKS;
    format!(
        "SocksPort {socks}\nControlPort {CONTROL}\nEntryNodes {guards}\nExitNodes {exits}\n{CLIENT}"
    )
}

/// Returns true if the first authority has a consensus in which all of them run.
fn is_complete(relays: &[Member<'_>]) -> bool {
    let file = relays.first().map(|relay| relay.directory.join("cached-microdesc-consensus"));
    let text = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    relays.iter().all(|relay| text.contains(&format!("\nr {} ", relay.nickname())))
}

/// Waits for what is not there yet; the log of the one who should have it says why it never comes.
fn wait(
    limits: Limits<'_>,
    processes: &mut [Process],
    what: &str,
    whose: fn(&[Process]) -> Option<&Process>,
    mut done: impl FnMut() -> bool,
) -> Result<(), LabError> {
    while !done() {
        let ended =
            |process: &mut Process| matches!(process.child.try_wait(), Ok(Some(_)) | Err(_));
        let (what, of) =
            match processes.iter_mut().find_map(|process| ended(process).then_some(process)) {
                Some(ended) => (format!("{} has ended", ended.name), Some(&*ended)),
                None => match limits.over(what) {
                    Some(what) => (what, whose(processes)),
                    None => {
                        thread::sleep(LOOK);
                        continue;
                    }
                },
            };
        let output = of.map_or_else(String::new, |process| tail(&process.log));
        return Err(LabError::Tor { what, output });
    }
    Ok(())
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
}

fn not_started(error: io::Error) -> LabError {
    match error.kind() {
        ErrorKind::NotFound => LabError::TorMissing,
        _ => LabError::System { what: "starting Tor".into(), source: error },
    }
}

/// Tor refuses folders that others may read.
fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
