//! A proxy that splits TCP connections, as many satellite modems have one (RFC 3135 section 2.4).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};

use crate::error::LabError;
use crate::lab::no_node;
use crate::switch::Diversion;
use crate::{Host, Node, Protocol, Switch, wiring};

/// Connections at a time; one more is reset. Each has a thread and two buffers, in all 64 MB.
const MAX_CONNECTIONS: usize = 1024;

/// Bytes under way in one direction inside the proxy.
const BUFFER: usize = 32 * 1024;

/// A proxy between a client and a server that ends the client's TCP connections and makes its own to the server.
///
/// It stands where the two nodes' links meet: for one near the client give the client short links and the server the
/// long ones. Neither end sees it, as it answers the client from the server's address and meets the server from the
/// client's address and port. UDP passes beside it; TCP to other ports of the server is refused.
///
/// A client is told that it is connected before the server is asked; if the server then refuses, the client is reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitTcp {
    /// Name of the node whose connections are split.
    pub client: String,
    /// Name of the node it connects to.
    pub server: String,
    /// The server's ports.
    pub ports: Vec<u16>,
}

impl SplitTcp {
    /// The two nodes of the proxy: one stands in for the server, the other for the client.
    pub(crate) fn hosts(&self) -> [Host; 2] {
        self.names().map(Host::new)
    }

    fn names(&self) -> [String; 2] {
        ["near", "far"].map(|end| format!("split {} {} {end}", self.client, self.server))
    }

    /// Starts the proxy on its nodes and leads the connections there.
    pub(crate) fn start(
        &self,
        nodes: &[Node],
        switch: &mut Switch,
    ) -> Result<SplitProxy, LabError> {
        let find = |name: &str| {
            let number = nodes.iter().position(|node| node.name() == name);
            number
                .and_then(|number| Some((number, nodes.get(number)?)))
                .ok_or_else(|| no_node(name))
        };
        let [near, far] = self.names();
        let ((near, near_node), (far, far_node)) = (find(&near)?, find(&far)?);
        let (client, server) = (find(&self.client)?, find(&self.server)?);
        for ((stand_in, at), (from, _), (_, node)) in
            [((near_node, near), client, server), ((far_node, far), server, client)]
        {
            wiring::add_addresses(stand_in.namespace(), node.addresses())?;
            for destination in node.addresses().iter().copied() {
                switch.divert(Diversion { from, protocol: Protocol::Tcp, destination, to: at });
            }
        }
        let listeners = near_node.run(|| self.listen(server.1.addresses()));
        let listeners = listeners.flatten().map_err(LabError::system("listening as a proxy"))?;
        SplitProxy::start(listeners, far_node).map_err(LabError::system("starting a proxy"))
    }

    fn listen(&self, addresses: &[IpAddr]) -> io::Result<Vec<TcpListener>> {
        let places = addresses.iter().flat_map(|address| {
            self.ports.iter().map(move |port| SocketAddr::from((*address, *port)))
        });
        let listen = |place| {
            let listener = TcpListener::bind(place)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        places.map(listen).collect()
    }
}

/// A running proxy; it stops when dropped.
#[derive(Debug)]
pub(crate) struct SplitProxy {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl SplitProxy {
    fn start(listeners: Vec<TcpListener>, far: &Node) -> io::Result<SplitProxy> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        // Sockets made by this thread and those it starts are the far node's.
        let thread = far.spawn_thread(move || accept_all(&listeners, &stopped))?;
        Ok(SplitProxy { stop, thread: Some(thread) })
    }
}

impl Drop for SplitProxy {
    fn drop(&mut self) {
        let stop = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // A thread that cannot be told to stop must not be waited for.
        if let (Ok(_), Some(thread)) = (stop, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn accept_all(listeners: &[TcpListener], stop: &Arc<OwnedFd>) {
    // One copy for each connection.
    let open = Arc::new(());
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        if wait(&mut fds).is_err() || !fds[0].revents().is_empty() {
            return;
        }
        for near in listeners.iter().filter_map(|listener| listener.accept().ok()) {
            let (stop, open) = (Arc::clone(stop), Arc::clone(&open));
            if Arc::strong_count(&open) > MAX_CONNECTIONS + 1 {
                reset(&near.0);
                continue;
            }
            // Without a thread the connection is closed, as a proxy without memory would.
            let _ = thread::Builder::new().name("lab proxy".into()).spawn(move || {
                carry(&near.0, near.1, &stop);
                drop(open);
            });
        }
    }
}

/// Carries one connection until both directions have ended, or resets both ends.
fn carry(near: &TcpStream, client: SocketAddr, stop: &OwnedFd) {
    let connected = near.local_addr().and_then(|server| connect(client, server, stop));
    let Ok(far) = connected else {
        reset(near);
        return;
    };
    if relay(near, &far, stop).is_err() {
        reset(near);
        reset(&far);
    }
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
    wait(&mut fds)?;
    if !fds[0].revents().is_empty() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    socket.take_error()?.map_or(Ok(socket.into()), Err)
}

fn relay(near: &TcpStream, far: &TcpStream, stop: &OwnedFd) -> io::Result<()> {
    for stream in [near, far] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let (mut up, mut down) = (Flow::new(near, far), Flow::new(far, near));
    loop {
        up.pump()?;
        down.pump()?;
        if up.ended && down.ended {
            return Ok(());
        }
        let interests = [up.interest(), down.interest()];
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(interests.into_iter().flatten());
        wait(&mut fds)?;
        if !fds[0].revents().is_empty() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

/// One direction of a connection.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer is to be written yet.
    pending: std::ops::Range<usize>,
    /// The end was read, and has been written.
    ended: bool,
}

impl<'a> Flow<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream) -> Flow<'a> {
        Flow { from, to, buffer: vec![0; BUFFER], pending: 0..0, ended: false }
    }

    /// Moves bytes until one of the sockets is not ready.
    fn pump(&mut self) -> io::Result<()> {
        while !self.ended {
            if self.pending.is_empty() && self.read()?.is_none()
                || !self.pending.is_empty() && self.write()?.is_none()
            {
                break;
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<()>> {
        let Some(length) = if_ready(self.from.read(&mut self.buffer))? else {
            return Ok(None);
        };
        self.pending = 0..length;
        if length == 0 {
            self.to.shutdown(Shutdown::Write)?;
            self.ended = true;
        }
        Ok(Some(()))
    }

    fn write(&mut self) -> io::Result<Option<()>> {
        let pending = self.buffer.get(self.pending.clone()).unwrap_or_default();
        let Some(length) = if_ready(self.to.write(pending))? else {
            return Ok(None);
        };
        self.pending.start += length;
        Ok(Some(()))
    }

    /// The one event that lets this direction go on.
    fn interest(&self) -> Option<PollFd<'a>> {
        match (self.ended, self.pending.is_empty()) {
            (true, _) => None,
            (false, true) => Some(PollFd::new(self.from, PollFlags::IN)),
            (false, false) => Some(PollFd::new(self.to, PollFlags::OUT)),
        }
    }
}

fn if_ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(fds, None) {
            Err(Errno::INTR) => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

/// Makes the other end see a reset, instead of an end in due form, once the stream is closed.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}
