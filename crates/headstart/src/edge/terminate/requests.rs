//! The requests of one connection: passed on to the origin, or refused here.

use std::str::EscapeDebug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headstart_net::{ProvenAddr, ServerStream, TlsHandle};
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::http::{request, uri};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::body::{InFlight, Pending, Progress, ResponseBody, Upload};
use super::forward::{self, Claims, Hop, Refusal};
use super::origin::{HttpOrigins, OriginError};
use super::{step_back, streams};
use crate::base::logging::{ACCESS, millis};
use crate::base::names::NameMap;
use crate::base::value::OriginServer;
use crate::edge::options::EarlyDataRequests;
use crate::metrics::{self, EarlyRequest};

/// Lowest status of responses that may refuse an upload.
const REFUSAL: u16 = 300;

/// Time to wait for the body of a response that refuses an upload, so that it leaves with its head.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// Serves a connection's requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// Origin that this connection was opened for.
    pub(super) origin: OriginServer,
    /// Address of the origin.
    pub(super) address: uri::Authority,
    /// All origins: a request for a name of another one is refused here.
    pub(super) origins: Arc<NameMap<OriginServer>>,
    pub(super) http: HttpOrigins,
    pub(super) tls: TlsHandle<ServerStream>,
    pub(super) client: ProvenAddr,
    /// The name that TLS was opened for.
    pub(super) server_name: Option<String>,
    /// The certificate that the client showed, for the origin.
    pub(super) client_certificate: Option<HeaderValue>,
    pub(super) early_data: EarlyDataRequests,
    /// Headers that clients may not send to origins.
    pub(super) claims: Arc<Claims>,
    /// Requests whose responses are not complete.
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

/// Time at which a request came, relative to the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timing {
    /// After the handshake.
    AfterHandshake,
    /// Before its end: it may be a replay.
    Early,
    /// Before its end, and it was held until then.
    Held,
    /// Before its end, and held until the handshake failed.
    HandshakeFailed,
}

impl Timing {
    const fn label(self) -> &'static str {
        match self {
            Self::AfterHandshake => "no",
            Self::Early => "yes",
            Self::Held => "held",
            Self::HandshakeFailed => "in_vain",
        }
    }
}

impl Requests {
    /// Returns the response to `request`; there always is one.
    pub(super) async fn respond(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let begun = Instant::now();
        let exchange = streams::exchange(self.pending.client());
        let in_flight = self.pending.begin(&exchange);
        let (version, line) = (request.version(), Line::from_request(&request));
        let is_head = request.method() == Method::HEAD;
        self.old.fetch_or(version == Version::HTTP_10, Ordering::Relaxed);
        if version != Version::HTTP_2 {
            self.pending.client().set_in_head(false);
        }
        if self.pending.is_abused() {
            return self.refuse_abuse(in_flight);
        }
        if version == Version::HTTP_2 {
            // The library looks here for a reset that came with the request: connecting to the
            // origin for nothing is most of what a flood of such requests costs.
            step_back().await;
        }
        let timing = self.wait_for_handshake(self.may_come_early(&request)).await;
        let size = forward::check_size(request.method(), request.uri(), request.headers());
        let result = match size {
            Err(refusal) => {
                metrics::limit_hit("request_head");
                Err((refusal.into(), in_flight))
            }
            Ok(()) => self.pass_in_turn(request, timing, in_flight).await,
        };
        let response = match result {
            Ok(response) => response,
            Err((refused, in_flight)) => refused.response(is_head, in_flight),
        };
        count(version, timing, response.status());
        if let Some(line) = line {
            let client = self.client.get().map_or_else(|| "unknown".into(), |at| at.to_string());
            tracing::info!(
                target: ACCESS,
                client,
                method = %line.method,
                host = line.host,
                path = %line.path(),
                protocol = ?line.version,
                status = response.status().as_u16(),
                bytes = response.body().size_hint().exact(),
                early = timing.label(),
                ms = millis(begun.elapsed()),
                "request"
            );
        }
        if version == Version::HTTP_2 && response.status().as_u16() >= REFUSAL {
            exchange.keep_head();
        }
        response
    }

