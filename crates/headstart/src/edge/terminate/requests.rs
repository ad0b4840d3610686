//! The requests of one connection: passed on to the origin, or answered here.

use std::str::EscapeDebug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_net::{ProvenAddr, ServerStream, TlsHandle};
use hyper::body::{Body, Incoming};
use hyper::header::HOST;
use hyper::http::{request, uri};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::body::{Answer, InFlight, Pending, Upload};
use super::forward::{self, Claims, Hop, Refusal};
use super::origin::{HttpOrigins, NoAnswer};
use super::{step_back, streams};
use crate::base::logging::{ACCESS, millis};
use crate::base::names::NameMap;
use crate::base::value::OriginServer;
use crate::edge::options::EarlyDataRequests;
use crate::metrics::{self, EarlyRequest};

/// Time that the body of an answer to an upload is waited for, so that it leaves with its head.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// Answers a connection's requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// Origin that this connection was opened for.
    pub(super) origin: OriginServer,
    /// Where that is.
    pub(super) address: uri::Authority,
    /// All that there are: a name of another one must not be asked for here.
    pub(super) origins: Arc<NameMap<OriginServer>>,
    pub(super) http: HttpOrigins,
    pub(super) tls: TlsHandle<ServerStream>,
    pub(super) client: ProvenAddr,
    /// The name that TLS was opened for.
    pub(super) server_name: Option<String>,
    pub(super) early_data: EarlyDataRequests,
    /// Headers that clients may not send to origins.
    pub(super) claims: Arc<Claims>,
    /// Requests that are being answered.
    pub(super) pending: Pending,
    pub(super) tunnel: Mutex<Option<Tunnel>>,
    /// True if a request of HTTP/1.0 has come.
    pub(super) old: AtomicBool,
}

/// Both sides of a connection that leaves HTTP, such as for a WebSocket.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) origin: OnUpgrade,
    /// The connection is in use as long as this is there.
    pub(super) in_flight: InFlight,
}

/// When a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// After the handshake.
    Proven,
    /// Before its end: it may be a copy of one that came elsewhere.
    Early,
    /// Before its end, and it had to wait for that.
    Held,
    /// Before its end, which it waited for in vain.
    Never,
}

impl Came {
    const fn label(self) -> &'static str {
        match self {
            Self::Proven => "no",
            Self::Early => "yes",
            Self::Held => "held",
            Self::Never => "in_vain",
        }
    }
}

