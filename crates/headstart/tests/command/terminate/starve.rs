//! Clients that try to exhaust the edge: windows of zero, responses that they never read, floods of
//! frames. Each is a client of this test's own that does what no browser does.

use std::io::{ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use hyper::{Method, Request, StatusCode};
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslStream};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::recorder::{CLOSE, Recorder};
use super::tools::{Outcome, curl, read_until, tls};
use crate::edge::{Edge, PATIENCE, until};
use crate::files::Files;
use crate::origin::Origin;

const NAME: &str = "www.example.com";

/// A connection of HTTP/2 on which the edge may send no byte of a body, until it is dropped.
struct Shut {
    sender: SendRequest<Bytes>,
    /// Begun, and never read.
    responses: Vec<ResponseFuture>,
    bodies: Vec<RecvStream>,
    connection: JoinHandle<()>,
}

impl Shut {
    /// Connects, and sends a PING five times a second from then on.
    async fn connect(edge: &Edge) -> Self {
        Self::with_window(edge, 0).await
    }

    /// Connects likewise, but lets the edge send `window` bytes of each body.
    async fn with_window(edge: &Edge, window: u32) -> Self {
        let tcp = TcpStream::connect(edge.address).await.unwrap();
        let mut stream = tokio_openssl::SslStream::new(http2(), tcp).unwrap();
        Pin::new(&mut stream).connect().await.unwrap();
        let (sender, mut connection) =
            h2::client::Builder::new().initial_window_size(window).handshake(stream).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        let connection = tokio::spawn(async move {
            let pings = async {
                while pings.ping(h2::Ping::opaque()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            tokio::join!(pings, async { drop(connection.await) });
        });
        Self { sender, responses: Vec::new(), bodies: Vec::new(), connection }
    }

    /// Requests `path` once more; does nothing if the edge has ended the connection.
    async fn get(&mut self, path: &str) {
        let Ok(mut sender) = self.sender.clone().ready().await else { return };
        let uri = format!("https://{NAME}{path}");
        let request = Request::builder().method(Method::GET).uri(uri).body(()).unwrap();
        if let Ok((response, _)) = sender.send_request(request, true) {
            self.responses.push(response);
        }
    }

    /// Waits for the head of the edge's next response.
    async fn next_status(&mut self) -> Result<StatusCode, h2::Error> {
        let (head, body) = self.responses.remove(0).await?.into_parts();
        self.bodies.push(body);
        Ok(head.status)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Prepares TLS for HTTP/2.
fn http2() -> Ssl {
    let mut context = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
    context.set_alpn_protos(b"\x02h2").unwrap();
    let mut ssl = Ssl::new(&context.build()).unwrap();
    ssl.set_hostname(NAME).unwrap();
    ssl
}

fn site(files: &Files, limits: &[&str]) -> (Origin, Edge) {
    let origin = Origin::start();
    files.issue(NAME);
    let option = format!("--origin={}", origin.http());
    let edge = Edge::start(files, &[NAME], &[&[option.as_str()], limits].concat());
    (origin, edge)
}

/// Returns the status that an ordinary client gets.
fn status(edge: &Edge, files: &Files) -> String {
    let flags = ["-o", "/dev/null", "-w", "%{http_code}"];
    curl(edge, files, NAME, "/head/honest", &flags).text()
}

fn limits_hit(edge: &Edge, limit: &str) -> u64 {
    edge.count("headstart_limits_hit_total", &[&format!("limit=\"{limit}\"")])
}

/// Four times as many responses as there are permits, all complete at the edge.
#[test]
fn a_window_of_zero_holds_no_permit() {
    let files = Files::new();
    let (origin, edge) = site(&files, &["--max-connections=8", "--max-address-requests=4"]);
    Runtime::new().unwrap().block_on(async {
        let mut shut = [Shut::connect(&edge).await, Shut::connect(&edge).await];
        for client in &mut shut {
            // One after the other: a request that waits a second for a permit is refused.
            for _ in 0..16 {
                client.get("/bytes/1000").await;
                assert_eq!(client.next_status().await.unwrap(), StatusCode::OK);
            }
        }
        assert_eq!(origin.requests("GET /bytes/1000"), 32);
        assert_eq!(status(&edge, &files), "200");
    });
}

/// Checks that the edge cancels stalled responses too large to be read ahead, and counts them as
/// `limit`.
fn assert_cancelled(client_timeout: &str, limit: &str) {
    let files = Files::new();
    let flags = ["--max-connections=8", "--max-address-requests=8", client_timeout];
    let (origin, edge) = site(&files, &flags);
    Runtime::new().unwrap().block_on(async {
        let mut all = Vec::new();
        for _ in 0..4 {
            let mut client = Shut::connect(&edge).await;
            client.get("/bytes/1000000").await;
            client.get("/bytes/1000000").await;
            all.push(client);
        }
        until("all permits are taken", || origin.requests("GET /bytes/1000000") == 8);
        until("others are served", || status(&edge, &files) == "200");
        until("it is counted", || limits_hit(&edge, limit) > 0);
    });
}

#[test]
fn stalled_responses_are_cancelled() {
    assert_cancelled("--client-timeout=1s", "answer_not_taken");
}

#[test]
fn stalled_responses_are_cancelled_where_permits_are_short() {
    assert_cancelled("--client-timeout=1h", "stalled_answers");
}

/// One address cannot hold all permits, however many connections it has.
#[test]
fn an_address_has_an_eighth_of_the_permits() {
    let files = Files::new();
    let (origin, edge) = site(&files, &["--max-connections=160"]);
    Runtime::new().unwrap().block_on(async {
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut client = Shut::connect(&edge).await;
            for _ in 0..10 {
                client.get("/never").await;
            }
            all.push(client);
        }
        until("its permits are taken", || origin.requests("GET /never") == 20);
        assert_eq!(status(&edge, &files), "503");
        assert_eq!(limits_hit(&edge, "origin_requests"), 1);
        drop(all);
        until("they are free", || status(&edge, &files) == "200");
    });
}

/// Begins to serve each connection of an origin in a thread of its own; returns the option for an
/// edge that sends everything there.
fn origin(serve: impl Fn(std::net::TcpStream) + Send + Sync + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(tcp));
        }
    });
    format!("--origin=http://{address}")
}

