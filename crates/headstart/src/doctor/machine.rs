//! Probes of this machine. Each does what the finding says; none looks at version numbers.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use headstart_net::{LISTEN_BUFFER, fastopen};
use quinn_udp::{UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::sockopt::ip_original_dst;
use rustix::pipe::{SpliceFlags, pipe, splice};
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use crate::companion;

/// Time that a datagram may take to this machine itself.
const LOOPBACK_LIMIT: Duration = Duration::from_secs(1);

/// Open files for as many connections as an edge has by default (`--max-connections`).
const FILES: u64 = 2 * 16_384;

/// An address of each family that is surely far away (a.root-servers.net, IANA): asking the kernel
/// for the way there sends nothing.
const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4));
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30));

/// All probes of this machine.
pub(super) fn check() -> Vec<Finding> {
    let mut findings = vec![
        udp(),
        datagrams(),
        receive_buffer(),
        route("IPv4", FAR_V4),
        route("IPv6", FAR_V6),
        name_servers(),
        splicing(),
        redirection(),
        fast_open(),
        files(),
    ];
    findings.extend(lab());
    findings
}

fn udp() -> Finding {
    match send_datagram() {
        Ok(_) => Finding::ok("udp", "a datagram to this machine itself arrived"),
        Err(error) => Finding::problem(
            "udp",
            format!("a datagram to this machine itself failed: {error}"),
            "without UDP every connection is plain TLS; look at the firewall's rules for lo",
        ),
    }
}

fn send_datagram() -> io::Result<usize> {
    let [one, other] = [udp_socket()?, udp_socket()?];
    other.set_read_timeout(Some(LOOPBACK_LIMIT))?;
    one.send_to(b"?", other.local_addr()?)?;
    other.recv(&mut [0; 1])
}

fn udp_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
}

fn datagrams() -> Finding {
    let state = udp_socket().and_then(|socket| {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok((state.may_fragment(), state.max_gso_segments() > 1, state.gro_segments() > 1))
    });
    match state {
        Ok((true, ..)) => Finding::note(
            "datagrams",
            "the don't-fragment flag cannot be set",
            "datagrams over a small path are then fragmented instead of dropped",
        ),
        Ok((false, gso, gro)) if gso && gro => {
            Finding::ok("datagrams", "don't-fragment, GSO and GRO can be set")
        }
        Ok((false, gso, gro)) => {
            let [gso, gro] = [gso, gro].map(|works| if works { "" } else { "no " });
            Finding::note(
                "datagrams",
                format!("don't-fragment can be set; {gso}GSO, {gro}GRO"),
                "a busy edge needs more system calls; Linux has both since 5.0",
            )
        }
        Err(error) => Finding::problem("datagrams", format!("no socket: {error}"), "see udp"),
    }
}

fn receive_buffer() -> Finding {
    let wanted = LISTEN_BUFFER;
    let name = "net.core.rmem_max";
    match setting("/proc/sys/net/core/rmem_max").and_then(|text| text.parse::<usize>().ok()) {
        Some(bytes) if bytes >= wanted => {
            Finding::ok("receive_buffer", format!("{name} is {bytes}"))
        }
        Some(bytes) => Finding::note(
            "receive_buffer",
            format!("{name} is {bytes} bytes; an edge asks for {wanted}"),
            format!("against loss in bursts, on an edge: sysctl -w {name}={wanted}"),
        ),
        None => {
            Finding::note("receive_buffer", format!("{name} cannot be read"), "is /proc mounted?")
        }
    }
}

/// Connecting a UDP socket asks the kernel for a route, and sends nothing.
fn route(family: &'static str, far: IpAddr) -> Finding {
    let check = if far.is_ipv4() { "ipv4" } else { "ipv6" };
    let any: IpAddr =
        if far.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(far, 53))?;
        socket.local_addr()
    });
    match local {
        Ok(local) => {
            Finding::ok(check, format!("there is a route to the Internet, from {}", local.ip()))
        }
        Err(error) => Finding::note(
            check,
            format!("no route to the Internet: {error}"),
            format!("servers that have only {family} cannot be reached"),
        ),
    }
}