impl Requests {
    /// The answer to `request`; there always is one.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let begun = Instant::now();
        let exchange = streams::exchange(self.pending.client());
        let in_flight = self.pending.begin(&exchange);
        let (version, line) = (request.version(), Line::from_request(&request));
        let is_head = request.method() == Method::HEAD;
        self.old.fetch_or(version == Version::HTTP_10, Ordering::Relaxed);
        if self.pending.is_abused() {
            return self.enough(in_flight);
        }
        if version == Version::HTTP_2 {
            // The library looks here for a reset that came with the request: connecting to the
            // origin for nothing is most of what a flood of such requests costs.
            step_back().await;
        }
        let came = self.came(self.may_come_early(&request)).await;
        let size = forward::check_size(request.method(), request.uri(), request.headers());
        let passed = match size {
            Err(refusal) => {
                metrics::limit_hit("request_head");
                Err((refusal.into(), in_flight))
            }
            Ok(()) => self.pass_in_turn(request, came, in_flight).await,
        };
        let answer = match passed {
            Ok(answer) => answer,
            Err((refused, in_flight)) => refused.answer(is_head, in_flight),
        };
        count(version, came, answer.status());
        if let Some(line) = line {
            let client = self.client.get().map_or_else(|| "unknown".into(), |at| at.to_string());
            tracing::info!(
                target: ACCESS,
                client,
                method = %line.method,
                host = line.host,
                path = %line.path(),
                protocol = ?line.version,
                status = answer.status().as_u16(),
                bytes = answer.body().size_hint().exact(),
                early = came.label(),
                ms = millis(begun.elapsed()),
                "request"
            );
        }
        answer
    }

    /// Ends the connection of a client that does harm.
    fn enough(&self, in_flight: InFlight) -> Response<Answer> {
        metrics::limit_hit("broken_off_requests");
        self.tls.reset();
        Answer::words(StatusCode::TOO_MANY_REQUESTS, "too many were broken off", true, in_flight)
    }

    /// Returns true if a request may be passed on though it may be a replay.
    ///
    /// Behind one that changes the protocol anything may follow, and no method tells what that
    /// does.
    fn may_come_early<B>(&self, request: &Request<B>) -> bool {
        let is_safe = request.method().is_safe()
            && forward::wanted_upgrade(request.version(), request.headers()).is_none();
        self.early_data == EarlyDataRequests::On || is_safe
    }

    /// Waits where the request must not be passed on before the handshake is done.
    ///
    /// RFC 8470 section 3 also allows to answer 425. Waiting costs less than the round trip for
    /// which the client would have to ask again, and is right for clients that do not know the
    /// status, such as those that send early data without knowing what is in it. What is held is a
    /// request's head and what TLS allows of early data.
    async fn came(&self, may_come_early: bool) -> Came {
        if self.tls.is_done() {
            return Came::Proven;
        }
        if may_come_early {
            return Came::Early;
        }
        match self.tls.done().await {
            Ok(()) => Came::Held,
            Err(_) => Came::Never,
        }
    }

    /// Passes a request on once there is a place for it.
    async fn pass_in_turn(
        &self,
        request: Request<Incoming>,
        came: Came,
        in_flight: InFlight,
    ) -> Result<Response<Answer>, (Refused, InFlight)> {
        let address = self.client.get().map(|client| client.ip());
        if let Some(address) = address {
            self.pending.client().set_address(address);
        }
        match self.http.room().place(self.pending.client().share(), address).await {
            None => Err((Refused::too_many(), in_flight)),
            place => self.pass(request, came, in_flight.with_place(place)).await,
        }
    }

    async fn pass(
        &self,
        mut request: Request<Incoming>,
        came: Came,
        in_flight: InFlight,
    ) -> Result<Response<Answer>, (Refused, InFlight)> {
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, body) = request.into_parts();
        let wanted = forward::wanted_upgrade(head.version, &head.headers).is_some();
        let trailers = forward::takes_trailers(head.version, &head.headers);
        let version = head.version;
        let head = match self.rewritten(head, !body.is_end_stream(), came) {
            Ok(head) => head,
            Err(refusal) => return Err((refusal.into(), in_flight)),
        };
        let exchange = Arc::clone(in_flight.exchange());
        let body = Upload::new(body, &exchange);
        let upload = body.progress();
        let answer = match self.http.ask(head, body).await {
            Ok(answer) => answer,
            Err(fault) => return Err((Refused::by_origin(fault), in_flight)),
        };
        let upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgraded && !wanted {
            return Err((Refused::by_origin(NoAnswer::Broken), in_flight));
        }
        let refuses = answer.status().as_u16() >= 300;
        let answer =
            self.rewritten_answer(answer, upgraded.then_some(upgrade), trailers, in_flight)?;
        if refuses && version == Version::HTTP_2 && !upload.is_ended() {
            // A client that hears of it may end its upload at once, which as HTTP/2 has it is an
            // error: what comes behind the head would be lost.
            let _ = tokio::time::timeout(REFUSAL_WAIT, exchange.settled()).await;
        }
        Ok(answer)
    }

    fn rewritten(
        &self,
        head: request::Parts,
        has_body: bool,
        came: Came,
    ) -> Result<request::Parts, Refusal> {
        if came == Came::Never {
            // Nobody reads it.
            return Err(Refusal { status: StatusCode::TOO_EARLY, why: "the handshake failed" });
        }
        let hop = Hop {
            client: self.client.get().map(|client| client.ip()),
            early: came == Came::Early,
            server_name: self.server_name.as_deref(),
        };
        let authority = forward::authority(&head, &hop)?;
        self.check(&authority)?;
        forward::request(head, has_body, &authority, &self.address, &hop, &self.claims)
    }

    /// A client may use one connection for all names of the certificate (RFC 9113 section 9.1.1).
    /// Those of other origins are not served here, and the client asks again elsewhere (RFC 9110
    /// section 15.5.20).
    fn check(&self, authority: &uri::Authority) -> Result<(), Refusal> {
        let host = authority.host();
        let name = (!host.starts_with('[')).then_some(host);
        if self.origins.find(name) == Some(&self.origin) {
            return Ok(());
        }
        Err(Refusal {
            status: StatusCode::MISDIRECTED_REQUEST,
            why: "this name is served on another connection",
        })
    }

    fn rewritten_answer(
        &self,
        mut answer: Response<Incoming>,
        upgrade: Option<OnUpgrade>,
        trailers: bool,
        mut in_flight: InFlight,
    ) -> Result<Response<Answer>, (Refused, InFlight)> {
        let origin = hyper::upgrade::on(&mut answer);
        let (mut head, body) = answer.into_parts();
        if forward::answer(&mut head, upgrade.is_some(), trailers).is_err() {
            return Err((Refused::by_origin(NoAnswer::Broken), in_flight));
        }
        if let Some(client) = upgrade {
            let place = in_flight.take_place();
            let in_flight = self.pending.begin(in_flight.exchange()).with_place(place);
            let mut tunnel = self.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
            *tunnel = Some(Tunnel { client, origin, in_flight });
        }
        Ok(Response::from_parts(head, Answer::of_origin(body, in_flight)))
    }

    /// Returns true if the client speaks HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Returns the result of an upgrade, once HTTP is over.
    pub(super) fn take_tunnel(&self) -> Option<Tunnel> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An answer of our own.