/// The client takes nothing of a response that came before its upload was read, and breaks off when
/// the edge has lost interest in the rest of that.
#[test]
fn an_upload_that_is_broken_off_late_hangs_nobody() {
    let (gone, origin_gone) = std::sync::mpsc::channel();
    let origin = origin(move |mut tcp| {
        let is_upload = read_until(&mut tcp, b"\r\n\r\n").starts_with(b"POST");
        let close = if is_upload { "" } else { "connection: close\r\n" };
        write!(tcp, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{close}\r\nok").unwrap();
        if is_upload {
            // Longer than the edge waits for it after the response.
            std::thread::sleep(Duration::from_secs(3));
            drop(tcp);
            gone.send(()).unwrap();
        }
    });
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin, "--workers=1"]);
    Runtime::new().unwrap().block_on(async {
        for is_whole_connection in [false, true] {
            // With one byte, the HTTP library takes the whole piece and keeps the rest of it.
            let client = Shut::with_window(&edge, 1).await;
            let mut sender = client.sender.clone().ready().await.unwrap();
            let uri = format!("https://{NAME}/");
            let request = Request::builder().method(Method::POST).uri(uri).body(()).unwrap();
            let (response, mut upload) = sender.send_request(request, false).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            origin_gone.recv_timeout(PATIENCE).unwrap();
            // The edge sees the end of that connection before it takes this one.
            assert_eq!(status(&edge, &files), "200");
            if is_whole_connection {
                drop(client);
            } else {
                upload.send_reset(h2::Reason::CANCEL);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            for _ in 0..4 {
                assert_eq!(status(&edge, &files), "200", "{is_whole_connection}");
            }
        }
    });
}

/// It would hold its permit for as long as it likes.
#[test]
fn an_upload_of_a_byte_now_and_then_is_no_upload() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &["--origin-response-timeout=1s"]);
    let mut stream = tls(&edge, NAME);
    write!(stream, "POST /upload HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 9999\r\n\r\n")
        .unwrap();
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut received = Vec::new();
    until("it is over", || {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(_) => drop(stream.write_all(b"x")),
        }
        !received.is_empty()
    });
    let received = String::from_utf8_lossy(&received).into_owned();
    assert!(received.starts_with("HTTP/1.1 408 "), "{received}");
    assert_eq!(limits_hit(&edge, "request_body_time"), 1);
}

