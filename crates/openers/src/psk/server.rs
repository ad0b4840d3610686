use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headstart_net::{Datagram, Received, RecvBuffers, UdpPort};
use headstart_proto::{Instant, RouteTag, Server, ServerConfig, ServerEvent, SessionId};
use openssl::ssl::SslStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::{Key, Name, Secret};
use crate::flight::{Memory, step};
use crate::limits::PAUSE;
use crate::serving::Broken;
use crate::sys::FindKey;
use crate::tls::Prepared;

/// Messages read in one system call, 64 kB of memory each.
const BATCH: usize = 8;

/// Interval between checks of the sessions' deadlines, which are seconds long.
const TICK: Duration = Duration::from_millis(250);

/// Keys that wait for TCP, and the sessions of those that have come.
pub(crate) struct Keyring {
    keys: Arc<Keys>,
    used: UnboundedReceiver<Session>,
}

impl Keyring {
    /// Without keys.
    pub(crate) fn new() -> Self {
        let (used, received) = unbounded_channel();
        let keys = Arc::new(Keys { sessions: Mutex::default(), used });
        Self { keys, used: received }
    }

    /// The function by which TLS finds each key once.
    pub(crate) fn find(&self) -> FindKey {
        let keys = Arc::clone(&self.keys);
        Box::new(move |name| keys.spend(name))
    }

    /// Shakes hands over UDP at `address`, and takes the keys.
    pub(crate) fn serve(
        self,
        address: SocketAddr,
        tls: Arc<Prepared>,
    ) -> io::Result<JoinHandle<()>> {
        let port = UdpPort::listen(address, false)?;
        Ok(tokio::spawn(Datagrams::new(port, tls, self.keys).run(self.used)))
    }
}

/// Sessions over UDP by the names of their keys. Each of them has a place in the core, whose limits
/// bound these, too, and is forgotten with it.
struct Keys {
    sessions: Mutex<HashMap<Name, Session>>,
    used: UnboundedSender<Session>,
}

/// A session whose flight has been handed to the core.
struct Session {
    id: SessionId,
    peer: SocketAddr,
    hello: Vec<u8>,
    secret: Secret,
}

impl Keys {
    fn put(&self, name: Name, session: Session) {
        self.lock().insert(name, session);
    }

    /// Returns the secret of a key, which nobody gets a second time.
    fn spend(&self, name: &[u8]) -> Option<Secret> {
        let session = self.lock().remove(name)?;
        let secret = session.secret.clone();
        // Without a receiver the server is about to end.
        let _ = self.used.send(session);
        Some(secret)
    }

    fn forget(&self, id: SessionId) {
        self.lock().retain(|_, session| session.id != id);
    }

    /// No call can leave the table half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of datagrams: the core of every server of TurboTLS, and TLS of which only the first two
/// flights are spoken.
struct Datagrams {
    core: Server,
    port: UdpPort,
    tls: Arc<Prepared>,
    keys: Arc<Keys>,
    start: std::time::Instant,
}

impl Datagrams {
    fn new(port: UdpPort, tls: Arc<Prepared>, keys: Arc<Keys>) -> Self {
        // W-TAG-3
        let tag = RouteTag(rand::random_range(1..=u32::MAX).to_be_bytes());
        let core = Server::new(ServerConfig { tag, ..ServerConfig::default() });
        Self { core, port, tls, keys, start: std::time::Instant::now() }
    }

    async fn run(mut self, mut used: UnboundedReceiver<Session>) {
        let mut buffers = RecvBuffers::new(BATCH);
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                received = self.port.recv(&mut buffers) => match received {
                    Ok(_) => buffers.datagrams().for_each(|datagram| self.take(&datagram)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(session) = used.recv() => self.end(&session),
                _ = ticks.tick() => self.core.handle_timeout(self.now()),
            }
            self.work();
        }
    }

    fn now(&self) -> Instant {
        Instant::from_epoch(self.start.elapsed())
    }

    fn take(&mut self, datagram: &Received<'_>) {
        let Received { from, to, bytes } = *datagram;
        if let Err(reason) = self.core.handle_datagram(self.now(), from, Some(to), bytes) {
            tracing::debug!(?reason, "datagram dropped");
        }
    }

    /// Ends a session whose key came on TCP. The core takes this for a TCP connection with the
    /// ClientHello that it has: the address is proven, and its place is free.
    fn end(&mut self, session: &Session) {
        self.core.handle_plain(self.now(), session.peer, &session.hello);
    }

