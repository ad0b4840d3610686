//! A server that takes a line on each connection, says it back, and remembers it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use headstart_net::fastopen::{HiddenListener, PENDING, ServerMaps};
use headstart_net::{Acceptor, AcceptorConfig, OpenedBy, ServerStream, TlsStream};
use headstart_proto::UnixSeconds;
use headstart_proto::cookie::CookieRing;
use headstart_tls::ServerContext;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::oneshot;

use crate::support::now;
use crate::world::{LIFE, PATIENCE, PORT, World, block_on, usual_ring};

/// How a server is to be.
pub(crate) struct Options {
    /// Its keys; without them it does not touch the program's maps.
    pub(crate) keys: Option<CookieRing>,
    /// Whether it has hidden listeners.
    pub(crate) hidden: bool,
    /// How many connections these hold that are not acknowledged.
    pub(crate) pending: i32,
    /// How far the clock is off that it tells the program, in seconds.
    pub(crate) clock: i64,
    /// If the line is inside TLS.
    pub(crate) tls: Option<Arc<ServerContext>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: Some(usual_ring()), hidden: true, pending: PENDING, clock: 0, tls: None }
    }
}

/// A connection that was served.
pub(crate) type Served = (OpenedBy, Vec<u8>);

/// A running server; it ends with this value.
pub(crate) struct Server {
    served: Arc<Mutex<Vec<Served>>>,
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
        let run = move || block_on(run(dir, options, record, ready_in, stopped));
        let thread = world.server().spawn_thread(run).unwrap();
        let hidden = ready.recv_timeout(PATIENCE).expect("the server starts");
        Self { served, hidden, stop: Some(stop), thread: Some(thread) }
    }

    /// What was served, once it is so many connections; a moment later still.
    pub(crate) fn served(&self, count: usize) -> Vec<Served> {
        let begun = Instant::now();
        while self.served.lock().unwrap().len() < count {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.served.lock().unwrap());
            thread::sleep(Duration::from_millis(2));
        }
        // What comes twice comes together.
        thread::sleep(Duration::from_millis(50));
        let served = self.served.lock().unwrap().clone();
        assert_eq!(served.len(), count, "{served:?}");
        served
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

async fn run(
    dir: PathBuf,
    options: Options,
    record: Arc<Mutex<Vec<Served>>>,
    ready: mpsc::Sender<[Option<SocketAddr>; 2]>,
    stopped: oneshot::Receiver<()>,
) {
    let public: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, PORT).into(), (Ipv6Addr::UNSPECIFIED, PORT).into()];
    let hidden = public.map(|public| {
        let bind = || Arc::new(HiddenListener::with_pending(public, options.pending).unwrap());
        options.hidden.then(bind)
    });
    let maps = options.keys.as_ref().map(|keys| maps(&dir, keys, &hidden, options.clock));
    let addresses =
        hidden.each_ref().map(|hidden| hidden.as_ref().map(|hidden| hidden.local_addr()));
    let mut acceptors = Vec::new();
    for (public, hidden) in public.into_iter().zip(hidden) {
        let config = AcceptorConfig { udp_workers: 0, hidden, ..AcceptorConfig::default() };
        acceptors.push(Acceptor::bind(public, config).unwrap());
    }
    for acceptor in acceptors {
        tokio::spawn(accept(acceptor, options.tls.clone(), Arc::clone(&record)));
    }
    ready.send(addresses).unwrap();
    let _ = stopped.await;
    drop(maps);
}

fn maps(
    dir: &std::path::Path,
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
            // A client that broke off is nothing to tell of.
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

/// One line, and back.
pub(crate) async fn serve(
    stream: ServerStream,
    record: &Mutex<Vec<Served>>,
) -> std::io::Result<()> {
    echo(stream.opened_by(), stream, record).await
}

async fn echo(
    opened_by: OpenedBy,
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
