//! Connections: a thread for each, with one request.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::content;
use crate::sys::{Connection, Context, Names};

/// Connections at one time; more than experiments without load have. Each is a thread, 2 MB of
/// addresses.
const CONNECTIONS_MAX: usize = 256;

/// Time that a client may be silent; longer than any of an experiment waits.
const SILENCE: Duration = Duration::from_secs(60);

/// Pause after accepting failed, as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a response in its first record, and in each further one, as with the other servers of
/// the lab (crates/openers/src/server.rs), so that a client can read the first packet when it is
/// there.
const FIRST_WRITE: usize = 1300;
const WRITE: usize = 16 * 1024;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    context: Context,
    /// Names that a connection must have been opened with.
    names: Names,
}

impl Server {
    /// Answers to those who use both names.
    pub(crate) fn new(context: Context, inner: &str, outer: &str) -> Self {
        let names = Names { inner: inner.to_owned(), outer: outer.to_owned() };
        Self { context, names }
    }

    fn serve(&self, tcp: TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(SILENCE))?;
        tcp.set_write_timeout(Some(SILENCE))?;
        let mut stream = Connection::accept(&self.context, tcp)?;
        let asked = read_request(&mut stream)?;
        // Known once anything was read: the ClientHello has come by then.
        let names = stream.ech_names()?;
        if names != self.names {
            return Err(io::Error::other(format!("opened with {names:?}")));
        }
        let (first, bytes) = content::head(asked);
        respond(&mut stream, first, bytes)?;
        stream.shutdown()
    }
}

/// Serves until the process ends.
pub(crate) fn accept(listener: &TcpListener, server: &Arc<Server>) {
    loop {
        let Ok((tcp, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        // Each connection holds the server. One too many is closed at once, which its client sees.
        if Arc::strong_count(server) > CONNECTIONS_MAX {
            continue;
        }
        let server = Arc::clone(server);
        // A thread that cannot be had closes the connection, too.
        let _ = thread::Builder::new().spawn(move || {
            if let Err(error) = server.serve(tcp) {
                eprintln!("connection: {error}");
            }
        });
    }
}

fn read_request(stream: &mut Connection) -> io::Result<Result<u64, &'static str>> {
    let (mut request, mut room) = (Vec::new(), [0; 2048]);
    loop {
        if let Some(asked) = content::asked(&request).transpose() {
            return Ok(asked);
        }
        let count = stream.read(&mut room)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(room.get(..count).unwrap_or_default());
    }
}

/// Head and content, in records of the sizes above.
fn respond(stream: &mut Connection, head: Vec<u8>, bytes: u64) -> io::Result<()> {
    let (mut piece, mut sent, mut most) = (head, 0, FIRST_WRITE);
    loop {
        let left = usize::try_from(bytes - sent).unwrap_or(usize::MAX);
        let (from, more) = (piece.len(), left.min(most - piece.len()));
        piece.resize(from + more, 0);
        content::fill(sent, piece.get_mut(from..).unwrap_or_default());
        if piece.is_empty() {
            return Ok(());
        }
        stream.write_all(&piece)?;
        sent += u64::try_from(more).unwrap_or(0);
        piece.clear();
        most = WRITE;
    }
}
