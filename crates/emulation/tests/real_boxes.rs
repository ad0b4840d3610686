//! Middleboxes on real packets. Needs HEADSTART_TEST_NET=1 and root (or a user namespace already
//! entered).
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use headstart_emulation::{Balance, Host, Lab, LinkCounts, Node};
use headstart_testkit::hello::CraftedHello;
use headstart_testkit::{has_net, until};
use socket2::{Domain, Socket, Type};
use support::{PATIENCE, addresses, connect, ends, listen, udp};

/// Sends data with the SYN, or asks for a cookie (include/linux/socket.h).
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// A client behind this path, and a server; none where such tests are not to run.
fn lab(path: &str) -> Option<Lab> {
    let client = Host::new("client").path(path.parse().unwrap());
    has_net().then(|| Lab::build(vec![client, Host::new("server")]).unwrap())
}

/// Accepts one connection after another and sends back what comes.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
}

/// All that comes back of `sent`.
fn echoed(mut stream: TcpStream, sent: &[u8]) -> Vec<u8> {
    let mut writer = stream.try_clone().unwrap();
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut received).unwrap();
    });
    received
}

fn numbers(bytes: u32) -> Vec<u8> {
    (0..bytes / 4).flat_map(u32::to_le_bytes).collect()
}

/// The client's links, from it and to it.
fn counts(lab: &Lab) -> (LinkCounts, LinkCounts) {
    let port = lab.counters().ports[0];
    assert_eq!((port.missed, port.refused), (0, 0));
    (port.outbound, port.inbound)
}

/// A figure of /proc/net/netstat on a node.
fn netstat(node: &Node, name: &str) -> u64 {
    let text = node.run(|| fs::read_to_string("/proc/thread-self/net/netstat")).unwrap().unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().take(2).map(|line| line.split(' ').collect()).collect();
    let place = lines[0].iter().position(|heading| *heading == name).unwrap();
    lines[1][place].parse().unwrap()
}

#[test]
fn a_nat_hides_the_client_and_brings_answers_back() {
    let Some(lab) = lab("delay 1ms, nat 203.0.113.7,2001:db8::7") else { return };
    let (client, server) = ends(&lab);
    let public: [IpAddr; 2] = ["203.0.113.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    for (family, public) in public.into_iter().enumerate() {
        let there = udp(server, (addresses(server)[family], 0));
        let here = udp(client, (addresses(client)[family], 0));
        here.connect(there.local_addr().unwrap()).unwrap();
        here.send(b"ping").unwrap();
        let mut buffer = [0; 16];
        let (length, seen) = there.recv_from(&mut buffer).unwrap();
        assert_eq!((length, seen.ip()), (4, public));
        assert_ne!(seen.port(), here.local_addr().unwrap().port());
        there.send_to(b"pong!", seen).unwrap();
        assert_eq!(here.recv(&mut buffer).unwrap(), 5);

        let listener = listen(server, (addresses(server)[family], 0));
        let stream = connect(client, listener.local_addr().unwrap());
        let (accepted, seen) = listener.accept().unwrap();
        assert_eq!(seen.ip(), public);
        drop((accepted, stream));
        let address = listener.local_addr().unwrap();
        echo(listener);
        let sent = numbers(1_000_000);
        assert!(echoed(connect(client, address), &sent) == sent);
    }
}

/// Long after the last address was used for the first time.
#[test]
fn a_nat_goes_on_changing_its_address() {
    let Some(lab) = lab("nat 203.0.113.1,203.0.113.2,203.0.113.3 change after 2 packets") else {
        return;
    };
    let (client, server) = ends(&lab);
    let there = udp(server, (addresses(server)[0], 0));
    let here = udp(client, (addresses(client)[0], 0));
    here.connect(there.local_addr().unwrap()).unwrap();
    for packet in 0..20_u8 {
        here.send(&[packet]).unwrap();
        let mut buffer = [0; 2];
        let (_, from) = there.recv_from(&mut buffer).unwrap();
        assert_eq!(from.ip(), IpAddr::from([203, 0, 113, packet / 2 % 3 + 1]), "{packet}");
        there.send_to(&[packet], from).unwrap();
        assert_eq!(here.recv(&mut buffer).unwrap(), 1);
    }
    assert_eq!(counts(&lab).0.changed, 9);
}

