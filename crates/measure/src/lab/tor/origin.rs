//! The origin behind the exit: HTTP on port 80, the same under TLS on 443.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use headstart_emulation::Node;
use openssl::error::ErrorStack;
use openssl::ssl::{SslAcceptor, SslMethod};

use crate::demo::Identity;
use crate::network;
use headstart::base::failure::Failure;

/// Bytes of a request's head at most.
const HEAD_MAX: usize = 8192;

/// Time that a client may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause of accepting after it has failed.
const SHORTAGE: Duration = Duration::from_millis(10);

/// It runs until the process ends.
pub(super) struct Origin {
    connections: Arc<AtomicU64>,
}

impl Origin {
    pub(super) fn start(node: &Node, name: &str, response: usize) -> Result<Self, Failure> {
        let tls = acceptor(&Identity::new(name)?)
            .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))?;
        let connections = Arc::<AtomicU64>::default();
        let body = Arc::new(vec![b'x'; response]);
        for (port, tls) in [(80, None), (443, Some(tls))] {
            let listener = node.run(|| TcpListener::bind(("0.0.0.0", port))).flatten();
            let listener = listener.map_err(|error| network::not_started(&error))?;
            let (connections, body) = (Arc::clone(&connections), Arc::clone(&body));
            // A socket stays in the namespace in which it was made.
            thread::spawn(move || {
                for tcp in listener.incoming() {
                    let Ok(tcp) = tcp else {
                        // A resource, such as file descriptors, is short for a while.
                        thread::sleep(SHORTAGE);
                        continue;
                    };
                    connections.fetch_add(1, Ordering::Relaxed);
                    let (tls, body) = (tls.clone(), Arc::clone(&body));
                    thread::spawn(move || serve(tcp, tls.as_ref(), &body));
                }
            });
        }
        Ok(Self { connections })
    }

    /// Connections so far.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

fn acceptor(identity: &Identity) -> Result<SslAcceptor, ErrorStack> {
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    tls.set_certificate(&identity.certificate)?;
    tls.set_private_key(&identity.key)?;
    Ok(tls.build())
}

fn serve(tcp: TcpStream, tls: Option<&SslAcceptor>, body: &[u8]) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    match tls {
        None => answer(tcp, body),
        Some(tls) => answer(tls.accept(tcp).map_err(io::Error::other)?, body),
    }
}

/// Answers one request after the other, each with the same.
fn answer(mut client: impl Read + Write, body: &[u8]) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = [head.as_bytes(), body].concat();
    loop {
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") {
            let read = client.read(&mut buffer)?;
            if read == 0 || request.len() > HEAD_MAX {
                return Ok(());
            }
            request.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        client.write_all(&response)?;
    }
}
