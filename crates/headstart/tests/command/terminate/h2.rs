//! HTTP/2 by a client of this test's own, which does what curl does not.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_openssl::SslStream;

use super::recorder::Recorder;
use super::tools::curl;
use crate::edge::{Edge, closed, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// A connection to the edge; trusts anybody.
async fn connect<B>(edge: &Edge) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let mut context = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
    context.set_alpn_protos(b"\x02h2").unwrap();
    let mut ssl = Ssl::new(&context.build()).unwrap();
    ssl.set_hostname(NAME).unwrap();
    let tcp = TcpStream::connect(edge.address).await.unwrap();
    let mut stream = SslStream::new(ssl, tcp).unwrap();
    Pin::new(&mut stream).connect().await.unwrap();
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request<B>(method: Method, path: &str, body: B) -> Request<B> {
    let uri = format!("https://{NAME}{path}");
    Request::builder().method(method).uri(uri).body(body).unwrap()
}

/// No body.
type Nothing = Empty<Bytes>;

fn nothing() -> Nothing {
    Empty::new()
}

/// A body that the test sends as it likes.
struct Feed(mpsc::UnboundedReceiver<Frame<Bytes>>);

impl Feed {
    fn new() -> (mpsc::UnboundedSender<Frame<Bytes>>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }
}

impl Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

/// Runs `meanwhile` while a response to `GET /` has begun, of which nobody reads more.
pub(crate) fn without_reading(edge: &Edge, name: &str, meanwhile: impl FnOnce()) {
    assert_eq!(name, NAME);
    let runtime = Runtime::new().unwrap();
    let response = runtime.block_on(async {
        let mut sender = connect(edge).await;
        sender.send_request(request(Method::GET, "/", nothing())).await.unwrap()
    });
    assert_eq!(response.status(), StatusCode::OK);
    meanwhile();
    drop(response);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_becomes_one_of_http_1_1_and_no_other() {
    let (files, origin) = (Files::new(), Recorder::ok());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    let mut sender = connect(&edge).await;

    // A body of unknown length with trailers, though GET usually has none.
    for (count, method) in [(1, Method::GET), (2, Method::POST)] {
        let (feed, body) = Feed::new();
        let mut request = request(method, "/", body);
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        request.headers_mut().insert("trailer", HeaderValue::from_static("x-forwarded-for"));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.66"));
        for frame in [data("hel"), data("lo"), Frame::trailers(trailers)] {
            feed.send(frame).unwrap();
        }
        drop(feed);
        assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
        let seen = origin.newest(count);
        assert_eq!((&seen.body[..], seen.trailers.as_str()), (&b"hello"[..], ""));
        assert_eq!(seen.values("transfer-encoding"), ["chunked"]);
        assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
        assert!(seen.values("te").is_empty() && seen.values("trailer").is_empty());
    }
    // One length, given twice.
    let (feed, body) = Feed::new();
    let mut upload = request(Method::POST, "/", body);
    upload.headers_mut().append(CONTENT_LENGTH, HeaderValue::from_static("5"));
    upload.headers_mut().append(CONTENT_LENGTH, HeaderValue::from_static("5"));
    feed.send(data("hello")).unwrap();
    drop(feed);
    assert_eq!(sender.send_request(upload).await.unwrap().status(), StatusCode::OK);
    assert_eq!(origin.newest(3).values("content-length"), ["5"]);
    // Less than announced.
    let (feed, body) = Feed::new();
    let mut short = request(Method::POST, "/short", body);
    short.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("6"));
    feed.send(data("hello")).unwrap();
    drop(feed);
    assert!(sender.send_request(short).await.is_err(), "it is malformed");
    assert!(
        origin.recorded().iter().all(|request| !request.is("POST /short") || !request.is_whole)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_broken_off_is_not_made_whole() {
    let (files, origin) = (Files::new(), Recorder::ok());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    let mut sender = connect(&edge).await;
    let (feed, body) = Feed::new();
    let upload = tokio::spawn(sender.send_request(request(Method::POST, "/", body)));
    feed.send(data("hello")).unwrap();
    until("it has begun", || origin.begun() == 1);
    // The stream is reset when the response is dropped.
    upload.abort();
    drop(upload.await);
    let seen = origin.newest(1);
    assert!(!seen.is_whole, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_to_head_has_no_body() {
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin=http://{}", closed())]);
    let mut sender = connect(&edge).await;
    let response = sender.send_request(request(Method::HEAD, "/", nothing())).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    let length = response.headers()[CONTENT_LENGTH].clone();
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    let get = sender.send_request(request(Method::GET, "/", nothing())).await.unwrap();
    let body = get.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(length, body.len().to_string());
    for version in ["--http1.1", "--http2"] {
        curl(&edge, &files, NAME, "/", &["-I", version]).ok();
    }
}

/// A connection may have many requests, and each takes a connection to the origin: so it has a
/// share of them.
#[test]
fn a_connection_has_a_quarter_of_the_permits() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let option = format!("--origin={}", origin.http());
    let flags = [option.as_str(), "--max-connections=8", "--max-address-requests=8"];
    let edge = Edge::start(&files, &[NAME], &flags);
    Runtime::new().unwrap().block_on(async {
        let mut sender = connect(&edge).await;
        let mut pending = JoinSet::new();
        for _ in 0..2 {
            pending.spawn(sender.send_request(request(Method::GET, "/never", nothing())));
        }
        until("both wait", || origin.requests("GET /never") == 2);
        assert_eq!(status(&mut sender).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(edge.count("headstart_limits_hit_total", &["origin_requests"]), 1);
        assert_eq!(status(&mut connect(&edge).await).await, StatusCode::OK, "others have theirs");
        pending.shutdown().await;
        while status(&mut sender).await != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Returns the status of an ordinary request.
async fn status(sender: &mut SendRequest<Nothing>) -> StatusCode {
    let response = sender.send_request(request(Method::GET, "/head", nothing()));
    response.await.unwrap().status()
}

/// Returns how often a connection ended for requests that it broke off.
fn broken_off(edge: &Edge) -> u64 {
    edge.count("headstart_limits_hit_total", &["broken_off_requests"])
}

/// Has `count` requests under way at the origin, and waits for none of them.
async fn break_off(sender: &SendRequest<Nothing>, origin: &Origin, count: usize) {
    let before = origin.requests("GET /never");
    let mut pending = JoinSet::new();
    for _ in 0..count {
        pending.spawn(sender.clone().send_request(request(Method::GET, "/never", nothing())));
    }
    // Once the edge gives up a connection, none of its requests gets through.
    while origin.requests("GET /never") < before + count && !sender.is_closed() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pending.shutdown().await;
}

/// Each costs two small frames of the client, and a connection of the origin (CVE-2023-44487).
#[test]
fn requests_that_are_broken_off_by_the_hundred_end_the_connection() {
    let (files, origin) = (Files::new(), Origin::start());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
    Runtime::new().unwrap().block_on(async {
        let mut sender = connect(&edge).await;
        break_off(&sender, &origin, 100).await;
        assert_eq!(status(&mut sender).await, StatusCode::OK, "as somebody who leaves a page");
        assert_eq!(broken_off(&edge), 0);
        // A slow machine needs more of them to have as many at the same time.
        let mut rounds = 0;
        while sender.send_request(request(Method::GET, "/head", nothing())).await.is_ok() {
            rounds += 1;
            assert!(rounds < 40, "it goes on and on");
            break_off(&sender, &origin, 120).await;
        }
        assert!(rounds > 3 && broken_off(&edge) > 0, "{rounds}");
        until("it is gone", || edge.count("headstart_connections_active", &[]) == 0);
        assert_eq!(status(&mut connect(&edge).await).await, StatusCode::OK, "another is served");
    });
}