#[test]
fn a_nat_changes_its_address_with_a_new_path() {
    let Some(lab) = lab("nat 203.0.113.6") else { return };
    let (client, server) = ends(&lab);
    let listener = listen(server, (addresses(server)[0], 0));
    for address in ["203.0.113.7", "203.0.113.8"] {
        assert!(lab.set_path("client", format!("nat {address}").parse().unwrap()));
        connect(client, listener.local_addr().unwrap());
        assert_eq!(listener.accept().unwrap().1.ip(), address.parse::<IpAddr>().unwrap());
    }
    let of_the_server = format!("nat {}", server.ipv4().unwrap());
    assert!(!lab.set_path("client", of_the_server.parse().unwrap()));
    assert!(!lab.set_path("nobody", "".parse().unwrap()));
}

/// Both ends of a new connection.
fn open(client: &Node, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let stream = connect(client, listener.local_addr().unwrap());
    let accepted = listener.accept().unwrap().0;
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    (stream, accepted)
}

#[test]
fn inspection_resets_both_ends_unless_tls_begins() {
    let Some(lab) = lab("delay 5ms, dpi tls-only") else { return };
    let (client, server) = ends(&lab);
    for address in addresses(server) {
        let listener = listen(server, (address, 443));
        let (mut here, mut there) = open(client, &listener);
        here.write_all(b"\x0a no TLS record").unwrap();
        for end in [&mut here, &mut there] {
            assert_eq!(end.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        let (mut here, mut there) = open(client, &listener);
        here.write_all(&[0x16, 0x03, 0x01, 9]).unwrap();
        let mut buffer = [0; 4];
        there.read_exact(&mut buffer).unwrap();
        there.write_all(&buffer).unwrap();
        here.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, [0x16, 0x03, 0x01, 9]);
    }
    let (outbound, inbound) = counts(&lab);
    assert_eq!((outbound.replied, inbound.replied), (2, 0));
}

/// Servers "a" and "b" at one address; which of them the client's connections and datagrams reach.
fn reached(balance: Balance, family: usize) -> BTreeSet<u8> {
    let address: IpAddr = ["192.0.2.1", "2001:db8::1"][family].parse().unwrap();
    let servers = ["a", "b"].map(|name| Host::new(name).shared_address(address, balance));
    let lab = Lab::build([Host::new("client")].into_iter().chain(servers).collect()).unwrap();
    let client = lab.node("client").unwrap();
    for (node, answer) in [("a", 1), ("b", 2)] {
        let node = lab.node(node).unwrap();
        let listener = listen(node, (address, 443));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                stream.write_all(&[answer]).unwrap();
            }
        });
        let socket = udp(node, (address, 443));
        thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 16]) {
                socket.send_to(&[answer], from).unwrap();
            }
        });
    }
    // With two servers, 20 flows meet one only once in 2^19 sets of ports.
    let answers = (0..20).map(|number| {
        let mut answer = [0];
        if number % 2 == 0 {
            connect(client, (address, 443).into()).read_exact(&mut answer).unwrap();
        } else {
            let socket = udp(client, (addresses(client)[family], 0));
            socket.connect((address, 443)).unwrap();
            socket.send(b"?").unwrap();
            socket.recv(&mut answer).unwrap();
        }
        answer[0]
    });
    answers.collect()
}

#[test]
fn a_balancer_splits_flows_or_keeps_sources_together() {
    if !has_net() {
        return;
    }
    for family in [0, 1] {
        assert_eq!(reached(Balance::Flow, family), BTreeSet::from([1, 2]));
        assert_eq!(reached(Balance::Source, family).len(), 1);
    }
}

