//! A SOCKS5 proxy that connects to any target and records its requests, and a client.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::daemon::PATIENCE;

/// Requests and answers that its clients say and hear.
#[derive(Clone, Default)]
pub(crate) struct Request {
    /// Host, as it was written, and port.
    pub(crate) target: String,
    /// User name, if one was offered.
    pub(crate) user: Option<String>,
}

pub(crate) struct Proxy {
    pub(crate) at: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Proxy {
    /// Starts a proxy that replies with this code, and passes bytes if that is 0. It resolves every
    /// name to this machine.
    pub(crate) fn start(code: u8) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                thread::spawn(move || serve(client, code, &seen));
            }
        });
        Self { at, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn bytes<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn text(client: &mut TcpStream) -> io::Result<String> {
    let [length] = bytes(client)?;
    let mut text = vec![0; length.into()];
    client.read_exact(&mut text)?;
    Ok(String::from_utf8(text).unwrap())
}

fn serve(mut client: TcpStream, code: u8, seen: &Mutex<Vec<Request>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let [5, 1, method] = bytes(&mut client)? else { return Ok(()) };
    client.write_all(&[5, method])?;
    let mut request = Request::default();
    if method == 2 {
        bytes::<1>(&mut client)?;
        request.user = Some(text(&mut client)?);
        text(&mut client)?;
        client.write_all(&[1, 0])?;
    }
    let [5, 1, 0, kind] = bytes(&mut client)? else { return Ok(()) };
    let host = match kind {
        1 => Ipv4Addr::from(bytes::<4>(&mut client)?).to_string(),
        _ => text(&mut client)?,
    };
    let port = u16::from_be_bytes(bytes(&mut client)?);
    request.target = format!("{host}:{port}");
    seen.lock().unwrap().push(request);
    client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0])?;
    if code == 0 {
        let target = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let (from, to) = (client.try_clone()?, target.try_clone()?);
        thread::spawn(move || pass(from, to));
        pass(target, client);
    }
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Asks by SOCKS5; the stream, or the reply's code.
pub(crate) fn socks(
    agent: SocketAddr,
    user: Option<&str>,
    host: &str,
    port: u16,
) -> Result<TcpStream, u8> {
    let mut stream = TcpStream::connect(agent).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let method = if user.is_some() { 2 } else { 0 };
    stream.write_all(&[5, 1, method]).unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).unwrap();
    if let Some(user) = user {
        let length = u8::try_from(user.len()).unwrap();
        stream.write_all(&[&[1, length], user.as_bytes(), &[1, b'x']].concat()).unwrap();
        stream.read_exact(&mut two).unwrap();
    }
    let length = u8::try_from(host.len()).unwrap();
    let request = [&[5, 1, 0, 3, length], host.as_bytes(), &port.to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    if reply[1] == 0 { Ok(stream) } else { Err(reply[1]) }
}

/// An echo on this machine.
pub(crate) fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut from, mut to) = (client.try_clone().unwrap(), client);
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    port
}
