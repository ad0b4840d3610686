//! Unmodified programs that fetch a page which says whether their connection was resumed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::agent::{Agent, sessions};
use crate::files::Files;
use crate::server::{NAME, Server};

/// Fetches `/` over TLS as Python does by default, with the address apart from the name.
const PYTHON: &str = r#"
import os, socket, ssl, sys, threading
def visit():
    context = ssl.create_default_context()
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as tcp:
        with context.wrap_socket(tcp, server_hostname=sys.argv[3]) as tls:
            tls.sendall(b"GET / HTTP/1.0\r\n\r\n")
            page = b""
            while True:
                try:
                    more = tls.recv(4096)
                except ssl.SSLError:
                    break
                if not more:
                    break
                page += more
    sys.stdout.write(page.decode())
    sys.stdout.flush()
"#;

const RUBY: &str = r#"
require "socket"; require "openssl"
context = OpenSSL::SSL::SSLContext.new
context.set_params
tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new(ARGV[0], ARGV[1].to_i), context)
tls.hostname = ARGV[2]
tls.connect
tls.post_connection_check(ARGV[2])
tls.write("GET / HTTP/1.0\r\n\r\n")
print tls.read
"#;

/// A program of this machine, and what it is called with.
pub(crate) struct Program {
    name: &'static str,
    arguments: Vec<String>,
}

impl Program {
    /// curl, with `more` options. It offers no protocols, so that it can have sessions in common with Python.
    pub(crate) fn curl(server: &Server, more: &[&str]) -> Self {
        let to = format!("{NAME}:443:{}", server.address);
        let own = ["-sS", "--no-alpn", "--max-time", "50", "--connect-to", &to];
        let url = format!("https://{NAME}/");
        let all = own.into_iter().chain(more.iter().copied()).chain([url.as_str()]);
        Self { name: "curl", arguments: all.map(str::to_owned).collect() }
    }

    pub(crate) fn python(server: &Server) -> Self {
        Self::python_that(server, "visit()")
    }

    /// Python, which can `visit()`.
    pub(crate) fn python_that(server: &Server, does: &str) -> Self {
        let mut arguments = vec!["-c".to_owned(), format!("{PYTHON}\n{does}\n")];
        arguments.extend(place(server));
        let name = if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
        Self { name, arguments }
    }

    pub(crate) fn ruby(server: &Server) -> Self {
        let mut arguments = vec!["-e".to_owned(), RUBY.to_owned()];
        arguments.extend(place(server));
        Self { name: "ruby", arguments }
    }

    /// openssl's, which says by itself whether it has resumed.
    pub(crate) fn s_client(server: &Server) -> Self {
        let to = server.address.to_string();
        let all = ["s_client", "-connect", &to, "-servername", NAME, "-verify_hostname", NAME, "-verify_return_error", "-verify_quiet"];
        Self { name: "openssl", arguments: all.map(str::to_owned).to_vec() }
    }

    /// The page that it fetches, run with `options`.
    pub(crate) fn page(&self, socket: &Path, files: &Files, options: &[&str]) -> String {
        let output = self.output(socket, files, options);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} ends with {}: {err}", self.name, output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn output(&self, socket: &Path, files: &Files, options: &[&str]) -> Output {
        let mut command = headstart_run(socket);
        command.args(["--proxy", ""]).arg("--preload").arg(library()).args(options);
        command.arg("--").arg(self.name).args(&self.arguments);
        command.env("SSL_CERT_FILE", files.path(&format!("{NAME}.pem")));
        command.output().unwrap()
    }

    /// Whether its connection is resumed.
    pub(crate) fn resumes(&self, agent: &Agent, files: &Files, options: &[&str]) -> bool {
        resumed(&self.page(&agent.socket(), files, options))
    }
}

/// What the page of openssl s_server says.
pub(crate) fn resumed(page: &str) -> bool {
    let (resumed, full) = (page.contains("Reused, TLSv1"), page.contains("New, TLSv1"));
    assert!(resumed != full, "{page}");
    resumed
}

fn place(server: &Server) -> [String; 3] {
    [server.address.ip().to_string(), server.address.port().to_string(), NAME.to_owned()]
}

/// `headstart run` for the agent at `socket`, with nothing in its environment but PATH.
pub(crate) fn headstart_run(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.arg("run").arg("--socket").arg(socket);
    command
}

/// Tickets that the agent holds.
pub(crate) fn held(agent: &Agent) -> u64 {
    let (code, out, err) = sessions(agent, &["list", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    all["sessions"].as_array().unwrap().iter().map(|row| row["tickets"].as_u64().unwrap()).sum()
}

/// The library, which is no dependency that cargo would build for these tests.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let profile = Path::new(env!("CARGO_BIN_EXE_headstart")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "headstart-preload", "--target-dir"]);
        cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the library cannot be built");
        profile.join("libheadstart_preload.so")
    })
}
