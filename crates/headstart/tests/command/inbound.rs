//! The agent's inbound port with real sockets: clients fast and slow, well formed and not, and
//! curl, which speaks both proxy protocols as most programs do.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use headstart::agent::inbound::{self, Host, Inbound, Reason, Refusal, Target, Timeouts, Via};
use headstart_testkit::pair;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// Bytes that a client sends behind its request without waiting: the start of a TLS record.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

const SOCKS_NO_AUTH: &[u8] = b"\x05\x01\x00";

/// Long enough never to matter where time is not what is tested.
const PATIENT: Timeouts =
    Timeouts { first_byte: Duration::from_secs(120), request: Duration::from_secs(120) };

/// Returns the agent's reading of `request`, and the client's socket.
async fn accept(request: &[u8]) -> (Result<Inbound, Refusal>, TcpStream) {
    let (mut client, server) = pair().await;
    client.write_all(request).await.unwrap();
    (inbound::accept(server, None, PATIENT).await, client)
}

/// Has the agent refuse `request`; returns the refusal, and all bytes that the client gets.
async fn refused(request: &[u8]) -> (Refusal, Vec<u8>) {
    let (mut client, server) = pair().await;
    client.write_all(request).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).await.map(|_| reply)
    });
    let refusal = inbound::accept(server, None, PATIENT).await.unwrap_err();
    (refusal, reading.await.unwrap().unwrap_or_default())
}

fn socks_request(command: u8, address: &[u8]) -> Vec<u8> {
    [SOCKS_NO_AUTH, &[5, command, 0], address].concat()
}

fn socks_name(name: &[u8], port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[3, length], name, &port.to_be_bytes()].concat()
}

fn name_of(target: &Target) -> &str {
    match &target.host {
        Host::Name(name) => name.as_str(),
        Host::Ip(address) => panic!("{address} is not a name"),
    }
}

/// The client reads exactly `expected`.
async fn expect(client: &mut TcpStream, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    client.read_exact(&mut found).await.unwrap();
    assert_eq!(found, expected);
}

/// All that the agent's caller has to read first: the bytes beside the socket, then the socket.
async fn first_bytes(stream: &mut TcpStream, ahead: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = ahead.to_vec();
    let from = bytes.len();
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[from..]).await.unwrap();
    bytes
}

