//! Links on real packets. Needs HEADSTART_TEST_NET=1 and root (or a user namespace already
//! entered).
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{
    Delay, Duplicate, Element, Host, Lab, Link, Loss, Namespace, Node, Protocol, Reorder,
};
use headstart_testkit::has_net;
use support::{addresses, connect, ends, listen, udp};

fn lab(client: Host) -> Option<Lab> {
    has_net().then(|| Lab::build(vec![client, Host::new("server")]).unwrap())
}

fn udp_pair(lab: &Lab, family: usize) -> (UdpSocket, UdpSocket) {
    let (client, server) = ends(lab);
    let [here, there] = [client, server].map(|node| udp(node, (addresses(node)[family], 0)));
    here.connect(there.local_addr().unwrap()).unwrap();
    there.connect(here.local_addr().unwrap()).unwrap();
    (here, there)
}

fn listening(node: &Node, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = listen(node, (address, 0));
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn send_numbered(socket: &UdpSocket, count: u8) {
    for number in 1..=count {
        socket.send(&[number]).unwrap();
    }
}

fn receive_numbered(socket: &UdpSocket, count: usize) -> Vec<u8> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let mut buffer = [0; 16];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 1);
        numbers.push(buffer[0]);
    }
    numbers
}

fn nothing_to_read(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).unwrap();
    let nothing =
        socket.recv(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    nothing
}

#[test]
fn a_round_trip_takes_no_less_than_asked() {
    let Some(lab) = lab(Host::new("client").delay(Duration::from_millis(5))) else { return };
    for family in [0, 1] {
        let (here, there) = udp_pair(&lab, family);
        let start = Instant::now();
        here.send(b"ping").unwrap();
        let mut buffer = [0; 16];
        let length = there.recv(&mut buffer).unwrap();
        there.send(&buffer[..length]).unwrap();
        assert_eq!(here.recv(&mut buffer).unwrap(), 4);
        assert!(start.elapsed() >= Duration::from_millis(10), "UDP {:?}", start.elapsed());

        let (client, server) = ends(&lab);
        let (_listener, address) = listening(server, addresses(server)[family]);
        let start = Instant::now();
        connect(client, address);
        assert!(start.elapsed() >= Duration::from_millis(10), "TCP {:?}", start.elapsed());
    }
    let counters = lab.counters();
    assert!(
        counters.lateness.count > 0
            && counters.ports.iter().all(|port| port.missed == 0 && port.refused == 0)
    );
}

#[test]
fn exact_loss_counts_udp_only() {
    let Some(lab) =
        lab(Host::new("client")
            .outbound(Link::default().with(Loss::exact([2]).only(Protocol::Udp))))
    else {
        return;
    };
    let (client, server) = ends(&lab);
    let (_listener, address) = listening(server, addresses(server)[0]);
    connect(client, address);
    let (here, there) = udp_pair(&lab, 1);
    send_numbered(&here, 5);
    assert_eq!(receive_numbered(&there, 4), [1, 3, 4, 5]);
    assert_eq!(lab.counters().ports[0].outbound.dropped, 1);
}

#[test]
fn udp_is_dropped_while_tcp_passes() {
    let blocked = Link::default().with(Loss::all_udp()).with(Delay::millis(1));
    let Some(lab) =
        lab(Host::new("client").outbound(blocked).inbound(Link::default().with(Delay::millis(1))))
    else {
        return;
    };
    let (client, server) = ends(&lab);
    let (here, there) = udp_pair(&lab, 0);
    send_numbered(&here, 3);
    let (_listener, address) = listening(server, addresses(server)[0]);
    // The links keep order: once the connection stands, the datagrams before it would have arrived.
    connect(client, address);
    assert!(nothing_to_read(&there));
    assert_eq!(lab.counters().ports[0].outbound.dropped, 3);
    // One direction only.
    send_numbered(&there, 2);
    assert_eq!(receive_numbered(&here, 2), [1, 2]);
}

