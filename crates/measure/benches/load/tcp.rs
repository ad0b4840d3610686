//! Origins and plain TCP clients: what TLS does, without its cryptography.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::Failure;

/// Length of the ClientHello; OpenSSL and browsers pad to this one (RFC 7685).
const HELLO: usize = 517;

/// Where the random starts in the record (RFC 8446 section 4.1.2), and how long it is.
const RANDOM: std::ops::Range<usize> = 11..43;

/// Bytes an origin answers a ClientHello with: a server flight with a short certificate chain.
pub(crate) const FLIGHT: usize = 3_600;

/// Bytes written and read at a time in bulk.
const PIECE: usize = 256 * 1024;

/// Connections open at one time while their rate is measured.
pub(crate) const CONCURRENT: usize = 32;

/// A real ClientHello (recorded from OpenSSL 3.0, server name www.example.com), padded to
/// [`HELLO`].
pub(crate) fn client_hello() -> Result<Vec<u8>, Failure> {
    padded(include_str!("../../../proto/tests/hellos/openssl30.hex"))
}

fn padded(hex: &str) -> Result<Vec<u8>, Failure> {
    let mut hello = unhex(hex)?;
    let extensions = extensions_at(&hello).ok_or("not a ClientHello")?;
    let padding = HELLO.checked_sub(hello.len() + 4).ok_or("longer than is to be padded")?;
    hello.extend_from_slice(&[0, 21]);
    hello.extend_from_slice(&u16::try_from(padding)?.to_be_bytes());
    hello.resize(HELLO, 0);
    // Of the record, of the message (24 bits of which the first are zero), of the extensions.
    for (at, from) in [(3, 5), (7, 9), (extensions, extensions + 2)] {
        let length = u16::try_from(HELLO - from)?.to_be_bytes();
        hello.get_mut(at..at + 2).ok_or("short")?.copy_from_slice(&length);
    }
    Ok(hello)
}

/// Where the length of the extensions is.
fn extensions_at(hello: &[u8]) -> Option<usize> {
    let session_id = RANDOM.end;
    let suites = session_id + 1 + usize::from(*hello.get(session_id)?);
    let length = u16::from_be_bytes(hello.get(suites..suites + 2)?.try_into().ok()?);
    let compression = suites + 2 + usize::from(length);
    Some(compression + 1 + usize::from(*hello.get(compression)?))
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair)?, 16).map_err(Into::into));
    bytes.collect()
}

/// Makes a ClientHello another one.
pub(crate) fn renew(hello: &mut [u8]) {
    if let Some([first, rest @ ..]) = hello.get_mut(RANDOM) {
        *first = 0; // not ENDLESS
        rest.fill_with(rand::random);
    }
}

fn ask(hello: &mut [u8], wanted: u8) {
    if let Some(first) = hello.get_mut(RANDOM.start) {
        *first = wanted;
    }
}

/// Makes a ClientHello another one, which asks for a long flight.
pub(crate) fn renew_long(hello: &mut [u8]) {
    renew(hello);
    ask(hello, LONG);
}

/// Runs `work` on a thread and runtime of its own, until it ends.
pub(crate) fn on_thread<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> std::thread::JoinHandle<Result<T, Failure>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(work))
    })
}

/// First byte of the random of a client that wants bytes without end.
const ENDLESS: u8 = 0xff;

/// The same of a client that wants [`LONG_FLIGHT`].
const LONG: u8 = 0xfe;

/// More than an edge stores for a session (20 KiB): certificates with post-quantum signatures.
const LONG_FLIGHT: usize = 24_000;

/// An origin that answers a ClientHello with [`FLIGHT`] bytes and closes when its client does; or
/// that sends without end if the ClientHello asks for it.
pub(crate) fn start_origin() -> Result<SocketAddr, Failure> {
    serve(answer)
}

