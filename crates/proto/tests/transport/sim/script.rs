//! The conversation of application and origin, whatever carries it.

use std::sync::LazyLock;
use std::time::Duration;

use headstart_testkit::hello::CraftedHello;

use super::End;

/// A conversation. Each side writes once it has received enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// Length of the ClientHello at the start of the client stream.
    pub(crate) hello: usize,
    pub(crate) writes: Vec<Write>,
    pub(crate) emissions: Vec<Emission>,
    /// Offset of the first request byte in the client stream.
    pub(crate) request_at: usize,
    /// Offset of the first response byte in the server stream.
    pub(crate) response_at: usize,
    /// Number of writes after which the application closes its side, instead of after the last
    /// server byte.
    pub(crate) app_closes_after: Option<usize>,
    /// Number of bytes after which the origin ends its stream, and how.
    pub(crate) origin_ends: Option<(usize, End)>,
    /// Time at which the application writes its first byte.
    pub(crate) starts_at: Duration,
    /// Maximum number of bytes each side writes at once.
    pub(crate) app_chunk: usize,
    pub(crate) origin_chunk: usize,
}

/// Bytes that the application writes once it has `after_server` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) after_server: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Bytes that the origin writes `think` after it has `after_client` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Emission {
    pub(crate) after_client: usize,
    pub(crate) think: Duration,
    pub(crate) bytes: Vec<u8>,
}

impl Script {
    /// TLS 1.3: ClientHello; server flight; Finished and request; response.
    pub(crate) fn tls13(hello: usize, flight: usize, think: Duration) -> Self {
        Self::start(hello).says(flight, think).finishes_and_requests()
    }

    /// TLS 1.3 with the request as early data after the ClientHello; the response follows the
    /// flight.
    pub(crate) fn early_data(hello: usize, early: usize, flight: usize, think: Duration) -> Self {
        let mut script = Self::start(hello).says(flight, think).writes_after(0, early);
        script.request_at = hello;
        script.response_at = script.server_len();
        script.says(2000, Duration::ZERO).writes_after(flight, 74)
    }

    /// TLS 1.3 with a HelloRetryRequest.
    pub(crate) fn hello_retry(hello: usize, flight: usize) -> Self {
        Self::start(hello)
            .says(99, Duration::ZERO)
            .answers(hello + 40)
            .says(flight, Duration::ZERO)
            .finishes_and_requests()
    }

    /// TLS 1.2: one more round trip.
    pub(crate) fn tls12(hello: usize, flight: usize) -> Self {
        Self::start(hello)
            .says(flight, Duration::ZERO)
            .answers(130)
            .says(51, Duration::ZERO)
            .finishes_and_requests()
    }

    /// A protocol that is not TLS.
    pub(crate) fn not_tls() -> Self {
        let mut script =
            Self { app_chunk: usize::MAX, origin_chunk: usize::MAX, ..Self::default() };
        script = script.writes_after(0, 80);
        script.says(500, Duration::ZERO)
    }

    pub(crate) fn client_len(&self) -> usize {
        self.writes.iter().map(|write| write.bytes.len()).sum()
    }

    pub(crate) fn server_len(&self) -> usize {
        self.emissions.iter().map(|piece| piece.bytes.len()).sum()
    }

    pub(crate) fn client_stream(&self) -> Vec<u8> {
        let pieces: Vec<_> = self.writes.iter().map(|write| &write.bytes[..]).collect();
        pieces.concat()
    }

    pub(crate) fn server_stream(&self) -> Vec<u8> {
        let pieces: Vec<_> = self.emissions.iter().map(|piece| &piece.bytes[..]).collect();
        pieces.concat()
    }

    fn start(hello: usize) -> Self {
        Self {
            hello,
            writes: vec![Write { after_server: 0, bytes: client_hello(hello) }],
            app_chunk: usize::MAX,
            origin_chunk: usize::MAX,
            ..Self::default()
        }
    }

    /// Adds the origin's answer to everything written so far.
    fn says(mut self, bytes: usize, think: Duration) -> Self {
        let bytes = pattern(0x5e, self.server_len(), bytes);
        self.emissions.push(Emission { after_client: self.client_len(), think, bytes });
        self
    }

    /// Adds the application's answer to everything received so far.
    fn answers(self, bytes: usize) -> Self {
        let heard = self.server_len();
        self.writes_after(heard, bytes)
    }

    fn writes_after(mut self, after_server: usize, bytes: usize) -> Self {
        let bytes = pattern(0xc1, self.client_len(), bytes);
        self.writes.push(Write { after_server, bytes });
        self
    }

    /// Adds 74 bytes of Finished, a request of 400 and a response of 2,000.
    fn finishes_and_requests(self) -> Self {
        let request_at = self.client_len() + 74;
        let mut script = self.answers(474);
        script.request_at = request_at;
        script.response_at = script.server_len();
        script.says(2000, Duration::ZERO)
    }
}

/// Builds a ClientHello of exactly `size` bytes with a padding extension (RFC 7685).
pub(crate) fn client_hello(size: usize) -> Vec<u8> {
    let mut hello = CraftedHello::sized(size);
    hello.random.copy_from_slice(&pattern(0x33, 0, 32));
    if let Some((_, padding)) = hello.extensions.last_mut() {
        *padding = pattern(0x77, 0, padding.len());
    }
    hello.stream()
}

/// Returns bytes that differ by position, which reveals misplaced ones.
fn pattern(seed: u8, from: usize, len: usize) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let places = 0..1_u64 << 19;
        places.map(|place| place.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect()
    });
    let from = usize::from(seed) * 1024 + from;
    BYTES[from..from + len].to_vec()
}