#[test]
fn a_stalled_response_ends_its_connection_over_http_1_1() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &["--client-timeout=1s"]);
    let mut stream = tls(&edge, NAME);
    // More than the kernels on the way keep.
    write!(stream, "GET /bytes/64000000 HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
    until("it is ended", || {
        edge.count("headstart_connections_total", &["result=\"timed_out\""]) == 1
    });
    assert_eq!(limits_hit(&edge, "answer_not_taken"), 1);
}

/// An idle connection ends, whatever control frames come: they do not count as use.
#[test]
fn control_frames_are_no_movement() {
    let files = Files::new();
    let (origin, edge) = site(&files, &["--idle-timeout=5s"]);
    let sent = [frame(6, 0, 0, b"abcdefgh"), frame(4, 0, 0, b""), frame(8, 0, 0, &[0, 0, 0, 1])];
    let mut clients = sent.map(|control| {
        let mut stream = frames(&edge);
        stream.write_all(&head(1, "/never", 200)).unwrap();
        (stream, control)
    });
    until("the origin has the requests", || origin.requests("GET /never") == 3);
    std::thread::scope(|scope| {
        for (stream, control) in &mut clients {
            scope.spawn(move || assert!(is_ended(stream, control), "{control:?}"));
        }
    });
    until("it is counted", || {
        edge.count("headstart_connections_total", &["result=\"timed_out\""]) == 3
    });
    assert_eq!(limits_hit(&edge, "control_frames"), 0);
}

/// Sends `now_and_then` until the edge ends the connection; returns false if it does not.
fn is_ended(stream: &mut SslStream<std::net::TcpStream>, now_and_then: &[u8]) -> bool {
    is_ended_after(stream, std::iter::repeat(now_and_then))
}

/// Sends one of `pieces` after the other, then waits until the edge ends the connection.
fn is_ended_after<'a>(
    stream: &mut SslStream<std::net::TcpStream>,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> bool {
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match stream.read(&mut [0; 4096]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = stream.write_all(pieces.next().unwrap_or_default());
            }
            Ok(1..) => {}
            Ok(0) | Err(_) => return true,
        }
    }
    false
}

/// Over both versions, also beside a request that runs; what is complete stays.
#[test]
fn the_head_of_a_request_has_its_time() {
    let files = Files::new();
    let (origin, edge) = site(&files, &["--request-head-timeout=1s"]);
    let (mut h1, runtime) = (tls(&edge, NAME), Runtime::new().unwrap());
    let get = format!("GET /head/h1 HTTP/1.1\r\nhost: {NAME}\r\n\r\n");
    h1.write_all(get.as_bytes()).unwrap();
    read_until(&mut h1, b"/head/h1");
    let mut h2 = runtime.block_on(Shut::with_window(&edge, 1000));
    runtime.block_on(h2.get("/never"));
    until("the origin has the request", || origin.requests("GET /never") == 1);

    // HEADERS without END_HEADERS, and with its payload cut off.
    let [open, cut] = [frame(1, 1, 3, b"\x82"), head(3, "/head", 200)[..100].to_vec()];
    let running = head(1, "/never", 200);
    for (number, (what, begun, now_and_then)) in (1..).zip([
        ("a preface", b"PRI * HTTP/2.0".to_vec(), &b""[..]),
        ("a head", open.clone(), b""),
        ("its pieces", open.clone(), &frame(9, 0, 3, b"")),
        ("a frame", cut.clone(), b""),
        ("its bytes", cut.clone(), b"y"),
        ("a head beside a request", [&running[..], &open].concat(), b""),
        ("a frame beside a request", [&running[..], &cut].concat(), b""),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nx: ".to_vec(), b""),
        ("HTTP/1.1 byte by byte", b"GET / HTTP/1.1\r\nx: ".to_vec(), b"y"),
        ("HTTP/1.1 behind a response", [get.as_bytes(), b"GET"].concat(), b"y"),
    ]) {
        let mut stream = match what {
            "a preface" => http2_stream(&edge),
            _ if what.starts_with("HTTP/1.1") => tls(&edge, NAME),
            _ => frames(&edge),
        };
        stream.write_all(&begun).unwrap();
        // A head in more than five pieces is refused for their number, however late the timer is.
        let pieces = if what == "its pieces" { 3 } else { usize::MAX };
        let pieces = std::iter::repeat_n(now_and_then, pieces);
        assert!(is_ended_after(&mut stream, pieces), "{what}");
        until(what, || limits_hit(&edge, "request_head_time") == number);
    }
    h1.write_all(get.as_bytes()).unwrap();
    read_until(&mut h1, b"/head/h1");
    runtime.block_on(async {
        h2.get("/head").await;
        assert_eq!(h2.responses.remove(1).await.unwrap().status(), StatusCode::OK);
    });
}

