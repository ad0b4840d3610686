//! `openssl s_server`, one connection after the other.

use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::agent::Agent;
use crate::client::{Answer, connect};
use crate::edge::until;
use crate::files::Files;

/// Whom the certificates are for.
pub(crate) const NAME: &str = "www.example.com";

/// Answers with a page about the connection, and closes.
pub(crate) const PAGE: &[&str] = &["-www"];

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// As long as it is open, the server waits for somebody to type.
    _stdin: ChildStdin,
    pub(crate) address: SocketAddr,
    roots: String,
    said: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) fn start(files: &Files, arguments: &[&str]) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), files, NAME, arguments)
    }

    /// Starts it with the certificate for `name`; at a port of its own if `address` has none.
    pub(crate) fn start_at(
        address: SocketAddr,
        files: &Files,
        name: &str,
        arguments: &[&str],
    ) -> Self {
        let (chain, key) = (files.path(&format!("{name}.pem")), files.path(&format!("{name}.key")));
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", &address.to_string(), "-cert", &chain, "-key", &key]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let saying = Arc::clone(&said);
        thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut room) {
                saying.lock().unwrap().push_str(&String::from_utf8_lossy(&room[..count]));
            }
        });
        let mut server = Self { child, _stdin: stdin, address, roots: chain, said };
        until("openssl s_server accepts", || {
            let said = server.said();
            let line = said.split_inclusive('\n').find_map(|line| line.strip_prefix("ACCEPT"));
            let Some(named) = line.filter(|line| line.ends_with('\n')) else { return false };
            // It prints its address if it chose the port.
            if let Ok(address) = named.trim().parse() {
                server.address = address;
            }
            true
        });
        server
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// A managed connection, with the certificate checked, and `more` fields.
    pub(crate) fn connect(&self, agent: &Agent, more: &[(&str, &str)]) -> Answer {
        connect(agent, &self.address.to_string(), &[&self.fields()[..], more].concat())
    }

    /// Returns the fields with which such a connection is asked for.
    pub(crate) fn fields(&self) -> [(&str, &str); 3] {
        [
            ("Headstart-TLS", "managed"),
            ("Headstart-Server-Name", NAME),
            ("Headstart-Verify", &self.roots),
        ]
    }

    /// Returns true if a connection that reads a page is resumed.
    pub(crate) fn visit(&self, agent: &Agent, more: &[(&str, &str)]) -> bool {
        let answer = self.connect(agent, more);
        let resumed = answer.resumed();
        let page = answer.get("/");
        assert!(page.contains("HTTP/1.0 200 ok"), "{page}");
        resumed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Certificates for [`NAME`].
pub(crate) fn files() -> Files {
    let files = Files::new();
    files.issue(NAME);
    files
}
