//! Listening sockets: inherited ones where there are some, else opened so that a failure says what
//! to do.

use std::env;
use std::io;
use std::net::{self, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headstart_net::fastopen::HiddenListener;
use headstart_net::{Inherited, ListenAddress, ListenSockets, listen_tcp};
use listenfd::ListenFd;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use tokio::net::{TcpListener, UnixListener};

use crate::base::failure::Failure;
use crate::base::log_throttle::LogThrottle;
use crate::base::unix_socket::{SocketFile, SocketKind};
use crate::master;

/// Pause after a failed accept, such as for want of file descriptors: it passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts that fail: without descriptors, all of them.
static FAILED_ACCEPTS: LogThrottle = LogThrottle::new();

const FILES_HINT: &str = "raise the limit of open files (LimitNOFILE= of systemd, ulimit -Hn), or \
    lower --max-connections";

/// Error numbers of a process, and a system, with too many open files.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

/// Label of a Unix socket among those that are handed over; its path follows.
const UNIX: &str = "unix ";

/// Label of a hidden listener of Fast Open.
const HIDDEN: &str = "hidden";

/// The sockets that this process listens on.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    inherited: Vec<FromBefore>,
    /// Copies for a process that takes over, if one may.
    copies: Option<Vec<Labelled>>,
    files: Vec<File>,
}

/// A socket that was bound before this process began to listen.
#[derive(Debug)]
struct FromBefore {
    socket: Bound,
    by_systemd: bool,
}

#[derive(Debug)]
enum Bound {
    Tcp(net::TcpListener),
    Hidden(net::TcpListener),
    Udp(net::UdpSocket),
    Unix(PathBuf, unix::net::UnixListener),
}

/// A descriptor that is handed over, and what it is.
#[derive(Debug)]
pub(crate) struct Labelled {
    pub(crate) label: String,
    pub(crate) socket: OwnedFd,
}

/// The file of a Unix socket, which another process may hold still.
#[derive(Debug)]
struct File {
    path: PathBuf,
    kind: SocketKind,
    held: Option<SocketFile>,
}

impl Sockets {
    /// Takes the sockets that systemd passes (sd_listen_fds(3)). With `copies`, all sockets can be
    /// [handed over](Self::copies).
    ///
    /// # Errors
    /// A socket of systemd cannot be used.
    pub(crate) fn from_systemd(copies: bool) -> Result<Self, Failure> {
        let copies = copies.then(Vec::new);
        let own = match env::var("LISTEN_PID") {
            Ok(pid) => pid == std::process::id().to_string(),
            // The master has taken it away.
            Err(_) => master::is_worker(),
        };
        if !own {
            return Ok(Self { copies, ..Self::default() });
        }
        let mut passed = ListenFd::from_env();
        let all = (0..passed.len()).map(|index| take(&mut passed, index));
        let inherited = all.collect::<io::Result<Vec<_>>>().map_err(|error| {
            Failure::usage(format!("cannot use a socket of systemd: {error}")).hint(
                "the socket unit may have ListenStream= and ListenDatagram= alone, and no Accept=",
            )
        })?;
        let by_systemd = |socket| FromBefore { socket, by_systemd: true };
        Ok(Self {
            inherited: inherited.into_iter().map(by_systemd).collect(),
            copies,
            files: vec![],
        })
    }

