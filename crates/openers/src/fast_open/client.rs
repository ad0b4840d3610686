use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headstart_net::fastopen;
use headstart_proto::cookie::Cookie;
use headstart_tls::{ClientContext, Conn, EarlyData, Facts, Progress};
use openssl::x509::X509;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::engine;
use super::memory::{Memory, VisitKey};
use super::wire::{Wire, drain, spoken};
use crate::arm::{Arm, Suite};
use crate::attempt::{END, Exchange};
use crate::error::PeerError;
use crate::options::ClientOptions;
use crate::sys;
use crate::transport::{connect, connect_fast};
use crate::trial::{Trial, out_of_time};
use crate::visit::Visit;
use headstart_proto::Carrier;

/// A client of these arms, with what it remembers.
#[derive(Debug)]
pub(crate) struct FastOpenClient {
    arm: Arm,
    name: String,
    context: ClientContext,
    memory: Mutex<Memory>,
}

/// State of one connection that is no part of opening it.
#[derive(Debug)]
pub(crate) struct Ready {
    conn: Conn,
    to: SocketAddr,
    key: VisitKey,
    cookie: Option<Cookie>,
    /// True if a session is offered; then true if the request goes with it.
    offered: bool,
    early: bool,
}

impl FastOpenClient {
    pub(crate) fn new(options: &ClientOptions, roots: &[X509]) -> Result<Self, PeerError> {
        Self::for_server(options.arm, options.suite, &options.name, roots)
    }

    pub(crate) fn for_server(
        arm: Arm,
        suite: Suite,
        name: &str,
        roots: &[X509],
    ) -> Result<Self, PeerError> {
        let context = engine::client(suite, roots)?;
        Ok(Self { arm, name: name.to_owned(), context, memory: Mutex::default() })
    }

    /// Takes a cookie and a session for a connection to `to`, as far as the arm has them.
    pub(crate) fn ready(&self, visit: &Visit, to: SocketAddr) -> Result<Ready, PeerError> {
        let name = visit.name.as_ref().unwrap_or(&self.name);
        let key = VisitKey::new(name, visit.context.as_deref(), to)
            .map_err(|error| PeerError::new(format!("there is no way to {to}: {error}")))?;
        let mut memory = self.memory();
        let cookie = self.arm.has_private_cookies();
        let cookie = cookie.then(|| memory.take_cookie(&key, Instant::now())).flatten();
        let kept = self.arm.resumes().then(|| memory.take_session(&key)).flatten();
        drop(memory);
        let early =
            self.arm.sends_early_data() && kept.as_ref().is_some_and(|kept| kept.early_data);
        let (offered, session) = (kept.is_some(), kept.map(|kept| kept.session));
        let conn = self.context.connect(name, session, self.arm.has_private_cookies());
        let conn = conn.map_err(engine::unusable)?;
        Ok(Ready { conn, to, key, cookie, offered, early })
    }

    /// Makes one connection with one request.
    pub(crate) async fn open(&self, ready: Ready, exchange: Exchange, deadline: Instant) -> Trial {
        let Ready { conn, to, key, cookie, offered, early } = ready;
        let opening = self.begin(to, cookie, offered);
        let mut attempt = Attempt { opening, early, exchange };
        let outcome = timeout_at(deadline.into(), attempt.run(conn)).await;
        let (outcome, wire) = match outcome {
            Ok(Ok(wire)) => (Ok(()), Some(wire)),
            Ok(Err(error)) => (Err(error), None),
            Err(_) => (Err(out_of_time(attempt.exchange.marks.stage())), None),
        };
        if let Some(wire) = wire {
            self.end(wire, &key).await;
        }
        attempt.trial(outcome)
    }

    /// Opens one connection up to the end of its handshake; `request` is early data if the server
    /// allows that.
    pub(crate) async fn open_wire(
        &self,
        ready: Ready,
        request: Option<&[u8]>,
    ) -> Result<Opened, String> {
        let Ready { conn, to, key, cookie, offered, early } = ready;
        let mut opening = self.begin(to, cookie, offered);
        let (wire, left) = opening.run(conn, request.filter(|_| early)).await?;
        Ok(Opened { wire, key, account: opening.account, left })
    }

    /// Keeps what a connection that goes on has brought so far.
    pub(crate) fn keep(&self, wire: &mut Wire, key: &VisitKey) {
        let (mut memory, now) = (self.memory(), Instant::now());
        while let Some(new) = wire.conn_mut().poll_session() {
            if self.arm.has_private_cookies() {
                memory.put_cookies(key, &new, now);
            }
            if self.arm.resumes() {
                memory.put_session(key, new);
            }
        }
    }