/// Large transfers pass each way, after a ClientHello in two segments.
#[test]
fn a_balancer_by_name_brings_each_name_to_its_server() {
    if !has_net() {
        return;
    }
    for family in [0, 1] {
        let address: IpAddr = ["192.0.2.1", "2001:db8::1"][family].parse().unwrap();
        let servers = ["a", "b"].map(|name| {
            let host = Host::new(name).shared_address(address, Balance::NameElseFlow);
            host.server_name(format!("{name}.test"))
        });
        let client = Host::new("client").delay(Duration::from_millis(5));
        let lab = Lab::build([client].into_iter().chain(servers).collect()).unwrap();
        let client = lab.node("client").unwrap();
        for name in ["b", "a"] {
            let listener = listen(lab.node(name).unwrap(), (address, 443));
            let mut stream = connect(client, (address, 443).into());
            stream.set_nodelay(true).unwrap();
            let hello = CraftedHello::default().name(&format!("{name}.test")).stream();
            let (head, tail) = hello.split_at(40);
            stream.write_all(head).unwrap();
            thread::sleep(Duration::from_millis(20));
            let served = thread::spawn(move || {
                let (stream, from) = listener.accept().unwrap();
                std::io::copy(&mut stream.try_clone().unwrap(), &mut &stream).unwrap();
                from
            });
            let local = stream.local_addr().unwrap();
            let sent = [tail, &numbers(2_000_000)].concat();
            assert!(echoed(stream, &sent) == [head, &sent].concat(), "{name} in family {family}");
            assert_eq!(served.join().unwrap(), local, "the client's own address");
        }
    }
}

#[test]
fn a_proxy_has_tcp_and_the_servers_behind_it_all_else() {
    if !has_net() {
        return;
    }
    let address: IpAddr = [192, 0, 2, 1].into();
    let servers = ["a", "b"].map(|name| Host::new(name).shared_address(address, Balance::Flow));
    let others = [Host::new("client"), Host::new("proxy").tcp_of(address)];
    let lab = Lab::build(others.into_iter().chain(servers).collect()).unwrap();
    let [client, proxy, a, b] = ["client", "proxy", "a", "b"].map(|name| lab.node(name).unwrap());
    let at = SocketAddr::from((address, 443));
    let (listener, servers) = (listen(proxy, at), [a, b].map(|server| udp(server, at)));
    for port in 40_000..40_016 {
        let stream = connect(client, at);
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
        udp(client, (client.ipv4().unwrap(), port)).send_to(b"x", at).unwrap();
    }
    let mut got = [0; 2];
    until("all datagrams to be there", || {
        for (server, got) in servers.iter().zip(&mut got) {
            server.set_nonblocking(true).unwrap();
            *got += std::iter::from_fn(|| server.recv(&mut [0; 1]).ok()).count();
        }
        got.iter().sum::<usize>() == 16
    });
    assert!(!got.contains(&0), "{got:?}");
}

