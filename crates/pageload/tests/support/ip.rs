//! IP packets. Checksums are zero, as in captures of senders whose cards compute them.

use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Payload of a full-sized segment.
pub(crate) const SEGMENT: usize = 1400;

/// A TCP segment to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp<'a> {
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) payload: &'a [u8],
}

pub(crate) fn tcp(from: SocketAddr, to: SocketAddr, segment: Tcp<'_>) -> Vec<u8> {
    let mut bytes = ports(from, to);
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.unwrap_or(0).to_be_bytes());
    let flags = u8::from(segment.syn) * SYN + u8::from(segment.ack.is_some()) * ACK;
    bytes.extend([0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]); // timestamps
    bytes.extend(segment.payload);
    packet(from.ip(), to.ip(), TCP, &bytes)
}

pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ports(from, to);
    bytes.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    packet(from.ip(), to.ip(), UDP, &bytes)
}

fn ports(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    [from.port().to_be_bytes(), to.port().to_be_bytes()].concat()
}

pub(crate) fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
            let mut header = vec![0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => panic!("two families"),
    };
    bytes.extend(payload);
    bytes
}

/// The same IPv6 packet with hop-by-hop and destination options before the transport header.
pub(crate) fn with_extension_headers(packet: &[u8]) -> Vec<u8> {
    let (header, payload) = packet.split_at(40);
    let options = [[60, 0, 1, 4, 0, 0, 0, 0], [header[6], 0, 1, 4, 0, 0, 0, 0]].concat();
    let length = u16::try_from(options.len() + payload.len()).unwrap().to_be_bytes();
    let mut bytes = header.to_vec();
    bytes[4..6].copy_from_slice(&length);
    bytes[6] = 0;
    [bytes, options, payload.to_vec()].concat()
}

/// A TCP connection that is recorded, packet by packet.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) client_seq: u32,
    pub(crate) server_seq: u32,
    pub(crate) segment: usize,
}

impl Talk {
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        // Near the end of the numbers, so that they begin anew within a flight.
        Self {
            client,
            server,
            client_seq: u32::MAX - 99,
            server_seq: u32::MAX - 999,
            segment: SEGMENT,
        }
    }

    /// The three packets that open it.
    pub(crate) fn open(&mut self) -> Vec<Vec<u8>> {
        let (client, server) = (self.client_seq, self.server_seq);
        self.client_seq = client.wrapping_add(1);
        self.server_seq = server.wrapping_add(1);
        let syn = Tcp { seq: client, ack: None, syn: true, payload: &[] };
        let answer = Tcp { seq: server, ack: Some(self.client_seq), syn: true, payload: &[] };
        vec![
            tcp(self.client, self.server, syn),
            tcp(self.server, self.client, answer),
            self.client_segment(&[]),
        ]
    }

    /// Data of the client.
    pub(crate) fn up(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = bytes.chunks(self.segment).collect();
        pieces.into_iter().map(|piece| self.client_segment(piece)).collect()
    }

    /// Data of the server.
    pub(crate) fn down(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = bytes.chunks(self.segment).collect();
        pieces.into_iter().map(|piece| self.server_segment(piece)).collect()
    }

    fn client_segment(&mut self, payload: &[u8]) -> Vec<u8> {
        let seq = self.client_seq;
        self.client_seq = seq.wrapping_add(u32::try_from(payload.len()).unwrap());
        let segment = Tcp { seq, ack: Some(self.server_seq), syn: false, payload };
        tcp(self.client, self.server, segment)
    }

    fn server_segment(&mut self, payload: &[u8]) -> Vec<u8> {
        let seq = self.server_seq;
        self.server_seq = seq.wrapping_add(u32::try_from(payload.len()).unwrap());
        let segment = Tcp { seq, ack: Some(self.client_seq), syn: false, payload };
        tcp(self.server, self.client, segment)
    }
}
