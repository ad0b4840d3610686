//! Protocols in which the server speaks first, such as SMTP and SSH, by every way into the agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::client::{from_port, on, socks};
use crate::daemon::Daemon;
use crate::net::{Net, PATIENCE, ms};
use crate::origin;

const AGENT: u16 = 1080;

/// Connections from here on are redirected; the agent's own come from ephemeral ports (32768 on).
const FIRST_LOCAL: u16 = 20_000;

/// The last is a port on which the agent expects the client to speak first.
const SERVERS: [(u16, &str); 4] = [
    (22, "SSH-2.0-check"),
    (25, "220 check ESMTP"),
    (2525, "220 check ESMTP"),
    (993, "* OK check"),
];

pub(crate) fn server_speaks_first() {
    let net = Net::new(ms(20));
    let ip = net.server().ipv4().unwrap();
    let _served = SERVERS.map(|(port, banner)| {
        origin::serve(net.server(), (ip, port).into(), move |tcp| speak_first(tcp, banner))
    });
    net.rules(
        "client",
        "ip",
        &[&format!("output tcp sport {FIRST_LOCAL}-20999 redirect to :{AGENT}")],
    );
    let agent = Daemon::agent(&net, AGENT, &[]);
    let me = net.client().ipv4().unwrap();
    for (number, (port, banner)) in (FIRST_LOCAL..).zip(SERVERS) {
        on(net.client(), || converse(socks(AGENT, &ip.to_string(), port).unwrap().tcp, banner));
        on(net.client(), || converse(connect((ip, port).into()), banner));
        on(net.client(), || {
            converse(from_port((me, number).into(), (ip, port).into()).unwrap(), banner);
        });
    }
    let connections = u64::try_from(SERVERS.len()).unwrap() * 3;
    agent.reaches("plain connections", connections, |agent| agent.opened("plain"));
}

/// Says its banner, answers one line, and ends.
fn speak_first(mut tcp: TcpStream, banner: &str) {
    writeln!(tcp, "{banner}\r").unwrap();
    let mut line = String::new();
    BufReader::new(&tcp).read_line(&mut line).unwrap();
    write!(tcp, "you said {line}").unwrap();
}

/// Says nothing before it has heard the banner.
fn converse(mut tcp: TcpStream, banner: &str) {
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = String::new();
    BufReader::with_capacity(1, &tcp).read_line(&mut greeting).unwrap();
    assert_eq!(greeting, format!("{banner}\r\n"));
    tcp.write_all(b"hello\r\n").unwrap();
    let mut rest = String::new();
    tcp.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "you said hello\r\n");
}

/// HTTP CONNECT.
fn connect(to: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, AGENT)).unwrap();
    write!(tcp, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte).unwrap();
        head.extend_from_slice(&byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    tcp
}
