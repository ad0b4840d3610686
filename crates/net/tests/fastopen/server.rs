//! A server that reads a line on each connection, echoes it and records it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use headstart_net::fastopen::{HiddenListener, PENDING, ServerMaps};
use headstart_net::{
    Acceptor, AcceptorConfig, Carrier, Inherited, ListenAddress, ListenSockets, ServerStream,
    TlsStream,
};
use headstart_proto::UnixSeconds;
use headstart_proto::cookie::CookieRing;
use headstart_tls::ServerContext;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::oneshot;

use crate::support::now;
use crate::world::{LIFE, PORT, TIMEOUT, World, block_on, usual_ring};

/// Treatment of hidden listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    Serves,
    /// The program learns of them, and then they close.
    Ends,
    None,
}

/// Options of a server.
pub(crate) struct Options {
    /// Its keys; without them it does not touch the program's maps.
    pub(crate) keys: Option<CookieRing>,
    /// Its addresses, one of each family.
    pub(crate) public: [SocketAddr; 2],
    pub(crate) hidden: Hidden,
    /// Number of unacknowledged connections that the hidden listeners hold.
    pub(crate) pending: i32,
    /// Error of the clock that it sets for the program, in seconds.
    pub(crate) clock: i64,
    /// Set if the line is inside TLS.
    pub(crate) tls: Option<Arc<ServerContext>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keys: Some(usual_ring()),
            public: [(Ipv4Addr::UNSPECIFIED, PORT).into(), (Ipv6Addr::UNSPECIFIED, PORT).into()],
            hidden: Hidden::Serves,
            pending: PENDING,
            clock: 0,
            tls: None,
        }
    }
}

/// A connection that was served.
pub(crate) type Served = (Carrier, Vec<u8>);

/// A running server; it ends with this value.
pub(crate) struct Server {
    served: Arc<Mutex<Vec<Served>>>,
    maps: Arc<Mutex<Option<ServerMaps>>>,
    pub(crate) hidden: [Option<SocketAddr>; 2],
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<std::io::Result<()>>>,
}

impl Server {
    pub(crate) fn start(world: &World) -> Self {
        Self::with(world, Options::default())
    }

    pub(crate) fn with(world: &World, options: Options) -> Self {
        let served = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel();
        let (ready_in, ready) = mpsc::channel();
        let (dir, record) = (world.dir().to_owned(), Arc::clone(&served));
        let thread = world
            .server()
            .spawn_thread(move || block_on(run(dir, options, record, ready_in, stopped)))
            .unwrap();
        let (hidden, maps) = ready.recv_timeout(TIMEOUT).expect("the server starts");
        let maps = Arc::new(Mutex::new(maps));
        Self { served, maps, hidden, stop: Some(stop), thread: Some(thread) }
    }

    /// Does a server's regular maintenance, in its network namespace.
    pub(crate) fn refresh(&self, world: &World) {
        let refreshed = world.server().run(|| self.maps().as_mut().unwrap().refresh());
        refreshed.unwrap().unwrap();
    }