    fn begin(&self, to: SocketAddr, cookie: Option<Cookie>, offered: bool) -> Handshake {
        let account = Account { opening: Carrier::Tcp, reason: "", resumed: false, early: false };
        Handshake { carrier: self.arm.carrier(), to, cookie, offered, account }
    }

    pub(crate) fn forget(&self) {
        self.memory().forget();
    }

    /// Waits for the end of a connection whose response is here: cookies and tickets may come until
    /// then.
    async fn end(&self, mut wire: Wire, key: &VisitKey) {
        let rest = async { while wire.read().await.is_ok_and(|bytes| bytes.is_some()) {} };
        // The response has arrived: how the connection ends does not affect the trial.
        let _ = timeout(END, rest).await;
        let _ = timeout(END, wire.close()).await;
        self.keep(&mut wire, key);
    }

    /// No call can leave it half changed.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose handshake is done.
pub(crate) struct Opened {
    pub(crate) wire: Wire,
    pub(crate) key: VisitKey,
    pub(crate) account: Account,
    /// Time at which the request left as early data, if the server took it.
    pub(crate) left: Option<Instant>,
}

struct Attempt {
    opening: Handshake,
    early: bool,
    exchange: Exchange,
}

/// All that comes before the application.
struct Handshake {
    carrier: Carrier,
    to: SocketAddr,
    cookie: Option<Cookie>,
    offered: bool,
    account: Account,
}

/// Account of a connection's opening, as far as that is known.
pub(crate) struct Account {
    pub(crate) opening: Carrier,
    reason: &'static str,
    pub(crate) resumed: bool,
    /// True if the server accepted the request as early data.
    pub(crate) early: bool,
}

/// A TCP connection that is established, and what its SYN carried.
struct Established {
    tcp: TcpStream,
    syn: Syn,
    established: Instant,
}

/// Part of the first flight that the system put into the SYN.
#[derive(Clone, Copy)]
struct Syn {
    /// Bytes.
    taken: usize,
    /// Time at which the call that sent it was back: by then it has left.
    sent: Instant,
}

impl Syn {
    /// SYN of a connection that begins without data.
    fn empty() -> Self {
        Self { taken: 0, sent: Instant::now() }
    }

    /// Returns the time at which a request left that is early data at the end of a flight of this
    /// length: with the SYN, if all of it fitted and the server took it; else behind it, when the
    /// connection was there.
    fn left(self, flight: usize, acknowledged: bool, established: Instant) -> Instant {
        let with_it = acknowledged && self.taken == flight;
        if with_it { self.sent } else { self.sent.max(established) }
    }
}

impl Attempt {
    /// All of it, up to the last response byte.
    async fn run(&mut self, conn: Conn) -> Result<Wire, String> {
        let early = self.early.then(|| self.exchange.request());
        let (mut wire, left) = self.opening.run(conn, early).await?;
        match left {
            Some(moment) => self.exchange.marks.request_at(moment),
            None => {
                self.exchange.marks.request();
                wire.write(self.exchange.request()).await?;
            }
        }
        wire.flush().await?;
        self.read(&mut wire).await?;
        Ok(wire)
    }

    async fn read(&mut self, wire: &mut Wire) -> Result<(), String> {
        loop {
            let Some(bytes) = wire.read().await? else {
                return Err(self.exchange.marks.stage().to_owned());
            };
            if self.exchange.take(bytes)? {
                return Ok(());
            }
        }
    }

    fn trial(&self, outcome: Result<(), String>) -> Trial {
        let Account { opening, reason, resumed, early } = self.opening.account;
        Trial {
            opening,
            resumed: resumed && outcome.is_ok(),
            early_data: early,
            reason: reason.to_owned(),
            ..self.exchange.marks.trial(outcome)
        }
    }
}

impl Handshake {
    /// All of it; and when `early` left as early data, if the server took it.
    async fn run(
        &mut self,
        mut conn: Conn,
        early: Option<&[u8]>,
    ) -> Result<(Wire, Option<Instant>), String> {
        if let Some(request) = early {
            write_early(&mut conn, request)?;
        }
        conn.handshake().map_err(|error| spoken(&error))?;
        let flight = drain(&mut conn);
        let opened = self.connect(&flight).await;
        let Established { tcp, syn, established } =
            opened.map_err(|error| format!("cannot connect: {error}"))?;
        let acknowledged = self.judge(&tcp, syn, flight.len());
        let mut wire = Wire::new(conn, tcp);
        wire.send(flight.get(syn.taken..).unwrap_or_default()).await?;
        // More early data could go on; there is none.
        while wire.handshake().await? != Progress::Done {
            wire.fill().await?;
        }
        self.learn(&wire.conn_mut().facts(), early.is_some());
        let left = self.account.early.then(|| syn.left(flight.len(), acknowledged, established));
        Ok((wire, left))
    }

