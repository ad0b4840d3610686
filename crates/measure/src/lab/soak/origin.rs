//! The origin behind an edge: content that can be checked, uploads that come back, WebSockets.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use openssl::base64;
use openssl::sha::sha1;
use tokio::net::TcpListener;

use super::content::{Content, return_frame};
use crate::network;
use headstart::base::failure::Failure;

/// Suffix that a server adds to a client's key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(super) const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
pub(super) const KEY: &str = "sec-websocket-key";
pub(super) const ACCEPT: &str = "sec-websocket-accept";

/// Serves until the process is killed.
pub(in crate::lab) fn serve(listen: SocketAddr) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| network::not_started(&error))?;
    runtime.block_on(accept(listen)).map_err(|error| network::not_started(&error))
}

async fn accept(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(tcp), service_fn(answer))
            .with_upgrades();
        // A client notices a broken connection itself.
        tokio::spawn(async move { drop(served.await) });
    }
}

type Answer = Either<Content, Incoming>;

async fn answer(mut request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    if let Some(key) = request.headers().get(KEY) {
        let mut response = Response::new(Either::Left(Content::EMPTY));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(ACCEPT, accepted(key));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, WEBSOCKET);
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let stream = upgraded.await.map_err(io::Error::other)?;
            return_frame(TokioIo::new(stream)).await
        });
        return Ok(response);
    }
    if request.method() == Method::POST {
        return Ok(Response::new(Either::Right(request.into_body())));
    }
    let content = wanted(request.uri().path());
    let mut response = Response::new(Either::Left(content.unwrap_or(Content::EMPTY)));
    if content.is_none() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

/// Reads `/bytes/N`, or `/bytes/N/OFFSET` where the content does not begin at 0.
fn wanted(path: &str) -> Option<Content> {
    let words = path.strip_prefix("/bytes/")?;
    let (bytes, from) = words.split_once('/').unwrap_or((words, "0"));
    let (bytes, from): (u64, u64) = (bytes.parse().ok()?, from.parse().ok()?);
    from.checked_add(bytes)?;
    Some(Content::new(from, bytes))
}

/// Returns a server's answer to the key of a client.
pub(super) fn accepted(key: &HeaderValue) -> HeaderValue {
    let digest = sha1(&[key.as_bytes(), GUID.as_bytes()].concat());
    HeaderValue::from_str(&base64::encode_block(&digest)).unwrap_or(WEBSOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_in_the_rfc() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accepted(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_path_says_what_comes() {
        assert_eq!(wanted("/bytes/10"), Some(Content::new(0, 10)));
        assert_eq!(wanted("/bytes/10/7"), Some(Content::new(7, 10)));
        for path in ["/", "/bytes/", "/bytes/x", "/bytes/1/x", "/bytes/2/18446744073709551615"] {
            assert_eq!(wanted(path), None, "{path}");
        }
    }
}
