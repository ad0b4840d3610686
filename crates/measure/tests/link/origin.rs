//! Origins of this test's own: TLS of another OpenSSL, or a script of raw bytes.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use headstart_emulation::Node;
use socket2::SockRef;

use crate::net::PATIENCE;

/// Serves each connection to `address` on `node` in a thread; what that returns can be awaited.
///
/// The threads end with the process: a check makes a few of them.
pub(crate) fn serve<T: Send + 'static>(
    node: &Node,
    address: SocketAddr,
    script: impl Fn(TcpStream) -> T + Clone + Send + 'static,
) -> mpsc::Receiver<T> {
    let listener = node.run(|| TcpListener::bind(address)).unwrap();
    let listener = listener.unwrap_or_else(|error| panic!("{address}: {error}"));
    let (results, seen) = mpsc::channel();
    thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            let (script, results) = (script.clone(), results.clone());
            tcp.set_nodelay(true).unwrap();
            tcp.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || results.send(script(tcp)));
        }
    });
    seen
}

/// Ends a connection by a reset.
pub(crate) fn reset(tcp: TcpStream) {
    SockRef::from(&tcp).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(tcp);
}

/// Returns the bytes before a stream's end, and the kind of end.
pub(crate) fn read_to_end(tcp: &mut TcpStream) -> (Vec<u8>, Result<(), io::ErrorKind>) {
    let mut bytes = Vec::new();
    let end = io::Read::read_to_end(tcp, &mut bytes);
    (bytes, end.map(drop).map_err(|error| error.kind()))
}