#[tokio::test]
async fn socks_with_a_name_and_tls_behind_it() {
    let request = socks_request(1, &socks_name(b"WWW.Example.com.", 443));
    let (inbound, mut client) = accept(&[&request, HELLO].concat()).await;
    let Inbound { target, answer } = inbound.unwrap();
    assert_eq!(name_of(&target), "www.example.com");
    assert_eq!((target.port, target.via, target.context), (443, Via::Socks5, None));
    let (mut bare, ahead) = answer.success().await.unwrap();
    assert_eq!(first_bytes(&mut bare, &ahead, HELLO.len()).await, HELLO);
    expect(&mut client, b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0").await;
    bare.write_all(b"server").await.unwrap();
    expect(&mut client, b"server").await;
}

#[tokio::test]
async fn socks_with_addresses() {
    let (inbound, _client) = accept(&socks_request(1, &[1, 192, 0, 2, 1, 1, 187])).await;
    let target = inbound.unwrap().target;
    assert_eq!((target.host.to_string().as_str(), target.port), ("192.0.2.1", 443));

    let six = b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb";
    let (inbound, _client) = accept(&socks_request(1, six)).await;
    assert_eq!(inbound.unwrap().target.host.to_string(), "2001:db8::1");

    let (inbound, _client) = accept(&socks_request(1, &socks_name(b"192.0.2.1", 443))).await;
    assert_eq!(inbound.unwrap().target.host, Host::Ip([192, 0, 2, 1].into()));
}

#[tokio::test]
async fn a_socks_user_name_is_the_context() {
    let greeting = b"\x05\x02\x00\x02";
    let credentials = b"\x01\x05alice\x06secret";
    let request = [&[5, 1, 0][..], &socks_name(b"example.com", 443)].concat();
    let (inbound, mut client) = accept(&[greeting, &credentials[..], &request].concat()).await;
    assert_eq!(inbound.unwrap().target.context.as_deref(), Some("alice"));
    expect(&mut client, b"\x05\x02\x01\x00").await;
}

/// curl sends the first for `socks5h://alice@`, Java the second for an empty user.name.
#[tokio::test]
async fn socks_takes_an_empty_password_or_user_name() {
    let request = [&[5, 1, 0][..], &socks_name(b"example.com", 443)].concat();
    for (credentials, context) in
        [(&b"\x01\x05alice\x00"[..], Some("alice")), (b"\x01\x00\x00", None)]
    {
        let (inbound, mut client) =
            accept(&[b"\x05\x02\x00\x02", credentials, &request].concat()).await;
        assert_eq!(inbound.unwrap().target.context.as_deref(), context);
        expect(&mut client, b"\x05\x02\x01\x00").await;
    }
}

#[tokio::test]
async fn connect_with_a_name_and_tls_behind_it() {
    let request = b"CONNECT WWW.Example.com:443 HTTP/1.1\r\nHost: WWW.Example.com:443\r\n\
                    Proxy-Authorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n";
    let (inbound, mut client) = accept(&[request, HELLO].concat()).await;
    let Inbound { target, answer } = inbound.unwrap();
    assert_eq!(name_of(&target), "www.example.com");
    assert_eq!((target.port, target.via, target.context), (443, Via::Connect, None));
    let (mut bare, ahead) = answer.success().await.unwrap();
    assert_eq!(first_bytes(&mut bare, &ahead, HELLO.len()).await, HELLO);
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("content-length"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("connection: close"), "{head}");
    bare.write_all(b"server").await.unwrap();
    expect(&mut client, b"server").await;
}

async fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn connect_with_addresses() {
    let (inbound, _client) = accept(b"CONNECT [2001:db8::1]:853 HTTP/1.1\r\n\r\n").await;
    let target = inbound.unwrap().target;
    assert_eq!((target.host.to_string().as_str(), target.port), ("2001:db8::1", 853));
    let (inbound, _client) = accept(b"CONNECT 192.0.2.1:443 HTTP/1.0\r\n\r\n").await;
    assert_eq!(inbound.unwrap().target.host, Host::Ip([192, 0, 2, 1].into()));
}

#[tokio::test]
async fn a_client_may_end_its_stream_behind_the_request() {
    for request in [
        [&b"CONNECT example.com:443 HTTP/1.1\r\n\r\n"[..], HELLO].concat(),
        [&socks_request(1, &socks_name(b"example.com", 443)), HELLO].concat(),
    ] {
        let (mut client, server) = pair().await;
        client.write_all(&request).await.unwrap();
        client.shutdown().await.unwrap();
        let inbound = inbound::accept(server, None, PATIENT).await.unwrap();
        let (mut bare, ahead) = inbound.answer.success().await.unwrap();
        let mut all = ahead.to_vec();
        bare.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, HELLO);
        bare.write_all(b"still open").await.unwrap();
        drop(bare);
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).await.unwrap();
        assert!(reply.ends_with(b"still open"));
    }
}