fn name_servers() -> Finding {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let words = text.lines().map(str::split_whitespace);
    let servers: Vec<_> = words
        .filter_map(|mut words| {
            (words.next() == Some("nameserver")).then(|| words.next()).flatten()
        })
        .collect();
    if servers.is_empty() {
        return Finding::note(
            "name_servers",
            "/etc/resolv.conf names none",
            "give addresses instead of names, or a server with --resolver ADDR:PORT",
        );
    }
    Finding::ok("name_servers", format!("/etc/resolv.conf names {}", servers.join(", ")))
}

/// Bytes of a TCP connection go into a pipe without passing through this process.
fn splicing() -> Finding {
    match splice_byte() {
        Ok(1) => Finding::ok("splice", "relays need not copy bytes"),
        Ok(_) => Finding::note("splice", "it moved nothing", "relays will copy bytes"),
        Err(error) => Finding::note(
            "splice",
            format!("it failed: {error}"),
            "relays will copy bytes; a container's system call filter may forbid it",
        ),
    }
}

fn splice_byte() -> io::Result<usize> {
    let (mut near, far) = tcp_pair()?;
    near.write_all(b"?")?;
    let (_reader, writer) = pipe()?;
    Ok(splice(&far, None, &writer, None, 1, SpliceFlags::empty())?)
}

fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    far.set_read_timeout(Some(LOOPBACK_LIMIT))?;
    Ok((near, far))
}

/// A kernel without connection tracking does not know the option at all.
fn redirection() -> Finding {
    let destination = tcp_pair().map(|(_near, far)| ip_original_dst(&far));
    match destination {
        Ok(Ok(_) | Err(Errno::NOENT)) => {
            Finding::ok("redirect", "the kernel tells where redirected connections were going")
        }
        Ok(Err(error)) => Finding::note(
            "redirect",
            format!("SO_ORIGINAL_DST does not work: {error}"),
            "only for an agent behind REDIRECT rules, as root: modprobe nf_conntrack",
        ),
        Err(error) => {
            Finding::problem("redirect", format!("no TCP on loopback: {error}"), "is lo up?")
        }
    }
}

/// Probes the client's side of Fast Open; `headstart fastopen status` shows the server's to those
/// who may know.
fn fast_open() -> Finding {
    match fastopen::probe() {
        Ok(()) => Finding::ok("fast_open", "a private cookie can be put into a SYN"),
        Err(why) => {
            Finding::note("fast_open", format!("connections cannot open by it: {why}"), why.hint())
        }
    }
}

fn files() -> Finding {
    // The daemons raise the soft limit to the hard one by themselves.
    match getrlimit(Resource::Nofile).maximum {
        Some(files) if files < FILES => Finding::note(
            "open_files",
            format!("at most {files}: an edge takes two or more for a connection, an agent eight"),
            "for a daemon: LimitNOFILE=65536 in its systemd unit, or ulimit -Hn 65536 as root",
        ),
        Some(files) => Finding::ok(
            "open_files",
            format!(
                "up to {files}; an edge takes two or more for a connection (three with \
                 --careful-resume), an agent eight"
            ),
        ),
        None => Finding::ok("open_files", "no limit"),
    }
}

/// Probes the needs of `headstart-lab`, which finds them out itself.
fn lab() -> Vec<Finding> {
    let Some(program) = companion::find(companion::PROGRAM) else {
        return vec![Finding::note(
            "lab",
            format!("{} is not installed", companion::PROGRAM),
            "only lab, pageload and demo need it",
        )];
    };
    let output = Command::new(&program).args(["doctor", "--json"]).stderr(Stdio::null()).output();
    let found = output.map_err(|error| error.to_string()).and_then(|output| {
        serde_json::from_slice(&output.stdout).map_err(|_| "it answers nonsense".to_owned())
    });
    found.unwrap_or_else(|error| {
        let text = format!("{} cannot be asked: {error}", program.display());
        vec![Finding::note("lab", text, "install the version that belongs to this headstart")]
    })
}

fn setting(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
