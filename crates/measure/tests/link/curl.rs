//! curl through the agent.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use headstart_net::SILENCES_TO_BLOCK;

use crate::daemon::Daemon;
use crate::net::Net;

/// Where a server on the client's own node is, see [`measured`].
pub(crate) const LOCAL: &str = "127.0.0.1:9443";

/// Curl's way to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// SOCKS5, the name looked up by the agent, at this port.
    Socks(u16),
    /// HTTP CONNECT at this port.
    Connect(u16),
    /// To this address as if it were the server; a rule redirects it.
    Redirect(SocketAddr),
}

/// Result of a request.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    /// curl's exit code; 0 with any HTTP answer.
    pub(crate) exit: i32,
    pub(crate) body: Vec<u8>,
    /// From the agent's accept to the first application byte: `time_pretransfer`, the moment when
    /// the request is about to be written, less `time_connect`, the moment when TCP to the proxy
    /// (or, when redirected, to what takes its place) was connected. Both hold for curl 7.88:
    /// packet traces show them within 0.1 ms of the SYN-ACK and of the request on the loopback
    /// interface.
    pub(crate) opening: Duration,
}

/// Gets `https://host/path`.
pub(crate) fn command(net: &Net, via: Via, host: &str, path: &str) -> Command {
    let mut curl = net.client().command("curl");
    curl.args(arguments(net, via, host, path));
    curl
}

/// Measures the same: it does TLS with a server beside it first, because a new process takes
/// 2 ms to make OpenSSL ready, which are none of the network's and no matter to a running program.
pub(crate) fn measured(net: &Net, via: Via, host: &str, more: &[&str]) -> Command {
    let mut curl = net.client().command("curl");
    let local = format!("https://{LOCAL}/who");
    curl.args(["--silent", "--insecure", "--http1.1", "--output", "/dev/null", &local, "--next"]);
    curl.args(arguments(net, via, host, "/small")).args(more);
    curl
}

fn arguments(net: &Net, via: Via, host: &str, path: &str) -> Vec<String> {
    let cert = net.file("cert.pem").display().to_string();
    let times = "%{stderr}%{time_connect} %{time_pretransfer}";
    let mut arguments: Vec<_> =
        ["--silent", "--max-time", "120", "--http1.1", "--cacert", &cert, "--write-out", times]
            .map(str::to_owned)
            .into();
    arguments.extend(match via {
        Via::Socks(port) => ["--proxy".to_owned(), format!("socks5h://127.0.0.1:{port}")],
        Via::Connect(port) => ["--proxy".to_owned(), format!("http://127.0.0.1:{port}")],
        Via::Redirect(address) => ["--connect-to".to_owned(), format!("::{address}")],
    });
    arguments.push(format!("https://{host}{path}"));
    arguments
}

/// Runs it to its end.
pub(crate) fn finish(command: &mut Command) -> Fetch {
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut times = message.split(' ').map(|time| {
        let seconds = time.parse().unwrap_or_else(|_| panic!("{command:?} said {message}"));
        Duration::from_secs_f64(seconds)
    });
    let [connect, pretransfer] = [(); 2].map(|()| times.next().unwrap());
    let exit = output.status.code().unwrap();
    Fetch { exit, body: output.stdout, opening: pretransfer.saturating_sub(connect) }
}

/// Gets `https://host/path`.
pub(crate) fn get(net: &Net, via: Via, host: &str, path: &str) -> Fetch {
    finish(&mut command(net, via, host, path))
}

/// Attempts at a request until it opens with TurboTLS: on a busy machine the answer to the first
/// flight may be later than the client waits. So many silences in a row do not yet make a path
/// plain.
const TRIES: u8 = SILENCES_TO_BLOCK - 1;

/// Gets `/small` until the agent has opened one connection more with TurboTLS.
pub(crate) fn small_by_udp(net: &Net, agent: &Daemon<'_>, via: Via, host: &str) {
    let before = agent.saved();
    for _ in 0..TRIES {
        small(net, via, host);
        if agent.saved() > before {
            return;
        }
    }
    panic!("{TRIES} connections to {host} by {via:?}, and none used UDP");
}

/// Gets `/small` until that fails; an agent that did without UDP harms nothing, and is asked again.
pub(crate) fn harmed(net: &Net, via: Via, host: &str) -> Fetch {
    for _ in 0..TRIES {
        let fetch = get(net, via, host, "/small");
        if fetch.exit != 0 {
            return fetch;
        }
    }
    panic!("{TRIES} connections to {host} by {via:?}, and all were answered");
}

/// Gets `/small`, which must come, and be right.
pub(crate) fn small(net: &Net, via: Via, host: &str) -> Fetch {
    let fetch = get(net, via, host, "/small");
    assert_eq!(fetch.exit, 0, "curl by {via:?} for {host}");
    assert!(fetch.body == crate::nginx::content(crate::nginx::SMALL), "{via:?}: other bytes");
    fetch
}