    /// Returns true if its program is the one that is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.maps().as_ref().unwrap().is_attached()
    }

    fn maps(&self) -> MutexGuard<'_, Option<ServerMaps>> {
        self.maps.lock().unwrap()
    }

    /// Waits until `count` connections were served and a moment longer; returns all served.
    pub(crate) fn served(&self, count: usize) -> Vec<Served> {
        let begun = Instant::now();
        while self.served.lock().unwrap().len() < count {
            assert!(begun.elapsed() < TIMEOUT, "{:?}", self.served.lock().unwrap());
            thread::sleep(Duration::from_millis(2));
        }
        // A duplicate would arrive at about the same time.
        thread::sleep(Duration::from_millis(50));
        let served = self.served.lock().unwrap().clone();
        assert_eq!(served.len(), count, "{served:?}");
        served
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *self.maps() = None;
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// Addresses of the hidden listeners, and the program's maps.
type Ready = ([Option<SocketAddr>; 2], Option<ServerMaps>);

async fn run(
    dir: PathBuf,
    options: Options,
    record: Arc<Mutex<Vec<Served>>>,
    ready: mpsc::Sender<Ready>,
    stopped: oneshot::Receiver<()>,
) {
    let hidden = options.public.map(|public| {
        (options.hidden != Hidden::None)
            .then(|| Arc::new(HiddenListener::with_pending(public, options.pending).unwrap()))
    });
    let maps = options.keys.as_ref().map(|keys| maps(&dir, keys, &hidden, options.clock));
    let addresses =
        hidden.each_ref().map(|hidden| hidden.as_ref().map(|hidden| hidden.local_addr()));
    for (public, hidden) in options.public.into_iter().zip(hidden) {
        let hidden = hidden.filter(|_| options.hidden == Hidden::Serves);
        let config = AcceptorConfig { udp_workers: 0, hidden, ..AcceptorConfig::default() };
        let sockets = listen(public);
        maps.iter().for_each(|maps| maps.set_public(&sockets).unwrap());
        let acceptor = Acceptor::new(sockets, config).unwrap();
        tokio::spawn(accept(acceptor, options.tls.clone(), Arc::clone(&record)));
    }
    ready.send((addresses, maps)).unwrap();
    let _ = stopped.await;
}

/// Opens the sockets of an acceptor without UDP.
pub(crate) fn listen(tcp: SocketAddr) -> ListenSockets {
    let address = ListenAddress { tcp, udp_port: None, udp_workers: 0 };
    ListenSockets::open(address, Inherited::default()).unwrap()
}

fn maps(
    dir: &Path,
    keys: &CookieRing,
    hidden: &[Option<Arc<HiddenListener>>],
    clock: i64,
) -> ServerMaps {
    let mut maps =
        ServerMaps::open(dir).unwrap_or_else(|error| panic!("{error}: {}", error.hint()));
    assert_eq!(maps.port(), PORT);
    maps.set_keys(keys, Duration::from_secs(LIFE)).unwrap();
    for hidden in hidden.iter().flatten() {
        maps.set_hidden(hidden).unwrap();
    }
    let off = clock.wrapping_mul(1_000_000_000).cast_unsigned();
    maps.set_clock(headstart_net::fastopen::unix_minus_boot().wrapping_add(off)).unwrap();
    maps
}

async fn accept(
    mut acceptor: Acceptor,
    tls: Option<Arc<ServerContext>>,
    record: Arc<Mutex<Vec<Served>>>,
) {
    loop {
        let arrival = acceptor.accept().await.unwrap();
        let (tls, record) = (tls.clone(), Arc::clone(&record));
        tokio::spawn(async move {
            let Ok(Some(stream)) = arrival.establish().await else { return };
            // A client that broke off is not an error here.
            let _ = match tls {
                None => serve(stream, &record).await,
                Some(tls) => serve_tls(stream, &tls, &record).await,
            };
        });
    }
}

async fn serve_tls(
    stream: ServerStream,
    tls: &ServerContext,
    record: &Mutex<Vec<Served>>,
) -> std::io::Result<()> {
    let opened_by = stream.opened_by();
    let conn = tls.accept(stream.peer_addr().ip(), UnixSeconds(now())).unwrap();
    echo(opened_by, TlsStream::new(conn, stream), record).await
}

/// Reads one line and echoes it.
pub(crate) async fn serve(
    stream: ServerStream,
    record: &Mutex<Vec<Served>>,
) -> std::io::Result<()> {
    echo(stream.opened_by(), stream, record).await
}

async fn echo(
    opened_by: Carrier,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    record: &Mutex<Vec<Served>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    record.lock().unwrap().push((opened_by, line.clone()));
    stream.write_all(&line).await?;
    stream.shutdown().await
}