/// Each byte in a segment of its own, and each is read before the next is sent.
#[tokio::test]
async fn requests_may_arrive_byte_by_byte() {
    for request in [
        [&b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"[..], HELLO].concat(),
        [&socks_request(1, &socks_name(b"example.com", 443)), HELLO].concat(),
    ] {
        let (mut client, server) = pair().await;
        client.set_nodelay(true).unwrap();
        let typing = tokio::spawn(async move {
            for byte in request {
                client.write_all(&[byte]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client
        });
        let inbound = inbound::accept(server, None, PATIENT).await.unwrap();
        assert_eq!(name_of(&inbound.target), "example.com");
        let (mut bare, ahead) = inbound.answer.success().await.unwrap();
        assert_eq!(first_bytes(&mut bare, &ahead, HELLO.len()).await, HELLO);
        typing.await.unwrap();
    }
}

#[tokio::test]
async fn redirected_clients_are_not_read() {
    let (mut client, server) = pair().await;
    client.write_all(HELLO).await.unwrap();
    let destination = "[::ffff:192.0.2.1]:443".parse().unwrap();
    let inbound = inbound::accept(server, Some(destination), PATIENT).await.unwrap();
    assert_eq!(inbound.target.host, Host::Ip([192, 0, 2, 1].into()));
    assert_eq!(inbound.target.via, Via::Redirect);
    let (mut bare, ahead) = inbound.answer.success().await.unwrap();
    assert!(ahead.is_empty());
    assert_eq!(first_bytes(&mut bare, &ahead, HELLO.len()).await, HELLO);
}

#[tokio::test]
async fn a_redirected_client_sees_a_failure_as_a_reset() {
    let (mut client, server) = pair().await;
    let destination = "192.0.2.1:443".parse().unwrap();
    let inbound = inbound::accept(server, Some(destination), PATIENT).await.unwrap();
    inbound.answer.failure(Reason::Refused).await.unwrap();
    let error = client.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// The client has sent its ClientHello already: the answer must reach it all the same.
#[tokio::test]
async fn failures_have_the_codes_of_their_protocol() {
    for (reason, socks, http) in [
        (Reason::Other, 1, "502"),
        (Reason::NotAllowed, 2, "403"),
        (Reason::NetworkUnreachable, 3, "502"),
        (Reason::HostUnreachable, 4, "502"),
        (Reason::NameUnknown, 4, "502"),
        (Reason::Refused, 5, "502"),
        (Reason::TimedOut, 6, "504"),
        (Reason::Overloaded, 1, "503"),
    ] {
        let request = socks_request(1, &socks_name(b"example.com", 443));
        let reply = told_of_failure(&[&request, HELLO].concat(), reason).await;
        assert_eq!(reply, [5, 0, 5, socks, 0, 1, 0, 0, 0, 0, 0, 0], "{reason:?}");
        let request = b"CONNECT example.com:443 HTTP/1.1\r\n\r\n";
        let reply = told_of_failure(&[request, HELLO].concat(), reason).await;
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with(&format!("HTTP/1.1 {http} ")), "{reply}");
        assert!(reply.ends_with(".\n"), "{reply}");
    }
}

async fn told_of_failure(request: &[u8], reason: Reason) -> Vec<u8> {
    let (inbound, mut client) = accept(request).await;
    let mut reply = Vec::new();
    let (failed, read) = tokio::join!(inbound.unwrap().answer.failure(reason), async {
        let read = client.read_to_end(&mut reply).await;
        drop(client);
        read
    });
    failed.unwrap();
    read.unwrap();
    reply
}

#[test]
fn errors_of_connecting_are_reasons() {
    use io::ErrorKind as K;
    for (kind, reason) in [
        (K::ConnectionRefused, Reason::Refused),
        (K::TimedOut, Reason::TimedOut),
        (K::NetworkUnreachable, Reason::NetworkUnreachable),
        (K::HostUnreachable, Reason::HostUnreachable),
        (K::PermissionDenied, Reason::NotAllowed),
        (K::ConnectionReset, Reason::Other),
    ] {
        assert_eq!(Reason::from(&io::Error::from(kind)), reason);
    }
}

#[tokio::test]
async fn other_protocols_are_refused_in_their_own_words() {
    let (refusal, reply) = refused(b"\x04\x01\x01\xbb\xc0\x00\x02\x01user\0").await;
    assert!(matches!(refusal, Refusal::Socks4));
    assert_eq!(reply, [0, 91, 0, 0, 0, 0, 0, 0]);
    let (refusal, reply) = refused(HELLO).await;
    assert!(matches!(refusal, Refusal::UnknownProtocol(0x16)));
    assert_eq!(reply, b"");
    let (refusal, reply) =
        refused(b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n").await;
    assert!(matches!(refusal, Refusal::NotConnect));
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 405 "), "{reply}");
    assert!(reply.contains("allow: CONNECT\r\n"), "{reply}");
    assert!(reply.contains("export https_proxy="), "{reply}");
}

#[tokio::test]
async fn other_socks_commands_and_address_types_have_their_reply_code() {
    let address = socks_name(b"example.com", 443);
    for (request, code) in [
        (socks_request(2, &address), 7),
        (socks_request(3, &address), 7),
        (socks_request(9, &address), 7),
        (socks_request(1, b"\x02abc"), 8),
        (socks_request(1, &socks_name(b"example.com", 0)), 5),
        (socks_request(1, &socks_name(b"exa mple.com", 443)), 4),
        (socks_request(1, &socks_name(b"", 443)), 4),
    ] {
        let (_, reply) = refused(&request).await;
        assert_eq!(reply, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{request:?}");
    }
}

#[tokio::test]
async fn malformed_socks_is_refused() {
    let (refusal, reply) = refused(b"\x05\x01\x01").await;
    assert!(matches!(refusal, Refusal::Authentication));
    assert_eq!(reply, [5, 0xff]);
    let (refusal, _) = refused(b"\x05\x00").await;
    assert!(matches!(refusal, Refusal::Authentication));
    let (refusal, reply) = refused(&socks_request(1, &socks_name(b"\xff\xfe", 443))).await;
    assert!(matches!(refusal, Refusal::Malformed("host name")));
    assert_eq!(reply.len(), 12);
    let (refusal, _) =
        refused(&[SOCKS_NO_AUTH, b"\x04\x01\x00\x01\x01\x02\x03\x04\x00\x50"].concat()).await;
    assert!(matches!(refusal, Refusal::Malformed("SOCKS version")));
    let (refusal, _) = refused(b"\x05\x01\x02\x02\x01a\x01b").await;
    assert!(matches!(refusal, Refusal::Malformed("user name")));
    let (refusal, _) = refused(b"\x05\x01\x02\x01\x01\xff\x00").await;
    assert!(matches!(refusal, Refusal::Malformed("user name")));
}

#[tokio::test]
async fn malformed_connect_is_refused() {
    for target in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:https",
        ":443",
        "a@example.com:443",
        "https://example.com:443/",
        "[::1]",
        "127.1:443",
    ] {
        let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
        let (refusal, reply) = refused(request.as_bytes()).await;
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 400 "), "{target}: {reply}");
        assert!(matches!(refusal, Refusal::Malformed(_)), "{target}: {refusal}");
    }
}

/// Refused whether or not the body comes: a client that announces one and sends nothing must not
/// hold the connection.
#[tokio::test]
async fn a_connect_with_a_body_is_refused() {
    for rest in [
        "Content-Length: 5\r\n\r\nhello",
        "Content-Length: 5\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nhello",
    ] {
        let request = format!("CONNECT example.com:443 HTTP/1.1\r\n{rest}");
        let (refusal, reply) = refused(request.as_bytes()).await;
        assert!(matches!(refusal, Refusal::Malformed("CONNECT with a body")), "{refusal}");
        assert!(reply.starts_with(b"HTTP/1.1 400 "));
    }
    let (inbound, _client) =
        accept(b"CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n").await;
    assert!(inbound.unwrap().answer.success().await.is_ok());
}

#[tokio::test]
async fn malformed_http_requests_are_refused() {
    for request in [
        &b"hello\r\n\r\n"[..],
        b"CONNECT example.com:443\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nbad header\r\n\r\n",
        b"SSH-2.0-client\r\n",
    ] {
        let (refusal, _) = refused(request).await;
        assert!(matches!(refusal, Refusal::Malformed("HTTP")), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let request = format!("CONNECT example.com:443 HTTP/1.1\r\nx: {}", "x".repeat(100_000));
    let (mut client, server) = pair().await;
    let writing = tokio::spawn(async move { client.write_all(request.as_bytes()).await });
    let refusal = inbound::accept(server, None, PATIENT).await.unwrap_err();
    assert!(matches!(refusal, Refusal::Malformed("HTTP head too large")), "{refusal:?}");
    let _ = writing.await.unwrap();
}

#[tokio::test]
async fn clients_that_go_away_are_noticed() {
    for part in [
        &b""[..],
        b"\x05",
        b"\x05\x01\x00\x05\x01",
        b"CONN",
        b"CONNECT example.com:443 HTTP/1.1\r\n",
    ] {
        let (mut client, server) = pair().await;
        client.write_all(part).await.unwrap();
        drop(client);
        let refusal = inbound::accept(server, None, PATIENT).await.unwrap_err();
        assert!(matches!(refusal, Refusal::Closed | Refusal::Io(_)), "{part:?}: {refusal:?}");
    }
}

#[tokio::test]
async fn clients_that_dawdle_are_let_go() {
    let hasty =
        Timeouts { first_byte: Duration::from_millis(20), request: Duration::from_millis(20) };
    let (_client, server) = pair().await;
    let refusal = inbound::accept(server, None, hasty).await.unwrap_err();
    // Earlier output may arrive a little later.
    let hasty = Timeouts { first_byte: PATIENT.first_byte, ..hasty };
    assert!(matches!(refusal, Refusal::Silent), "{refusal:?}");
    for part in [&b"\x05\x01"[..], b"CONNECT example.com:443 HTTP/1.1\r\nHost:"] {
        let (mut client, server) = pair().await;
        client.write_all(part).await.unwrap();
        let refusal = inbound::accept(server, None, hasty).await.unwrap_err();
        assert!(matches!(refusal, Refusal::Slow), "{refusal:?}");
        let closed = client.read(&mut [0; 16]).await;
        assert!(matches!(closed, Ok(2) | Ok(0) | Err(_)), "{closed:?}"); // 2: method chosen
    }
}

/// A proxy of this inbound and nothing else: every target is the server at `origin`.
async fn proxy_to(origin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let inbound = inbound::accept(stream, None, PATIENT).await.unwrap();
                if inbound.target.port != 443 {
                    return inbound.answer.failure(Reason::NotAllowed).await.unwrap();
                }
                assert_eq!(name_of(&inbound.target), "www.example.com");
                let (mut client, ahead) = inbound.answer.success().await.unwrap();
                let mut server = TcpStream::connect(origin).await.unwrap();
                server.write_all(&ahead).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

/// A server that answers every HTTP request with the same words.
async fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            read_head(&mut stream).await;
            let response =
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            stream.write_all(response).await.unwrap();
        }
    });
    address
}

async fn curl(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "", "--max-time", "120"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("curl is installed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn curl_with_both_kinds_of_proxy() {
    let proxy = proxy_to(origin().await).await.to_string();
    let socks = ["--socks5-hostname", &proxy];
    let connect = ["--proxytunnel", "--proxy", &proxy];
    let with_user = ["--proxytunnel", "--proxy-user", "alice:secret", "--proxy", &proxy];
    for arguments in [&socks[..], &connect, &with_user] {
        let found = curl(&[arguments, &["http://www.example.com:443/"]].concat()).await;
        assert_eq!(found, (Some(0), "hello".into()), "{arguments:?}");
    }
}

#[tokio::test]
async fn curl_understands_failures() {
    let proxy = proxy_to(origin().await).await.to_string();
    let (code, text) = curl(&["--socks5-hostname", &proxy, "http://www.example.com:25/"]).await;
    assert_eq!(code, Some(97), "{text}"); // CURLE_PROXY
    assert!(text.contains("(2)"), "{text}");
    let tunnel = ["--proxytunnel", "--proxy", &proxy, "http://www.example.com:25/"];
    let (code, text) = curl(&tunnel).await;
    assert_eq!(code, Some(56), "{text}"); // CURLE_RECV_ERROR: no tunnel
    assert!(text.contains("403"), "{text}");
}
