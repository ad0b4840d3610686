//! A proxy that splits TCP connections, as many satellite links have one (RFC 3135 section 2.4).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{LabError, no_node};
use crate::host::Host;
use crate::node::Node;
use crate::switch::{Diversion, Switch};
use crate::{Protocol, wiring};

mod far;
mod near;
mod relay;

/// Connections at a time; one more is reset. Each has a thread and two buffers in each half, in all
/// 128 MB.
const MAX_CONNECTIONS: usize = 1024;

/// Idle tunnel connections: this many connections may begin within a round trip of the tunnel
/// without waiting for it. Each has two descriptors of this process.
const IDLE_TUNNELS: usize = 16;

/// Port on which the far half waits for tunnel connections; any will do, as its address is its own.
const TUNNEL_PORT: u16 = 1;

/// A proxy between a client and a server that ends the client's TCP connections and has its own to
/// the server.
///
/// It has two halves, as those on both sides of a satellite link (RFC 3135 section 2.3): the near
/// half stands where the two nodes' links meet, the far half beside the server, so that the
/// server's links lie between them. Give the client the short links and the server the long ones.
/// Between the halves stand connections that are opened before they are needed: what a client sends
/// reaches the server after half a round trip, the client's handshake with the near half and the
/// far half's with the server take only the short ways. A client that comes before any of them
/// stands, or together with many others, waits for one.
///
/// Neither end sees it, as it answers the client from the server's address and meets the server
/// from the client's address and port. UDP passes beside it; TCP to other ports of the server is
/// refused. A client is told that it is connected before the server is asked; if the server then
/// refuses, the client is reset. A NAT on the client's path is not for it: the far half has the
/// client's own addresses only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitTcp {
    /// Name of the node whose connections are split.
    pub client: String,
    /// Name of the node it connects to.
    pub server: String,
    /// The server's ports.
    pub ports: Vec<u16>,
}

impl SplitTcp {
    /// The two nodes of the proxy: one stands in for the server, the other for the client.
    pub(crate) fn hosts(&self) -> [Host; 2] {
        self.names().map(Host::new)
    }

    fn names(&self) -> [String; 2] {
        ["near", "far"].map(|end| format!("split {} {} {end}", self.client, self.server))
    }

    /// Leads the connections to the proxy's nodes.
    pub(crate) fn lead(&self, nodes: &[Node], switch: &mut Switch) -> Result<(), LabError> {
        let [near, far] = self.names();
        let ((near, near_node), (far, far_node)) = (find(nodes, &near)?, find(nodes, &far)?);
        let (client, client_node) = find(nodes, &self.client)?;
        let (server, server_node) = find(nodes, &self.server)?;
        switch.place_beside(far, server);
        wiring::add_addresses(near_node.namespace(), server_node.addresses())?;
        wiring::add_addresses(far_node.namespace(), client_node.addresses())?;
        for (from, destinations, to) in [
            (client, server_node, near),
            (server, client_node, far),
            // An address that several servers share is here that of the one beside.
            (far, server_node, server),
        ] {
            for destination in destinations.addresses().iter().copied() {
                switch.divert(Diversion { from, protocol: Protocol::Tcp, destination, to });
            }
        }
        Ok(())
    }

    /// Starts the proxy on its nodes; once packets are forwarded, as it sends some at once.
    pub(crate) fn start(&self, nodes: &[Node]) -> Result<SplitProxy, LabError> {
        let [near, far] = self.names();
        let ((_, near), (_, far)) = (find(nodes, &near)?, find(nodes, &far)?);
        let (_, server) = find(nodes, &self.server)?;
        SplitProxy::start(near, far, &self.places(server))
            .map_err(LabError::system("starting a proxy"))
    }

    /// Address at which the near half impersonates the server.
    fn places(&self, server: &Node) -> Vec<SocketAddr> {
        let places = server.addresses().iter().flat_map(|address| {
            self.ports.iter().map(move |port| SocketAddr::from((*address, *port)))
        });
        places.collect()
    }
}

/// A running proxy; it stops when dropped.
#[derive(Debug)]
pub(crate) struct SplitProxy {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl SplitProxy {
    fn start(near: &Node, far: &Node, places: &[SocketAddr]) -> io::Result<SplitProxy> {
        let (from, to) = (first_address(near)?, SocketAddr::new(first_address(far)?, TUNNEL_PORT));
        let tunnel = listen(far, &[to])?.pop().ok_or(io::ErrorKind::NotFound)?;
        let clients = listen(near, places)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut proxy = SplitProxy { stop: Arc::clone(&stop), threads: Vec::new() };
        let stopped = Arc::clone(&stop);
        // Sockets belong to the node of the thread that makes them, or that started it.
        proxy.threads.push(far.spawn_thread(move || far::run(&tunnel, &stopped))?);
        let mut half = near::Near::new(clients, from, to, stop);
        proxy.threads.push(near.spawn_thread(move || half.run())?);
        Ok(proxy)
    }
}

impl Drop for SplitProxy {
    fn drop(&mut self) {
        // Threads that cannot be told to stop must not be joined.
        if rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).is_ok() {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

/// A node and its number.
fn find<'n>(nodes: &'n [Node], name: &str) -> Result<(usize, &'n Node), LabError> {
    let mut numbered = nodes.iter().enumerate();
    numbered.find(|(_, node)| node.name() == name).ok_or_else(|| no_node(name))
}

fn first_address(node: &Node) -> io::Result<IpAddr> {
    node.addresses().first().copied().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn listen(node: &Node, places: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    node.run(|| {
        places
            .iter()
            .map(|place| {
                let listener = TcpListener::bind(place)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
            .collect()
    })
    .flatten()
}

/// First message of the near half on a tunnel connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    /// Whom the client wants to reach.
    server: SocketAddr,
    /// Address of the client.
    client: SocketAddr,
}

impl Target {
    /// Two addresses, those of IPv4 mapped, each with its port.
    const LENGTH: usize = 36;

    fn bytes(self) -> Vec<u8> {
        let ends = [self.server, self.client].into_iter().flat_map(|end| {
            let address = match end.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            address.octets().into_iter().chain(end.port().to_be_bytes())
        });
        ends.collect()
    }

    fn read(bytes: [u8; Target::LENGTH]) -> Target {
        let [server, client] = [0, 1].map(|number: usize| {
            let bytes = bytes.as_chunks::<18>().0.get(number).copied().unwrap_or_default();
            let [address @ .., high, low] = bytes;
            let address: [u8; 16] = address;
            SocketAddr::new(Ipv6Addr::from(address).to_canonical(), u16::from_be_bytes([high, low]))
        });
        Target { server, client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_was_written() {
        for (server, client) in
            [("10.77.2.1:443", "10.77.1.1:5000"), ("[fd77::2:1]:443", "[fd77::1:1]:65535")]
        {
            let target =
                Target { server: server.parse().unwrap(), client: client.parse().unwrap() };
            assert_eq!(Target::read(target.bytes().try_into().unwrap()), target);
        }
    }
}