    /// Ends the connection of a client that abuses it.
    fn refuse_abuse(&self, in_flight: InFlight) -> Response<ResponseBody> {
        metrics::limit_hit("broken_off_requests");
        self.tls.reset();
        let status = StatusCode::TOO_MANY_REQUESTS;
        ResponseBody::text(status, "too many were broken off", true, in_flight)
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
    /// RFC 8470 section 3 also allows status 425. Waiting costs less than the round trip of a
    /// retry, and is right for clients that do not know the status, such as those that send early
    /// data without knowing what is in it. The edge holds a request's head and the early data that
    /// TLS allows.
    async fn wait_for_handshake(&self, may_come_early: bool) -> Timing {
        if self.tls.is_done() {
            return Timing::AfterHandshake;
        }
        if may_come_early {
            return Timing::Early;
        }
        match self.tls.done().await {
            Ok(()) => Timing::Held,
            Err(_) => Timing::HandshakeFailed,
        }
    }

    /// Passes a request on once there is a permit for it.
    async fn pass_in_turn(
        &self,
        request: Request<Incoming>,
        timing: Timing,
        in_flight: InFlight,
    ) -> Result<Response<ResponseBody>, (Refused, InFlight)> {
        let address = self.client.get().map(|client| client.ip());
        if let Some(address) = address {
            self.pending.client().set_address(address);
        }
        match self.http.capacity().acquire(self.pending.client().share(), address).await {
            None => Err((Refused::too_many(), in_flight)),
            permit => self.pass(request, timing, in_flight.with_permit(permit)).await,
        }
    }

    async fn pass(
        &self,
        mut request: Request<Incoming>,
        timing: Timing,
        in_flight: InFlight,
    ) -> Result<Response<ResponseBody>, (Refused, InFlight)> {
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, body) = request.into_parts();
        let wanted = forward::wanted_upgrade(head.version, &head.headers).is_some();
        let trailers = forward::takes_trailers(head.version, &head.headers);
        let version = head.version;
        let head = match self.rewritten(head, !body.is_end_stream(), timing) {
            Ok(head) => head,
            Err(refusal) => return Err((refusal.into(), in_flight)),
        };
        let exchange = Arc::clone(in_flight.exchange());
        let body = Upload::new(body, &exchange);
        let upload = body.progress();
        let sent_at = Instant::now();
        let response = match self.http.send(head, body).await {
            Ok(response) => response,
            Err(error) => return Err((self.refuse_for_origin(&error), in_flight)),
        };
        metrics::origin_responded(sent_at.elapsed());
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgraded && !wanted {
            let error = OriginError::Broken("an upgrade that nobody asked for".to_owned());
            return Err((self.refuse_for_origin(&error), in_flight));
        }
        let refuses = response.status().as_u16() >= REFUSAL;
        let upgrade = upgraded.then_some(upgrade);
        let response =
            self.rewritten_response(response, upgrade, trailers, Arc::clone(&upload), in_flight)?;
        if refuses && version == Version::HTTP_2 && !upload.is_ended() {
            // A client that sees the head may end its upload at once, which is an error in HTTP/2:
            // it would lose what comes behind the head.
            let _ = tokio::time::timeout(REFUSAL_WAIT, exchange.settled()).await;
        }
        Ok(response)
    }

    fn rewritten(
        &self,
        head: request::Parts,
        has_body: bool,
        timing: Timing,
    ) -> Result<request::Parts, Refusal> {
        if timing == Timing::HandshakeFailed {
            // Nobody reads this response.
            return Err(Refusal { status: StatusCode::TOO_EARLY, why: "the handshake failed" });
        }
        let hop = Hop {
            client: self.client.get().map(|client| client.ip()),
            certificate: self.client_certificate.as_ref(),
            early: timing == Timing::Early,
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

    fn rewritten_response(
        &self,
        mut response: Response<Incoming>,
        upgrade: Option<OnUpgrade>,
        trailers: bool,
        upload: Arc<Progress>,
        mut in_flight: InFlight,
    ) -> Result<Response<ResponseBody>, (Refused, InFlight)> {
        let origin = hyper::upgrade::on(&mut response);
        let (mut head, body) = response.into_parts();
        if forward::response(&mut head, upgrade.is_some(), trailers).is_err() {
            let error = OriginError::Broken("a transfer coding that nobody asked for".to_owned());
            return Err((self.refuse_for_origin(&error), in_flight));
        }
        if let Some(client) = upgrade {
            let permit = in_flight.take_permit();
            let in_flight = self.pending.begin(in_flight.exchange()).with_permit(permit);
            let mut tunnel = self.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
            *tunnel = Some(Tunnel { client, origin, in_flight });
        }
        let body = ResponseBody::from_origin(body, self.address.clone(), upload, in_flight);
        Ok(Response::from_parts(head, body))
    }

    /// Reports that the origin has not responded, and returns what the client is told.
    fn refuse_for_origin(&self, error: &OriginError) -> Refused {
        error.report(&self.address);
        Refused { status: error.status(), message: error.message() }
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

/// Content of a response of the edge's own.
#[derive(Clone, Copy, Debug)]
struct Refused {
    status: StatusCode,
    message: &'static str,
}

impl Refused {
    fn too_many() -> Self {
        metrics::limit_hit("origin_requests");
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: "too many requests at one time" }
    }

    fn response(self, is_head: bool, in_flight: InFlight) -> Response<ResponseBody> {
        ResponseBody::text(self.status, self.message, is_head, in_flight)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { status: refusal.status, message: refusal.why }
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
    /// Returns the line of a request; `None` if the log would not show it.
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

fn count(version: Version, timing: Timing, status: StatusCode) {
    metrics::request(version == Version::HTTP_2, status.as_u16());
    match timing {
        Timing::AfterHandshake => {}
        Timing::Early if status == StatusCode::TOO_EARLY => metrics::early(EarlyRequest::TooEarly),
        Timing::Early => metrics::early(EarlyRequest::Passed),
        Timing::Held => metrics::early(EarlyRequest::Held),
        Timing::HandshakeFailed => metrics::early(EarlyRequest::TooEarly),
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
