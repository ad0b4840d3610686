use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu_discover, ipv6_mtu_discover, ipv6_v6only,
};

use super::*;
use crate::time::TIMEOUT;

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn pair(ip: IpAddr) -> (UdpPort, UdpPort) {
    let server = UdpPort::listen(SocketAddr::new(ip, 0), false).unwrap();
    let client = UdpPort::connect(server.local_addr(), None).unwrap();
    (client, server)
}

fn to(port: &UdpPort, bytes: &'static [u8]) -> Datagram<'static> {
    Datagram { to: port.local_addr(), from: None, bytes }
}

/// Receives batches until there are `count` datagrams.
async fn receive(port: &UdpPort, count: usize) -> Vec<(SocketAddr, IpAddr, Vec<u8>)> {
    let mut buffers = RecvBuffers::new(BATCH_SIZE);
    let mut all = Vec::new();
    while all.len() < count {
        let received = tokio::time::timeout(TIMEOUT, port.recv(&mut buffers))
            .await
            .expect("datagrams")
            .unwrap();
        assert!(received > 0 && received == buffers.datagrams().count());
        all.extend(buffers.datagrams().map(|it| (it.from, it.to, it.bytes.to_vec())));
    }
    assert_eq!(all.len(), count);
    all
}

#[tokio::test]
async fn many_datagrams_arrive_whole_and_in_order() {
    for ip in LOOPBACKS {
        let (client, server) = pair(ip);
        for wave in 0..40_u8 {
            let sent: Vec<Vec<u8>> = (0..50)
                .map(|n| vec![wave ^ n; 1 + usize::from(wave) * 30 + usize::from(n % 3)])
                .collect();
            for bytes in &sent {
                client
                    .send(&Datagram { to: server.local_addr(), from: None, bytes })
                    .await
                    .unwrap();
            }
            for ((from, local, bytes), expected) in
                receive(&server, sent.len()).await.iter().zip(&sent)
            {
                assert_eq!((*from, *local), (client.local_addr(), ip));
                assert!(bytes == expected);
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_to_port_0() {
    let (_client, server) = pair(LOOPBACKS[0]);
    let error =
        server.try_send(&Datagram { to: "127.0.0.1:0".parse().unwrap(), from: None, bytes: b"x" });
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn an_empty_datagram_is_a_datagram() {
    for ip in LOOPBACKS {
        let (client, server) = pair(ip);
        for bytes in [&b""[..], b"x", b""] {
            client.try_send(&to(&server, bytes)).unwrap();
        }
        let received = receive(&server, 3).await;
        assert_eq!(received.iter().map(|it| it.2.len()).collect::<Vec<_>>(), [0, 1, 0]);
    }
}

#[tokio::test]
async fn the_longest_datagram_arrives_whole() {
    let (client, server) = pair(LOOPBACKS[0]);
    // Loopback's MTU is 65,536, of which 28 bytes are headers.
    let bytes = vec![9; 65_507];
    client.send(&Datagram { to: server.local_addr(), from: None, bytes: &bytes }).await.unwrap();
    assert!(receive(&server, 1).await[0].2 == bytes);
}

#[tokio::test]
async fn an_unreachable_peer_is_reported_and_the_port_goes_on() {
    // No other test has the first address, so that none takes the port meanwhile.
    for ip in [Ipv4Addr::new(127, 78, 0, 2).into(), LOOPBACKS[1]] {
        let (client, server) = pair(ip);
        let addr = server.local_addr();
        drop(server);
        for _ in 0..3 {
            client.try_send(&Datagram { to: addr, from: None, bytes: b"anyone?" }).unwrap();
            let mut buffers = RecvBuffers::new(1);
            let error = tokio::time::timeout(TIMEOUT, client.recv(&mut buffers))
                .await
                .unwrap()
                .unwrap_err();
            assert!(matches!(error, RecvError::Unreachable(_)), "{error}");
        }

        let server = UdpPort::listen(addr, false).unwrap();
        client.try_send(&Datagram { to: addr, from: None, bytes: b"now?" }).unwrap();
        let (from, ..) = receive(&server, 1).await.remove(0);
        server.try_send(&Datagram { to: from, from: None, bytes: b"here" }).unwrap();
        assert_eq!(receive(&client, 1).await[0].2, b"here");
    }
}

// W-SEQ-3
#[tokio::test]
async fn an_answer_leaves_from_the_address_it_was_sent_to() {
    let server = UdpPort::listen("0.0.0.0:0".parse().unwrap(), false).unwrap();
    let server_addr = SocketAddr::new("127.0.0.2".parse().unwrap(), server.local_addr().port());
    let client = UdpPort::connect(server_addr, None).unwrap();
    client.try_send(&Datagram { to: server_addr, from: None, bytes: b"?" }).unwrap();
    let (from, local, _) = receive(&server, 1).await.remove(0);
    assert_eq!(local, server_addr.ip());
    // The client is connected: it would not see an answer from 127.0.0.1.
    server.try_send(&Datagram { to: from, from: None, bytes: b"wrong" }).unwrap();
    server.try_send(&Datagram { to: from, from: Some(local), bytes: b"right" }).unwrap();
    assert_eq!(
        receive(&client, 1).await[0],
        (server_addr, client.local_addr().ip(), b"right".to_vec())
    );
}

#[tokio::test]
async fn a_wildcard_of_ipv6_does_not_take_ipv4() {
    let ipv4 = UdpPort::listen("0.0.0.0:0".parse().unwrap(), false).unwrap();
    let ipv6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), ipv4.local_addr().port());
    let ipv6 = UdpPort::listen(ipv6, false).unwrap();
    assert!(ipv6_v6only(&*ipv6.socket).unwrap());
}

#[tokio::test]
async fn only_shared_ports_share_an_address() {
    let first = UdpPort::listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
    UdpPort::listen(first.local_addr(), true).unwrap();
    let error = UdpPort::listen(first.local_addr(), false).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

// W-SIZE-2
#[tokio::test]
async fn datagrams_are_not_fragmented_and_not_ect() {
    let (client, server) = pair(LOOPBACKS[0]);
    for port in [&client, &server] {
        assert_eq!(ip_mtu_discover(&*port.socket).unwrap(), Ipv4PathMtuDiscovery::PROBE);
    }
    client.try_send(&to(&server, b"x")).unwrap();
    let mut buffers = RecvBuffers::new(1);
    server.recv(&mut buffers).await.unwrap();
    assert!(buffers.metas[0].ecn.is_none());

    let (client, server) = pair(LOOPBACKS[1]);
    for port in [&client, &server] {
        assert_eq!(ipv6_mtu_discover(&*port.socket).unwrap(), Ipv6PathMtuDiscovery::PROBE);
        assert!(!port.state.may_fragment());
    }
}

#[tokio::test]
async fn a_local_address_of_the_other_family_is_refused() {
    let error = UdpPort::connect("127.0.0.1:9".parse().unwrap(), Some(LOOPBACKS[1])).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn a_batch_takes_no_more_messages_than_buffers() {
    let (client, server) = pair(LOOPBACKS[0]);
    for bytes in [&b"1"[..], b"22", b"333"] {
        client.try_send(&to(&server, bytes)).unwrap();
    }
    with_thread_buffers(|outer| {
        outer.clear();
        with_thread_buffers(|inner| assert_eq!(inner.datagrams().count(), 0));
    });
    let mut buffers = RecvBuffers::new(2);
    assert_eq!(server.recv(&mut buffers).await.unwrap(), 2);
    assert_eq!(server.recv(&mut buffers).await.unwrap(), 1);
    assert_eq!(buffers.datagrams().next().unwrap().bytes, b"333");
}
