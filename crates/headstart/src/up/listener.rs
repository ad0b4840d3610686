//! The process that listens on a port, by /proc.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// State of a socket that listens, in /proc/net/tcp.
const LISTEN: &str = "0A";

/// Longest wait until a port is free, or has a listener. nginx tries for two seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Wait between two looks at a port.
const POLL: Duration = Duration::from_millis(5);

/// A process that listens.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) pid: u32,
    /// Its executable file.
    pub(super) program: PathBuf,
    /// Its arguments, without the program's name.
    pub(super) arguments: Vec<String>,
    /// The unit of systemd that it belongs to.
    pub(super) unit: Option<String>,
}

impl Listener {
    /// Finds the process that listens on `port`, of several the oldest: a master, not its workers.
    pub(super) fn find(port: u16) -> Option<Self> {
        let inodes = inodes(port);
        let held: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        let all = fs::read_dir("/proc").ok()?.flatten();
        let mut pids: Vec<u32> =
            all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let process = |pid: &u32| Path::new("/proc").join(pid.to_string());
        let pid = *pids.iter().find(|pid| holds(&process(pid), &held))?;
        Self::read(pid, &process(&pid))
    }

    fn read(pid: u32, process: &Path) -> Option<Self> {
        let program = fs::read_link(process.join("exe")).ok()?;
        let program = program.to_string_lossy();
        let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        Some(Self {
            pid,
            // The file of a process that was upgraded without a restart.
            program: program.strip_suffix(" (deleted)").unwrap_or(&program).into(),
            arguments: words.split_terminator('\0').skip(1).map(str::to_owned).collect(),
            unit: unit(&groups),
        })
    }

    /// Name of the program.
    pub(super) fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Returns true if somebody listens on `port`.
pub(super) fn is_taken(port: u16) -> bool {
    !inodes(port).is_empty()
}

/// Waits until something is so; returns false if that takes longer than any server needs.
pub(super) fn wait(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

fn holds(process: &Path, sockets: &[String]) -> bool {
    let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
    files.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        sockets.iter().any(|socket| target == Path::new(socket))
    })
}

/// The inodes of all TCP sockets that listen on `port`.
pub(super) fn inodes(port: u16) -> Vec<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    lines.filter_map(|line| listening(line, port)).collect()
}

fn listening(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let (_, at) = fields.get(1)?.rsplit_once(':')?;
    let is_it = *fields.get(3)? == LISTEN && u16::from_str_radix(at, 16) == Ok(port);
    is_it.then(|| fields.get(9)?.parse().ok()).flatten()
}

/// The service in the names of a process's cgroups.
fn unit(groups: &str) -> Option<String> {
    let names = groups.lines().flat_map(|line| line.rsplit('/'));
    names.filter(|name| name.ends_with(".service")).map(str::to_owned).next()
}

/// Returns true if UDP `port` is taken.
pub(super) fn takes_udp(port: u16) -> bool {
    let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
    any.into_iter().any(|ip| {
        let bound = bound_alone(SocketAddr::new(ip, port));
        bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    })
}

/// Binds as the edge does: IPv6 without IPv4.
fn bound_alone(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into()).map(|()| socket)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_listening_process_is_found_until_it_stops() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let found = Listener::find(port).unwrap();
        assert_eq!(found.program, std::env::current_exe().unwrap());
        assert_eq!(found.pid, std::process::id());
        assert!(is_taken(port));
        drop(socket);
        // A process that another test has just forked may have it until it becomes its program.
        assert!(wait(|| !is_taken(port)));
    }

    #[test]
    fn only_sockets_that_listen_count() {
        let line = "0: 00000000:01BB 00000000:0000 0A 0:0 00:0 0 0 0 4711 1";
        assert_eq!(listening(line, 443), Some(4711));
        assert_eq!(listening(line, 444), None);
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), 443), None);
    }

    #[test]
    fn a_unit_is_the_innermost_service() {
        let groups = "1:name=systemd:/\n0::/system.slice/docker.service/nginx.service\n";
        assert_eq!(unit(groups).unwrap(), "nginx.service");
        assert_eq!(unit("0::/user.slice/session-1.scope\n"), None);
    }

    #[test]
    fn a_taken_port_of_udp_is_noticed() {
        for ip in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::LOCALHOST.into()] {
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            let port = socket.local_addr().unwrap().port();
            assert!(takes_udp(port), "{ip}");
        }
        assert!(!takes_udp(0));
    }
}
