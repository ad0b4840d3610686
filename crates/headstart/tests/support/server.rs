//! A running `openssl s_server`, which serves one connection at a time.

use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use headstart_testkit::Running;

use crate::agent::Agent;
use crate::client::{Answer, connect};
use crate::edge::until;
use crate::files::Files;

/// Host name in the certificates.
pub(crate) const NAME: &str = "www.example.com";

/// Arguments that make the server answer with a page about the connection, and close it.
pub(crate) const PAGE: &[&str] = &["-www"];

/// A running server; killed when dropped.
pub(crate) struct Server {
    _child: Running,
    /// Held open, because the server would read end-of-file from a closed one.
    _stdin: ChildStdin,
    pub(crate) address: SocketAddr,
    roots: String,
    output: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) fn start(files: &Files, arguments: &[&str]) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), files, NAME, arguments)
    }

    /// Starts a server at `address` with the certificate for `name`; with port 0, it chooses one.
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
        let text = Arc::new(Mutex::new(String::new()));
        let output = Arc::clone(&text);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                output.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let mut server =
            Self { _child: Running(child), _stdin: stdin, address, roots: chain, output: text };
        until("openssl s_server accepts", || {
            let text = server.output();
            let line = text.split_inclusive('\n').find_map(|line| line.strip_prefix("ACCEPT"));
            let Some(rest) = line.filter(|line| line.ends_with('\n')) else { return false };
            // The line contains an address only if the server chose the port.
            if let Ok(address) = rest.trim().parse() {
                server.address = address;
            }
            true
        });
        server
    }

    /// Returns the server's output so far.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Opens a managed connection that verifies the certificate; `more` is added to its fields.
    pub(crate) fn connect(&self, agent: &Agent, more: &[(&str, &str)]) -> Answer {
        connect(agent, &self.address.to_string(), &[&self.fields()[..], more].concat())
    }

    /// Returns the header fields that request such a connection.
    pub(crate) fn fields(&self) -> [(&str, &str); 3] {
        fields(NAME, &self.roots)
    }

    /// Reads a page over a new connection; returns true if its TLS session was resumed.
    pub(crate) fn visit(&self, agent: &Agent, more: &[(&str, &str)]) -> bool {
        let answer = self.connect(agent, more);
        let resumed = answer.resumed();
        let page = answer.get("/");
        assert!(page.contains("HTTP/1.0 200 ok"), "{page}");
        resumed
    }
}

/// Creates certificates for [`NAME`].
pub(crate) fn files() -> Files {
    let files = Files::new();
    files.issue(NAME);
    files
}

/// Returns the fields that request a managed connection to `name`, whose certificate is verified.
pub(crate) fn fields<'a>(name: &'a str, roots: &'a str) -> [(&'a str, &'a str); 3] {
    [("Headstart-TLS", "managed"), ("Headstart-Server-Name", name), ("Headstart-Verify", roots)]
}

/// Starts an agent, and a server with `arguments`, whose certificate is in the files.
pub(crate) fn served(arguments: &[&str]) -> (Files, Server, Agent) {
    let files = files();
    let server = Server::start(&files, arguments);
    (files, server, Agent::start(&[]))
}