/// An origin may respond before it has read the whole body.
#[test]
fn the_rest_of_an_upload_behind_its_response_is_no_head() {
    const BODY: usize = 20;
    let files = Files::new();
    files.issue(NAME);
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let option = format!("--origin=http://{}", origin.local_addr().unwrap());
    let edge = Edge::start(&files, &[NAME], &[&option, "--request-head-timeout=1s"]);
    let reading = std::thread::spawn(move || {
        let (mut tcp, _) = origin.accept().unwrap();
        let head = read_until(&mut tcp, b"\r\n\r\n");
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        let body = head.split(|byte| *byte == b'\n').next_back().unwrap().len();
        tcp.read_exact(&mut vec![0; BODY - body]).is_ok()
    });
    let mut client = tls(&edge, NAME);
    let head = format!("POST / HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {BODY}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    read_until(&mut client, b"ok");
    for _ in 0..BODY {
        client.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_millis(150));
    }
    assert!(reading.join().unwrap(), "the upload was broken off");
    assert_eq!(limits_hit(&edge, "request_head_time"), 0);
}

/// Returns the memory that responses hold.
fn held(edge: &Edge) -> u64 {
    edge.count("headstart_answer_memory_bytes", &[])
}

/// Ten times as much as may wait, and all of it complete.
#[test]
fn stalled_responses_have_a_limit_of_memory() {
    const MEMORY: u64 = 1 << 20;
    let files = Files::new();
    let (_origin, edge) = site(&files, &["--answer-memory=1"]);
    Runtime::new().unwrap().block_on(async {
        let mut honest = tls(&edge, NAME);
        let (mut all, mut most) = (Vec::new(), 0);
        for _ in 0..40 {
            let mut client = Shut::connect(&edge).await;
            for _ in 0..4 {
                client.get("/bytes/60000").await;
            }
            // All of them have come, or the edge has ended the connection.
            while !client.responses.is_empty() {
                let _ = client.next_status().await;
            }
            all.push(client);
            until("it is as little as it may be", || {
                let now = held(&edge);
                most = most.max(now);
                // The edge looks for connections to end when something comes.
                write!(honest, "GET /bytes/0 HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
                read_until(&mut honest, b"\r\n\r\n");
                now <= MEMORY
            });
        }
        assert!(limits_hit(&edge, "answer_memory") > 0, "connections have ended for others");
        // Connections of four are on their way while others go.
        assert!(most <= 2 * MEMORY, "{most}");
        until("others are served", || status(&edge, &files) == "200");
        drop(all);
    });
    until("all is given back", || held(&edge) == 0);
}

/// A connection on which nothing of HTTP/2 was sent.
fn http2_stream(edge: &Edge) -> SslStream<std::net::TcpStream> {
    let tcp = std::net::TcpStream::connect(edge.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = SslStream::new(http2(), tcp).unwrap();
    stream.connect().unwrap();
    stream
}

/// A connection of HTTP/2 frame by frame.
fn frames(edge: &Edge) -> SslStream<std::net::TcpStream> {
    let mut stream = http2_stream(edge);
    // The preface, and SETTINGS that set nothing.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    stream
}

#[test]
fn floods_of_control_frames_end_the_connection() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    for (count, (what, frame)) in (1..).zip([
        ("PING", &b"\0\0\x08\x06\0\0\0\0\0abcdefgh"[..]),
        ("SETTINGS", b"\0\0\0\x04\0\0\0\0\0"),
        ("WINDOW_UPDATE", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"),
        ("PRIORITY", b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10"),
    ]) {
        let mut stream = frames(&edge);
        until(what, || {
            let _ = stream.write_all(&frame.repeat(500));
            // The edge's acknowledgements must not fill the buffers between.
            stream.get_ref().set_nonblocking(true).unwrap();
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
            stream.get_ref().set_nonblocking(false).unwrap();
            limits_hit(&edge, "control_frames") == count
        });
    }
}

/// Each would be a connection there for nothing.
#[test]
fn requests_that_are_reset_at_once_do_not_reach_the_origin() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let origin = origin(move |mut tcp| {
        count.fetch_add(1, Ordering::SeqCst);
        read_until(&mut tcp, b"\r\n\r\n");
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nresponse");
    });
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    // GET, https, / and :authority by their indices in HPACK's table (RFC 7541 appendix A).
    let block = [b"\x82\x87\x84\x01\x0f", NAME.as_bytes()].concat();
    let (mut stream, mut sent) = (frames(&edge), Vec::new());
    for id in (1..=21).step_by(2) {
        sent.extend([0, 0, 20, 1, 5, 0, 0, 0, id]);
        sent.extend(&block);
        if id < 21 {
            sent.extend([0, 0, 4, 3, 0, 0, 0, 0, id, 0, 0, 0, 8]);
        }
    }
    stream.write_all(&sent).unwrap();
    read_until(&mut stream, b"response");
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

/// Both versions take the same, and both count what they do not.
#[test]
fn a_head_has_as_many_lines_over_both_versions_of_http() {
    let files = Files::new();
    let origin = Recorder::ok();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    for (number, version) in (1..).zip(["--http1.1", "--http2"]) {
        for (more, expected) in [(96, "200"), (97, "431")] {
            let lines: Vec<_> = (0..more).map(|line| format!("x-{line}: y")).collect();
            let mut flags = vec![version, "-o", "/dev/null", "-w", "%{http_code}"];
            flags.extend(lines.iter().flat_map(|line| ["-H", line.as_str()]));
            // Beside them curl has Host, User-Agent and Accept.
            let lines = more + if version == "--http2" { 1 } else { 0 };
            let extra = if lines > more { vec!["-H", "x: y"] } else { Vec::new() };
            flags.extend(extra);
            let output = curl(&edge, &files, NAME, "/head", &flags).text();
            assert_eq!(output, expected, "{version} {more}");
        }
        until("it is counted", || limits_hit(&edge, "request_head") == number);
    }
    assert_eq!(origin.recorded().len(), 2);
}

/// Returns a frame of HTTP/2 on the stream of this number.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the frames of a head that asks for `path`, with a field of `size` bytes.
fn head(stream: u32, path: &str, size: usize) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut block = [b"\x82\x87\x04", &text(path)[..], b"\x01", &text(NAME)].concat();
    // Never indexed; its length as an integer (RFC 7541 section 5.1).
    let mut rest = size - 127;
    block.extend([&b"\x10"[..], &text("x"), &[127]].concat());
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
    block.extend(vec![b'y'; size]);
    let (pieces, count) = (block.chunks(16_000), block.len().div_ceil(16_000));
    let frames = (1..).zip(pieces).map(|(number, piece)| {
        let (kind, end) = (if number == 1 { 1 } else { 9 }, if number == count { 4 } else { 0 });
        frame(kind, end | u8::from(number == 1), stream, piece)
    });
    frames.flatten().collect()
}

/// The library responds, resets or ends by itself: an operator sees it all the same.
#[test]
fn what_the_http_library_refuses_has_a_name() {
    let files = Files::new();
    let (_origin, edge) = site(&files, &[]);
    let streams = |count: u32| (0..count).map(|number| 2 * number + 1);
    let requests: Vec<_> = streams(130).flat_map(|id| head(id, "/never", 200)).collect();
    let resets: Vec<_> = streams(21)
        .flat_map(|id| [head(id, "/never", 200), frame(3, 0, id, &[0, 0, 0, 8])].concat())
        .collect();
    // A second method.
    let malformed: Vec<_> = streams(1025).flat_map(|id| frame(1, 5, id, b"\x82\x82")).collect();
    let upload = [frame(1, 4, 1, &[b"\x83\x87\x84\x01\x0f", NAME.as_bytes()].concat())].concat();
    for (what, sent, limit, count) in [
        ("streams", requests, "concurrent_streams", 2),
        ("a head", head(1, "/head", 60_000), "request_head", 1),
        ("two", [head(1, "/head", 60_000), head(3, "/head", 60_000)].concat(), "request_head", 3),
        ("a large one", head(1, "/head", 300_000), "request_head", 4),
        ("its pieces", frame(9, 0, 1, b"").repeat(20), "request_head", 5),
        ("resets", resets, "stream_resets", 1),
        ("malformed streams", malformed, "stream_errors", 1),
        (
            "pieces of a body",
            [upload, frame(0, 0, 1, b"").repeat(990)].concat(),
            "control_frames",
            1,
        ),
    ] {
        let mut stream = frames(&edge);
        if what == "its pieces" {
            stream.write_all(&frame(1, 1, 1, b"")).unwrap();
        }
        // The edge may end it before it has taken all.
        let _ = stream.write_all(&sent);
        until(what, || limits_hit(&edge, limit) >= count);
        assert_eq!(limits_hit(&edge, limit), count, "{what}");
    }
    assert_eq!(limits_hit(&edge, "http2_excess"), 0, "none is left without a name");
    // Over HTTP/1.1 it is the same one.
    let head = format!("GET / HTTP/1.1\r\nhost: {NAME}\r\nx: {}\r\n\r\n", "y".repeat(60_000));
    // Open until then: its end, with tickets unread, would be a reset, which may come first.
    let mut stream = tls(&edge, NAME);
    let _ = stream.write_all(head.as_bytes());
    until("it is counted", || limits_hit(&edge, "request_head") == 6);
}

/// The client knows that nobody wants the rest of its upload, and would take an error for one of
/// the response.
#[test]
fn a_client_that_ends_its_upload_after_the_response_gets_no_error() {
    let origin = origin(|mut tcp| {
        read_until(&mut tcp, b"\r\n\r\n");
        write!(tcp, "HTTP/1.1 413 Content Too Large\r\ncontent-length: 4\r\n\r\nless").unwrap();
        while matches!(tcp.read(&mut [0; 4096]), Ok(1..)) {}
    });
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    let mut stream = frames(&edge);
    // A POST with content-length: 9.
    let name = [&b"\x83\x87\x84\x01\x0f"[..], NAME.as_bytes(), b"\x0f\x0d\x019"].concat();
    stream.write_all(&frame(1, 4, 1, &name)).unwrap();
    // DATA that ends the stream.
    read_until(&mut stream, &frame(0, 1, 1, b"")[3..]);
    stream.write_all(&frame(0, 1, 1, b"x")).unwrap();
    // NO_ERROR.
    read_until(&mut stream, &frame(3, 0, 1, &[0; 4]));
}

/// The client is at fault, and anybody could raise an operator's alert.
#[test]
fn a_malformed_body_is_400_and_no_failure_of_the_origin() {
    let (files, origin) = (Files::new(), Recorder::ok());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    for chunk in ["zz\r\n", "5\r\nhelloXX", "-1\r\n", "fffffffffffffffff\r\n"] {
        let mut stream = tls(&edge, NAME);
        let head = format!("POST / HTTP/1.1\r\nhost: {NAME}\r\ntransfer-encoding: chunked\r\n\r\n");
        stream.write_all(format!("{head}{chunk}").as_bytes()).unwrap();
        let text = String::from_utf8(read_until(&mut stream, b"\r\n\r\n")).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{chunk:?}: {text}");
    }
    assert_eq!(edge.count("headstart_origin_failures_total", &[]), 0);
    assert_eq!(limits_hit(&edge, "malformed_body"), 4);
}

/// Claims of clients do not arrive, whichever version and spelling they choose.
#[test]
fn headers_that_claim_something_do_not_arrive() {
    let (files, origin) = (Files::new(), Recorder::ok());
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option(), "--drop-header=X-Internal-User"]);
    let claims = [
        "Proxy",
        "Content_Length",
        "Transfer_Encoding",
        "Forwarded",
        "X-Forwarded-Host",
        "X_Forwarded_For",
        "X-Real-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Client-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Internal-User",
        "X_Internal_User",
        "X.Forwarded.For",
        "X.Internal.User",
        "X-Envoy-External-Address",
        "Early_Data",
        "SSL_CLIENT_VERIFY",
        "X-SSL-Client-S-DN",
        "X-Client-Cert-Subject",
        "X-Client-DN",
        "Fly-Client-IP",
    ];
    let lines = claims.map(|name| format!("{name}: 192.0.2.66"));
    for (count, version) in (1..).zip(["--http1.1", "--http2"]) {
        let mut flags = vec![version, "-H", "Early-Data: no", "-H", "a_b: kept"];
        flags.extend(lines.iter().flat_map(|line| ["-H", line.as_str()]));
        curl(&edge, &files, NAME, "/", &flags).ok();
        let request = origin.newest(count);
        assert!(!request.head.contains("192.0.2.66"), "{}", request.head);
        assert_eq!(
            (request.values("a_b"), request.values("early-data")),
            (vec!["kept"], vec!["1"])
        );
    }
}

