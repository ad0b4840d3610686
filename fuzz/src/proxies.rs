//! Clients of the agent's proxy port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;

use headstart::agent::inbound::{self, Inbound, Target, Timeouts, Via};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::{pieces, run, settle};

/// Any bytes as a client of the proxy port, the first says how they are cut: read in pieces they
/// say the same as whole, where to is what the protocol says, and all bytes behind that pass.
pub fn proxies(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let whole = run(visit(stream, stream.len().max(1)));
    let cut = run(visit(stream, pieces(stream, cut)));
    match (&whole.came, &cut.came) {
        (Came::Wants(target, rest), Came::Wants(other, other_rest)) => {
            assert_eq!((target, rest), (other, other_rest));
            // Dates have one length.
            assert_eq!(whole.reply.len(), cut.reply.len());
            let request = stream.strip_suffix(&rest[..]).expect("bytes that the client sent");
            match target.via {
                Via::Socks5 => socks(request, target, &whole.reply),
                _ => connect(request, target, &whole.reply),
            }
        }
        // The library looks into a head that comes in pieces only when it is whole.
        (Came::Refused("malformed"), Came::Refused("closed")) if stream[0] != 5 => {}
        (whole, cut) => assert_eq!(whole, cut),
    }
}

/// A client's visit.
struct Visit {
    came: Came,
    /// Bytes that the client was sent.
    reply: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// It was told yes, and sent these bytes behind its request.
    Wants(Target, Vec<u8>),
    /// Label of the refusal.
    Refused(&'static str),
}

/// Sends a stream in pieces of a length.
async fn visit(stream: &[u8], length: usize) -> Visit {
    let (client, agent) = Pair::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    agent.set_nonblocking(true).unwrap();
    let mut client = UnixStream::from_std(client).unwrap();
    // A socket all the same: only its addresses differ, for which nobody asks here.
    let agent = TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(agent))).unwrap();
    let serving = tokio::spawn(serve(agent));
    for piece in stream.chunks(length) {
        // One that was refused does not listen any more.
        let _ = client.write_all(piece).await;
        settle().await;
    }
    let _ = client.shutdown().await;
    let mut reply = Vec::new();
    let _ = client.read_to_end(&mut reply).await;
    drop(client);
    Visit { came: serving.await.unwrap(), reply }
}

async fn serve(agent: TcpStream) -> Came {
    match inbound::accept(agent, None, Timeouts::default()).await {
        Ok(Inbound { target, answer }) => {
            let (mut stream, rest) = answer.success().await.unwrap();
            let mut rest = rest.to_vec();
            stream.read_to_end(&mut rest).await.unwrap();
            Came::Wants(target, rest)
        }
        Err(refusal) => Came::Refused(refusal.label()),
    }
}

/// RFC 1928 and 1929: version, methods, a login if there is that method, the request.
fn socks(request: &[u8], target: &Target, reply: &[u8]) {
    let mut at = Cursor(request);
    assert_eq!(at.byte(), 5);
    let methods = at.counted();
    let mut expected = vec![5, 0];
    let mut context = None;
    if methods.contains(&2) {
        assert_eq!(at.byte(), 1);
        let user = String::from_utf8(at.counted().to_vec()).unwrap();
        context = Some(user).filter(|user| !user.is_empty());
        at.counted();
        expected = vec![5, 2, 1, 0];
    } else {
        assert!(methods.contains(&0), "no method in common");
    }
    assert_eq!((at.byte(), at.byte()), (5, 1), "CONNECT");
    at.byte();
    let host = match at.byte() {
        1 => IpAddr::from(Ipv4Addr::from(*at.take(4).first_chunk().unwrap())).to_string(),
        3 => String::from_utf8(at.counted().to_vec()).unwrap(),
        4 => IpAddr::from(Ipv6Addr::from(*at.take(16).first_chunk().unwrap())).to_string(),
        other => panic!("an address of kind {other}"),
    };
    let port = u16::from_be_bytes(*at.take(2).first_chunk().unwrap());
    assert!(at.0.is_empty(), "bytes were lost");
    expected.extend([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(reply, expected);
    assert_eq!((&target.context, target.port), (&context, port));
    assert!(port != 0);
    same_host(&host, target);
}

/// RFC 9110 section 9.3.6: a method, an authority, no body.
fn connect(request: &[u8], target: &Target, reply: &[u8]) {
    assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n") || reply.starts_with(b"HTTP/1.0 200 OK\r\n"));
    assert!(reply.ends_with(b"\r\n\r\n"));
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut fields);
    let length = head.parse(request).unwrap();
    assert_eq!(length, httparse::Status::Complete(request.len()), "bytes were lost");
    assert_eq!(head.method, Some("CONNECT"));
    let (host, port) = head.path.unwrap().rsplit_once(':').unwrap();
    assert_eq!(port.parse(), Ok(target.port));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    same_host(bare.unwrap_or(host), target);
    assert_eq!(target.context, None);
}

/// Names have one spelling, and addresses are addresses however they are written.
fn same_host(written: &str, target: &Target) {
    let host = target.host.to_string();
    match written.parse::<IpAddr>() {
        Ok(ip) => assert_eq!(host, ip.to_canonical().to_string()),
        Err(_) => {
            let name = written.strip_suffix('.').unwrap_or(written);
            assert_eq!(host, name.to_ascii_lowercase());
            assert!(host.bytes().all(|b| b.is_ascii_graphic() && !b"/@:[]".contains(&b)));
        }
    }
}

/// Bytes that are read one after the other.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    /// Takes bytes with their number before them.
    fn counted(&mut self) -> &'a [u8] {
        let length = self.byte();
        self.take(length.into())
    }
}
