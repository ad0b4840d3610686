//! A real Redis on loopback, killed when dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use headstart_testkit::Running;
use tempfile::TempDir;

use crate::edge::{PATIENCE, until};
use crate::ports::free;

/// `redis-server` without anything on disk.
pub(crate) struct Redis {
    dir: TempDir,
    child: Option<Running>,
    pub(crate) address: SocketAddr,
    flags: Vec<String>,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::start_with(Vec::new())
    }

    pub(crate) fn start_with(flags: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut redis = Self { dir, child: None, address: free(), flags };
        redis.restart();
        redis
    }

    /// Starts a replica of `master`, and waits for its first copy.
    pub(crate) fn replica_of(master: &Self) -> Self {
        let port = master.address.port().to_string();
        let flags = ["--replicaof", "127.0.0.1", &port, "--masterauth", PASSWORD];
        let replica = Self::start_with(flags.map(str::to_owned).into());
        until("it is a copy", || {
            let info = String::from_utf8(replica.ask(&["INFO", "replication"])).unwrap();
            info.contains("master_link_status:up")
        });
        replica
    }

    /// Makes a master of a replica.
    pub(crate) fn promote(&self) {
        assert_eq!(self.ask(&["REPLICAOF", "NO", "ONE"]), b"+OK");
    }

    /// Starts it again at the same address: it knows nothing any more.
    pub(crate) fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.args(["--requirepass", PASSWORD, "--dir"]).arg(self.dir.path());
        command.args(&self.flags);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.expect("redis-server of Debian's package redis-server");
        self.child = Some(Running(child));
        until("Redis answers", || self.try_ask(&["PING"]).is_some_and(|text| text == b"+PONG"));
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.child.take().expect("it runs"));
    }

    /// For command lines, with the password.
    pub(crate) fn url(&self) -> String {
        url(self.address)
    }

    /// Returns the answer to a command: the first line, or the whole of a bulk string.
    pub(crate) fn ask(&self, words: &[&str]) -> Vec<u8> {
        self.ask_bytes(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn ask_bytes(&self, words: &[&[u8]]) -> Vec<u8> {
        ask(self.address, words).expect("Redis answers")
    }

    fn try_ask(&self, words: &[&str]) -> Option<Vec<u8>> {
        ask(self.address, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn value(&self, key: &str) -> Vec<u8> {
        self.ask(&["GET", key])
    }
}

/// It must not show anywhere.
pub(crate) const PASSWORD: &str = "pass-of-redis";

pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://:{PASSWORD}@{address}?name=www")
}

/// Where it lies which process remembers early data.
pub(crate) const MARK: &str = "headstart:{www}:filter";

/// Where the ring lies.
pub(crate) const RING: &str = "headstart:{www}:ring";

fn ask(address: SocketAddr, words: &[&[u8]]) -> Option<Vec<u8>> {
    let mut tcp = TcpStream::connect(address).ok()?;
    tcp.set_read_timeout(Some(PATIENCE)).ok()?;
    let auth = command(&[b"AUTH", PASSWORD.as_bytes()]);
    tcp.write_all(&[auth, command(words)].concat()).ok()?;
    let mut text = Vec::new();
    line(&mut tcp, &mut text)?;
    text.clear();
    line(&mut tcp, &mut text)?;
    let length: Option<i64> = match text.split_first() {
        Some((b'$', length)) => std::str::from_utf8(length).ok()?.parse().ok(),
        _ => return Some(text),
    };
    let mut bulk = vec![0; usize::try_from(length?).ok()?];
    tcp.read_exact(&mut bulk).ok()?;
    Some(bulk)
}

/// A line without its end.
fn line(tcp: &mut TcpStream, line: &mut Vec<u8>) -> Option<()> {
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        tcp.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    Some(())
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
