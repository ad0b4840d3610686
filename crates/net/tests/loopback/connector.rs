//! The client's stream on real sockets, against an acceptor or a misbehaving server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headstart_net::advert::Advert;
use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{
    Acceptor, AcceptorConfig, Carrier, ClientStream, Connector, ConnectorConfig, Edge, Target,
};
use headstart_proto::RouteTag;
use headstart_proto::wire::{JOIN_TYPE, Request, Response};
use headstart_testkit::hello::CraftedHello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

const FLIGHT: &[u8] = b"the server's flight";
const FINISHED: &[u8] = b"Finished and a request";
const TIMEOUT: Duration = Duration::from_secs(120);

fn client_hello() -> Vec<u8> {
    CraftedHello { random: rand::random(), ..CraftedHello::sized(300) }.stream()
}

fn connector(edge: SocketAddr) -> Connector {
    Connector::new(config(edge))
}

fn config(edge: SocketAddr) -> ConnectorConfig {
    let dns = DnsConfig { name_servers: vec![edge], ..DnsConfig::default() };
    let mut config = ConnectorConfig::new(Resolver::new(&dns).unwrap());
    let edge = Edge { host: edge.ip().to_string(), port: edge.port(), advert: Advert::default() };
    config.edges = Arc::new(move |_| Some(edge.clone()));
    config
}

fn connect(connector: &Connector) -> ClientStream {
    connector.connect(&Target::new("test.example", 443)).unwrap()
}

/// Serves one connection with two tasks, which know nothing of each other.
async fn serve_by_halves(mut acceptor: Acceptor) {
    loop {
        let arrival = acceptor.accept().await.unwrap();
        tokio::spawn(async move {
            let Ok(Some(stream)) = arrival.establish().await else { return };
            let (mut reader, mut writer) = tokio::io::split(stream);
            tokio::spawn(async move {
                reader.read_exact(&mut [0; 300]).await.unwrap();
                let mut second = [0; FINISHED.len()];
                reader.read_exact(&mut second).await.unwrap();
                assert_eq!(second, FINISHED);
                tokio::task::yield_now().await;
            });
            tokio::task::yield_now().await;
            writer.write_all(FLIGHT).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            writer.write_all(b"answer").await.unwrap();
            writer.shutdown().await.unwrap();
        });
    }
}

#[tokio::test]
async fn halves_of_a_stream_in_two_tasks_wake_each_other() {
    let acceptor = Acceptor::bind("127.0.0.1:0".parse().unwrap(), AcceptorConfig::default());
    let acceptor = acceptor.unwrap();
    let connector = connector(acceptor.local_addr());
    tokio::spawn(serve_by_halves(acceptor));
    for _ in 0..20 {
        let (mut reader, mut writer) = tokio::io::split(connect(&connector));
        let reads = tokio::spawn(async move {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await.map(|_| all)
        });
        tokio::task::yield_now().await;
        writer.write_all(&client_hello()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        writer.write_all(FINISHED).await.unwrap();
        let read = tokio::time::timeout(TIMEOUT, reads).await.expect("the reader hangs");
        assert_eq!(read.unwrap().unwrap(), [FLIGHT, b"answer"].concat());
    }
}

/// Acknowledges over UDP as an edge does.
async fn acknowledge(udp: UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
        let Ok(request) = Request::parse(&buffer[..length]) else { continue };
        let response = Response {
            id: request.id,
            seq: request.seq,
            tag: RouteTag([1; 4]),
            ack: 300,
            offset: 0,
            payload: &[],
        };
        udp.send_to(&response.emit(), from).await.unwrap();
    }
}

/// Passes TLS, answered by an echo, and resets connections that begin with a join.
async fn reset_joins(listener: TcpListener) {
    loop {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut bytes = [0; 300];
            tcp.read_exact(&mut bytes[..1]).await.unwrap();
            if bytes[0] == JOIN_TYPE {
                return tcp.set_zero_linger().unwrap();
            }
            tcp.read_exact(&mut bytes[1..]).await.unwrap();
            tcp.write_all(&bytes).await.unwrap();
        });
    }
}

async fn echo(stream: &mut ClientStream) -> std::io::Result<()> {
    let hello = client_hello();
    stream.write_all(&hello).await?;
    let mut back = [0; 300];
    stream.read_exact(&mut back).await?;
    assert_eq!(back[..], hello[..]);
    Ok(())
}

#[tokio::test]
async fn a_network_that_resets_joins_harms_one_connection_and_not_the_next() {
    let (udp, listener) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // The TCP port of the same number may be in use.
        if let Ok(listener) = TcpListener::bind(udp.local_addr().unwrap()).await {
            break (udp, listener);
        }
    };
    let address = udp.local_addr().unwrap();
    tokio::spawn(acknowledge(udp));
    tokio::spawn(reset_joins(listener));
    // Longer than a busy machine takes for the answer.
    let grace = Some(Duration::from_secs(1));
    let connector = Connector::new(ConnectorConfig { grace, ..config(address) });
    let mut resets = 0;
    for _ in 0..20 {
        let mut stream = connect(&connector);
        match tokio::time::timeout(TIMEOUT, echo(&mut stream)).await.expect("hangs") {
            Ok(()) => assert_eq!(stream.report().unwrap().opened_by, Carrier::Tcp),
            Err(_) => {
                resets += 1;
                assert!(stream.report().unwrap().reset.is_some());
                let second = stream.read(&mut [0]).await.unwrap_err();
                assert_eq!(
                    second.kind(),
                    std::io::ErrorKind::ConnectionReset,
                    "the stream revived"
                );
            }
        }
    }
    assert_eq!(resets, 1);
}

#[tokio::test]
async fn an_error_at_the_start_appears_at_the_first_use() {
    // Bound, so that no other socket gets the port, and not listening.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut stream = connect(&connector(nobody.local_addr().unwrap()));
    stream.start();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let error = stream.connected().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}");
}

#[tokio::test]
async fn the_stream_buffers_little_for_an_application_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = connect(&connector(listener.local_addr().unwrap()));
    let writes = async {
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut [0; 300]).await.unwrap();
        let full = tokio::time::timeout(Duration::from_secs(2), flood(&mut server)).await;
        assert!(full.is_err(), "TCP never pushed back");
    };
    stream.write_all(&client_hello()).await.unwrap();
    let uses = async {
        loop {
            // Writing drives the stream as much as reading does.
            stream.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = writes => {}
        () = uses => {}
    }
}

async fn flood(server: &mut TcpStream) {
    for _ in 0..200 {
        server.write_all(&[0; 1 << 20]).await.unwrap();
    }
}
