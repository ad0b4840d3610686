//! A client, a server, the link between them, and the programs attached to both.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{Delay, Element, Host, Lab, Link, Node};
use headstart_net::fastopen::{
    ClientOptions, ClientStatus, CookieState, ServerOptions, ServerStatus, Stats, Unavailable,
    attach_client, attach_server, client_status, connect, cookie_state, detach_client,
    detach_server, probe, server_status, was_accepted,
};
use headstart_proto::cookie::Cookie;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::packet::{Capture, Direction};
use crate::support::{self, bpf, key, mint, now};

/// The protected port.
pub(crate) const PORT: u16 = 8443;

/// Lifetime of cookies here, in seconds.
pub(crate) const LIFE: u64 = 3600;

/// Reached only by a check that fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// The interface of a node of a lab.
pub(crate) const INTERFACE: &str = "w0";

/// Delay in one direction; a round trip takes twice as long.
const DELAY: Duration = Duration::from_millis(10);

/// Data that a client sends, and the server echoes.
pub(crate) const LINE: &[u8] = b"first flight\n";

/// Everything that one check uses.
pub(crate) struct World {
    lab: Lab,
    dir: PathBuf,
    pub(crate) capture: Capture,
}

/// Result of one opening.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Bytes that the kernel took with the SYN.
    pub(crate) taken: usize,
    /// True if the server accepted them from there.
    pub(crate) accepted: bool,
    pub(crate) cookie: CookieState,
    /// The server's answer.
    pub(crate) answer: Vec<u8>,
}

impl World {
    /// Creates a world with both programs attached.
    pub(crate) fn new() -> Self {
        let world = Self::bare();
        world.attach_client();
        world.attach_server();
        world
    }

    /// Creates a world with nothing attached. Client and server have two addresses of each family.
    pub(crate) fn bare() -> Self {
        let lab = Lab::build(vec![host("client", 1), host("server", 2)]).unwrap();
        let dir = bpf().join(format!("world-{:016x}", rand::random::<u64>()));
        let world = Self { lab, dir, capture: Capture::default() };
        world.set(world.client(), "tcp_fastopen", "1").unwrap();
        world.set(world.server(), "tcp_fastopen", "3").unwrap();
        // It would disable Fast Open for an hour after one loss, on kernels where it is on.
        let _ = world.set(world.client(), "tcp_fastopen_blackhole_timeout_sec", "0");
        world.fault(None, None);
        world.wait_until_alone();
        world
    }

