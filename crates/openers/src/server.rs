use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use headstart_net::{Acceptor, AcceptorConfig, Arrival, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_openssl::SslStream;

use crate::arm::Arm;
use crate::content::{Answer, Requests};
use crate::error::PeerError;
use crate::fast_open;
use crate::flight;
use crate::identity::Identity;
use crate::limits::{FIRST_WRITE, PAUSE};
use crate::options::ServerOptions;
use crate::psk::Keyring;
use crate::quic;
use crate::serving::{Broken, Tasks, end, half_rtt, listen};
use crate::tls::{self, Prepared};
use headstart_proto::Carrier;

/// Serves one arm until it is dropped.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    flight_bytes: usize,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens, and serves in tasks of the tokio runtime it is called in.
    ///
    /// # Errors
    /// Options that do not go together, an address or directory that cannot be used.
    pub fn start(options: ServerOptions) -> Result<Self, PeerError> {
        options.check()?;
        let ServerOptions { arm, suite, name, .. } = &options;
        let identity = Identity::obtain(&options.identity, *suite, name, options.flight)?;
        let flight_bytes = flight::measure(*suite, &identity, name)?;
        let early = arm.sends_early_data();
        let (local, task) = match arm.carrier() {
            _ if arm.is_clear() => {
                let fast_open = arm.opens_fast();
                serve_clear(options.addresses(), fast_open).map_err(|e| options.unusable(&e))?
            }
            _ if arm.exports_key() => serve_keys(&options, &identity)?,
            Carrier::Quic => quic::serve(options.addresses(), *suite, &identity, early)?,
            Carrier::FastOpen | Carrier::Fop => fast_open::serve(&options, &identity)?,
            _ if *arm == Arm::FOP_AGENT => {
                serve_clear(options.addresses(), false).map_err(|e| options.unusable(&e))?
            }
            carrier => {
                let tls = Arc::new(Prepared::new(tls::server(*suite, &identity, early)?)?);
                let started = match carrier {
                    Carrier::TurboTls => serve_turbo(&options, &tls),
                    _ => serve_tcp(options.addresses(), &tls, early),
                };
                started.map_err(|error| options.unusable(&error))?
            }
        };
        Ok(Self { local, flight_bytes, task })
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of its first flight in a full handshake over TCP, TLS records included.
    pub const fn flight_bytes(&self) -> usize {
        self.flight_bytes
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn serve_tcp(
    addresses: impl Iterator<Item = SocketAddr>,
    tls: &Arc<Prepared>,
    early: bool,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let serve = {
        let tls = Arc::clone(tls);
        move |tcp: TcpStream| {
            let tls = Arc::clone(&tls);
            async move { end(serve(tcp, &tls, early)).await }
        }
    };
    accept(addresses, false, serve)
}

/// Without TLS: of pages of old, and an origin for an edge that speaks TLS itself.
fn serve_clear(
    addresses: impl Iterator<Item = SocketAddr>,
    fast_open: bool,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    accept(addresses, fast_open, |tcp| end(exchange_clear(tcp)))
}

/// Accepts at all addresses, with data in SYNs or without; gives the first.
fn accept<Served: Future<Output = ()> + Send + 'static>(
    addresses: impl Iterator<Item = SocketAddr>,
    fast_open: bool,
    serve: impl Fn(TcpStream) -> Served + Clone + Send + 'static,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let mut accepting = JoinSet::new();
    let mut local = None;
    for address in addresses {
        let listener = listen(address, fast_open)?;
        local.get_or_insert(listener.local_addr()?);
        accepting.spawn(accept_at(listener, serve.clone()));
    }
    let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((local, tokio::spawn(async move { while accepting.join_next().await.is_some() {} })))
}

async fn accept_at<Served: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> Served,
) {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => {
                // A client that is already gone shows at the first read.
                let _ = tcp.set_nodelay(true);
                tokio::spawn(serve(tcp));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Listens on all addresses, each with an acceptor of its own; returns the first.
fn serve_turbo(
    options: &ServerOptions,
    tls: &Arc<Prepared>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let early = options.arm.sends_early_data();
    let mut accepting = JoinSet::new();
    let mut local = None;
    for address in options.addresses() {
        let server = ServerConfig { early_data: early, ..ServerConfig::default() };
        let udp_workers = options.udp_workers;
        let config = AcceptorConfig { server, udp_workers, ..AcceptorConfig::default() };
        let acceptor = Acceptor::bind(address, config)?;
        local.get_or_insert(acceptor.local_addr());
        accepting.spawn(accept_arrivals(acceptor, Arc::clone(tls), early));
    }
    let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((local, tokio::spawn(async move { while accepting.join_next().await.is_some() {} })))
}

/// Serves handshakes over UDP and, with their keys or without, on TCP.
fn serve_keys(
    options: &ServerOptions,
    identity: &Identity,
) -> Result<(SocketAddr, JoinHandle<()>), PeerError> {
    let keys = Keyring::new();
    let tls = tls::server_with_keys(options.suite, identity, keys.find())?;
    let tls = Arc::new(Prepared::new(tls)?);
    let on_tcp = serve_tcp(options.addresses(), &tls, true);
    let (local, on_tcp) = on_tcp.map_err(|error| options.unusable(&error))?;
    let mut tasks = Tasks(vec![on_tcp]);
    tasks.0.push(keys.serve(local, tls).map_err(|error| options.unusable(&error))?);
    Ok((local, tokio::spawn(tasks.run())))
}

async fn accept_arrivals(mut acceptor: Acceptor, tls: Arc<Prepared>, early: bool) {
    loop {
        match acceptor.accept().await {
            Ok(arrival) => {
                let tls = Arc::clone(&tls);
                tokio::spawn(end(serve_arrival(arrival, tls, early)));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn serve_arrival(arrival: Arrival, tls: Arc<Prepared>, early: bool) -> Result<(), Broken> {
    // `None` is the TCP part of a connection that another task serves already.
    let Some(stream) = arrival.establish().await? else { return Ok(()) };
    serve(stream, &tls, early).await
}

/// The requests of one connection and their answers.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    tls: &Prepared,
    early: bool,
) -> Result<(), Broken> {
    let served = exchange(SslStream::new(tls.take()?, stream)?, early).await;
    tls.refill()?;
    served
}

async fn exchange(
    mut stream: SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    early: bool,
) -> Result<(), Broken> {
    let mut requests = Requests::default();
    let mut begun = None;
    if early {
        begun = read_early(&mut stream, &mut requests).await?;
    }
    Pin::new(&mut stream).accept().await?;
    let first = match begun {
        Some(begun) => Some(begun),
        None => begin(&mut stream, &mut requests).await?,
    };
    answer_all(&mut stream, requests, first).await?;
    Ok(stream.shutdown().await?)
}

/// The same without TLS.
async fn exchange_clear(mut tcp: TcpStream) -> Result<(), Broken> {
    let mut requests = Requests::default();
    let first = begin(&mut tcp, &mut requests).await?;
    answer_all(&mut tcp, requests, first).await?;
    Ok(tcp.shutdown().await?)
}

/// Takes requests until one is the last, or the client asks for no more.
async fn answer_all(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut requests: Requests,
    first: Option<Answer>,
) -> Result<(), Broken> {
    let mut next = first;
    while let Some(mut answer) = next {
        loop {
            let piece = answer.next(answer.piece());
            if piece.is_empty() {
                break;
            }
            stream.write_all(&piece).await?;
        }
        if answer.is_last {
            return Ok(());
        }
        next = begin(stream, &mut requests).await?;
    }
    Ok(())
}

/// The answer to the next request, whose first record is written; none where the client asks for no
/// more.
async fn begin(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    requests: &mut Requests,
) -> Result<Option<Answer>, Broken> {
    let Some(mut answer) = read_request(stream, requests).await? else { return Ok(None) };
    answer.think().await;
    stream.write_all(&answer.next(FIRST_WRITE)).await?;
    Ok(Some(answer))
}

/// Takes early data, and begins to answer if the whole request was in it.
async fn read_early(
    stream: &mut SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    requests: &mut Requests,
) -> Result<Option<Answer>, Broken> {
    let mut answer = None;
    let mut buffer = [0; 2048];
    loop {
        let count = Pin::new(&mut *stream).read_early_data(&mut buffer).await?;
        if count == 0 {
            return Ok(answer);
        }
        requests.take(buffer.get(..count).unwrap_or_default());
        if answer.is_none()
            && let Some(asked) = requests.poll()
        {
            let mut begun = Answer::new(asked);
            begun.think().await;
            for piece in half_rtt(&mut begun) {
                write_half_rtt(stream, &piece).await?;
            }
            answer = Some(begun);
        }
    }
}

async fn write_half_rtt(
    stream: &mut SslStream<impl AsyncRead + AsyncWrite + Unpin>,
    mut left: &[u8],
) -> Result<(), Broken> {
    while !left.is_empty() {
        let count = Pin::new(&mut *stream).write_early_data(left).await?;
        left = left.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// The next request; none where the client asks for no more. Early data may have brought a part of
/// it.
async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    requests: &mut Requests,
) -> Result<Option<Answer>, Broken> {
    let mut buffer = [0; 2048];
    loop {
        if let Some(asked) = requests.poll() {
            return Ok(Some(Answer::new(asked)));
        }
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        requests.take(buffer.get(..count).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Suite;
    use crate::content::request;
    use crate::limits::{HALF_RTT_MAX, HALF_RTT_WRITE, WRITE};
    use crate::options::NAME;
    use crate::sys;
    use crate::tls::{Connection, Tls};

    /// Bytes of the pieces in which TLS hands out a response, of which none is more than a record;
    /// and whether the request was early data.
    async fn pieces(client: &Tls, server: SocketAddr, bytes: u64) -> (Vec<usize>, bool) {
        let near = TcpStream::connect(server).await.unwrap();
        let Connection { ssl, session } = client.connection().unwrap();
        let mut stream = SslStream::new(ssl, near).unwrap();
        let request = request(NAME, bytes);
        if session.is_some() {
            Pin::new(&mut stream).write_early_data(&request).await.unwrap();
        }
        Pin::new(&mut stream).connect().await.unwrap();
        if session.is_none() {
            stream.write_all(&request).await.unwrap();
        }
        let (mut buffer, mut pieces) = (vec![0; 1 << 16], Vec::new());
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => pieces.push(count),
            }
        }
        let accepted = sys::early_data_accepted(stream.ssl());
        // A session of a connection that was broken off cannot be resumed.
        stream.shutdown().await.unwrap();
        (pieces, accepted)
    }

    #[tokio::test]
    async fn the_first_record_of_a_response_fits_one_packet() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::obtain(directory.path(), Suite::P256, NAME, None).unwrap();
        let tls = tls::server(Suite::P256, &identity, true).unwrap();
        let any_port = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let tls = Arc::new(Prepared::new(tls).unwrap());
        let (server, _serving) = serve_tcp([any_port].into_iter(), &tls, true).unwrap();
        let roots = identity.root().cloned().into_iter().collect();
        let client = Tls::client(Suite::P256, roots, NAME, true).unwrap();
        for early in [false, true] {
            let (pieces, accepted) = pieces(&client, server, 50_000).await;
            assert_eq!(accepted, early, "{pieces:?}");
            assert!((1000..=1300).contains(&pieces[0]), "{pieces:?}");
            // Full ones then, but where the server waits for the client's Finished.
            let most = if early { 6 + HALF_RTT_MAX / HALF_RTT_WRITE } else { 6 };
            assert!(pieces[1..].contains(&WRITE) && pieces.len() <= most, "{pieces:?}");
            let head = pieces.iter().sum::<usize>() - 50_000;
            assert!((50..300).contains(&head), "{pieces:?}");
        }
        // A short one is in one record, its head with it.
        let (pieces, _) = pieces(&client, server, 1000).await;
        assert_eq!(pieces.len(), 1, "{pieces:?}");
    }
}
