//! Uses of HTTP over one connection.

use std::io;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use openssl::base64;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::content::{Content, exchange_frames};
use super::judge::WRONG;
use super::origin::{ACCEPT, KEY, WEBSOCKET, accepted};
use headstart_openers::NAME;

/// Names of protocols in TLS.
pub(super) const HTTP1: &str = "http/1.1";
pub(super) const HTTP2: &str = "h2";

/// Path of uploads that come back.
const ECHO: &str = "/echo";

/// Requests that share a connection, and the bytes of an exchange.
const REQUESTS: u64 = 4;

/// A use of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Requests one after the other, by HTTP/1.1.
    Http1,
    /// Requests at the same time, by HTTP/2; the last one is an upload.
    Http2,
    /// A body that goes up by HTTP/1.1 and comes back.
    Upload,
    /// A frame that comes back.
    WebSocket,
}

impl Use {
    pub(super) const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::Upload, Self::WebSocket];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "h1",
            Self::Http2 => "h2",
            Self::Upload => "upload",
            Self::WebSocket => "websocket",
        }
    }
}

/// Has content of so many bytes come over the stream, in this way, and checks each of them.
pub(super) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    what: Use,
    offset: u64,
    bytes: u64,
) -> io::Result<()> {
    let io = TokioIo::new(stream);
    if what == Use::Http2 {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.map_err(broken)?;
        let running = tokio::spawn(connection);
        let outcome = at_once(&sender, offset, bytes.div_ceil(REQUESTS)).await;
        running.abort();
        return outcome;
    }
    let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
    let running = tokio::spawn(connection.with_upgrades());
    let outcome = match what {
        Use::WebSocket => websocket(&mut sender, Content::new(offset, bytes)).await,
        Use::Upload => upload(&mut sender, Content::new(offset, bytes)).await,
        Use::Http1 | Use::Http2 => one_by_one(&mut sender, offset, bytes.div_ceil(REQUESTS)).await,
    };
    running.abort();
    outcome
}

async fn one_by_one(
    sender: &mut http1::SendRequest<Content>,
    offset: u64,
    bytes: u64,
) -> io::Result<()> {
    for number in 0..REQUESTS {
        let from = offset + number;
        sender.ready().await.map_err(broken)?;
        let response = sender.send_request(get(Use::Http1, from, bytes)?).await.map_err(broken)?;
        check(response, Content::new(from, bytes)).await?;
    }
    Ok(())
}

async fn upload(sender: &mut http1::SendRequest<Content>, content: Content) -> io::Result<()> {
    let response =
        sender.send_request(request(Use::Upload, ECHO, content)?).await.map_err(broken)?;
    check(response, content).await
}

/// One of the requests is an upload.
async fn at_once(sender: &http2::SendRequest<Content>, offset: u64, bytes: u64) -> io::Result<()> {
    let mut streams = JoinSet::new();
    for number in 0..REQUESTS {
        let (content, mut sender) = (Content::new(offset + number, bytes), sender.clone());
        let request = match number {
            0 => request(Use::Http2, ECHO, content)?,
            _ => get(Use::Http2, offset + number, bytes)?,
        };
        streams.spawn(async move {
            let response = sender.send_request(request).await.map_err(broken)?;
            check(response, content).await
        });
    }
    while let Some(ended) = streams.join_next().await {
        ended??;
    }
    Ok(())
}

async fn websocket(sender: &mut http1::SendRequest<Content>, content: Content) -> io::Result<()> {
    // Any 16 bytes; they need not be secret.
    let key = base64::encode_block(&[content.first(), content.first()].concat());
    let key = HeaderValue::from_str(&key).map_err(io::Error::other)?;
    let mut request = get(Use::WebSocket, 0, 0)?;
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    request.headers_mut().insert(UPGRADE, WEBSOCKET);
    request.headers_mut().insert("sec-websocket-version", HeaderValue::from_static("13"));
    request.headers_mut().insert(KEY, key.clone());
    let mut response = sender.send_request(request).await.map_err(broken)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(io::Error::other(format!("status {}", response.status().as_u16())));
    }
    if response.headers().get(ACCEPT) != Some(&accepted(&key)) {
        return Err(io::Error::other(format!("{WRONG}: the answer to the key is another's")));
    }
    let stream = hyper::upgrade::on(&mut response).await.map_err(broken)?;
    let [mask @ .., _, _, _, _] = content.first();
    exchange_frames(TokioIo::new(stream), content, mask).await
}

/// HTTP/1.1 names the path and the host apart (RFC 9112 section 3.2.1), HTTP/2 together.
fn request(what: Use, path: &str, content: Content) -> io::Result<Request<Content>> {
    let request = match what {
        Use::Http2 => Request::builder().uri(format!("https://{NAME}{path}")),
        _ => Request::builder().uri(path).header(HOST, NAME),
    };
    let method = if content.is_end_stream() { Method::GET } else { Method::POST };
    request.method(method).body(content).map_err(io::Error::other)
}

fn get(what: Use, from: u64, bytes: u64) -> io::Result<Request<Content>> {
    request(what, &format!("/bytes/{bytes}/{from}"), Content::EMPTY)
}

async fn check(response: Response<Incoming>, mut content: Content) -> io::Result<()> {
    if response.status() != StatusCode::OK {
        return Err(io::Error::other(format!("status {}", response.status().as_u16())));
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Some(piece) = frame.map_err(broken)?.data_ref() {
            content.check(piece)?;
        }
    }
    content.finish()
}

/// Says why, which hyper leaves to the source of its error.
fn broken(error: hyper::Error) -> io::Error {
    let why = std::error::Error::source(&error).map_or(String::new(), |why| format!(": {why}"));
    io::Error::other(format!("{error}{why}"))
}
