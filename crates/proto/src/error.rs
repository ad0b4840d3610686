use core::fmt;

/// Reason why bytes are not a frame of this protocol: the peer (or a third party) is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireError {
    /// The first byte is not of this protocol.
    NotOurs,
    /// Unsupported protocol version.
    Version(u8),
    /// The frame is too short or too long.
    Length(usize),
    /// A sequence number not below [`SEQUENCES`](crate::limits::SEQUENCES).
    Sequence(u8),
    /// A response without a route tag.
    Tag,
    /// The payload ends beyond the bytes that may travel over UDP.
    Offset(u32),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("not a TurboTLS frame"),
            Self::Version(version) => write!(f, "unsupported version {version}"),
            Self::Length(bytes) => write!(f, "a frame of {bytes} bytes is too short or too long"),
            Self::Sequence(seq) => write!(f, "sequence number {seq} is out of range"),
            Self::Tag => f.write_str("the route tag is zero"),
            Self::Offset(offset) => write!(f, "payload ends at {offset}, beyond the limit"),
        }
    }
}

impl core::error::Error for WireError {}

/// Reason why bytes do not start a TLS stream with a ClientHello (RFC 8446 sections 4.1.2, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelloError {
    /// The first record is not a handshake record.
    NotTls,
    /// The first handshake message is not a ClientHello.
    NotHello,
    /// A length contradicts its surroundings, or a record is empty.
    Malformed,
    /// Longer than [`CLIENT_BYTES`](crate::limits::CLIENT_BYTES).
    TooLarge,
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTls => "the stream does not begin with a TLS handshake record",
            Self::NotHello => "the first handshake message is not a ClientHello",
            Self::Malformed => "the ClientHello has inconsistent lengths",
            Self::TooLarge => "the ClientHello is larger than 16 KiB",
        })
    }
}

impl core::error::Error for HelloError {}

/// Reason why a fragment was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misfit {
    /// It disagrees with bytes that arrived before.
    Conflict,
    /// It reaches beyond the capacity.
    TooFar,
}

/// Reason why a server dropped a datagram without an answer. The sender still has TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discard {
    /// The datagram is not a frame of this protocol.
    Wire(WireError),
    /// The session belongs to another address or port.
    Address,
    /// The sequence number was used before.
    Repeated,
    /// The session has ended, or was joined.
    Ended,
    /// The bytes disagree with earlier ones, or are too many.
    Misfit(Misfit),
    /// The client stream is not a TLS stream.
    Hello(HelloError),
    /// The same ClientHello is already running.
    HelloRuns,
    /// Too many unjoined sessions from this address.
    AddressLimit,
    /// Too many unjoined sessions from this network.
    NetworkLimit,
    /// Too many unjoined sessions overall.
    SessionLimit,
    /// The server is not starting sessions at the moment.
    Paused,
    /// Handshakes of unproven addresses have used up their processor time.
    WorkLimit,
}

impl Discard {
    /// Returns true if a limit on unproven addresses was reached.
    #[must_use]
    pub const fn is_limit(self) -> bool {
        matches!(
            self,
            Self::AddressLimit
                | Self::NetworkLimit
                | Self::SessionLimit
                | Self::Paused
                | Self::WorkLimit
        )
    }

    /// Short stable name for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire(_) => "malformed",
            Self::Address => "foreign_address",
            Self::Repeated => "repeated",
            Self::Ended => "ended",
            Self::Misfit(_) => "misfit",
            Self::Hello(_) => "not_hello",
            Self::HelloRuns => "hello_runs",
            Self::AddressLimit => "address_limit",
            Self::NetworkLimit => "network_limit",
            Self::SessionLimit => "session_limit",
            Self::Paused => "paused",
            Self::WorkLimit => "work_limit",
        }
    }
}