/// Has `answer` serve each connection to an address of loopback, in a thread of its own.
pub(crate) fn serve<A>(answer: fn(TcpStream) -> A) -> Result<SocketAddr, Failure>
where
    A: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    // The kernel's queue of std is too short for a load.
    rustix::net::listen(&listener, 4096)?;
    on_thread(async move {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    static ANSWER: [u8; LONG_FLIGHT] = [0x16; LONG_FLIGHT];
    let mut hello = [0; HELLO];
    stream.read_exact(&mut hello).await?;
    stream.set_nodelay(true)?;
    let wanted = hello.get(RANDOM.start).copied();
    if wanted == Some(ENDLESS) {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        std::thread::spawn(move || pour(stream));
        return Ok(());
    }
    let length = if wanted == Some(LONG) { LONG_FLIGHT } else { FLIGHT };
    stream.write_all(ANSWER.get(..length).unwrap_or_default()).await?;
    while stream.read(&mut hello).await? > 0 {}
    Ok(())
}

fn pour(mut stream: std::net::TcpStream) -> std::io::Result<()> {
    let piece = vec![0x17; PIECE];
    loop {
        stream.write_all(&piece)?;
    }
}

/// Work that clients have done in a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) count: u64,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
    /// All of the load, with what was done before and after `seconds`.
    all: u64,
}

impl Done {
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// Returns the work that the processor time of the whole load was spent on.
    pub(crate) fn total(&self) -> f64 {
        self.all as f64
    }
}

/// Opens, uses and closes connections to `address` for `time`, [`CONCURRENT`] at once.
pub(crate) fn connections(address: SocketAddr, time: Duration) -> Result<Done, Failure> {
    let hello = client_hello()?;
    let work = async move {
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let begun = Instant::now();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONCURRENT {
            let (hello, counts) = (hello.clone(), Arc::clone(&counts));
            clients.spawn(async move {
                let mut hello = hello;
                while begun.elapsed() < time {
                    renew(&mut hello);
                    let exchange = exchange(address, &hello);
                    let done = tokio::time::timeout(Duration::from_secs(2), exchange).await;
                    let [good, bad] = &*counts;
                    let count = if matches!(done, Ok(Ok(()))) { good } else { bad };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while clients.join_next().await.is_some() {}
        let [good, bad] = &*counts;
        let (count, failed) = (good.load(Ordering::Relaxed), bad.load(Ordering::Relaxed));
        Done { count, failed, seconds: begun.elapsed().as_secs_f64(), all: count }
    };
    on_thread(work).join().map_err(|_| "the clients panicked")?
}

async fn exchange(address: SocketAddr, hello: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpSocket::new_v4()?.connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(hello).await?;
    let mut answer = [0; FLIGHT];
    stream.read_exact(&mut answer).await.map(drop)
}

/// Takes bytes from `address` on `flows` connections for `time`; the count is of bytes.
pub(crate) fn bulk(address: SocketAddr, flows: usize, time: Duration) -> Result<Done, Failure> {
    let mut hello = client_hello()?;
    ask(&mut hello, ENDLESS);
    let stop = Arc::new(AtomicBool::new(false));
    let bytes = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..flows {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(&hello)?;
        let (stop, bytes) = (Arc::clone(&stop), Arc::clone(&bytes));
        threads.push(std::thread::spawn(move || drain(&stream, &stop, &bytes)));
    }
    // The windows have opened by then.
    std::thread::sleep(Duration::from_millis(200));
    let (begun, before) = (Instant::now(), bytes.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let (seconds, after) = (begun.elapsed().as_secs_f64(), bytes.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    let failed = threads.into_iter().filter_map(|thread| thread.join().ok()?.err()).count();
    let all = bytes.load(Ordering::Relaxed);
    Ok(Done { count: after - before, failed: failed as u64, seconds, all })
}

/// Reads without copying (MSG_TRUNC, tcp(7)): the client is not what is measured.
fn drain(
    stream: &std::net::TcpStream,
    stop: &AtomicBool,
    bytes: &AtomicU64,
) -> std::io::Result<()> {
    let mut room = vec![0; 4 * PIECE];
    while !stop.load(Ordering::Relaxed) {
        let (_, read) = rustix::net::recv(stream, room.as_mut_slice(), RecvFlags::TRUNC)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
    Ok(())
}
