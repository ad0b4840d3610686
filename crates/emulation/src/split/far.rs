//! The half beside the server: takes tunnel connections and opens those to the server.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::relay::{carry, reset, wait};
use super::{IDLE_TUNNELS, MAX_CONNECTIONS, Target};

/// Takes tunnel connections until it is to stop; each waits here until the near half names a
/// target.
pub(super) fn run(listener: &TcpListener, stop: &Arc<OwnedFd>) {
    let mut idle: Vec<TcpStream> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        fds.extend(idle.iter().map(|tunnel| PollFd::new(tunnel, PollFlags::IN)));
        if wait(&mut fds, None).is_err() || !fds[0].revents().is_empty() {
            return;
        }
        let wanted: Vec<bool> = fds.iter().skip(2).map(|fd| !fd.revents().is_empty()).collect();
        let mut wanted = wanted.into_iter();
        for tunnel in idle.extract_if(.., |_| wanted.next().unwrap_or(false)) {
            let stop = Arc::clone(stop);
            // Without a thread the connection is closed, as by a proxy out of memory.
            let _ = thread::Builder::new()
                .name("lab proxy".into())
                .spawn(move || serve(&tunnel, &stop));
        }
        if let Ok((tunnel, _)) = listener.accept()
            && idle.len() < MAX_CONNECTIONS + IDLE_TUNNELS
        {
            idle.push(tunnel);
        }
    }
}

/// Carries one connection between the tunnel and the server.
fn serve(tunnel: &TcpStream, stop: &OwnedFd) {
    // The near half abandoned it unused, or the lab ends.
    let Ok(Target { server, client }) = read_target(tunnel, stop) else {
        return;
    };
    match connect(client, server, stop) {
        Ok(far) => carry(tunnel, &far, stop),
        Err(_) => reset(tunnel),
    }
}

fn read_target(mut tunnel: &TcpStream, stop: &OwnedFd) -> io::Result<Target> {
    let mut bytes = [0; Target::LENGTH];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(tunnel, PollFlags::IN)];
        wait(&mut fds, None)?;
        if !fds[0].revents().is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = tunnel.read(rest)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest = rest.get_mut(length..).unwrap_or_default();
    }
    Ok(Target::read(bytes))
}

/// Connects to the server from the client's address, and from its port if that is free.
fn connect(client: SocketAddr, server: SocketAddr, stop: &OwnedFd) -> io::Result<TcpStream> {
    match connect_from(client, server, stop) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
            ) =>
        {
            connect_from(SocketAddr::new(client.ip(), 0), server, stop)
        }
        result => result,
    }
}

fn connect_from(client: SocketAddr, server: SocketAddr, stop: &OwnedFd) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&client.into())?;
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(&socket, PollFlags::OUT)];
    wait(&mut fds, None)?;
    if !fds[0].revents().is_empty() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    socket.take_error()?.map_or(Ok(socket.into()), Err)
}
