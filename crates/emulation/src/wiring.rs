//! Interfaces, addresses and routes of a node, by the command `ip`.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::error::LabError;
use crate::forwarder::Wire;
use crate::namespace::Namespace;
use crate::sys;

/// The interface of a node, in its own namespace.
pub const INTERFACE: &str = "w0";

/// Bytes a packet socket may hold each way: a round trip of 64 ms at 500 Mbit/s, if the system
/// allows as much.
const SOCKET_BUFFER: usize = 4 << 20;

/// Time that an interface may take to come up: a few milliseconds, or many seconds where others
/// make and remove namespaces on a busy machine, since the kernel does it one at a time.
const UP_TIMEOUT: Duration = Duration::from_secs(60);

/// Directories of `ip` beside the path: ordinary users often lack the sbin directories.
pub const IP_COMMANDS: [&str; 3] = ["ip", "/usr/sbin/ip", "/sbin/ip"];

/// Returns true if this kernel has IPv6.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Addresses of a node, and settings of its routes to all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'a> {
    pub(crate) addresses: &'a [IpAddr],
    /// Initial congestion window in segments, if it is not the kernel's.
    pub(crate) initial_window: Option<u8>,
}

/// Joins a node's namespace to the forwarder's and returns the forwarder's end.
pub(crate) fn wire(
    number: u8,
    routing: Routing<'_>,
    node: &Namespace,
    network: &Namespace,
) -> Result<Wire, LabError> {
    let far_end = format!("p{number}");
    run_ip("setting up a node", node, network, |other: &str| node_script(number, routing, other))?;
    run_ip("setting up the forwarder", network, node, |_| {
        format!("link set {far_end} {NO_OWN_ADDRESS} up\n")
    })?;
    in_namespace(node, "setting a sysctl", || fs::write(NO_METRICS_SAVE, "1"))?;
    in_namespace(node, "waiting for the interface", || wait_until_running(INTERFACE))?;
    in_namespace(node, "switching off offloads", || sys::switch_off_offloads(INTERFACE))?;
    in_namespace(network, "switching off offloads", || sys::switch_off_offloads(&far_end))?;
    let socket = in_namespace(network, "opening a packet socket", || packet_socket(&far_end))?;
    Ok(Wire { socket, node: node_mac(number), own: far_mac(number) })
}

/// Setting by which TCP forgets what one connection learnt of a destination (ip-sysctl).
///
/// On a lossy link it keeps variances that let later connections begin with retransmission timeouts
/// of several seconds, so that none of them is a fresh one.
const NO_METRICS_SAVE: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";

/// No link-local address: it would only bring router and listener messages.
const NO_OWN_ADDRESS: &str = "addrgenmode none";

/// Locally administered addresses (second bit of the first byte).
fn node_mac(number: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, number]
}

fn far_mac(number: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 1, number]
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Without ARP and neighbour discovery there is nothing to lose or delay but the packets under
/// test.
fn node_script(number: u8, routing: Routing<'_>, network: &str) -> String {
    let Routing { addresses, initial_window } = routing;
    let (near, far) = (mac_text(node_mac(number)), mac_text(far_mac(number)));
    let own_address = if has_ipv6() { NO_OWN_ADDRESS } else { "" };
    let mut script = format!(
        "link set lo up\n\
         link add {INTERFACE} address {near} type veth peer name p{number} address {far} netns \
         {network}\n\
         link set {INTERFACE} {own_address} arp off up\n"
    );
    script += &address_script(addresses, INTERFACE);
    let defaults = [
        ("0.0.0.0/0", addresses.iter().any(IpAddr::is_ipv4)),
        ("::/0", addresses.iter().any(IpAddr::is_ipv6)),
    ];
    for (prefix, _) in defaults.into_iter().filter(|(_, used)| *used) {
        let control = congestion_control();
        let window =
            initial_window.map_or(String::new(), |segments| format!("initcwnd {segments}"));
        let _ = writeln!(script, "route add {prefix} dev {INTERFACE} {control} {window}");
    }
    script
}

fn address_script(addresses: &[IpAddr], interface: &str) -> String {
    addresses
        .iter()
        .map(|address: &IpAddr| match address {
            IpAddr::V4(address) => format!("address add {address}/32 dev {interface}\n"),
            IpAddr::V6(address) => format!("address add {address}/128 dev {interface} nodad\n"),
        })
        .collect()
}

/// Makes a wired node answer to more addresses.
pub(crate) fn add_addresses(node: &Namespace, addresses: &[IpAddr]) -> Result<(), LabError> {
    run_ip("adding addresses", node, node, |_| address_script(addresses, INTERFACE))
}

/// The route attribute for cubic, the usual sender of the Internet; a kernel's own default may be
/// another.
///
/// Set by route because a namespace may be refused the sysctl.
fn congestion_control() -> &'static str {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap_or_default();
    if available.split_whitespace().any(|name| name == "cubic") { "congctl cubic" } else { "" }
}

/// Runs a script of `ip` commands in a namespace; `script` gets the path under which they can name
/// the other one.
fn run_ip(
    what: &str,
    namespace: &Namespace,
    other: &Namespace,
    script: impl Fn(&str) -> String,
) -> Result<(), LabError> {
    for program in IP_COMMANDS {
        let (command, path) = namespace.command_with(program, other);
        match feed(command, &script(&path)) {
            Ok(None) => return Ok(()),
            Ok(Some(output)) => {
                return Err(LabError::Ip { what: what.to_owned(), output });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::system(what)(error)),
        }
    }
    Err(LabError::IpMissing)
}

/// Feeds the script to `ip`; returns its output if it failed.
fn feed(mut command: Command, script: &str) -> io::Result<Option<String>> {
    let command = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ends early, its status and output tell more than this error.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = child.wait_with_output()?;
    Ok((!output.status.success())
        .then(|| String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

fn in_namespace<T: Send>(
    namespace: &Namespace,
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, LabError> {
    namespace.run(work).flatten().map_err(LabError::system(what))
}

/// Waits until the interface passes packets.
///
/// Only the end that was up first needs it: the kernel activates the other one while bringing it
/// up, and would say so up to a second later.
fn wait_until_running(interface: &str) -> io::Result<()> {
    let start = Instant::now();
    while !sys::is_running(interface)? {
        if start.elapsed() > UP_TIMEOUT {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{interface} does not come up"),
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn packet_socket(interface: &str) -> io::Result<Socket> {
    let any = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let socket = sys::packet_socket(rustix::net::netdevice::name_to_index(&any, interface)?)?;
    // The kernel quietly gives as much as it allows.
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    Ok(socket)
}
