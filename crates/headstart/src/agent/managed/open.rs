//! From a request to an open connection.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_net::upstream::UpstreamEvent;
use headstart_net::{
    Carrier, ClientEvent, ClientStream, Context, NotUsed, OpeningEvent, Report, Target, TlsStream,
};
use headstart_sessions::{Taken, TicketsWanted};
use headstart_tls::{ClientContext, EarlyData, Facts, Session, TicketRequest};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::answer::Refusal;
use super::request::{Ask, TlsAsk};
use super::session_capture::SessionCapture;
use super::visit::{Begun, Visit};
use crate::agent::inbound::Host;
use crate::agent::serve::{Settings, log_failed};
use crate::metrics;

/// A connection that is ready for the program's bytes.
pub(super) enum Opened {
    Managed(Box<SessionCapture>, Box<Outcome>),
    /// Bytes without TLS; the opening may still go on.
    Bare(Box<ClientStream>),
}

/// Public facts of a managed connection.
pub(super) struct Outcome {
    pub(super) facts: Facts,
    pub(super) early_data: EarlyData,
    /// Report of the opening.
    pub(super) report: Option<Report>,
    pub(super) ledger: Ledger,
}

impl Outcome {
    /// Returns the carrier that opened the connection.
    pub(super) fn opened_by(&self) -> Carrier {
        self.report.as_ref().map_or(Carrier::Tcp, |report| report.opened_by)
    }
}

/// Times of steps since the request was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) lookup: Option<Duration>,
    /// Time until TCP was connected; to the proxy, where there is one.
    pub(super) tcp: Option<Duration>,
    /// The proxy has connected to the server.
    pub(super) granted: Option<Duration>,
    pub(super) tls: Duration,
    /// Round trip of the network, a duration and not a moment.
    pub(super) rtt: Option<Duration>,
}

/// Opens what is asked for by a program of `context`.
///
/// # Errors
/// Why it cannot be opened.
pub(super) async fn open(
    ask: &Ask,
    context: &Context,
    settings: &Arc<Settings>,
) -> Result<Opened, Refusal> {
    let opened = match &ask.tls {
        None => bare(ask, context, settings).await,
        Some(tls) => {
            let opened = managed(ask, tls, context, settings).await;
            if let Err(refusal) = &opened {
                metrics::handshake_failed(refusal.name);
            }
            opened
        }
    };
    if let Err(refusal) = &opened {
        log_failed(&ask.host.to_string(), ask.port, &refusal.text);
    }
    opened
}

/// As on the agent's other ports: clients of TLS ports are answered at once, so that their
/// ClientHello comes while TCP connects.
async fn bare(ask: &Ask, context: &Context, settings: &Settings) -> Result<Opened, Refusal> {
    let late = settings.answers_late(ask.port);
    let mut to = Target::new(ask.host.to_string(), ask.port);
    to.context = settings.known.context_of_cookies(context);
    to.speaks_first = !late;
    let connect = settings.connector.connect(&to);
    let mut stream = connect.map_err(|error| Refusal::from_error(&error.into()))?;
    stream.start();
    if late {
        stream.connected().await.map_err(|error| Refusal::from_error(&error))?;
    }
    Ok(Opened::Bare(Box::new(stream)))
}

async fn managed(
    ask: &Ask,
    tls: &Arc<TlsAsk>,
    context: &Context,
    settings: &Arc<Settings>,
) -> Result<Opened, Refusal> {
    let begun_at = Instant::now();
    let client = client(tls, context.uid, settings).await?;
    let begun = Visit::begin(&settings.known, &client, tls, ask.port, context);
    // There are no cookies through a proxy.
    let through_proxy = settings.connector.has_upstream();
    let context = if through_proxy { begun.login() } else { begun.cookies.clone() };
    let to = target(ask, tls, context);
    let before = begun_at.elapsed();
    let stream = match stream(&client, tls, &to, &begun, settings) {
        Ok(stream) => stream,
        Err(refusal) => {
            give_back(begun);
            return Err(refusal);
        }
    };
    let Begun { visit, taken, .. } = begun;
    let shaking_since = Instant::now();
    let shaken = shake_hands(stream, tls, taken.as_ref(), settings).await;
    let shook = shaking_since.elapsed();
    let Shaken { stream, sent } = match shaken {
        Ok(shaken) => shaken,
        Err((refusal, untouched)) => {
            if let Some(taken) = taken.filter(|_| untouched) {
                visit.give_back(taken);
            }
            return Err(refusal);
        }
    };
    let report = stream.handle().with_transport(|stream| stream.report().cloned()).flatten();
    let ledger = Ledger::new(report.as_ref(), before, begun_at.elapsed());
    let facts = stream.handle().facts();
    let verified = visit.on_done(taken, facts.resumed);
    metrics::handshake(&facts, shook);
    let outcome = Outcome {
        early_data: if sent { facts.early_data } else { EarlyData::None },
        report,
        facts,
        ledger,
    };
    let keeper = SessionCapture::new(stream, visit, verified, settings.connector.clone(), to);
    Ok(Opened::Managed(Box::new(keeper), Box::new(outcome)))
}

