//! Circuits and streams that a Tor client tells of (control-spec, sections 3.9 and 4.1).

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Namespace;

/// A process on this machine answers at once, or hangs.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Lines of one answer at most: a circuit or a stream each.
const LINES_MAX: usize = 10_000;

/// A circuit that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorCircuit {
    /// Its number.
    pub id: String,
    /// Nicknames of its relays, the guard first.
    pub path: Vec<String>,
}

/// A stream that an application has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorStream {
    /// Its number.
    pub id: String,
    /// Its state: SUCCEEDED when the exit has connected.
    pub status: String,
    /// The circuit that it is on, 0 if none.
    pub circuit: String,
    /// Target that was asked for.
    pub target: String,
}

/// The control port of a client. One connection for each question.
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
        Ok(self.ask("circuit-status")?.iter().filter_map(|line| circuit(line)).collect())
    }

    pub(super) fn streams(&self) -> io::Result<Vec<TorStream>> {
        Ok(self.ask("stream-status")?.iter().filter_map(|line| stream(line)).collect())
    }

    /// Returns true if there is a circuit of three hops that ends in this exit.
    pub(super) fn has_circuit(&self, exit: &str) -> bool {
        self.circuits().is_ok_and(|circuits| {
            circuits.iter().any(|circuit: &TorCircuit| {
                circuit.path.len() == 3 && circuit.path.last().is_some_and(|last| last == exit)
            })
        })
    }

    /// The lines of one answer, without its frame.
    fn ask(&self, what: &str) -> io::Result<Vec<String>> {
        self.namespace.run(|| {
            let mut port = TcpStream::connect_timeout(&self.at, ANSWER_TIME)?;
            port.set_read_timeout(Some(ANSWER_TIME))?;
            port.write_all(format!("AUTHENTICATE\r\nGETINFO {what}\r\nQUIT\r\n").as_bytes())?;
            let lines = BufReader::new(port).lines().take(LINES_MAX);
            let lines = lines.collect::<io::Result<Vec<_>>>()?;
            Ok(values(what, &lines))
        })?
    }
}

/// Returns the values behind the name in an answer: on its line, or on those up to a dot.
fn values(what: &str, lines: &[String]) -> Vec<String> {
    let (single, many) = (format!("250-{what}="), format!("250+{what}="));
    let mut found = Vec::new();
    let mut inside = false;
    for line in lines {
        match line.strip_prefix(&single) {
            _ if inside && line == "." => inside = false,
            _ if inside => found.push(line.clone()),
            Some(value) if !value.is_empty() => found.push(value.to_owned()),
            _ => inside = *line == many,
        }
    }
    found
}

/// `7 BUILT $FINGERPRINT~nickname,... BUILD_FLAGS=...`
fn circuit(line: &str) -> Option<TorCircuit> {
    let mut words = line.split(' ');
    let (id, status, path) = (words.next()?, words.next()?, words.next()?);
    let names = path.split(',').map(|relay| relay.split_once('~').map_or(relay, |(_, name)| name));
    (status == "BUILT")
        .then(|| TorCircuit { id: id.to_owned(), path: names.map(str::to_owned).collect() })
}

/// `21 SUCCEEDED 7 origin.test:80`
fn stream(line: &str) -> Option<TorStream> {
    let mut words = line.split(' ').map(str::to_owned);
    let (id, status) = (words.next()?, words.next()?);
    Some(TorStream { id, status, circuit: words.next()?, target: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        values("circuit-status", &lines)
    }

    #[test]
    fn one_value_or_many_are_found_in_an_answer() {
        assert_eq!(found("250 OK\n250-circuit-status=\n250 OK"), Vec::<String>::new());
        assert_eq!(found("250 OK\n250-circuit-status=7 BUILT a\n250 OK"), ["7 BUILT a"]);
        let many = "250 OK\n250+circuit-status=\n7 BUILT a\n250 BUILT b\n.\n250 OK";
        assert_eq!(found(many), ["7 BUILT a", "250 BUILT b"]);
    }

    #[test]
    fn circuits_and_streams_are_read() {
        let line = "7 BUILT $AA~torguard1,$BB~torauthority2,$CC~torexit1 \
            BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL";
        let path = ["torguard1", "torauthority2", "torexit1"].map(str::to_owned).to_vec();
        assert_eq!(circuit(line), Some(TorCircuit { id: "7".into(), path }));
        assert_eq!(circuit("8 EXTENDED $AA~torguard1 PURPOSE=GENERAL"), None);
        assert_eq!(circuit("9 LAUNCHED"), None);
        let found = stream("21 SUCCEEDED 7 origin.test:80").unwrap();
        assert_eq!((found.circuit.as_str(), found.target.as_str()), ("7", "origin.test:80"));
        assert_eq!(stream("21 NEW 0"), None);
    }
}