/// A client that did not ask for trailers is sent none, and none are announced to it.
#[test]
fn trailers_are_announced_to_those_who_get_them() {
    let response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                   5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n";
    let (files, origin) = (Files::new(), Recorder::sending(response, CLOSE));
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    for (flags, expected) in
        [(&["--http1.1"][..], 0), (&["--http1.1", "-H", "TE: trailers"], 2), (&["--http2"], 2)]
    {
        let all = [&["-D", "-"][..], flags].concat();
        let output = curl(&edge, &files, NAME, "/", &all).text();
        assert_eq!(output.matches("x-sum").count(), expected, "{flags:?}: {output}");
    }
}

/// An origin that breaks off: its client reads only when that is over, and gets all the same.
#[test]
fn an_origin_that_breaks_off_costs_no_byte_that_it_sent() {
    const SENT: usize = 300_000;
    let response =
        [b"HTTP/1.1 200 OK\r\ncontent-length: 500000\r\n\r\n", &[b'x'; SENT][..]].concat();
    let (files, origin) = (Files::new(), Recorder::sending(Vec::leak(response), CLOSE));
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin.option()]);
    for _ in 0..4 {
        let before = origin.closed();
        let mut stream = tls(&edge, NAME);
        write!(stream, "GET / HTTP/1.1\r\nhost: {NAME}\r\n\r\n").unwrap();
        until("the origin has gone", || origin.closed() > before);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert_eq!(all.iter().filter(|byte| **byte == b'x').count(), SENT);
    }
    for version in ["--http1.1", "--http2"] {
        for _ in 0..4 {
            let output = curl(&edge, &files, NAME, "/", &[version]);
            assert_ne!(output.code, Some(0), "it is not made whole");
            assert_eq!(output.out.len(), SENT, "{version}: {}", output.err);
        }
    }
}

