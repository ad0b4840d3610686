//! The half near the client: ends its connections and keeps tunnel connections standing for them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::relay::{carry, reset, wait};
use super::{IDLE_TUNNELS, MAX_CONNECTIONS, Target};

/// Time before the next try when the far half could not be reached; keeps a broken path from taking
/// a whole CPU.
const PAUSE: Duration = Duration::from_secs(1);

/// The near half of a proxy.
pub(super) struct Near {
    listeners: Vec<TcpListener>,
    /// Both ends of the tunnel.
    from: IpAddr,
    to: SocketAddr,
    stop: Arc<OwnedFd>,
    opening: Vec<Socket>,
    idle: VecDeque<TcpStream>,
    /// Clients for which no tunnel connection stood ready.
    waiting: VecDeque<Client>,
    /// One copy for each client.
    open: Arc<()>,
    /// No tunnel connection is opened before this.
    pause: Option<Instant>,
}

/// A connection of the client, which takes the other end for the server.
struct Client {
    stream: TcpStream,
    target: Target,
    open: Arc<()>,
}

/// Events that may happen, in the order in which they are waited for.
struct Events {
    accept: Vec<bool>,
    opened: Vec<bool>,
    ended: Vec<bool>,
}

impl Near {
    pub(super) fn new(
        listeners: Vec<TcpListener>,
        from: IpAddr,
        to: SocketAddr,
        stop: Arc<OwnedFd>,
    ) -> Near {
        Near {
            listeners,
            from,
            to,
            stop,
            opening: Vec::new(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            open: Arc::new(()),
            pause: None,
        }
    }

    /// Takes connections until it is to stop.
    pub(super) fn run(&mut self) {
        loop {
            self.open_tunnels();
            let Some(events) = self.wait() else {
                return;
            };
            self.take_opened(&events.opened);
            let mut ended = events.ended.into_iter();
            self.idle.retain(|_| !ended.next().unwrap_or(false));
            self.accept(&events.accept);
            while let Some(client) = self.waiting.pop_front_if(|_| !self.idle.is_empty())
                && let Some(tunnel) = self.idle.pop_front()
            {
                self.join(client, tunnel);
            }
        }
    }

    /// Begins as many tunnel connections as are wanting.
    fn open_tunnels(&mut self) {
        if self.pause.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.pause = None;
        while self.opening.len() + self.idle.len() < IDLE_TUNNELS + self.waiting.len() {
            match self.open_tunnel() {
                Ok(socket) => self.opening.push(socket),
                Err(_) => return self.pause = Some(Instant::now() + PAUSE),
            }
        }
    }

    fn open_tunnel(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(self.to), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        // The node has the server's addresses as well.
        socket.bind(&SocketAddr::new(self.from, 0).into())?;
        match socket.connect(&self.to.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(socket),
        }
    }

    /// Waits until something happens; `None` if it is to stop.
    fn wait(&self) -> Option<Events> {
        let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
        fds.extend(self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        fds.extend(self.opening.iter().map(|socket| PollFd::new(socket, PollFlags::OUT)));
        // The far half sends nothing on its own: input means the end.
        fds.extend(self.idle.iter().map(|tunnel| PollFd::new(tunnel, PollFlags::IN)));
        let left = self.pause.map(|until| until.saturating_duration_since(Instant::now()));
        wait(&mut fds, left.and_then(|left| Timespec::try_from(left).ok())).ok()?;
        let mut happened = fds.iter().map(|fd| !fd.revents().is_empty());
        if happened.next()? {
            return None;
        }
        let [accept, opened, ended] = [self.listeners.len(), self.opening.len(), self.idle.len()]
            .map(|count| happened.by_ref().take(count).collect());
        Some(Events { accept, opened, ended })
    }

    fn take_opened(&mut self, opened: &[bool]) {
        let mut opened = opened.iter();
        for socket in
            self.opening.extract_if(.., |_: &mut Socket| opened.next().copied().unwrap_or(false))
        {
            match socket.take_error() {
                Ok(None) => self.idle.push_back(socket.into()),
                _ => self.pause = Some(Instant::now() + PAUSE),
            }
        }
    }

    fn accept(&mut self, ready: &[bool]) {
        for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, ready)| **ready) {
            let Ok((stream, client)) = listener.accept() else {
                continue;
            };
            match stream.local_addr() {
                Ok(server) if Arc::strong_count(&self.open) <= MAX_CONNECTIONS => {
                    let (target, open) = (Target { server, client }, Arc::clone(&self.open));
                    self.waiting.push_back(Client { stream, target, open });
                }
                _ => reset(&stream),
            }
        }
    }

    /// Carries a client's connection through the tunnel.
    fn join(&self, client: Client, mut tunnel: TcpStream) {
        // A new connection has room for this little.
        if tunnel.write_all(&client.target.bytes()).is_err() {
            reset(&client.stream);
            return;
        }
        let stop = Arc::clone(&self.stop);
        // As at the far half.
        let _ = thread::Builder::new().name("lab proxy".into()).spawn(move || {
            carry(&client.stream, &tunnel, &stop);
            drop(client.open);
        });
    }
}
