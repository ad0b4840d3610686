//! A balancer before edges on loopback: datagrams go to one edge, and TCP to the same or another.
//!
//! TCP can be made to connect only once an edge has answered over UDP. On loopback it otherwise
//! does so within microseconds, often before a ClientHello is ready, and clients then wait 2 ms for
//! the answer, which a busy machine may miss.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::net::listen;

/// Balancer at one address.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    gate: Arc<Gate>,
}

/// Listener whose queue is kept full while TCP connections have to wait.
struct Gate {
    listener: TcpListener,
    filling: Mutex<Vec<TcpStream>>,
    open: Condvar,
}

/// Length of an answer from which on it must hold bytes of the server.
const WITH_BYTES: usize = 200;

/// As long as the standard library's.
const QUEUE: i32 = 128;

impl Front {
    pub(crate) fn new(udp: SocketAddr, tcp: SocketAddr) -> Self {
        let (listener, datagrams) = loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            if let Ok(datagrams) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, datagrams);
            }
        };
        let address = listener.local_addr().unwrap();
        let gate = Gate { listener, filling: Mutex::default(), open: Condvar::new() };
        let front = Self { address, gate: Arc::new(gate) };
        let gate = Arc::clone(&front.gate);
        thread::spawn(move || accept(tcp, &gate));
        let gate = Arc::clone(&front.gate);
        thread::spawn(move || balance(&Arc::new(datagrams), udp, &gate));
        front
    }

    /// Lets nobody connect until a client that is not known yet has bytes of the server over UDP.
    ///
    /// Its SYN is dropped, and repeated after a second.
    pub(crate) fn hold(&self) {
        let mut filling = self.gate.filling.lock().unwrap();
        // One connection in the queue, and the kernel drops the SYNs of others.
        listen(&self.gate.listener, 0).unwrap();
        // The first may still be accepted, the second stays in the queue.
        filling.extend([(); 2].map(|()| TcpStream::connect(self.address).unwrap()));
    }
}

impl Gate {
    fn release(&self) {
        // A queue that stays short may lose a handshake that has ended at the client.
        listen(&self.listener, QUEUE).unwrap();
        self.filling.lock().unwrap().clear();
        self.open.notify_all();
    }
}

fn accept(to: SocketAddr, gate: &Gate) {
    for client in gate.listener.incoming().map_while(Result::ok) {
        let held = gate.filling.lock().unwrap();
        drop(gate.open.wait_while(held, |filling| !filling.is_empty()).unwrap());
        thread::spawn(move || pass(&client, &TcpStream::connect(to)?));
    }
}

/// Each client has a socket of its own towards the edge.
fn balance(clients: &Arc<UdpSocket>, edge: SocketAddr, gate: &Arc<Gate>) {
    let mut known: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut buffer = [0; 2048];
    while let Ok((length, from)) = clients.recv_from(&mut buffer) {
        let towards = known.entry(from).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            socket.connect(edge).unwrap();
            let (back, clients, gate) =
                (Arc::clone(&socket), Arc::clone(clients), Arc::clone(gate));
            thread::spawn(move || {
                let mut buffer = [0; 2048];
                let mut is_answered = false;
                while let Ok(length) = back.recv(&mut buffer) {
                    let _ = clients.send_to(&buffer[..length], from);
                    // An edge may say first that it is there; and a late SYN is not dropped.
                    if length >= WITH_BYTES && !is_answered {
                        gate.release();
                        is_answered = true;
                    }
                }
            });
            socket
        });
        let _ = towards.send(&buffer[..length]);
    }
}

fn pass(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    thread::scope(|scope| {
        let (mut from, mut to) = (client, server);
        scope.spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
        let (mut from, mut to) = (server, client);
        let _ = io::copy(&mut from, &mut to);
        to.shutdown(Shutdown::Write)
    })
}
