//! Waiting until a program listens.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use headstart_emulation::Node;

use super::process::{Broken, Program};
use crate::interrupt::Interrupt;

/// Time that a program may take until it is ready: making keys on a busy machine takes the most.
pub(super) const READY: Duration = Duration::from_secs(30);

/// Time from an edge's start, in which it takes no early data: 20 s (docs/edge.md), and some more.
pub(crate) const NO_EARLY_DATA: Duration = Duration::from_secs(21);

/// Interval at which a daemon is asked whether it listens.
const ASK: Duration = Duration::from_millis(5);

/// Waits until something listens at `address` of `node`.
pub(crate) fn await_port(
    node: &Node,
    address: SocketAddr,
    program: &mut Program,
    interrupt: &Interrupt,
) -> Result<(), Broken> {
    // Looked up instead of connecting, because an agent counts each connection.
    let has_listener =
        move || fs::read_to_string(LISTENERS).is_ok_and(|text| is_listener(&text, address));
    await_ready(program, interrupt, &address.to_string(), || {
        node.run(has_listener).unwrap_or(false)
    })
}

/// Waits until something listens on a Unix socket.
pub(crate) fn await_socket(
    socket: &Path,
    program: &mut Program,
    interrupt: &Interrupt,
) -> Result<(), Broken> {
    let shown = socket.display().to_string();
    await_ready(program, interrupt, &shown, || UnixStream::connect(socket).is_ok())
}

/// Waits until a program is ready at a `place`.
fn await_ready(
    program: &mut Program,
    interrupt: &Interrupt,
    place: &str,
    mut is_ready: impl FnMut() -> bool,
) -> Result<(), Broken> {
    let until = Instant::now() + READY;
    while !is_ready() {
        program.check()?;
        if interrupt.is_set() {
            return Err(Broken::Interrupted);
        }
        if Instant::now() > until {
            return Err(program.nonsense(&format!("nothing at {place} for {READY:?}")));
        }
        std::thread::sleep(ASK);
    }
    Ok(())
}

/// The sockets of the calling thread's namespace over IPv4 (proc_pid_net(5)).
const LISTENERS: &str = "/proc/thread-self/net/tcp";

/// TCP_LISTEN of the kernel's include/net/tcp_states.h, in hexadecimal.
const LISTENING: &str = "0A";

/// Returns true if a line of [`LISTENERS`] is of a socket that listens at this address, or at all
/// of this port.
fn is_listener(text: &str, address: SocketAddr) -> bool {
    let IpAddr::V4(ip) = address.ip() else { return false };
    // An address is its four bytes, printed as one number in the machine's byte order.
    let ip = u32::from_ne_bytes(ip.octets());
    let wanted = [ip, 0].map(|ip| format!("{ip:08X}:{:04X}", address.port()));
    text.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        wanted.iter().any(|wanted| wanted == local) && fields.nth(1) == Some(LISTENING)
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_listener_is_seen_without_a_connection() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let text = fs::read_to_string(LISTENERS).unwrap();
        assert!(is_listener(&text, address));
        assert!(!is_listener(&text, SocketAddr::new([127, 0, 0, 9].into(), address.port())));
        // A connection is not a listener.
        let header = "  sl  local_address rem_address   st\n";
        for (state, listens) in [("0A", true), ("01", false)] {
            let text = format!("{header}   0: 0100007F:01BB 00000000:0000 {state} 0:0");
            if cfg!(target_endian = "little") {
                assert_eq!(is_listener(&text, ([127, 0, 0, 1], 443).into()), listens, "{state}");
            }
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody connected");
    }
}
