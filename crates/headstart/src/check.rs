//! `--check` of both daemons: whether they could start, and would serve.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{Access, access};
use socket2::{Domain, Socket, Type};

use crate::base::failure::Failure;
use crate::base::logging::{self, LogOptions};
use crate::base::settings::Invocation;
use crate::doctor::Finding;
use crate::metrics::options::MetricsOptions;
use crate::qlog;
use crate::qlog::options::QlogOptions;

/// A check in place of a start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct CheckOptions {
    /// Check options, files, ports, limits and origins, print a line for each, and end
    ///
    /// Nothing is served, and a process that runs is not disturbed: ports that are in use are
    /// noted, as it may be the one that has them. The exit code is 0 if there is no problem, 1 if
    /// there is one, and 2 where options or --config cannot be read.
    #[arg(long)]
    pub check: bool,

    /// Print what --check finds as JSON
    #[arg(long, requires = "check")]
    pub json: bool,
}

/// Checks what both daemons have: the configuration, its environment, and the log.
pub(crate) fn common(
    config: Option<&Path>,
    log: &LogOptions,
    invocation: &Invocation,
) -> Vec<Finding> {
    let read = match config {
        Some(file) => format!("{} was read", file.display()),
        None => "no file is given".to_owned(),
    };
    let mut findings = vec![Finding::ok("config", read)];
    findings.extend(invocation.unknown_variables().into_iter().map(|variable| {
        Finding::note(
            "environment",
            format!("no option has the variable {variable}"),
            "is it misspelt? It changes nothing",
        )
    }));
    findings.extend(logging::check(log).err().map(|failure| Finding::failed("log", &failure)));
    findings
}

/// Returns a line about `result`, which is good for `text`.
pub(crate) fn finding<T>(
    check: &str,
    result: &Result<T, Failure>,
    text: impl Into<String>,
) -> Finding {
    match result {
        Ok(_) => Finding::ok(check, text),
        Err(failure) => Finding::failed(check, failure),
    }
}

/// Checks that files allow as many connections as are wanted.
pub(crate) fn connections(wanted: NonZeroUsize, allowed: usize) -> Finding {
    if wanted.get() <= allowed {
        return Finding::ok("open_files", format!("they allow {wanted} connections"));
    }
    Finding::note(
        "open_files",
        format!("they allow {allowed} of {wanted} connections (--max-connections)"),
        "raise the limit: LimitNOFILE= of systemd, ulimit -Hn",
    )
}

/// Checks the addresses of metrics and status.
pub(crate) fn metrics(options: &MetricsOptions) -> impl Iterator<Item = Finding> {
    let addresses = [options.metrics, options.status].into_iter().flatten();
    addresses.map(|address| port(Type::STREAM, address))
}

/// Checks that `address` can be listened on, without listening: no client comes to this process.
pub(crate) fn port(kind: Type, address: SocketAddr) -> Finding {
    let protocol = if kind == Type::STREAM { "TCP" } else { "UDP" };
    match bind(kind, address) {
        Ok(()) => Finding::ok("listen", format!("{protocol} {address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Finding::note(
            "listen",
            format!("{protocol} {address} is in use"),
            format!(
                "good if by the process that is to be reloaded, restarted or taken over; \
                 `ss -ltunp 'sport = :{}'` shows which has it",
                address.port()
            ),
        ),
        Err(error) => Finding::failed("listen", &Failure::bind(address, &error)),
    }
}

fn bind(kind: Type, address: SocketAddr) -> std::io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Closed connections of an earlier process hold no port.
    socket.set_reuse_address(kind == Type::STREAM)?;
    socket.bind(&address.into())
}

/// Checks that qlog files can be written, and makes nothing.
pub(crate) fn qlog(options: &QlogOptions) -> Option<Finding> {
    let path = options.qlog.as_deref()?;
    Some(match path.try_exists() {
        Ok(false) => new_file("qlog", path),
        _ => finding("qlog", &qlog::check(path), format!("{} can be used", path.display())),
    })
}

/// Checks that a file, such as a Unix socket, can be made at `path`.
pub(crate) fn new_file(option: &str, path: &Path) -> Finding {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let shown = dir.display();
    let hint = "make the directory, for the user that the daemon runs as";
    if !fs::metadata(&dir).is_ok_and(|found| found.is_dir()) {
        return Finding::problem(option, format!("there is no directory {shown}"), hint);
    }
    match access(&dir, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(option, format!("{} can be made", path.display())),
        Err(error) => Finding::problem(option, format!("cannot write to {shown}: {error}"), hint),
    }
}
