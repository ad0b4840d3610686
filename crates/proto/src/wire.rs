//! The frames, byte for byte (docs/draft-headstart-turbotls.md#frames). All numbers are big-endian.
//!
//! * [`Request`], client to server, UDP: `08` · version (1) · session id 12 · seq 1 · offset 3 ·
//!   length 2 · payload · zero padding
//! * [`Response`], server to client, UDP: `09` · version (1) · session id 12 · seq answered 1 ·
//!   route tag 4 · ack 3 · offset 3 · payload
//! * [`Forward`], edge to edge, inside TLS: `0a` · version (1) · client address 16 · client port 2
//!
//! TCP carries TLS records only: [`join`](crate::join).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::error::WireError;
use crate::id::{RouteTag, SessionId};
use crate::limits::{CLIENT_BYTES, DATAGRAM_MAX, REQUEST_MIN, SEQUENCES, SERVER_BYTES};

/// The supported version.
pub const VERSION: u8 = 2;
/// Bytes before the payload of a [`Request`].
pub const REQUEST_HEADER: usize = 20;
/// Bytes before the payload of a [`Response`].
pub const RESPONSE_HEADER: usize = 25;
/// Length of a [`Forward`].
pub const FORWARD_LEN: usize = 20;
/// Maximum number of client bytes in one datagram.
pub const REQUEST_PAYLOAD_MAX: usize = DATAGRAM_MAX - REQUEST_HEADER;
/// Maximum number of server bytes in one datagram.
pub const RESPONSE_PAYLOAD_MAX: usize = DATAGRAM_MAX - RESPONSE_HEADER;

const REQUEST_TYPE: u8 = 0x08;
const RESPONSE_TYPE: u8 = 0x09;
const FORWARD_TYPE: u8 = 0x0a;

/// A piece of the client stream; asks for at most one [`Response`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The session.
    pub id: SessionId,
    /// Sequence number below [`SEQUENCES`]; each is used once.
    pub seq: u8,
    /// Offset of the payload in the client stream.
    pub offset: u32,
    /// Client bytes, at least one.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`WireError`], on which the datagram is dropped without an answer.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new(datagram, REQUEST_TYPE)?;
        // W-FRAME-1
        if !(REQUEST_MIN..=DATAGRAM_MAX).contains(&datagram.len()) {
            return Err(WireError::Length(datagram.len()));
        }
        let id = SessionId(fields.array()?);
        let seq = fields.seq()?;
        let offset = fields.u24()?;
        let length = u16::from_be_bytes(fields.array()?);
        // W-FRAME-2
        let payload = fields.take(usize::from(length))?;
        if payload.is_empty() {
            return Err(WireError::Length(datagram.len()));
        }
        within(offset, payload, CLIENT_BYTES)?;
        Ok(Self { id, seq, offset, payload })
    }

    /// Returns the datagram, padded with zeros to [`REQUEST_MIN`].
    ///
    /// The payload must not exceed [`REQUEST_PAYLOAD_MAX`]; the excess is left out.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let payload = self.payload.get(..REQUEST_PAYLOAD_MAX).unwrap_or(self.payload);
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(REQUEST_MIN.max(REQUEST_HEADER + payload.len()));
        bytes.extend_from_slice(&[REQUEST_TYPE, VERSION]);
        bytes.extend_from_slice(&self.id.0);
        bytes.push(self.seq);
        put_u24(&mut bytes, self.offset);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(payload);
        if bytes.len() < REQUEST_MIN {
            bytes.resize(REQUEST_MIN, 0);
        }
        bytes
    }
}

/// A piece of the server stream, or a pure acknowledgement; answers one [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The session.
    pub id: SessionId,
    /// The request that this answers.
    pub seq: u8,
    /// Route tag, which the client repeats in the join; never zero.
    pub tag: RouteTag,
    /// Client bytes that the server has, counted from the start of the stream.
    pub ack: u32,
    /// Offset of the payload in the server stream.
    pub offset: u32,
    /// Server bytes; empty in a pure acknowledgement.
    pub payload: &'a [u8],
}