    /// Adds a socket of the process from which this one takes over, unless systemd passes it too.
    ///
    /// # Errors
    /// It is not a listening socket.
    pub(crate) fn inherit(&mut self, Labelled { label, socket }: Labelled) -> io::Result<()> {
        let socket = match (socket_domain(&socket)?, socket_type(&socket)?) {
            (AddressFamily::UNIX, SocketType::STREAM) if socket_acceptconn(&socket)? => {
                let path = label.strip_prefix(UNIX).ok_or(io::ErrorKind::InvalidData)?;
                Bound::Unix(path.into(), socket.into())
            }
            (AddressFamily::INET | AddressFamily::INET6, SocketType::STREAM)
                if socket_acceptconn(&socket)? =>
            {
                if label == HIDDEN {
                    Bound::Hidden(socket.into())
                } else {
                    Bound::Tcp(socket.into())
                }
            }
            (AddressFamily::INET | AddressFamily::INET6, SocketType::DGRAM) => {
                Bound::Udp(socket.into())
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let name = socket.to_string();
        let is_known = |known: &FromBefore| known.by_systemd && known.socket.to_string() == name;
        if !self.inherited.iter().any(is_known) {
            self.inherited.push(FromBefore { socket, by_systemd: false });
        }
        Ok(())
    }

    /// Returns a TCP listener at `address`, as [`listen_tcp`] opens it.
    ///
    /// # Errors
    /// A [`Failure`] with a hint, for example when the port is in use.
    pub(crate) fn tcp(&mut self, address: SocketAddr) -> Result<TcpListener, Failure> {
        let opened = match self.take_tcp(address) {
            Some(inherited) => from_std(inherited),
            None => listen_tcp(address),
        };
        let listener = opened.map_err(|error| Failure::bind(address, &error))?;
        self.copy("tcp", &listener)?;
        Ok(listener)
    }

    /// Returns the sockets of an acceptor.
    ///
    /// # Errors
    /// As for [`tcp`](Self::tcp).
    pub(crate) fn transport(&mut self, address: ListenAddress) -> Result<ListenSockets, Failure> {
        let port = address.udp_port.map_or(address.tcp.port(), NonZeroU16::get);
        let datagrams = SocketAddr::new(address.tcp.ip(), port);
        let inherited =
            Inherited { tcp: self.take_tcp(address.tcp), udp: self.take_udp(datagrams) };
        let count = inherited.udp.len();
        if ![0, address.udp_workers].contains(&count) {
            tracing::warn!(workers = count, "--udp-workers: the inherited sockets decide");
        }
        let failure = |error| Failure::bind(address.tcp, &error);
        let opened = ListenSockets::open(address, inherited).map_err(failure)?;
        if let Some(copies) = &mut self.copies {
            let all = opened.copies().map_err(failure)?.into_iter();
            copies.extend(all.map(|socket| Labelled { label: "port".into(), socket }));
        }
        Ok(opened)
    }

    /// Returns a listener on the Unix socket at `path`, whose file goes with this unless it is
    /// systemd's.
    ///
    /// # Errors
    /// As [`SocketFile::listen`].
    pub(crate) fn unix(&mut self, path: &Path, kind: SocketKind) -> Result<UnixListener, Failure> {
        let (listener, held, by_systemd) = match self.take_unix(path) {
            Some((inherited, by_systemd)) => {
                let adopted = inherited.set_nonblocking(true);
                let adopted = adopted.and_then(|()| UnixListener::from_std(inherited));
                let unusable = |error| Failure::usage(format!("{}: {error}", path.display()));
                (adopted.map_err(unusable)?, None, by_systemd)
            }
            None => {
                let (listener, file) = SocketFile::listen(path, kind)?;
                (listener, Some(file), false)
            }
        };
        self.copy(&format!("{UNIX}{}", path.display()), &listener)?;
        if !by_systemd {
            self.files.push(File { path: path.to_owned(), kind, held });
        }
        Ok(listener)
    }

    /// Returns the hidden listener that a process before this one has for the family of `public`.
    pub(crate) fn take_hidden(&mut self, public: SocketAddr) -> Option<net::TcpListener> {
        let found = self.take(|socket| match socket {
            Bound::Hidden(tcp) => {
                tcp.local_addr().is_ok_and(|local| local.is_ipv4() == public.is_ipv4())
            }
            _ => false,
        });
        match found {
            Some(FromBefore { socket: Bound::Hidden(tcp), .. }) => Some(tcp),
            _ => None,
        }
    }

    /// Offers a hidden listener to a successor, with the connections that wait there.
    ///
    /// # Errors
    /// Too many open files.
    pub(crate) fn copy_hidden(&mut self, listener: &HiddenListener) -> Result<(), Failure> {
        self.copy(HIDDEN, listener)
    }

    /// Takes the files of sockets that the process before this one has left.
    pub(crate) fn settle(&mut self) {
        for file in self.files.iter_mut().filter(|file| file.held.is_none()) {
            match SocketFile::adopt(&file.path, file.kind) {
                Ok(held) => file.held = Some(held),
                Err(failure) => tracing::warn!("the socket's file stays: {}", failure.message()),
            }
        }
    }

    /// Returns the copies of all sockets for a process that takes over.
    pub(crate) fn copies(&self) -> &[Labelled] {
        self.copies.as_deref().unwrap_or_default()
    }

    /// Closes the copies, and leaves the files to the process that has taken over.
    pub(crate) fn leave(&mut self) {
        self.copies = None;
        self.files.drain(..).filter_map(|file| file.held).for_each(SocketFile::leave);
    }

    /// Closes what nobody wants of an earlier process.
    ///
    /// # Errors
    /// A socket of systemd for which there is no option: its clients would wait for ever.
    pub(crate) fn check_used(&mut self) -> Result<(), Failure> {
        match self.inherited.drain(..).find(|socket| socket.by_systemd) {
            None => Ok(()),
            Some(unused) => Err(Failure::usage(format!(
                "systemd passes a socket that no option names: {}",
                unused.socket
            ))
            .hint("give its address to --listen or the like, or take it out of the socket unit")),
        }
    }

    fn take_tcp(&mut self, address: SocketAddr) -> Option<net::TcpListener> {
        let found = self.take(|socket| match socket {
            Bound::Tcp(tcp) => tcp.local_addr().is_ok_and(|local| local == address),
            _ => false,
        });
        if let Some(FromBefore { socket: Bound::Tcp(tcp), .. }) = found { Some(tcp) } else { None }
    }

    fn take_udp(&mut self, address: SocketAddr) -> Vec<net::UdpSocket> {
        let mut found = Vec::new();
        while let Some(FromBefore { socket: Bound::Udp(udp), .. }) =
            self.take(|socket| match socket {
                Bound::Udp(udp) => udp.local_addr().is_ok_and(|local| local == address),
                _ => false,
            })
        {
            found.push(udp);
        }
        found
    }

    /// Returns the listener at `path`, and true if it is systemd's.
    fn take_unix(&mut self, path: &Path) -> Option<(unix::net::UnixListener, bool)> {
        match self.take(|socket| matches!(socket, Bound::Unix(at, _) if at == path))? {
            FromBefore { socket: Bound::Unix(_, unix), by_systemd } => Some((unix, by_systemd)),
            FromBefore { .. } => None,
        }
    }

    fn take(&mut self, wanted: impl Fn(&Bound) -> bool) -> Option<FromBefore> {
        let index = self.inherited.iter().position(|before| wanted(&before.socket))?;
        Some(self.inherited.swap_remove(index))
    }

    fn copy(&mut self, label: &str, socket: &impl AsFd) -> Result<(), Failure> {
        let Some(copies) = &mut self.copies else { return Ok(()) };
        let copy = socket.as_fd().try_clone_to_owned();
        let socket =
            copy.map_err(|error| Failure::usage(format!("cannot copy a socket: {error}")))?;
        copies.push(Labelled { label: label.to_owned(), socket });
        Ok(())
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = |address: io::Result<SocketAddr>| {
            address.map_or_else(|error| error.to_string(), |address| address.to_string())
        };
        match self {
            Self::Tcp(tcp) => write!(f, "TCP {}", address(tcp.local_addr())),
            Self::Hidden(tcp) => write!(f, "Fast Open {}", address(tcp.local_addr())),
            Self::Udp(udp) => write!(f, "UDP {}", address(udp.local_addr())),
            Self::Unix(path, _) => path.display().fmt(f),
        }
    }
}

/// Waits a little where accepting cannot work for a while. A client that is gone already is no
/// reason.
pub(crate) async fn after_failed_accept(error: &io::Error) {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    if let Some(left_out) = FAILED_ACCEPTS.line(Instant::now()) {
        let hint = matches!(error.raw_os_error(), Some(EMFILE | ENFILE)).then_some(FILES_HINT);
        tracing::warn!(%error, hint, left_out, "cannot accept a connection");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn take(passed: &mut ListenFd, index: usize) -> io::Result<Bound> {
    let socket = take_bound(passed, index)?;
    let listens = match &socket {
        Bound::Tcp(tcp) | Bound::Hidden(tcp) => socket_acceptconn(tcp)?,
        Bound::Unix(_, unix) => socket_acceptconn(unix)?,
        Bound::Udp(_) => true,
    };
    if listens { Ok(socket) } else { Err(io::Error::other("it is a connection, and no listener")) }
}

fn take_bound(passed: &mut ListenFd, index: usize) -> io::Result<Bound> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    if let Ok(tcp) = passed.take_tcp_listener(index) {
        return tcp.map(Bound::Tcp).ok_or_else(missing);
    }
    if let Ok(udp) = passed.take_udp_socket(index) {
        return udp.map(Bound::Udp).ok_or_else(missing);
    }
    let unix = passed.take_unix_listener(index)?.ok_or_else(missing)?;
    let path = unix.local_addr()?.as_pathname().map(Path::to_owned);
    Ok(Bound::Unix(path.unwrap_or_default(), unix))
}

fn from_std(inherited: net::TcpListener) -> io::Result<TcpListener> {
    inherited.set_nonblocking(true)?;
    TcpListener::from_std(inherited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: SocketAddr) -> Result<TcpListener, Failure> {
        Sockets::default().tcp(address)
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_a_way_to_find_its_user() {
        let first = tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let text = tcp(address).unwrap_err().to_string();
        let port = address.port();
        assert_eq!(
            text,
            format!(
                "error: cannot listen on 127.0.0.1:{port}: Address already in use (os error 98)\n\
                 hint: another program uses port {port}; `ss -ltunp 'sport = :{port}'` shows which"
            )
        );
    }

    #[tokio::test]
    async fn both_families_may_have_the_same_port() {
        // Somebody else may have the port of the first family in the second.
        let found = (0..100).any(|_| {
            let v6 = tcp("[::]:0".parse().unwrap()).unwrap();
            let port = v6.local_addr().unwrap().port();
            tcp(SocketAddr::from(([0, 0, 0, 0], port))).is_ok()
        });
        assert!(found);
    }

    #[tokio::test]
    async fn a_foreign_address_is_explained() {
        let text = tcp("192.0.2.1:0".parse().unwrap()).unwrap_err().to_string();
        assert!(text.contains("not an address of this machine"), "{text}");
    }

    #[tokio::test]
    async fn an_inherited_socket_is_taken_for_its_address_alone() {
        let first = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let mut sockets = Sockets { copies: Some(Vec::new()), ..Sockets::default() };
        sockets.inherit(Labelled { label: "tcp".into(), socket: first.into() }).unwrap();
        let other = sockets.tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
        assert_eq!(sockets.tcp(address).unwrap().local_addr().unwrap(), address);
        assert_eq!(sockets.copies().len(), 2);
        assert!(sockets.tcp(address).is_err(), "it is taken once");
    }

    /// Connections may wait there, and no other process could take them.
    #[tokio::test]
    async fn a_hidden_listener_goes_to_the_next_process() {
        let hidden = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let public = hidden.local_addr().unwrap();
        let mut sockets = Sockets::default();
        let label = HIDDEN.to_owned();
        sockets.inherit(Labelled { label, socket: hidden.into() }).unwrap();
        assert!(sockets.take_tcp(public).is_none(), "it is not for an address");
        assert!(sockets.take_hidden("[::1]:443".parse().unwrap()).is_none());
        let taken = sockets.take_hidden("192.0.2.1:443".parse().unwrap()).unwrap();
        assert_eq!(taken.local_addr().unwrap(), public);
    }

    #[tokio::test]
    async fn a_socket_that_systemd_passes_as_well_counts_once() {
        let (tcp, udp) = (0..100)
            .find_map(|_| {
                let tcp = net::TcpListener::bind("127.0.0.1:0").unwrap();
                // Somebody else may have the port on UDP.
                let udp = net::UdpSocket::bind(tcp.local_addr().unwrap()).ok()?;
                Some((tcp, udp))
            })
            .unwrap();
        let by_systemd = |socket| FromBefore { socket, by_systemd: true };
        let mut sockets = Sockets::default();
        sockets.inherited.push(by_systemd(Bound::Tcp(tcp.try_clone().unwrap())));
        sockets.inherited.push(by_systemd(Bound::Udp(udp.try_clone().unwrap())));
        let address = tcp.local_addr().unwrap();
        for socket in [OwnedFd::from(tcp), OwnedFd::from(udp)] {
            sockets.inherit(Labelled { label: "port".into(), socket }).unwrap();
        }
        let address = ListenAddress { tcp: address, udp_port: None, udp_workers: 1 };
        let opened = sockets.transport(address).unwrap();
        assert_eq!(opened.copies().unwrap().len(), 2, "one for TCP, and one worker");
        sockets.check_used().unwrap();
    }

    #[test]
    fn only_a_socket_of_systemd_has_to_be_used() {
        let listener = || net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sockets = Sockets::default();
        sockets.inherit(Labelled { label: "tcp".into(), socket: listener().into() }).unwrap();
        sockets.check_used().unwrap();
        let socket = Bound::Tcp(listener());
        sockets.inherited.push(FromBefore { socket, by_systemd: true });
        let text = sockets.check_used().unwrap_err().to_string();
        assert!(text.contains("that no option names: TCP 127.0.0.1:"), "{text}");
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let file = tempfile::tempfile().unwrap();
        for socket in [OwnedFd::from(client), OwnedFd::from(file)] {
            let labelled = Labelled { label: "tcp".into(), socket };
            assert!(Sockets::default().inherit(labelled).is_err());
        }
    }
}