/// An origin that responds and reads no more; curl 7.88 takes the end of its stream for a failure
/// if it is sending.
#[test]
fn a_response_before_the_upload_is_read_arrives() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("--origin=http://{}", listener.local_addr().unwrap());
    let files = Files::new();
    files.issue(NAME);
    let edge = Edge::start(&files, &[NAME], &[&origin]);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let head = String::from_utf8(read_until(&mut tcp, b"\r\n\r\n")).unwrap();
            let framing = if head.contains("chunked") { "chunks" } else { "length" };
            let response = format!(
                "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 6\r\n\r\n\
                 {framing}"
            );
            tcp.write_all(response.as_bytes()).unwrap();
            tcp.shutdown(std::net::Shutdown::Write).unwrap();
            kept.push(tcp);
        }
    });
    for size in [1000, 5_000_000] {
        let upload = format!("@{}", files.write("upload", &vec![b'x'; size], 0o600));
        for (framing, header) in [("length", "x: y"), ("chunks", "Transfer-Encoding: chunked")] {
            for expect in ["Expect:", "Expect: 100-continue"] {
                let flags = ["--http2", "-H", header, "-H", expect, "--data-binary", &upload];
                let flags = [&flags[..], &["-w", " %{http_code}"]].concat();
                let outputs = [(); 8].map(|()| curl(&edge, &files, NAME, "/", &flags));
                let errors = outputs.each_ref().map(|output| &output.err);
                let texts = outputs.each_ref().map(Outcome::text);
                let expected = [(); 8].map(|()| format!("{framing} 413"));
                assert_eq!(texts, expected, "{size} {expect} {errors:?}");
            }
        }
    }
}
