//! A port that the server and the edge share while one leaves and the other comes.
//!
//! The server's own sockets get SO_REUSEPORT, so that systemd can bind the port beside them; then
//! new connections go to the edge alone, and the server accepts those that had begun.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use headstart_net::steer_connections;
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{SocketAddrAny, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::up::listener::{self, Listener};

/// Sockets of the server that listen on the port, each with its address.
pub(super) struct SharedPort(Vec<(SocketAddrAny, OwnedFd)>);

impl SharedPort {
    /// Lets root bind `port` beside the server that listens there.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.6, does not let root trace processes, or several programs
    /// have the port.
    pub(super) fn open(port: u16) -> io::Result<Self> {
        let share = |socket: OwnedFd| {
            set_socket_reuseport(&socket, true)?;
            Ok((getsockname(&socket)?, socket))
        };
        copies(port)?.into_iter().map(share).collect::<io::Result<_>>().map(Self)
    }

    /// Gives new connections to the socket that was last to bind each address. Where the kernel
    /// does not, since it takes a server's socket for IPv4 and IPv6 for another address, those that
    /// are connecting as the server leaves are reset.
    pub(super) fn steer(&self) {
        for (address, socket) in &self.0 {
            let before = self.0.iter().filter(|(other, _)| other == address).count();
            let _ = steer_connections(socket.as_fd(), u32::try_from(before).ok());
        }
    }
}

/// Ends [`SharedPort::steer`] for who listens on `port` now: the next program of root there would
/// get all connections.
pub(super) fn end(port: u16) {
    // Who has the port by steering can be copied, and lets others bind it until it closes.
    for socket in copies(port).unwrap_or_default() {
        let _ = steer_connections(socket.as_fd(), None);
    }
}

/// Copies the sockets that listen on `port`, which must be one process's.
fn copies(port: u16) -> io::Result<Vec<OwnedFd>> {
    let holder = Listener::find(port).ok_or(io::ErrorKind::NotFound)?;
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let descriptors = descriptors(holder.pid)?;
    let copy = |inode| {
        let name = format!("socket:[{inode}]");
        let descriptor = descriptors.get(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(pidfd_getfd(&process, *descriptor, PidfdGetfdFlags::empty())?)
    };
    listener::inodes(port).into_iter().map(copy).collect()
}

/// The descriptors of a process, by what they are.
fn descriptors(pid: u32) -> io::Result<BTreeMap<String, i32>> {
    let files = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"))?.flatten();
    let descriptor = |file: fs::DirEntry| {
        let what = fs::read_link(file.path()).ok()?.to_string_lossy().into_owned();
        Some((what, file.file_name().to_str()?.parse().ok()?))
    };
    Ok(files.filter_map(descriptor).collect())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn beside(address: SocketAddr) -> TcpListener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(64).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.into()
    }

    fn accepted(listener: &TcpListener) -> usize {
        std::iter::from_fn(|| match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            accepted => Some(accepted.unwrap()),
        })
        .count()
    }

    /// Returns where these connections have gone. The kernel may tell a client that it is connected
    /// before the connection is there to be accepted.
    fn split(connections: &[TcpStream], listeners: [&TcpListener; 2]) -> [usize; 2] {
        let mut counts = [0; 2];
        headstart_testkit::until("all are accepted", || {
            counts.iter_mut().zip(listeners).for_each(|(count, at)| *count += accepted(at));
            counts.iter().sum::<usize>() == connections.len()
        });
        counts
    }

    #[test]
    fn new_connections_go_to_who_comes_and_none_is_refused_when_the_other_leaves() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        server.set_nonblocking(true).unwrap();
        let address = server.local_addr().unwrap();
        let connect = || (0..32).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>();
        let port = SharedPort::open(address.port()).unwrap();
        let edge = beside(address);
        // By a hash of the client's port.
        let [to_server, _] = split(&connect(), [&server, &edge]);
        assert!(to_server > 0, "the server is left out");
        port.steer();
        let [to_server, _] = split(&connect(), [&server, &edge]);
        assert_eq!(to_server, 0);
        drop((port, server));
        split(&connect(), [&edge, &edge]);
        // The next program of this user is not given all connections.
        end(address.port());
        let next = beside(address);
        let [to_edge, _] = split(&connect(), [&edge, &next]);
        assert!(to_edge > 0, "the next program takes all");
    }

    #[test]
    fn a_port_without_listener_is_not_shared() {
        // Bound, so that nobody else gets the port.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port();
        assert!(SharedPort::open(port).is_err_and(|e| e.kind() == ErrorKind::NotFound));
    }
}
