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
use crate::serving::{Broken, Tasks, end, half_rtt, listen};
use headstart_proto::Carrier;

/// Serves an arm over plain TCP or Fast Open at every address of `options`.
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

/// Opens the listener to which the BPF program steers SYNs with valid cookies, and the program's
/// maps. Returns `None` if `options` names no maps: clients then get cookies, but every connection
/// starts with an ordinary handshake.
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
        .map_err(|error| PeerError::new(format!("cannot configure the BPF program: {error}")))?;
    Ok(Some((hidden, maps)))
}

fn unavailable(error: Unavailable) -> PeerError {
    PeerError::new(format!("no Fast Open: {error}")).with_hint(error.hint())
}

/// Updates the BPF program's clock and removes expired cookies from its maps until it is aborted.
async fn refresh(mut maps: ServerMaps) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let refreshed = spawn_blocking(move || {
            if let Err(error) = maps.refresh() {
                tracing::debug!(%error, "cannot refresh the BPF program's maps");
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

/// Accepts the connections that the BPF program steered here. Others come from local programs, and
/// nothing checked a cookie for them.
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
        // If the client is already gone, the first read fails.
        let _ = tcp.set_nodelay(true);
        let conn = tls.accept(peer.ip(), engine::now())?;
        exchange(Wire::new(conn, tcp)).await
    }));
}

/// Answers the requests of one connection.
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
        // The client may wait for this response before it sends another request.
        wire.flush().await?;
        next = begin_answer(&mut wire, &mut requests).await?;
    }
    Ok(wire.close().await?)
}

/// Reads the next request, of which early data may have brought a part, and writes the first record
/// of its answer. Returns the answer, or `None` at the end of the client's stream.
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
