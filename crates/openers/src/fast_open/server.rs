use std::net::SocketAddr;
use std::sync::Arc;

use headstart_net::fastopen::{HiddenListener, REFRESH, ServerMaps, Unavailable};
use headstart_tls::{Progress, ServerContext};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_blocking};

use super::engine::{self, Served};
use super::wire::Wire;
use crate::content::{Answer, Requests};
use crate::error::PeerError;
use crate::identity::Identity;
use crate::limits::{FIRST_WRITE, PAUSE};
use crate::options::ServerOptions;
use crate::serving::{Broken, end, half_rtt, listen};
use headstart_proto::Carrier;

/// Serves one of these arms at all of its addresses.
pub(crate) fn serve(
    options: &ServerOptions,
    identity: &Identity,
) -> Result<(SocketAddr, JoinHandle<()>), PeerError> {
    let served = engine::server(options.arm, options.suite, identity, options.cookie_life)?;
    let fast_open = options.arm.carrier() == Carrier::FastOpen;
    let listeners: Vec<_> = options
        .addresses()
        .map(|address| listen(address, fast_open).map_err(|error| options.unusable(&error)))
        .collect::<Result<_, _>>()?;
    let local = listeners.first().map_or(Ok(options.listen), TcpListener::local_addr);
    let local = local.map_err(|error| options.unusable(&error))?;
    let mut tasks = Tasks(Vec::new());
    if let Some((hidden, maps)) = hidden(options, &served, local, &listeners)? {
        tasks.0.push(tokio::spawn(accept_hidden(hidden, Arc::clone(&served.tls))));
        tasks.0.push(tokio::spawn(refresh(maps)));
    }
    for listener in listeners {
        tasks.0.push(tokio::spawn(accept(listener, Arc::clone(&served.tls))));
    }
    Ok((local, tokio::spawn(tasks.run())))
}

/// Tasks that end with this value.
struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    async fn run(mut self) {
        for task in &mut self.0 {
            let _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// The listener to which the kernel's program gives SYNs with valid cookies, and what it is told
/// by. Without the program's maps there is none: clients are given cookies, and their connections
/// are ordinary ones.
fn hidden(
    options: &ServerOptions,
    served: &Served,
    public: SocketAddr,
    listeners: &[TcpListener],
) -> Result<Option<(HiddenListener, ServerMaps)>, PeerError> {
    let Some(dir) = options.fast_open_maps.as_ref() else { return Ok(None) };
    let mut maps = ServerMaps::open(dir).map_err(unavailable)?;
    let hidden = HiddenListener::bind(public).map_err(unavailable)?;
    let cookies = served.keys.current().cookies();
    maps.set_keys(&cookies, served.cookie_life)
        .and_then(|()| maps.set_hidden(&hidden))
        .and_then(|()| listeners.iter().try_for_each(|listener| maps.set_public(listener)))
        .map_err(|error| PeerError::new(format!("cannot tell the kernel's program: {error}")))?;
    Ok(Some((hidden, maps)))
}

fn unavailable(error: Unavailable) -> PeerError {
    PeerError::new(format!("no Fast Open: {error}")).with_hint(error.hint())
}

/// Tells the program the time and lets it forget cookies that have expired, as long as the server
/// runs.
async fn refresh(mut maps: ServerMaps) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let refreshed = spawn_blocking(move || {
            if let Err(error) = maps.refresh() {
                tracing::debug!(%error, "cookies of the kernel's program");
            }
            maps
        });
        match refreshed.await {
            Ok(again) => maps = again,
            Err(_) => return,
        }
    }
}

async fn accept(listener: TcpListener, tls: Arc<ServerContext>) {
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => begin(tcp, peer, &tls),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// A connection that was not steered here comes from a program of this machine, and no cookie was
/// looked at.
async fn accept_hidden(hidden: HiddenListener, tls: Arc<ServerContext>) {
    loop {
        match hidden.accept().await {
            Ok((tcp, peer)) if hidden.was_steered(&tcp) => begin(tcp, peer, &tls),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn begin(tcp: TcpStream, peer: SocketAddr, tls: &Arc<ServerContext>) {
    let tls = Arc::clone(tls);
    tokio::spawn(end(async move {
        // A client that is already gone shows at the first read.
        let _ = tcp.set_nodelay(true);
        let conn = tls.accept(peer.ip(), engine::now())?;
        exchange(Wire::new(conn, tcp)).await
    }));
}

/// The requests of one connection and their answers.
async fn exchange(mut wire: Wire) -> Result<(), Broken> {
    let mut requests = Requests::default();
    let mut begun = None;
    while wire.handshake().await? == Progress::EarlyData {
        while let Some(bytes) = wire.poll_read()? {
            requests.take(bytes);
        }
        if begun.is_none()
            && let Some(asked) = requests.poll()
        {
            // The content of TCP's initial window; more would wait for the client's Finished
            // anyway.
            let mut answer = Answer::new(asked);
            answer.think().await;
            for piece in half_rtt(&mut answer) {
                wire.write(&piece).await?;
            }
            begun = Some(answer);
        }
        wire.fill().await?;
    }
    let mut next = match begun {
        Some(begun) => Some(begun),
        None => begin_answer(&mut wire, &mut requests).await?,
    };
    while let Some(mut answer) = next {
        loop {
            let piece = answer.next(answer.piece());
            if piece.is_empty() {
                break;
            }
            wire.write(&piece).await?;
        }
        if answer.is_last {
            break;
        }
        // A client that waits for this response requests nothing else before.
        wire.flush().await?;
        next = begin_answer(&mut wire, &mut requests).await?;
    }
    Ok(wire.close().await?)
}

/// The answer to the next request, whose first record is written; none where the client asks for no
/// more. Early data may have brought a part of it.
async fn begin_answer(wire: &mut Wire, requests: &mut Requests) -> Result<Option<Answer>, Broken> {
    loop {
        if let Some(asked) = requests.poll() {
            let mut answer = Answer::new(asked);
            answer.think().await;
            wire.write(&answer.next(FIRST_WRITE)).await?;
            return Ok(Some(answer));
        }
        match wire.read().await? {
            Some(bytes) => requests.take(bytes),
            None => return Ok(None),
        }
    }
}