/// The TLS client that is asked for: one that is ready, or else a new one, for which roots are read
/// from a disk.
async fn client(
    tls: &Arc<TlsAsk>,
    user: Option<u32>,
    settings: &Arc<Settings>,
) -> Result<Arc<ClientContext>, Refusal> {
    if let Some(client) = settings.clients.ready(tls, user)? {
        return Ok(client);
    }
    let turn = settings.clients.turn(user).await;
    let (settings, tls) = (Arc::clone(settings), Arc::clone(tls));
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        settings.clients.client(&tls, user)
    });
    made.await.unwrap_or_else(|_| Err(Refusal::internal("a TLS client cannot be made")))
}

/// The name matters for an address alone: what a named host is known to offer is its own.
fn target(ask: &Ask, tls: &TlsAsk, cookies: Context) -> Target {
    let mut to = Target::new(ask.host.to_string(), ask.port);
    let by_address = matches!((&ask.host, &tls.server), (Host::Ip(_), Host::Name(_)));
    to.server_name = by_address.then(|| tls.server.to_string());
    to.context = cookies;
    to
}

/// TLS that has said nothing yet.
fn stream(
    client: &ClientContext,
    tls: &TlsAsk,
    to: &Target,
    begun: &Begun,
    settings: &Settings,
) -> Result<TlsStream<ClientStream>, Refusal> {
    let server = tls.server.to_string();
    let session = begun.taken.as_ref().and_then(|taken| Session::from_bytes(taken.session()).ok());
    let request_fop = settings.connector.asks_for_cookies(to);
    let conn = client.connect_offering(&tls.alpn, &server, session, request_fop);
    let mut conn = conn.map_err(|error| not_begun(&error))?;
    let wanted = begun.wanted;
    if wanted.new_session > 0 || wanted.resumption > 0 {
        let TicketsWanted { new_session, resumption } = wanted;
        let requested = conn.request_tickets(TicketRequest { new_session, resumption });
        requested.map_err(|error| not_begun(&error))?;
    }
    let stream =
        settings.connector.connect(to).map_err(|error| Refusal::from_error(&error.into()))?;
    Ok(TlsStream::new(conn, stream))
}

fn not_begun(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::internal(format!("cannot begin TLS: {error}"))
}

fn give_back(begun: Begun) {
    if let Some(taken) = begun.taken {
        begun.visit.give_back(taken);
    }
}

/// A handshake that is done.
struct Shaken {
    stream: TlsStream<ClientStream>,
    /// True if early data was sent.
    sent: bool,
}

/// Shakes hands, with early data if that may be. A failure says, too, whether nothing has left this
/// machine.
async fn shake_hands(
    mut stream: TlsStream<ClientStream>,
    tls: &TlsAsk,
    taken: Option<&Taken>,
    settings: &Settings,
) -> Result<Shaken, (Refusal, bool)> {
    let handle = stream.handle();
    let shaking = async {
        let sent = write_early(&mut stream, &tls.early_data, taken).await?;
        handle.done().await?;
        let rest = tls.early_data.get(sent..).unwrap_or_default();
        if sent > 0 && !rest.is_empty() && handle.facts().early_data == EarlyData::Accepted {
            // The server has the beginning; the rest must follow directly.
            stream.write_all(rest).await?;
        }
        Ok::<_, io::Error>(sent > 0)
    };
    let shaken = timeout(settings.opening_time(), shaking).await;
    let failure = match shaken {
        Ok(Ok(sent)) => return Ok(Shaken { stream, sent }),
        Ok(Err(error)) => Refusal::from_error(&error),
        Err(_) => Refusal::timed_out(),
    };
    let report = handle.with_transport(|stream| stream.report().cloned()).flatten();
    Err((failure, report.is_some_and(|report| is_untouched(&report))))
}

/// Writes all of `data` early, or at least begins to, if the session allows all of it; says how
/// much has gone.
async fn write_early(
    stream: &mut TlsStream<ClientStream>,
    data: &[u8],
    taken: Option<&Taken>,
) -> io::Result<usize> {
    let max = taken.map_or(0, Taken::early_data_max);
    if !u32::try_from(data.len()).is_ok_and(|length| length <= max) {
        return Ok(0);
    }
    let mut sent = 0;
    while let Some(left) = data.get(sent..).filter(|left| !left.is_empty()) {
        match stream.write_early(left).await? {
            0 => break,
            count => sent += count,
        }
    }
    Ok(sent)
}

/// Returns true if no byte of TLS has left: no datagram, no data in a SYN, and TCP was never
/// connected.
fn is_untouched(report: &Report) -> bool {
    report.address.is_none() && report.timeline.iter().all(|moment| is_silent(&moment.event))
}