    fn work(&mut self) {
        // W-RUN-3: acknowledgements do not wait for handshakes.
        self.send();
        while let Some(event) = self.core.poll_event() {
            match event {
                ServerEvent::Started { id, peer, bytes, .. } => {
                    self.begin(id, peer, bytes);
                    self.send();
                    if let Err(error) = self.tls.refill() {
                        tracing::debug!(%error, "no TLS state ahead");
                    }
                }
                ServerEvent::Expired { id } => self.keys.forget(id),
                // Early data is not offered.
                ServerEvent::ClientBytes { .. } => {}
            }
        }
        self.send();
    }

    fn send(&mut self) {
        while let Some(transmit) = self.core.poll_transmit() {
            let datagram =
                Datagram { to: transmit.to, from: transmit.from, bytes: &transmit.bytes };
            // A datagram that cannot be sent now is lost, as on the network.
            let _ = self.port.try_send(&datagram);
        }
    }

    /// Answers a ClientHello with a whole flight, and keeps nothing of TLS but the key.
    fn begin(&mut self, id: SessionId, peer: SocketAddr, hello: Vec<u8>) {
        match self.shake_hands(id, &hello) {
            Ok((flight, Key { name, secret })) => {
                self.core.handle_origin_data(id, &flight);
                // So the session, and the key with it, ends when its promised time does.
                self.core.handle_origin_finished(id);
                self.keys.put(name, Session { id, peer, hello, secret });
            }
            Err(error) => {
                tracing::debug!(%error, "no handshake over UDP");
                self.core.handle_origin_lost(self.now(), id);
            }
        }
    }

    fn shake_hands(&self, id: SessionId, hello: &[u8]) -> Result<(Vec<u8>, Key), Broken> {
        let wire = Memory { to_read: hello.to_vec(), ..Memory::default() };
        let mut stream = SslStream::new(self.tls.take()?, wire)?;
        // It would go on with the client's Finished, which nobody sends.
        step(stream.accept())?;
        let key = Key::export(stream.ssl(), id)?;
        Ok((std::mem::take(&mut stream.get_mut().written), key))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use headstart_proto::limits::{SESSION_LIFE, SESSIONS_PER_ADDRESS};
    use headstart_proto::{Client, ClientConfig, JoinKey};

    use super::*;
    use crate::arm::Suite;
    use crate::identity::Identity;
    use crate::options::NAME;
    use crate::tls::{self, Tls};

    /// Datagrams of a client that begins a session.
    fn flight(tls: &Tls) -> Vec<Vec<u8>> {
        let ssl = tls.connection().unwrap().ssl;
        let mut stream = SslStream::new(ssl, Memory::default()).unwrap();
        step(stream.connect()).unwrap();
        let mut client = Client::new(JoinKey::new(rand::random()), ClientConfig::default());
        client.offer_udp(ClientConfig::default());
        client.handle_app_data(Instant::ZERO, &stream.get_ref().written);
        std::iter::from_fn(|| client.poll_datagram()).collect()
    }

    /// Has a client begin a session.
    fn begin(server: &mut Datagrams, client: &Tls) {
        for bytes in flight(client) {
            let from = (Ipv4Addr::LOCALHOST, 9).into();
            server.take(&Received { from, to: Ipv4Addr::LOCALHOST.into(), bytes: &bytes });
        }
        server.work();
    }

    #[tokio::test]
    async fn there_are_no_more_keys_than_sessions_and_they_end_with_them() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::obtain(directory.path(), Suite::P256, NAME, None).unwrap();
        let keyring = Keyring::new();
        let tls = tls::server_with_keys(Suite::P256, &identity, keyring.find()).unwrap();
        let tls = Arc::new(Prepared::new(tls).unwrap());
        let port = UdpPort::listen((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
        let mut server = Datagrams::new(port, tls, Arc::clone(&keyring.keys));
        let roots = identity.root().cloned().into_iter().collect();
        let client = Tls::client(Suite::P256, roots, NAME, false).unwrap();
        for _ in 0..2 * SESSIONS_PER_ADDRESS {
            begin(&mut server, &client);
        }
        assert_eq!(keyring.keys.lock().len(), SESSIONS_PER_ADDRESS);
        // A key that comes makes room for another one.
        let name = *keyring.keys.lock().keys().next().unwrap();
        assert!(keyring.keys.spend(&name).is_some() && keyring.keys.spend(&name).is_none());
        let mut used = keyring.used;
        server.end(&used.try_recv().unwrap());
        begin(&mut server, &client);
        assert_eq!(keyring.keys.lock().len(), SESSIONS_PER_ADDRESS);
        server.core.handle_timeout(server.now() + SESSION_LIFE);
        server.work();
        assert_eq!(keyring.keys.lock().len(), 0);
    }
}
