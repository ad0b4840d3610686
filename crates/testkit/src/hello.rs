//! ClientHellos and other messages of TLS, byte by byte (RFC 8446 sections 4.1.2 and 5.1).

const HANDSHAKE: u8 = 22;
const RECORD_MAX: usize = 1 << 14;

const SERVER_NAME: u16 = 0;
const PADDING: u16 = 21;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;

/// A ClientHello under construction; by default a valid one of TLS 1.3.
#[derive(Clone, Debug)]
pub struct CraftedHello {
    /// The client's random value.
    pub random: [u8; 32],
    /// The legacy session id.
    pub session_id: Vec<u8>,
    /// Cipher suites, two bytes each.
    pub cipher_suites: Vec<u8>,
    /// Legacy compression methods.
    pub compression_methods: Vec<u8>,
    /// Extensions with their numbers, in order.
    pub extensions: Vec<(u16, Vec<u8>)>,
}

impl Default for CraftedHello {
    fn default() -> Self {
        Self {
            random: [9; 32],
            session_id: Vec::new(),
            cipher_suites: vec![0x13, 0x01],
            compression_methods: vec![0],
            extensions: vec![(SUPPORTED_VERSIONS, vec![2, 3, 4])],
        }
    }
}

impl CraftedHello {
    /// Makes one whose stream has `bytes`, at least 56, with a padding extension only.
    pub fn sized(bytes: usize) -> Self {
        Self { extensions: Vec::new(), ..Self::default() }.padded_to(bytes)
    }

    /// Adds an extension.
    pub fn with(mut self, number: u16, body: impl Into<Vec<u8>>) -> Self {
        self.extensions.push((number, body.into()));
        self
    }

    /// Sets the session id.
    pub fn with_session_id(mut self, id: &[u8]) -> Self {
        self.session_id = id.to_vec();
        self
    }

    /// Adds a server name.
    pub fn name(self, name: &str) -> Self {
        self.with(SERVER_NAME, vector16(&[&[0][..], &vector16(name.as_bytes())].concat()))
    }

    /// Adds the offer of a session with this ticket; has to be the last extension.
    pub fn ticket(self, ticket: &[u8]) -> Self {
        let identity = [vector16(ticket), vec![0; 4]].concat();
        let binder = vector8(&[5; 32]);
        self.with(PRE_SHARED_KEY, [vector16(&identity), vector16(&binder)].concat())
    }

    /// Adds a padding extension (RFC 7685) so that the stream has `bytes`.
    pub fn padded_to(self, bytes: usize) -> Self {
        let least = self.clone().with(PADDING, []).stream().len();
        self.with(PADDING, vec![0; bytes - least])
    }

    /// Returns the handshake message.
    pub fn message(&self) -> Vec<u8> {
        let extensions: Vec<u8> =
            self.extensions.iter().flat_map(|(number, body)| extension(*number, body)).collect();
        let body = [
            &[3, 3][..],
            &self.random,
            &vector8(&self.session_id),
            &vector16(&self.cipher_suites),
            &vector8(&self.compression_methods),
            &vector16(&extensions),
        ];
        message(1, &body.concat())
    }

    /// Returns the stream, in as few records as possible.
    pub fn stream(&self) -> Vec<u8> {
        self.in_records(RECORD_MAX)
    }

    /// Returns the stream in records of `size` bytes.
    pub fn in_records(&self, size: usize) -> Vec<u8> {
        self.message().chunks(size).flat_map(|piece| record(HANDSHAKE, piece)).collect()
    }
}

/// Returns a record.
pub fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &vector16(fragment)].concat()
}

/// Returns a handshake message.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Returns an extension.
pub fn extension(number: u16, body: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &vector16(body)].concat()
}

/// Returns `body` behind its length in one byte.
pub fn vector8(body: &[u8]) -> Vec<u8> {
    [&[u8::try_from(body.len()).unwrap()][..], body].concat()
}

/// Returns `body` behind its length in two bytes.
pub fn vector16(body: &[u8]) -> Vec<u8> {
    [&u16::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
}