#[test]
fn links_can_be_replaced_while_packets_flow() {
    let Some(lab) = lab(Host::new("client").outbound(Link::default().with(Loss::all_udp()))) else {
        return;
    };
    let (here, there) = udp_pair(&lab, 0);
    here.send(&[9]).unwrap();
    // Seen by the forwarder, so it cannot pass the new link.
    while lab.counters().ports[0].outbound.dropped == 0 {
        thread::yield_now();
    }
    assert!(lab.set_links("client", Link::default(), Link::default()));
    assert!(!lab.set_links("nobody", Link::default(), Link::default()));
    send_numbered(&here, 1);
    assert_eq!(receive_numbered(&there, 1), [1]);
}

#[test]
fn duplicates_arrive_twice() {
    let Some(lab) = lab(Host::new("client").outbound(Link::default().with(Duplicate::exact([2]))))
    else {
        return;
    };
    let (here, there) = udp_pair(&lab, 1);
    send_numbered(&here, 3);
    assert_eq!(receive_numbered(&there, 4), [1, 2, 2, 3]);
}

#[test]
fn a_packet_held_back_is_overtaken() {
    // Long enough for the other two to be sent meanwhile, whatever else the machine does.
    let hold = Duration::from_secs(3);
    let Some(lab) =
        lab(Host::new("client").outbound(Link::default().with(Reorder::exact([1], hold))))
    else {
        return;
    };
    let (here, there) = udp_pair(&lab, 0);
    send_numbered(&here, 3);
    assert_eq!(receive_numbered(&there, 3), [2, 3, 1]);
}

#[test]
fn bulk_tcp_survives_a_bad_link_unchanged() {
    let [out, back] = [1, 2].map(|seed| -> Link {
        format!(
            "loss 1% seed {seed}, duplicate 2% seed {seed}, reorder 3% seed {seed} by 2ms, \
            delay 1ms"
        )
        .parse()
        .unwrap()
    });
    let Some(lab) = lab(Host::new("client").outbound(out).inbound(back)) else { return };
    let (client, server) = ends(&lab);
    for address in addresses(server) {
        let (listener, address) = listening(server, address);
        let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let copy = sent.clone();
        let sender = thread::spawn(move || listener.accept().unwrap().0.write_all(&copy).unwrap());
        let mut received = Vec::new();
        connect(client, address).read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    }
    let inbound = lab.counters().ports[0].inbound;
    assert!(inbound.dropped > 0 && inbound.added > 0, "{inbound:?}");
}

#[test]
fn several_nodes_with_several_addresses() {
    if !has_net() {
        return;
    }
    let many = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"]
        .map(|text| text.parse::<IpAddr>().unwrap());
    let server = many.into_iter().fold(Host::new("many"), Host::address);
    let lab = Lab::build(vec![Host::new("client"), server, Host::new("other")]).unwrap();
    let client = lab.node("client").unwrap();
    let others = lab.node("other").unwrap().addresses().iter().copied();
    for address in many.into_iter().chain(others) {
        let owner = lab.nodes().iter().find(|node| node.addresses().contains(&address)).unwrap();
        let (_listener, address) = listening(owner, address);
        connect(client, address);
    }
}

#[test]
fn commands_run_on_their_node_and_die_with_the_lab() {
    let Some(lab) = lab(Host::new("client")) else { return };
    let (client, _) = ends(&lab);
    let output = client.command("cat").arg("/proc/self/net/dev").output().unwrap();
    let devices = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> =
        devices.lines().skip(2).filter_map(|line| line.trim().split(':').next()).collect();
    assert!(names.contains(&"w0") && names.iter().all(|name| *name != "eth0"), "{names:?}");

    let mut sleeper = client.command("sleep");
    sleeper.arg("60");
    let mut sleeper = client.spawn(sleeper).unwrap();
    assert_eq!(sleeper.try_wait().unwrap(), None);
    drop(lab);
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_panic_in_a_namespace_reaches_the_caller() {
    if !has_net() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let panic = std::panic::catch_unwind(|| namespace.run(|| panic!("in there"))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"in there"));
}