impl<'a> Response<'a> {
    /// Reads a whole datagram.
    ///
    /// # Errors
    /// [`WireError`], on which the datagram is dropped.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new(datagram, RESPONSE_TYPE)?;
        // W-FRAME-3
        if !(RESPONSE_HEADER..=DATAGRAM_MAX).contains(&datagram.len()) {
            return Err(WireError::Length(datagram.len()));
        }
        let id = SessionId(fields.array()?);
        let seq = fields.seq()?;
        let tag = RouteTag(fields.array()?);
        if tag == RouteTag::default() {
            return Err(WireError::Tag);
        }
        let ack = fields.u24()?;
        let offset = fields.u24()?;
        let payload = fields.rest;
        within(offset, payload, SERVER_BYTES)?;
        Ok(Self { id, seq, tag, ack, offset, payload })
    }

    /// Returns the datagram. The payload must not exceed [`RESPONSE_PAYLOAD_MAX`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RESPONSE_HEADER + self.payload.len());
        bytes.extend_from_slice(&[RESPONSE_TYPE, VERSION]);
        bytes.extend_from_slice(&self.id.0);
        bytes.push(self.seq);
        bytes.extend_from_slice(&self.tag.0);
        put_u24(&mut bytes, self.ack);
        put_u24(&mut bytes, self.offset);
        bytes.extend_from_slice(self.payload);
        bytes
    }
}

/// First bytes of a stream between two edges: a client's TCP stream follows from its start, for
/// the edge that its join names (docs/draft-headstart-turbotls.md#route-tags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The client's address on TCP.
    pub client: SocketAddr,
}

impl Forward {
    /// Reads a frame of exactly [`FORWARD_LEN`] bytes. Returns an IPv4-mapped address as IPv4.
    ///
    /// # Errors
    /// [`WireError`], on which the connection is closed.
    pub fn parse(frame: &[u8; FORWARD_LEN]) -> Result<Self, WireError> {
        let mut fields = Fields::new(frame, FORWARD_TYPE)?;
        let address = IpAddr::V6(Ipv6Addr::from(fields.array::<16>()?)).to_canonical();
        let port = u16::from_be_bytes(fields.array()?);
        Ok(Self { client: SocketAddr::new(address, port) })
    }

    /// Returns the frame.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let address = match self.client.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut bytes = Vec::with_capacity(FORWARD_LEN);
        bytes.extend_from_slice(&[FORWARD_TYPE, VERSION]);
        bytes.extend_from_slice(&address.octets());
        bytes.extend_from_slice(&self.client.port().to_be_bytes());
        bytes
    }
}

/// Takes fields off the front of a frame, with bounds checks.
struct Fields<'a> {
    length: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Checks the first two bytes, which every frame has in common, and starts after them.
    fn new(frame: &'a [u8], expected: u8) -> Result<Self, WireError> {
        let mut fields = Self { length: frame.len(), rest: frame };
        let [first] = fields.array().map_err(|_| WireError::NotOurs)?;
        if first != expected {
            return Err(WireError::NotOurs);
        }
        match fields.array()? {
            [VERSION] => Ok(fields),
            [other] => Err(WireError::Version(other)),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(WireError::Length(self.length))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Length(self.length))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn seq(&mut self) -> Result<u8, WireError> {
        let [seq] = self.array()?;
        if seq < SEQUENCES { Ok(seq) } else { Err(WireError::Sequence(seq)) }
    }

    fn u24(&mut self) -> Result<u32, WireError> {
        Ok(u24(self.array()?))
    }
}

const fn u24([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

/// Offsets are below 2^24 by [`CLIENT_BYTES`] and [`SERVER_BYTES`].
fn put_u24(bytes: &mut Vec<u8>, value: u32) {
    let [_, low @ ..] = value.to_be_bytes();
    bytes.extend_from_slice(&low);
}

fn within(offset: u32, payload: &[u8], limit: usize) -> Result<(), WireError> {
    let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(payload.len());
    if end <= limit {
        Ok(())
    } else {
        Err(WireError::Offset(u32::try_from(end).unwrap_or(u32::MAX)))
    }
}
