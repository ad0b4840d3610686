//! A network namespace with nothing in it but loopback.

use std::fs;
use std::process::Command;

use super::Failure;

const MARK: &str = "HEADSTART_BENCH_INSIDE";

pub(crate) fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs this program once more, in a new namespace; whether it succeeded.
pub(crate) fn run_again_inside() -> Result<bool, Failure> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let program = std::env::current_exe()?;
    let status =
        command.arg("--net").arg(program).args(std::env::args_os().skip(1)).env(MARK, "1").status();
    let status = status.map_err(|error| format!("cannot run unshare (util-linux): {error}"))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(format!("the run in its namespace ended with {status}").into()),
    }
}

pub(crate) fn prepare() -> Result<(), Failure> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["route", "add", "local", "198.18.0.0/15", "dev", "lo"])?;
    // Room for the connections of a run. Those in TIME-WAIT would fill the ports of one address.
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2048 65000")?;
    fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "1024")?;
    fs::write("/proc/sys/net/core/somaxconn", "4096")?;
    Ok(())
}

fn ip(args: &[&str]) -> Result<(), Failure> {
    let status = Command::new("ip").args(args).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {args:?} failed").into()) }
}

/// Counters of this namespace from /proc/net/snmp: datagrams sent, and lost for want of receive
/// buffer.
pub(crate) fn udp_counters() -> Result<(u64, u64), Failure> {
    let text = fs::read_to_string("/proc/net/snmp")?;
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let find = |wanted: &str| {
        let mut both = names.split_whitespace().zip(values.split_whitespace());
        both.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok())
    };
    Ok((find("OutDatagrams").unwrap_or(0), find("RcvbufErrors").unwrap_or(0)))
}