    /// Opens TCP, with as much of the flight in the SYN as the system takes.
    async fn connect(&mut self, flight: &[u8]) -> io::Result<Established> {
        let (tcp, syn) = match (self.carrier, self.cookie.take()) {
            (Carrier::FastOpen, _) => sent(connect_fast(self.to, flight)?),
            // A partial flight would spend the cookie and save nothing.
            (_, Some(cookie)) if flight.len() <= fastopen::SYN_DATA_MAX => {
                match fastopen::connect(self.to, None, &cookie, flight) {
                    Ok(opened) => sent(opened),
                    Err(error) => {
                        tracing::debug!(%error, "no Fast Open");
                        self.account.reason = "fast_open_unavailable";
                        (connect(self.to).await?, Syn::empty())
                    }
                }
            }
            (_, cookie) => {
                let reason = if cookie.is_some() { "first_flight_too_long" } else { "no_cookie" };
                self.account.reason = reason;
                (connect(self.to).await?, Syn::empty())
            }
        };
        tcp.set_nodelay(true)?;
        let established = established(&tcp).await?;
        Ok(Established { tcp, syn, established })
    }

    /// Returns true if the server took the data in the SYN. A SYN that carried a part of the flight
    /// only has saved nothing.
    fn judge(&mut self, tcp: &TcpStream, syn: Syn, flight: usize) -> bool {
        let acknowledged = sys::syn_data_acknowledged(tcp).unwrap_or(false);
        if acknowledged && syn.taken == flight {
            self.account.opening =
                if self.carrier == Carrier::Fop { Carrier::Fop } else { Carrier::FastOpen };
        } else if self.account.reason.is_empty() {
            let reason = if acknowledged { "first_flight_too_long" } else { "syn_data_not_taken" };
            self.account.reason = reason;
        }
        acknowledged
    }

    fn learn(&mut self, facts: &Facts, early: bool) {
        self.account.resumed = facts.resumed;
        self.account.early = early && facts.early_data == EarlyData::Accepted;
        if self.account.reason.is_empty() {
            self.account.reason = match () {
                () if self.offered && !facts.resumed => "session_refused",
                () if early && !self.account.early => "early_data_refused",
                () => "",
            };
        }
    }
}

/// Splits the result of a call that has sent data.
fn sent((tcp, taken): (TcpStream, usize)) -> (TcpStream, Syn) {
    (tcp, Syn { taken, sent: Instant::now() })
}

fn write_early(conn: &mut Conn, mut left: &[u8]) -> Result<(), String> {
    while !left.is_empty() {
        match conn.write_early(left).map_err(|error| spoken(&error))? {
            0 => return Err("TLS took no early data".into()),
            count => left = left.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Waits until the connection is established, however it was begun; when that was.
pub(crate) async fn established(tcp: &TcpStream) -> io::Result<Instant> {
    loop {
        tcp.writable().await?;
        tcp.take_error()?.map_or(Ok(()), Err)?;
        match tcp.peer_addr() {
            Ok(_) => return Ok(Instant::now()),
            // In the state SYN_SENT: that it could be written to is from before the SYN.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                let stale = tcp.try_io(Interest::WRITABLE, || -> io::Result<()> {
                    Err(io::ErrorKind::WouldBlock.into())
                });
                drop(stale);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn early_data_left_with_the_syn_if_all_of_it_fitted_and_was_taken() {
        let sent = Instant::now();
        let established = sent + Duration::from_millis(40);
        let syn = Syn { taken: 900, sent };
        assert_eq!(syn.left(900, true, established), sent);
        // It leaves again, behind the handshake.
        assert_eq!(syn.left(900, false, established), established);
        // Its end was not in the SYN, and TLS parses whole records only.
        assert_eq!(syn.left(901, true, established), established);
        let plain = Syn { taken: 0, sent: established + Duration::from_millis(1) };
        assert_eq!(plain.left(900, false, established), plain.sent, "it was not there before");
    }
}
