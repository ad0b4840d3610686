//! An origin and clients of plain TCP: what TLS does, without its cryptography.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use headstart_openers::NAME;
use openssl::ssl::{HandshakeError, SslConnector, SslMethod};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};

use super::work::{Place, Served, Work};

/// Offset of the random in the record (RFC 8446 section 4.1.2), and its length.
const RANDOM: Range<usize> = 11..43;

/// Length of a record's header (RFC 8446 section 5.1).
const HEADER: usize = 5;

/// Bytes that an origin answers a ClientHello with: a flight with a short certificate chain.
pub(super) const FLIGHT: usize = 3_600;

/// More than an edge stores for a session (20 KiB): certificates with post-quantum signatures.
const LONG_FLIGHT: usize = 24_000;

/// Bytes written and read at a time in bulk.
const PIECE: usize = 256 * 1024;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Time that an exchange may take: a hang takes longer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Answer that a client wants; the first byte of its random says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Flight = 0,
    LongFlight = 0xfe,
    Endless = 0xff,
}

/// A ClientHello.
#[derive(Clone, Debug)]
pub(super) struct Hello(Vec<u8>);

impl Hello {
    /// Makes one as OpenSSL does, with a single key share.
    pub(super) fn new() -> io::Result<Self> {
        let mut tls = SslConnector::builder(SslMethod::tls_client())?;
        tls.set_groups_list("X25519")?;
        match tls.build().connect(NAME, Unanswered::default()) {
            Err(HandshakeError::WouldBlock(waiting)) => Ok(Self(waiting.get_ref().0.clone())),
            _ => Err(io::Error::other("OpenSSL made no ClientHello")),
        }
    }

    /// Returns its record, made another one that asks for this answer.
    pub(super) fn renew(&mut self, wanted: Wanted) -> &[u8] {
        if let Some([first, rest @ ..]) = self.0.get_mut(RANDOM) {
            *first = wanted as u8;
            rest.fill_with(rand::random);
        }
        &self.0
    }
}

/// A transport that keeps what is written and has nothing to read.
#[derive(Debug, Default)]
struct Unanswered(Vec<u8>);

impl Read for Unanswered {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Unanswered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves each connection to an address of loopback with `answer`, on a thread of its own that
/// lives as long as the process.
pub(super) fn serve<A>(place: Place<'_>, answer: fn(TcpStream) -> A) -> io::Result<SocketAddr>
where
    A: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = place.node.run(|| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    // The queue that std asks for is too short for a load.
    rustix::net::listen(&listener, BACKLOG)?;
    place.spawn(async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream));
        }
        #[allow(unreachable_code)] // the type of a thread that never ends
        Ok(())
    })?;
    Ok(address)
}

/// Answers a ClientHello with what it asks for, and closes when its client does.
pub(super) async fn answer(mut stream: TcpStream) -> io::Result<()> {
    static ANSWER: [u8; LONG_FLIGHT] = [0x16; LONG_FLIGHT];
    stream.set_nodelay(true)?;
    let mut hello = vec![0; HEADER];
    stream.read_exact(&mut hello).await?;
    let length = hello.last_chunk().map_or(0, |length| u16::from_be_bytes(*length));
    hello.resize(HEADER + usize::from(length), 0);
    stream.read_exact(hello.get_mut(HEADER..).unwrap_or_default()).await?;
    let wanted = hello.get(RANDOM.start).copied();
    if wanted == Some(Wanted::Endless as u8) {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        std::thread::spawn(move || pour(stream));
        return Ok(());
    }
    let is_long = wanted == Some(Wanted::LongFlight as u8);
    let length = if is_long { LONG_FLIGHT } else { FLIGHT };
    stream.write_all(ANSWER.get(..length).unwrap_or_default()).await?;
    while stream.read(&mut hello).await? > 0 {}
    Ok(())
}

fn pour(mut stream: std::net::TcpStream) -> io::Result<()> {
    let piece = vec![0x17; PIECE];
    loop {
        stream.write_all(&piece)?;
    }
}

/// Starts clients, each of which opens a connection to `address`, takes a flight and closes, again
/// and again.
pub(super) fn clients(place: Place<'_>, address: SocketAddr, count: u16) -> io::Result<Work> {
    let hello = Hello::new()?;
    Work::exchanges(place, count, TIMEOUT, move || exchange(address, hello.clone()))
}

async fn exchange(address: SocketAddr, mut hello: Hello) -> io::Result<Served> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let first = take_flight(&mut stream, &mut hello).await?;
    Ok(Served { first, resumed: false, bytes: FLIGHT })
}

/// Sends a ClientHello and takes the flight. Returns when the first byte was there.
pub(super) async fn take_flight(stream: &mut TcpStream, hello: &mut Hello) -> io::Result<Instant> {
    stream.write_all(hello.renew(Wanted::Flight)).await?;
    let mut answer = [0; FLIGHT];
    let count = stream.read(&mut answer).await?;
    let first = Instant::now();
    stream.read_exact(answer.get_mut(count..).unwrap_or_default()).await?;
    Ok(first)
}

/// Starts `count` streams without end. They are read without copying (MSG_TRUNC, tcp(7)), since the
/// client is not what is measured.
pub(super) fn streams(place: Place<'_>, address: SocketAddr, count: u16) -> io::Result<Work> {
    let hello = Hello::new()?;
    Work::start(place, count, move |work| {
        let mut hello = hello.clone();
        async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(hello.renew(Wanted::Endless)).await?;
            let mut buffer = vec![0; 4 * PIECE];
            while !work.is_over() {
                let read = stream.async_io(Interest::READABLE, || {
                    Ok(rustix::net::recv(&stream, buffer.as_mut_slice(), RecvFlags::TRUNC)?.1)
                });
                match read.await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => work.add_bytes(read),
                }
            }
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use headstart_proto::hello::{self, Progress};

    use super::*;

    #[test]
    fn a_hello_is_whole_and_each_time_another() {
        let mut hello = Hello::new().unwrap();
        let first = hello.renew(Wanted::LongFlight).to_vec();
        let second = hello.renew(Wanted::Flight);
        assert!(first != second && first.len() == second.len());
        assert_eq!((first[RANDOM.start], second[RANDOM.start]), (0xfe, 0));
        // In one datagram of TurboTLS, and in the first read of an origin.
        assert!(second.len() < 1_000, "{}", second.len());
        assert!(matches!(hello::read(second), Ok(Progress::Complete(_))), "not whole");
    }
}