    /// Waits while other runs of these checks, or an experiment, have programs attached to all
    /// processes of the machine.
    pub(crate) fn wait_until_alone(&self) {
        let begun = Instant::now();
        while self.client().run(probe).unwrap().is_ok() {
            assert!(
                begun.elapsed() < TIMEOUT,
                "another process keeps programs attached to all processes"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn client(&self) -> &Node {
        self.lab.node("client").unwrap()
    }

    pub(crate) fn server(&self) -> &Node {
        self.lab.node("server").unwrap()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns one of the client's addresses: 0 and 1 are IPv4, 2 and 3 IPv6.
    pub(crate) fn client_ip(&self, number: usize) -> IpAddr {
        self.client().addresses()[number]
    }

    /// Returns the protected port at one of the server's addresses.
    pub(crate) fn to(&self, number: usize) -> SocketAddr {
        (self.server().addresses()[number], PORT).into()
    }

    /// Writes a TCP setting of a node.
    pub(crate) fn set(&self, node: &Node, name: &str, value: &str) -> io::Result<()> {
        node.run(|| fs::write(format!("/proc/sys/net/ipv4/{name}"), value)).unwrap()
    }

    /// Replaces the links, each with an element that acts on packets from the client or the server.
    pub(crate) fn fault(&self, out: Option<Box<dyn Element>>, back: Option<Box<dyn Element>>) {
        let (out, back) = (self.link(Direction::Out, out), self.link(Direction::In, back));
        assert!(self.lab.set_links("client", out, back));
    }

    fn link(&self, direction: Direction, more: Option<Box<dyn Element>>) -> Link {
        let tap: Box<dyn Element> = Box::new(self.capture.tap(direction));
        let delay: Box<dyn Element> = Box::new(Delay(DELAY));
        Link::new([tap].into_iter().chain(more).chain([delay]).collect())
    }

    pub(crate) fn attach_client(&self) -> ClientStatus {
        let attached = self.client().run(|| attach_client(&self.client_options())).unwrap();
        attached.unwrap_or_else(|error| panic!("{error}: {}", error.hint()))
    }

    pub(crate) fn detach_client(&self) -> bool {
        detach_client(&self.dir).unwrap()
    }

    pub(crate) fn client_status(&self) -> Option<ClientStatus> {
        client_status(&self.dir).unwrap()
    }

    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions { dir: self.dir.clone(), cgroup: Some(support::group()) }
    }

    pub(crate) fn server_options(&self) -> ServerOptions {
        let options = ServerOptions::new(vec![INTERFACE.into()], PORT);
        // The cookies here were minted some time ago.
        let age = Duration::from_secs(10 * LIFE);
        ServerOptions { dir: self.dir.clone(), age, ..options }
    }

    pub(crate) fn attach_server(&self) -> ServerStatus {
        let options = self.server_options();
        let attached = self.server().run(|| attach_server(&options)).unwrap();
        attached.unwrap_or_else(|error| panic!("{error}: {}", error.hint()))
    }

    pub(crate) fn detach_server(&self) -> bool {
        self.server().run(|| detach_server(&self.dir, &[])).unwrap().unwrap()
    }

    pub(crate) fn server_status(&self) -> Option<ServerStatus> {
        self.server().run(|| server_status(&self.dir)).unwrap().unwrap()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.server_status().expect("it is attached").stats
    }

    /// Mints a fresh cookie for one of the client's addresses.
    pub(crate) fn cookie(&self, client: usize) -> Cookie {
        mint(&key(1), now() + LIFE, self.client_ip(client))
    }

    /// Opens with `data`; waits for the answer and the end.
    pub(crate) fn open(&self, to: SocketAddr, cookie: &Cookie, data: &[u8]) -> Opened {
        self.open_from(to, None, cookie, data)
    }

    pub(crate) fn open_from(
        &self,
        to: SocketAddr,
        local: Option<IpAddr>,
        cookie: &Cookie,
        data: &[u8],
    ) -> Opened {
        self.client().run(|| block_on(open(to, local, cookie, data))).unwrap()
    }
}

fn host(name: &str, number: u8) -> Host {
    let addresses = [
        format!("10.77.{number}.1"),
        format!("10.77.{number}.2"),
        format!("fd77::{number}:1"),
        format!("fd77:0:0:{number}::2"),
    ];
    let addresses = addresses.map(|text| text.parse::<IpAddr>().unwrap());
    addresses.into_iter().fold(Host::new(name), Host::address)
}

/// Opens a connection in this network namespace.
pub(crate) async fn open(
    to: SocketAddr,
    local: Option<IpAddr>,
    cookie: &Cookie,
    data: &[u8],
) -> Opened {
    let (mut stream, taken) = connect(to, local, cookie, data).unwrap();
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(&data[taken..]).await?;
        stream.read_to_end(&mut answer).await
    };
    tokio::time::timeout(TIMEOUT, exchange).await.expect("the server did not answer").unwrap();
    let accepted = was_accepted(&stream).unwrap();
    // A program removed meanwhile has no memory left.
    let cookie = cookie_state(&stream).unwrap_or(CookieState::None);
    Opened { taken, accepted, cookie, answer }
}

/// Returns the reason why no cookie can be sent here, once the kernel has released the programs,
/// which takes a while.
pub(crate) fn probe_fails() -> Unavailable {
    let begun = Instant::now();
    loop {
        match probe() {
            Err(why) => return why,
            Ok(()) => assert!(begun.elapsed() < TIMEOUT, "cookies can still be sent"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a future on a runtime of this thread, so that its sockets are in the thread's namespace.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Cleans up: the next check attaches its own programs.
impl Drop for World {
    fn drop(&mut self) {
        let client = detach_client(&self.dir);
        let server = self.server().run(|| detach_server(&self.dir, &[])).unwrap();
        if !thread::panicking() {
            client.unwrap();
            server.unwrap();
        }
    }
}

/// The only key of most servers here.
pub(crate) fn usual_ring() -> headstart_proto::cookie::CookieRing {
    support::ring(key(1))
}