#[derive(Clone, Copy, Debug)]
struct Refused {
    status: StatusCode,
    words: &'static str,
}

impl Refused {
    fn by_origin(fault: NoAnswer) -> Self {
        fault.count();
        Self { status: fault.status(), words: fault.words() }
    }

    fn too_many() -> Self {
        metrics::limit_hit("origin_requests");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, words: "too many requests at one time" }
    }

    fn answer(self, is_head: bool, in_flight: InFlight) -> Response<Answer> {
        Answer::words(self.status, self.words, is_head, in_flight)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { status: refusal.status, words: refusal.why }
    }
}

/// A request as the log shows it. Not the query: it may hold secrets, and logs are read by more
/// people. A path may hold any character, also those that move a terminal's cursor.
struct Line {
    method: Method,
    host: String,
    path: String,
    version: Version,
}

impl Line {
    /// Begins to answer a request; `None` if nobody would see it.
    fn from_request<B>(request: &Request<B>) -> Option<Self> {
        if !tracing::enabled!(target: ACCESS, tracing::Level::INFO) {
            return None;
        }
        let host = request
            .uri()
            .authority()
            .map(uri::Authority::as_str)
            .or_else(|| request.headers().get(HOST).and_then(|host| host.to_str().ok()));
        Some(Self {
            method: request.method().clone(),
            host: host.unwrap_or("-").to_owned(),
            path: request.uri().path().to_owned(),
            version: request.version(),
        })
    }

    /// Returns the path, which moves no cursor.
    fn path(&self) -> EscapeDebug<'_> {
        self.path.escape_debug()
    }
}

fn count(version: Version, came: Came, status: StatusCode) {
    metrics::request(version == Version::HTTP_2, status.as_u16());
    match came {
        Came::Proven => {}
        Came::Early if status == StatusCode::TOO_EARLY => metrics::early(EarlyRequest::TooEarly),
        Came::Early => metrics::early(EarlyRequest::Passed),
        Came::Held => metrics::early(EarlyRequest::Held),
        Came::Never => metrics::early(EarlyRequest::TooEarly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_no_query() {
        let request = Request::get("https://h/a?secret").body(()).unwrap();
        let debug = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).finish();
        let line = tracing::subscriber::with_default(debug, || Line::from_request(&request));
        assert_eq!(line.map(|line| (line.host, line.path)), Some(("h".into(), "/a".into())));
    }

    #[test]
    fn a_path_moves_no_cursor() {
        let line = Line {
            method: Method::GET,
            host: "h".into(),
            path: "/\u{9b}2J\"".into(),
            version: Version::HTTP_11,
        };
        assert_eq!(line.path().to_string(), "/\\u{9b}2J\\\"");
    }
}
