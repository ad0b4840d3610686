use std::io;
use std::time::{Duration, Instant};

use headstart_net::{
    ClientStream, Connector, Context, RaceError, RaceFailure, Report, Target, TlsStream,
    dns::DnsError,
};
use headstart_tls::{ClientContext, Facts, Session, TlsError};
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use hyper::http::{request, response};
use hyper::{Method, Request, Uri};

use super::Account;
use super::tls::refusal;
use crate::base::failure::Failure;
use crate::get::options::GetOptions;
use crate::http::{ExchangeError, Timed, exchange};

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("headstart/", env!("CARGO_PKG_VERSION")));

/// One connection to the server of a URL, and the facts to report of it, however far it got.
pub struct Visit {
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    secure: bool,
    /// Session to resume.
    session: Option<Session>,
    started: Instant,
    stream: Option<Stream>,
    secured: Option<Instant>,
    done: Option<Instant>,
}

enum Stream {
    Tls(Box<Timed<TlsStream<ClientStream>>>),
    Plain(Box<Timed<ClientStream>>),
}

impl Stream {
    /// Returns the times of the first request byte written, and the first response byte read.
    fn moments(&self) -> (Option<Instant>, Option<Instant>) {
        match self {
            Self::Tls(stream) => (stream.written, stream.read),
            Self::Plain(stream) => (stream.written, stream.read),
        }
    }
}

impl Visit {
    /// A visit to the server of `url`.
    pub fn new(url: &Uri) -> Self {
        let secure = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Self {
            host: host.to_owned(),
            port,
            secure,
            session: None,
            started: Instant::now(),
            stream: None,
            secured: None,
            done: None,
        }
    }

    /// Makes a visit with the session of an earlier one.
    pub fn resuming(self, session: Option<Session>) -> Self {
        Self { session, ..self }
    }

    /// Connects and exchanges `request` for an answer.
    ///
    /// # Errors
    /// Why there is no whole answer.
    pub async fn fetch(
        &mut self,
        connector: &Connector,
        tls: &ClientContext,
        request: request::Parts,
        sink: impl FnMut(&response::Parts, &[u8]) -> io::Result<()>,
    ) -> Result<response::Parts, Failure> {
        self.open(connector, tls).await?;
        let head = match &mut self.stream {
            Some(Stream::Tls(stream)) => exchange(stream.as_mut(), request, sink).await,
            Some(Stream::Plain(stream)) => exchange(stream.as_mut(), request, sink).await,
            None => return Err(Failure::usage("no connection")),
        };
        self.done = head.is_ok().then(Instant::now);
        head.map_err(|error| self.cut_short(error))
    }

