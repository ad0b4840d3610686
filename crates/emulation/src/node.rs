use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;

use crate::namespace::Namespace;

/// One node of a [`Lab`](crate::Lab).
#[derive(Debug)]
pub struct Node {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) namespace: Namespace,
    pub(crate) spawner: Spawner,
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, in the order they were given; those it shares with others come last.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Its first IPv4 address.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        })
    }

    /// Its first IPv6 address.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        })
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Does `work` on the node, in a thread of its own, and waits for it; a panic of `work` goes on
    /// here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.run(work)
    }

    /// Starts a thread on the node; threads it starts, such as an async runtime's, are there as
    /// well.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<thread::JoinHandle<io::Result<T>>> {
        self.namespace.spawn_thread(work)
    }

    /// A command that will run on the node; see [`Namespace::command`] for how long it lives.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Starts a command made by [`command`](Node::command) so that it is killed when the lab ends,
    /// and not before.
    ///
    /// Only the command's own process: one that starts others must see to them.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        self.spawner.spawn(command)
    }
}

/// A thread that spawns commands and lives as long as the lab, because a command dies with the
/// thread that spawned it.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    pub(crate) orders: mpsc::Sender<(Command, mpsc::SyncSender<io::Result<Child>>)>,
}

impl Spawner {
    pub(crate) fn start() -> io::Result<Spawner> {
        let (orders, received) = mpsc::channel::<(Command, mpsc::SyncSender<_>)>();
        thread::Builder::new().name("lab spawner".into()).spawn(move || {
            for (mut command, answer) in received {
                let _ = answer.send(command.spawn());
            }
        })?;
        Ok(Spawner { orders })
    }

    fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, child) = mpsc::sync_channel(1);
        let sent = self.orders.send((command, answer)).ok();
        let spawned = sent.and_then(|()| child.recv().ok());
        spawned.unwrap_or_else(|| Err(io::Error::other("the lab's spawning thread ended")))
    }
}
