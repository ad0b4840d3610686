//! Circuits and streams that a Tor client reports (control-spec, sections 3.8, 3.9 and 4.1).

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::Namespace;

/// Timeout for a reply: a process on this machine replies at once, or hangs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of lines in a reply; each describes a circuit or a stream.
const LINES_MAX: usize = 10_000;

/// A circuit that is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorCircuit {
    /// Circuit ID.
    pub id: String,
    /// Nicknames of its relays, the guard first.
    pub path: Vec<String>,
}

/// A stream that an application has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorStream {
    /// Stream ID.
    pub id: String,
    /// Status: SUCCEEDED once the exit has connected.
    pub status: String,
    /// ID of the circuit that carries the stream; 0 if none.
    pub circuit: String,
    /// Requested target, as HOST:PORT.
    pub target: String,
}

/// The control port of a Tor client. Each query opens a connection.
#[derive(Debug)]
pub(super) struct Control {
    namespace: Namespace,
    at: SocketAddr,
}

impl Control {
    pub(super) const fn new(namespace: Namespace, at: SocketAddr) -> Self {
        Self { namespace, at }
    }

    pub(super) fn circuits(&self) -> io::Result<Vec<TorCircuit>> {
        Ok(self.query("circuit-status")?.iter().filter_map(|line| parse_circuit(line)).collect())
    }

    pub(super) fn streams(&self) -> io::Result<Vec<TorStream>> {
        Ok(self.query("stream-status")?.iter().filter_map(|line| parse_stream(line)).collect())
    }

    /// Returns true if a circuit of three hops ends at `exit`.
    pub(super) fn has_circuit(&self, exit: &str) -> bool {
        self.circuits().is_ok_and(|circuits| {
            circuits.iter().any(|circuit: &TorCircuit| {
                circuit.path.len() == 3 && circuit.path.last().is_some_and(|last| last == exit)
            })
        })
    }

    /// Has the client ask exits for these addresses in place of names (control-spec, section 3.8).
    pub(super) fn map_addresses(&self, names: &[(String, Ipv4Addr)]) -> io::Result<()> {
        let mut command = "MAPADDRESS".to_owned();
        for (name, address) in names {
            // Writing to a string cannot fail.
            let _ = write!(command, " {name}={address}");
        }
        let lines = self.say(&command)?;
        match lines.iter().find(|line| !line.starts_with("250")) {
            Some(refusal) => Err(io::Error::other(refusal.clone())),
            None => Ok(()),
        }
    }

    /// Returns the values in the reply to `GETINFO key`.
    fn query(&self, key: &str) -> io::Result<Vec<String>> {
        Ok(values(key, &self.say(&format!("GETINFO {key}"))?))
    }

    /// Returns the lines of the replies to a command, and to those around it.
    fn say(&self, command: &str) -> io::Result<Vec<String>> {
        self.namespace.run(|| {
            let mut port = TcpStream::connect_timeout(&self.at, REPLY_TIMEOUT)?;
            port.set_read_timeout(Some(REPLY_TIMEOUT))?;
            port.write_all(format!("AUTHENTICATE\r\n{command}\r\nQUIT\r\n").as_bytes())?;
            BufReader::new(port).lines().take(LINES_MAX).collect()
        })?
    }
}

/// Returns the values of `key` in a reply: the rest of its line, or the lines up to a lone dot.
fn values(key: &str, lines: &[String]) -> Vec<String> {
    let (single, multiple) = (format!("250-{key}="), format!("250+{key}="));
    let mut found = Vec::new();
    let mut inside = false;
    for line in lines {
        match line.strip_prefix(&single) {
            _ if inside && line == "." => inside = false,
            _ if inside => found.push(line.clone()),
            Some(value) if !value.is_empty() => found.push(value.to_owned()),
            _ => inside = *line == multiple,
        }
    }
    found
}

/// Parses a built circuit: `7 BUILT $FINGERPRINT~nickname,... BUILD_FLAGS=...`.
fn parse_circuit(line: &str) -> Option<TorCircuit> {
    let mut words = line.split(' ');
    let (id, status, path) = (words.next()?, words.next()?, words.next()?);
    let names = path.split(',').map(|relay| relay.split_once('~').map_or(relay, |(_, name)| name));
    (status == "BUILT")
        .then(|| TorCircuit { id: id.to_owned(), path: names.map(str::to_owned).collect() })
}

/// Parses a stream: `21 SUCCEEDED 7 origin.test:80`.
fn parse_stream(line: &str) -> Option<TorStream> {
    let mut words = line.split(' ').map(str::to_owned);
    let (id, status) = (words.next()?, words.next()?);
    Some(TorStream { id, status, circuit: words.next()?, target: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circuit_values(text: &str) -> Vec<String> {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        values("circuit-status", &lines)
    }

    #[test]
    fn single_line_and_multi_line_values_are_found() {
        assert_eq!(circuit_values("250 OK\n250-circuit-status=\n250 OK"), Vec::<String>::new());
        assert_eq!(circuit_values("250 OK\n250-circuit-status=7 BUILT a\n250 OK"), ["7 BUILT a"]);
        let many = "250 OK\n250+circuit-status=\n7 BUILT a\n250 BUILT b\n.\n250 OK";
        assert_eq!(circuit_values(many), ["7 BUILT a", "250 BUILT b"]);
    }

    #[test]
    fn circuits_and_streams_are_parsed() {
        let line = "7 BUILT $AA~torguard1,$BB~torauthority2,$CC~torexit1 \
            BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL";
        let path = ["torguard1", "torauthority2", "torexit1"].map(str::to_owned).to_vec();
        assert_eq!(parse_circuit(line), Some(TorCircuit { id: "7".into(), path }));
        assert_eq!(parse_circuit("8 EXTENDED $AA~torguard1 PURPOSE=GENERAL"), None);
        assert_eq!(parse_circuit("9 LAUNCHED"), None);
        let found = parse_stream("21 SUCCEEDED 7 origin.test:80").unwrap();
        assert_eq!((found.circuit.as_str(), found.target.as_str()), ("7", "origin.test:80"));
        assert_eq!(parse_stream("21 NEW 0"), None);
    }
}