    /// Opens the connection up to where the request could be sent.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn open(
        &mut self,
        connector: &Connector,
        tls: &ClientContext,
    ) -> Result<(), Failure> {
        self.started = Instant::now();
        let mut target = Target::new(self.host.as_str(), self.port);
        target.context = Context::user(rustix::process::getuid().as_raw());
        // Without TLS the request is only made once TCP is connected.
        target.speaks_first = self.secure;
        let stream = connector.connect(&target).map_err(|error| self.unresolved(error))?;
        if self.secure {
            let conn = tls.connect(&self.host, self.session.take(), false);
            let conn = conn.map_err(|error| refusal(error, &self.host))?;
            let stream = TlsStream::new(conn, stream);
            self.stream = Some(Stream::Tls(Box::new(Timed::new(stream))));
        } else {
            self.stream = Some(Stream::Plain(Box::new(Timed::new(stream))));
        }
        self.establish().await
    }

    async fn establish(&mut self) -> Result<(), Failure> {
        let established = match &mut self.stream {
            Some(Stream::Tls(stream)) => stream.stream.handle().done().await,
            Some(Stream::Plain(stream)) => stream.stream.connected().await,
            None => Ok(()),
        };
        established.map_err(|error| self.not_established(&error))?;
        self.secured = self.secure.then(Instant::now);
        Ok(())
    }

    /// Takes the session that the server gave last, if it gave any.
    pub(super) fn take_session(&self) -> Option<Session> {
        let Some(Stream::Tls(stream)) = &self.stream else { return None };
        let handle = stream.stream.handle();
        std::iter::from_fn(|| handle.take_session()).last().map(|new| new.session)
    }

    /// Returns the report of the opening, as far as it came.
    pub fn report(&self) -> Option<Report> {
        match self.stream.as_ref()? {
            Stream::Tls(stream) => {
                stream.stream.handle().with_transport(|stream| stream.report().cloned()).flatten()
            }
            Stream::Plain(stream) => stream.stream.report().cloned(),
        }
    }

    /// Returns the negotiated parameters of TLS, once there are some.
    pub fn facts(&self) -> Option<Facts> {
        match self.stream.as_ref()? {
            Stream::Tls(stream) => self.secured.map(|_| stream.stream.handle().facts()),
            Stream::Plain(_) => None,
        }
    }

    /// Everything measured, in time since the connection was asked for.
    pub fn into_account(self, bytes: u64) -> Account {
        let (written, read) = self.stream.as_ref().map(Stream::moments).unwrap_or_default();
        let [secured, written, read, done] = [self.secured, written, read, self.done]
            .map(|moment| moment.map(|moment| moment - self.started));
        Account {
            host: self.host.clone(),
            secure: self.secure,
            secured,
            written,
            read,
            done,
            bytes,
            facts: self.facts(),
            report: self.report(),
        }
    }

    /// The failure of a visit that exceeded `limit`, with the stage it was in.
    pub fn out_of_time(&self, limit: Duration) -> Failure {
        let stage = match () {
            () if self.secured.is_some() => "the server sent no whole answer",
            () if self.report().is_some_and(|report| report.address.is_some()) => {
                "connected, but the server did not complete the TLS handshake"
            }
            () => "no connection",
        };
        let limit = humantime::format_duration(limit);
        Failure::negative(format!("{}: {stage} within {limit}", self.at()))
            .hint("--explain shows how far it came; --max-time allows more")
    }

    fn at(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    fn unresolved(&self, error: DnsError) -> Failure {
        let failure = Failure::negative(format!("cannot look up {}: {error}", self.host));
        match error {
            DnsError::InvalidName | DnsError::NoSuchName => failure.hint("check the spelling"),
            DnsError::NoAddress => failure.hint("the name exists but has no A or AAAA record"),
            DnsError::Timeout | DnsError::Unavailable | DnsError::Refused => failure.hint(
                "check the network and /etc/resolv.conf, or ask another server with \
                    --resolver ADDR:PORT",
            ),
            DnsError::NotPermitted => failure,
            DnsError::Malformed => failure.hint("ask another server with --resolver ADDR:PORT"),
        }
    }

    fn not_established(&self, error: &io::Error) -> Failure {
        let inner = error.get_ref();
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<TlsError>()) {
            return refusal(*error, &self.host);
        }
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<DnsError>()) {
            return self.unresolved(*error);
        }
        if let Some(race) = inner.and_then(|inner| inner.downcast_ref::<RaceError>()) {
            return self.lost_race(race, error.kind());
        }
        let failure = Failure::negative(format!("the connection to {} broke: {error}", self.at()));
        match error.kind() {
            io::ErrorKind::ConnectionReset => {
                failure.hint("the server or a firewall reset it; --opening plain tries without UDP")
            }
            _ => failure,
        }
    }

    fn lost_race(&self, race: &RaceError, kind: io::ErrorKind) -> Failure {
        let tried: Vec<_> = race.attempts.iter().map(|tried| tried.addr.to_string()).collect();
        let reason = match (race.cause, kind) {
            (RaceFailure::OutOfTime, _) => "no answer in time".to_owned(),
            (_, io::ErrorKind::ConnectionRefused) => "refused".into(),
            _ => race.to_string(),
        };
        let text =
            format!("cannot connect to {}: {reason} (tried {})", self.at(), tried.join(", "));
        Failure::negative(text).hint(match kind {
            io::ErrorKind::ConnectionRefused => {
                "nothing listens there; check host, port and --edge"
            }
            _ => "check the network; a firewall may drop the packets",
        })
    }

    fn cut_short(&self, error: ExchangeError) -> Failure {
        match error {
            ExchangeError::Sink(error) => Failure::usage(format!("cannot write the body: {error}")),
            ExchangeError::Http(error) if error.is_parse() => {
                Failure::negative(format!("{} did not answer with HTTP/1.1: {error}", self.at()))
            }
            ExchangeError::Http(error) => {
                Failure::negative(format!("{} ended the connection too early: {error}", self.at()))
            }
        }
    }
}

/// The request as it goes to the server: origin form, and the headers that HTTP/1.1 wants.
pub fn request(options: &GetOptions) -> request::Parts {
    let method = if options.head { Method::HEAD } else { Method::GET };
    let mut parts = Request::new(()).into_parts().0;
    parts.method = method;
    parts.uri =
        options.url.path_and_query().map_or(Uri::from_static("/"), |path| path.clone().into());
    for (name, value) in &options.header {
        parts.headers.append(name, value.clone());
    }
    let authority = options.url.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
    let defaults = [(HOST, host), (USER_AGENT, AGENT), (ACCEPT, HeaderValue::from_static("*/*"))];
    for (name, value) in defaults {
        parts.headers.entry(name).or_insert(value);
    }
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    parts
}
