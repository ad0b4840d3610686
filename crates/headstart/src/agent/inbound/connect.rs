//! HTTP CONNECT (RFC 9110 section 9.3.6).

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use headstart_net::close_after_drain;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::Refusal;
use super::target::{Host, Target, Via};

/// Bytes of a request's head at most, the least that hyper accepts; a CONNECT is far smaller.
const HEAD_MAX: usize = 8192;

const NOT_CONNECT: &str = "\
This is a proxy for TLS connections: it takes CONNECT (and SOCKS5), not plain requests.
Set it as the proxy for https, for example:
    curl --proxy http://localhost:1080 https://www.example.com/
    export https_proxy=http://localhost:1080
";

const BAD_TARGET: &str =
    "CONNECT needs a host and a port, for example: CONNECT www.example.com:443 HTTP/1.1\n";

const NO_BODY: &str = "CONNECT has no body: leave out Content-Length and Transfer-Encoding\n";

/// The bare connection and the bytes read beyond the request.
type Bare = (TcpStream, Bytes);

/// One CONNECT request that waits for its response.
pub(super) struct Exchange {
    respond: oneshot::Sender<Response<Full<Bytes>>>,
    /// Ends when the response is written.
    connection: Pin<Box<dyn Future<Output = hyper::Result<Bare>> + Send>>,
}

impl Exchange {
    /// Sends 200 and returns the bare connection.
    pub(super) async fn establish(self) -> io::Result<Bare> {
        self.send(Response::new(Full::default())).await
    }

    /// Sends `status` with `text` and closes the connection.
    pub(super) async fn refuse(self, status: u16, text: Bytes) -> io::Result<()> {
        let (stream, _) = self.send(response(status, text)).await?;
        close_after_drain(stream).await
    }

    async fn send(self, response: Response<Full<Bytes>>) -> io::Result<Bare> {
        // If the connection has ended, awaiting it tells why.
        let _ = self.respond.send(response);
        self.connection.await.map_err(io::Error::other)
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// Reads the request. hyper answers what is not HTTP by itself.
pub(super) async fn accept(stream: TcpStream) -> Result<(Target, Exchange), Refusal> {
    let (seen, mut requests) = mpsc::channel(1);
    let mut connection = serve(stream, seen);
    let (request, respond) = tokio::select! {
        biased;
        Some(request) = requests.recv() => request,
        ended = &mut connection => return Err(not_http(ended)),
    };
    let exchange = Exchange { respond, connection };
    let target = target(&request);
    // The connection would wait for the rest of its body.
    drop(request);
    match target {
        Ok(target) => Ok((target, exchange)),
        Err((status, text, refusal)) => {
            exchange.refuse(status, Bytes::from_static(text.as_bytes())).await?;
            Err(refusal)
        }
    }
}

type Question = (Request<Incoming>, oneshot::Sender<Response<Full<Bytes>>>);

/// Drives the connection: hands the request to `seen` and sends back what is answered.
fn serve(
    stream: TcpStream,
    seen: mpsc::Sender<Question>,
) -> Pin<Box<dyn Future<Output = hyper::Result<Bare>> + Send>> {
    let service = service_fn(move |request| {
        let seen = seen.clone();
        Box::pin(async move {
            let (respond, response) = oneshot::channel();
            let _ = seen.send((request, respond)).await;
            // An exchange that was dropped takes this connection with it.
            Ok::<_, Infallible>(response.await.unwrap_or_default())
        })
    });
    let connection = http1::Builder::new()
        .half_close(true) // a client may end its stream behind the request
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown();
    Box::pin(async move {
        let parts = connection.await?;
        Ok((parts.io.into_inner(), parts.read_buf))
    })
}

fn not_http(ended: hyper::Result<Bare>) -> Refusal {
    match ended {
        Err(error) if error.is_parse_too_large() => Refusal::Malformed("HTTP head too large"),
        Err(error) if error.is_parse() => Refusal::Malformed("HTTP"),
        _ => Refusal::Closed,
    }
}

type Rejection = (u16, &'static str, Refusal);

fn target(request: &Request<Incoming>) -> Result<Target, Rejection> {
    if request.method() != Method::CONNECT {
        return Err((405, NOT_CONNECT, Refusal::NotConnect));
    }
    // A body would have to be read before the tunnel begins; CONNECT has none (RFC 9110 9.3.6).
    if !request.body().is_end_stream() {
        return Err((400, NO_BODY, Refusal::Malformed("CONNECT with a body")));
    }
    let (host, port) =
        authority(request.uri()).ok_or((400, BAD_TARGET, Refusal::Malformed("CONNECT target")))?;
    Ok(Target { host, port, via: Via::Connect, context: None })
}

/// The target in authority form, which has a port and nothing else (RFC 9112 section 3.2.3).
pub(in crate::agent) fn authority(uri: &Uri) -> Option<(Host, u16)> {
    let authority = uri.authority()?;
    let bare = uri.scheme().is_none() && uri.path_and_query().is_none();
    if !bare || authority.as_str().contains('@') {
        return None;
    }
    let port = authority.port_u16().filter(|port| *port != 0)?;
    let host = authority.host();
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Some((Host::parse(bracketed.unwrap_or(host))?, port))
}

fn response(status: u16, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if status == 405 {
        headers.insert(ALLOW, HeaderValue::from_static("CONNECT"));
    }
    response
}
