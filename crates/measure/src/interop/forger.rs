//! A third party that knows the addresses of both ends and sends forged datagrams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headstart_emulation::{Node, UdpDatagram};
use headstart_proto::wire::{Request, Response};
use headstart_proto::{RouteTag, SessionId};
use socket2::{Domain, Protocol, Socket, Type};

/// Ports that the client may use: few, so that every one gets forged datagrams while a connection
/// opens.
pub(super) const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_063;

/// Requests forged in the client's name: fewer than the edge's limit of sessions per address, so
/// that it still takes the client's own.
const REQUESTS: u16 = 4;

/// Pause between rounds, in each of which every port gets a response.
const APART: Duration = Duration::from_millis(5);

/// IPPROTO_RAW: the sender writes the IP header (raw(7)).
const RAW: i32 = 255;

/// Sends until dropped.
#[derive(Debug)]
pub(super) struct Forger(Arc<AtomicBool>);

impl Forger {
    /// Sends responses to the client in the server's name, and requests to the server in the
    /// client's.
    pub(super) fn start(node: &Node, client: Ipv4Addr, server: SocketAddr) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let socket = node
            .run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))))
            .flatten()?;
        thread::Builder::new().name("forger".into()).spawn(move || {
            for round in 0_u32.. {
                for port in PORTS {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let client = SocketAddr::from((client, port));
                    // Another session each time.
                    let mut id = [0xee; 12];
                    id[..4].copy_from_slice(&round.to_be_bytes());
                    id[4..6].copy_from_slice(&port.to_be_bytes());
                    let (id, seq) = (SessionId(id), 0);
                    let response = Response {
                        id,
                        seq,
                        tag: RouteTag([1; 4]),
                        ack: 1,
                        offset: 0,
                        payload: b"forged",
                    };
                    send(&socket, server, client, &response.emit());
                    if round == 0 && port - PORTS.start() < REQUESTS {
                        let request = Request { id, seq, offset: 0, payload: &[22, 3, 1, 2, 0, 1] };
                        send(&socket, client, server, &request.emit());
                    }
                }
                thread::sleep(APART);
            }
        })?;
        Ok(Self(stop))
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a datagram in the name of `source`. One that the kernel rejects is lost.
fn send(socket: &Socket, source: SocketAddr, destination: SocketAddr, payload: &[u8]) {
    if let Some(packet) = (UdpDatagram { source, destination, payload }).to_ip() {
        let _ = socket.send_to(&packet, &destination.into());
    }
}
