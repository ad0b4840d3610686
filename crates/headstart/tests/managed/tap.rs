//! Observer between the agent and a server: the tickets in ClientHellos.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use headstart_proto::hello::{self, Progress};

/// Bytes that one connection has sent so far.
type Sent = Arc<Mutex<Vec<u8>>>;

/// An address in front of a server; threads of it end with their connections.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Sent>>>,
}

impl Tap {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let sent = Sent::default();
                all.lock().unwrap().push(Arc::clone(&sent));
                // A server that has exited closes the connection.
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(from, to, &Sent::default()));
                thread::spawn(move || pass(client, server, &sent));
            }
        });
        Self { address, connections }
    }

    /// The tickets that each connection has shown, in the order of the connections; those without
    /// a byte are left out: a second SYN may bring one.
    pub(crate) fn shown(&self) -> Vec<Vec<Vec<u8>>> {
        let connections = self.connections.lock().unwrap();
        let sent = connections.iter().map(|sent| sent.lock().unwrap().clone());
        sent.filter(|sent| !sent.is_empty()).map(|sent| tickets(&sent)).collect()
    }

    /// Returns the tickets of the last connection.
    pub(crate) fn last(&self) -> Vec<Vec<u8>> {
        self.shown().pop().expect("a connection")
    }
}

fn tickets(sent: &[u8]) -> Vec<Vec<u8>> {
    match hello::read(sent) {
        Ok(Progress::Complete(hello)) => hello.psk_identities,
        _ => panic!("no whole ClientHello in {} bytes", sent.len()),
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, sent: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        sent.lock().unwrap().extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
