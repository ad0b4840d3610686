//! Takes connections of programs on the socket and on the port.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use headstart_net::Carrier;
use socket2::Type;
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;

use super::caller::Caller;
use super::exchange;
use super::limits::REQUEST_TIME;
use super::options::ManagedOptions;
use super::program_stream::ProgramStream;
use super::proof::Gate;
use super::token::Token;
use crate::agent::options::AgentOptions;
use crate::agent::serve::{Permits, Settings};
use crate::base::failure::Failure;
use crate::base::unix_socket::SocketKind;
use crate::daemon::Running;
use crate::listen::{self, Sockets};
use crate::metrics::{self, Connection, Outcome, Role};
use crate::shares::Owner;

/// Answer to a user who has too many connections, sent without any more effort.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    headstart-error: overloaded\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    connection: close\r\n\
    content-length: 104\r\n\
    \r\n\
    this user has too many connections\n\
    hint: close some, or start the agent with a larger --max-connections\n";

/// Takes the connections of a listener.
pub(in crate::agent) type Listening = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Advice where another agent has the socket.
const IN_USE: &str = "an agent runs already; stop it first, or give --socket another path";

/// Listens where `options` say; returns what takes connections, to be spawned.
///
/// # Errors
/// An address that cannot be listened on, a token that cannot be used.
pub(in crate::agent) fn start(
    options: &AgentOptions,
    sockets: &mut Sockets,
    permits: &Permits,
    running: impl Fn() -> Running<Settings>,
) -> Result<Vec<Listening>, Failure> {
    let port = options.managed.port()?;
    let token = port.map(|(_, file)| Token::open(file)).transpose()?.map(Arc::new);
    let mut listening = Vec::<Listening>::new();
    if let Some((address, _)) = port {
        let listener = sockets.tcp(address)?;
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "listening for managed TLS");
        listening.push(Box::pin(accept(listener, token, permits.clone(), running())));
    }
    if let Some(path) = &options.managed.socket {
        let ManagedOptions { socket_mode: mode, socket_group: group, .. } = options.managed;
        let kind = SocketKind { kind: Type::STREAM, mode, group, in_use: IN_USE };
        let listener = sockets.unix(path, kind)?;
        tracing::info!(socket = %path.display(), "listening for managed TLS");
        listening.push(Box::pin(accept(listener, None, permits.clone(), running())));
    }
    Ok(listening)
}

/// A socket that programs connect to.
trait Listener: Send + Sync {
    fn accept(&self) -> impl Future<Output = io::Result<ProgramStream>> + Send;
}

impl Listener for UnixListener {
    async fn accept(&self) -> io::Result<ProgramStream> {
        self.accept().await.map(ProgramStream::from)
    }
}

impl Listener for TcpListener {
    async fn accept(&self) -> io::Result<ProgramStream> {
        self.accept().await.map(ProgramStream::from)
    }
}

async fn accept<L: Listener>(
    listener: L,
    token: Option<Arc<Token>>,
    permits: Permits,
    mut running: Running<Settings>,
) {
    loop {
        let local = match running.until_stop(listener.accept()).await {
            Some(Ok(local)) => local,
            Some(Err(error)) => {
                listen::after_failed_accept(&error).await;
                continue;
            }
            None => break,
        };
        // One that is gone already has no addresses.
        let Ok(gate) = gate(token.as_ref(), &local) else { continue };
        let user = local.user();
        let process = local.process();
        // The port is one of loopback, and its unknown users are one.
        let owner = Owner::new(user, None);
        let Some(waiting) = permits.waiting.take(owner) else {
            refuse(&local);
            continue;
        };
        let (task, shares) = (running.permits.task(), Arc::clone(&permits.running));
        let caller = Caller { user, process, gate };
        let (settings, stopping) = (running.settings(), running.stopping());
        tokio::spawn(async move {
            let _task = task;
            let mut stopping = pin!(stopping);
            let counted = Connection::accepted(Role::Agent);
            let begun = tokio::select! {
                begun = timeout(REQUEST_TIME, local.begun()) => begun,
                () = stopping.as_mut() => return,
            };
            if begun.is_err() {
                metrics::limit_hit("managed_slow");
                return;
            }
            let Some(_permit) = shares.take(owner) else {
                refuse(&local);
                counted.finish(Carrier::Tcp.name(), Outcome::Refused);
                return;
            };
            drop(waiting);
            exchange::serve(local, caller, settings, counted, stopping).await;
        });
    }
}

/// Tells a program that its user has too many connections.
fn refuse(local: &ProgramStream) {
    metrics::limit_hit("managed_user");
    // Unread, it would be a reset behind the answer.
    local.discard_now();
    let _ = local.send_now(TOO_MANY);
}

/// Makes the gate of a connection, where there is a token to be proved.
fn gate(token: Option<&Arc<Token>>, local: &ProgramStream) -> io::Result<Option<Arc<Gate>>> {
    let Some(token) = token else { return Ok(None) };
    let (client, agent) = local.addresses()?;
    Ok(Some(Arc::new(Gate::new(Arc::clone(token), client, agent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_answer_is_well_formed() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