/// Returns the longest packet to an address that a node has learnt of.
fn path_mtu(node: &Node, to: IpAddr) -> Option<u32> {
    let output = node.command("ip").args(["route", "get", &to.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}

#[test]
fn senders_learn_the_mtu_from_icmp() {
    let Some(lab) = lab("delay 1ms, mtu 1300, nat 203.0.113.7") else { return };
    let (client, server) = ends(&lab);
    for family in [0, 1] {
        let (here, there) = (addresses(client)[family], addresses(server)[family]);
        let socket = udp(client, (here, 0));
        let peer = udp(server, (there, 0));
        socket.connect(peer.local_addr().unwrap()).unwrap();
        assert_eq!(path_mtu(client, there), None);
        socket.send(&[0; 1400]).unwrap();
        until("the path's MTU", || path_mtu(client, there) == Some(1300));
        let error = socket.take_error().unwrap().and_then(|error| error.raw_os_error());
        assert_eq!(error, Some(libc::EMSGSIZE));
        // From now on the client splits datagrams itself; a NAT lets no fragments through.
        if family == 1 {
            socket.send(&[7; 1400]).unwrap();
            assert_eq!(peer.recv(&mut [0; 2000]).unwrap(), 1400);
        }
    }
}

/// The server's segments are as long as the client's own interface would take.
#[test]
fn tcp_fits_itself_to_a_narrow_link() {
    let Some(lab) = lab("delay 1ms, down(mtu 1300), nat 203.0.113.7") else { return };
    let (client, server) = ends(&lab);
    for address in addresses(server) {
        let before = counts(&lab).1.replied;
        let listener = listen(server, (address, 0));
        let address = listener.local_addr().unwrap();
        echo(listener);
        let sent = numbers(400_000);
        assert!(echoed(connect(client, address), &sent) == sent);
        assert!(counts(&lab).1.replied > before);
    }
}

/// The box lies beyond the NAT, so errors about the client's packets come to its public address.
#[test]
fn icmp_errors_pass_a_nat() {
    let Some(lab) = lab("nat 203.0.113.7,2001:db8::7, mtu 1300") else { return };
    let (client, server) = ends(&lab);
    for family in [0, 1] {
        let there = addresses(server)[family];
        let socket = udp(client, (addresses(client)[family], 0));
        socket.connect((there, 9)).unwrap();
        socket.send(&[0; 1400]).unwrap();
        until("the path's MTU", || path_mtu(client, there) == Some(1300));
    }
}

#[test]
fn a_black_hole_says_nothing() {
    let Some(lab) = lab("mtu 1300 silent") else { return };
    let (client, server) = ends(&lab);
    for family in [0, 1] {
        let there = udp(server, (addresses(server)[family], 0));
        let here = udp(client, (addresses(client)[family], 0));
        here.connect(there.local_addr().unwrap()).unwrap();
        here.send(&[0; 1400]).unwrap();
        here.send(&[0; 1200]).unwrap();
        assert_eq!(there.recv(&mut [0; 2000]).unwrap(), 1200);
        assert_eq!(path_mtu(client, addresses(server)[family]), None);
    }
    let (outbound, _) = counts(&lab);
    assert_eq!((outbound.dropped, outbound.replied), (2, 0));
}

/// Opens connections that send a request with their SYN as soon as they can; returns how many did
/// so, by the server.
fn fast_opens(lab: &Lab, address: IpAddr, connections: u32) -> u64 {
    let (client, server) = ends(lab);
    // Client, server, and every listener without asking (ip-sysctl: 0x1, 0x2, 0x400).
    for node in [client, server] {
        node.run(|| fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027")).unwrap().unwrap();
    }
    let listener = listen(server, (address, 0));
    let to = listener.local_addr().unwrap();
    echo(listener);
    for _ in 0..connections {
        let socket = client.run(|| Socket::new(Domain::for_address(to), Type::STREAM, None));
        let socket = socket.unwrap().unwrap();
        assert_eq!(socket.send_to_with_flags(b"early", &to.into(), MSG_FASTOPEN).unwrap(), 5);
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"early");
    }
    netstat(server, "TCPFastOpenPassive")
}

#[test]
fn fast_open_works_and_stripping_its_options_ends_it() {
    if !has_net() {
        return;
    }
    for family in [0, 1] {
        let free = lab("delay 1ms").unwrap();
        // The first connection asks for the cookie.
        assert_eq!(fast_opens(&free, addresses(ends(&free).1)[family], 4), 3);
        let stripped = lab("delay 1ms, strip-fast-open").unwrap();
        let (client, server) = ends(&stripped);
        assert_eq!(fast_opens(&stripped, addresses(server)[family], 4), 0);
        assert_eq!(netstat(server, "TCPFastOpenCookieReqd"), 0);
        assert_eq!(netstat(client, "TCPFastOpenActive"), 0);
    }
}

#[test]
fn data_in_a_syn_are_dropped_and_sent_again() {
    let Some(lab) = lab("delay 1ms, drop-syn-data") else { return };
    assert_eq!(fast_opens(&lab, addresses(ends(&lab).1)[0], 2), 0);
    assert_eq!(counts(&lab).0.dropped, 1);
}
