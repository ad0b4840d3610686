//! A SOCKS5 proxy that records requests and connects to this machine for all, and a client (RFC
//! 1928, RFC 1929).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::daemon::PATIENCE;

/// A client's request to the proxy.
#[derive(Clone, Default)]
pub(crate) struct Request {
    /// Host as the client wrote it, and port.
    pub(crate) target: String,
    /// User name, if one was offered.
    pub(crate) user: Option<String>,
}

pub(crate) struct Proxy {
    pub(crate) at: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Proxy {
    /// Starts a proxy that replies with this code, and passes bytes if that is 0, which is success.
    pub(crate) fn start(code: u8) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let recorded = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let recorded = Arc::clone(&recorded);
                thread::spawn(move || serve(client, code, &recorded));
            }
        });
        Self { at, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_bytes<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_text(client: &mut TcpStream) -> io::Result<String> {
    let [length] = read_bytes(client)?;
    let mut text = vec![0; length.into()];
    client.read_exact(&mut text)?;
    Ok(String::from_utf8(text).unwrap())
}

fn serve(mut client: TcpStream, code: u8, recorded: &Mutex<Vec<Request>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let [5, 1, method] = read_bytes(&mut client)? else { return Ok(()) };
    client.write_all(&[5, method])?;
    let mut request = Request::default();
    if method == 2 {
        read_bytes::<1>(&mut client)?;
        request.user = Some(read_text(&mut client)?);
        let _password = read_text(&mut client)?;
        client.write_all(&[1, 0])?;
    }
    let [5, 1, 0, kind] = read_bytes(&mut client)? else { return Ok(()) };
    let host = match kind {
        1 => Ipv4Addr::from(read_bytes::<4>(&mut client)?).to_string(),
        _ => read_text(&mut client)?,
    };
    let port = u16::from_be_bytes(read_bytes(&mut client)?);
    request.target = format!("{host}:{port}");
    recorded.lock().unwrap().push(request);
    client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0])?;
    if code == 0 {
        let target = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let (from, to) = (client.try_clone()?, target.try_clone()?);
        thread::spawn(move || copy(from, to));
        copy(target, client);
    }
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Connects to a host through `agent`. Returns the stream, or the code of a reply that refuses.
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
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    if let Some(user) = user {
        let length = u8::try_from(user.len()).unwrap();
        stream.write_all(&[&[1, length], user.as_bytes(), &[1, b'x']].concat()).unwrap();
        stream.read_exact(&mut answer).unwrap();
    }
    let length = u8::try_from(host.len()).unwrap();
    let request = [&[5, 1, 0, 3, length], host.as_bytes(), &port.to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    if reply[1] == 0 { Ok(stream) } else { Err(reply[1]) }
}

/// Starts an echo server, and returns its port.
pub(crate) fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || copy(client.try_clone().unwrap(), client));
        }
    });
    port
}