fn is_silent(event: &OpeningEvent) -> bool {
    match event {
        // Data in the SYN replace it.
        OpeningEvent::NotUsed(reason) => *reason != NotUsed::FastOpen,
        OpeningEvent::Resolved(_)
        | OpeningEvent::Offered
        | OpeningEvent::Syn(_)
        | OpeningEvent::SecondSyn(_)
        | OpeningEvent::FastOpenNotUsed(_)
        | OpeningEvent::Transport(ClientEvent::Plain(_)) => true,
        OpeningEvent::Upstream(event) => {
            matches!(event, UpstreamEvent::Connected | UpstreamEvent::FellBack(_))
        }
        OpeningEvent::Spare(_)
        | OpeningEvent::SpareDead
        | OpeningEvent::FastOpen(_)
        | OpeningEvent::Transport(_)
        | OpeningEvent::HandedOver => false,
    }
}

impl Ledger {
    /// Costs of an opening that began `begun` after the request, with the handshake done now.
    fn new(report: Option<&Report>, begun: Duration, tls: Duration) -> Self {
        let resolved = moment(report, |what| matches!(what, OpeningEvent::Resolved(_)));
        let connected = moment(report, |what| {
            matches!(
                what,
                OpeningEvent::Transport(ClientEvent::TcpConnected)
                    | OpeningEvent::Upstream(UpstreamEvent::Connected)
            )
        });
        let granted =
            moment(report, |what| matches!(what, OpeningEvent::Upstream(UpstreamEvent::Granted)));
        Self {
            lookup: resolved.map(|at| begun + at),
            tcp: connected.map(|at| begun + at),
            granted: granted.map(|at| begun + at),
            tls,
            rtt: report.and_then(|report| report.rtt),
        }
    }
}

/// Returns the time of the first such event, since the connection was requested.
fn moment(report: Option<&Report>, is: fn(&OpeningEvent) -> bool) -> Option<Duration> {
    report?.timeline.iter().find(|moment| is(&moment.event)).map(|moment| moment.at)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl std::fmt::Display for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(lookup) = self.lookup {
            write!(f, "lookup={:.1}, ", ms(lookup))?;
        }
        if let Some(tcp) = self.tcp {
            write!(f, "tcp={:.1}, ", ms(tcp))?;
        }
        if let Some(granted) = self.granted {
            write!(f, "granted={:.1}, ", ms(granted))?;
        }
        write!(f, "tls={:.1}", ms(self.tls))?;
        match self.rtt {
            Some(rtt) => write!(f, ", rtt={:.1}", ms(rtt)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_net::TimelineEntry;

    use super::*;

    fn report(what: &[OpeningEvent]) -> Report {
        let at = Duration::from_millis(5);
        Report {
            begun: Instant::now(),
            opened_by: Carrier::Tcp,
            not_used: None,
            fast_open_not_used: None,
            reset: None,
            address: None,
            rtt: None,
            network: None,
            timeline: what.iter().map(|what| TimelineEntry { at, event: *what }).collect(),
        }
    }

    #[test]
    fn a_ticket_is_unseen_as_long_as_no_byte_of_tls_has_left() {
        let address = "192.0.2.1:443".parse().unwrap();
        let syn = [OpeningEvent::Resolved(1), OpeningEvent::Syn(address)];
        assert!(is_untouched(&report(&[])) && is_untouched(&report(&syn)));
        assert!(!is_untouched(&Report { address: Some(address), ..report(&syn) }), "connected");
        let flight =
            OpeningEvent::Transport(ClientEvent::FlightSent { seq: 0, offset: 0, bytes: 300 });
        assert!(!is_untouched(&report(&[OpeningEvent::Resolved(1), flight])));
        assert!(is_untouched(&report(&[OpeningEvent::NotUsed(NotUsed::NotAdvertised)])));
        assert!(!is_untouched(&report(&[OpeningEvent::NotUsed(NotUsed::FastOpen)])));
    }

    #[test]
    fn a_ledger_counts_from_the_request() {
        let timeline =
            [OpeningEvent::Resolved(1), OpeningEvent::Transport(ClientEvent::TcpConnected)];
        let ms = Duration::from_millis;
        let ledger = Ledger::new(Some(&report(&timeline)), ms(2), ms(9));
        let expected =
            Ledger { lookup: Some(ms(7)), tcp: Some(ms(7)), granted: None, tls: ms(9), rtt: None };
        assert_eq!(ledger, expected);
        assert_eq!(Ledger::new(None, ms(2), ms(9)).to_string(), "tls=9.0");
    }

    #[test]
    fn a_ledger_leaves_out_what_is_not_known() {
        let ms = Duration::from_millis;
        let all = Ledger {
            lookup: Some(ms(1)),
            tcp: Some(ms(30)),
            granted: None,
            tls: ms(61),
            rtt: Some(ms(29)),
        };
        assert_eq!(all.to_string(), "lookup=1.0, tcp=30.0, tls=61.0, rtt=29.0");
        let proxied = Ledger { lookup: None, granted: Some(ms(50)), ..all };
        assert_eq!(proxied.to_string(), "tcp=30.0, granted=50.0, tls=61.0, rtt=29.0");
        let none = Ledger { lookup: None, tcp: None, rtt: None, ..all };
        assert_eq!(none.to_string(), "tls=61.0");
    }
}
