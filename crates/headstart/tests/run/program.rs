//! Unmodified programs that fetch a page which says whether their connection was resumed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::agent::{Agent, sessions};
use crate::files::Files;
use crate::library::library;
use crate::server::{NAME, Server};

/// Fetches `/` over TLS as Python does by default, with the address apart from the name.
const PYTHON: &str = r#"
import os, socket, ssl, sys, threading
def visit(context=None, session=None):
    context = context or ssl.create_default_context()
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as tcp:
        with context.wrap_socket(tcp, server_hostname=sys.argv[3], session=session) as tls:
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
            session = tls.session
    sys.stdout.write(page.decode())
    sys.stdout.flush()
    return session
"#;

/// The same as Ruby's net/http does it, with `CONTEXT` for what else is set.
const RUBY: &str = r#"
require "socket"; require "openssl"
context = OpenSSL::SSL::SSLContext.new
context.set_params
CONTEXT
tls = OpenSSL::SSL::SSLSocket.new(TCPSocket.new(ARGV[0], ARGV[1].to_i), context)
tls.hostname = ARGV[2]
tls.connect
tls.post_connection_check(ARGV[2])
tls.write("GET / HTTP/1.0\r\n\r\n")
begin
  while more = tls.readpartial(4096)
    print more
  end
rescue EOFError, OpenSSL::SSL::SSLError
end
"#;

/// Request of openssl's client: it is the only one that reads from its standard input.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// Milliseconds that the agent has, on a machine that may be busy.
const PATIENCE: &str = "9000";

/// A program of this machine, and what it is called with.
pub(crate) struct Program {
    name: &'static str,
    arguments: Vec<String>,
    /// Name of the server whose certificate it trusts.
    trusts: &'static str,
    patience: Option<&'static str>,
}

impl Program {
    fn new(name: &'static str, arguments: Vec<String>) -> Self {
        Self { name, arguments, trusts: NAME, patience: Some(PATIENCE) }
    }

    /// curl, with `more` options. It offers no protocols, so that it can have sessions in common
    /// with Python.
    pub(crate) fn curl(server: &Server, more: &[&str]) -> Self {
        let to = format!("{NAME}:443:{}", server.address);
        let own = ["-sS", "--no-alpn", "--max-time", "50", "--connect-to", &to];
        let url = format!("https://{NAME}/");
        let all = own.into_iter().chain(more.iter().copied()).chain([url.as_str()]);
        Self::new("curl", all.map(str::to_owned).collect())
    }

    pub(crate) fn python(server: &Server) -> Self {
        Self::python_that(server, "visit()")
    }

    /// Python, which can `visit()`.
    pub(crate) fn python_that(server: &Server, does: &str) -> Self {
        let mut arguments = vec!["-c".to_owned(), format!("{PYTHON}\n{does}\n")];
        arguments.extend(place(server));
        let name =
            if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
        Self::new(name, arguments)
    }

    /// Python whose modules look for functions in what they are linked to first, past everything
    /// that is interposed.
    pub(crate) fn python_bound_deeply(server: &Server) -> Self {
        let mut python = Self::python(server);
        let first = "import os, sys\nsys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)\n";
        if let Some(script) = python.arguments.get_mut(1) {
            script.insert_str(0, first);
        }
        python
    }

    pub(crate) fn ruby(server: &Server) -> Self {
        Self::ruby_with(server, "")
    }

    /// Ruby, with lines that change its `context`.
    pub(crate) fn ruby_with(server: &Server, context: &str) -> Self {
        let mut arguments = vec!["-e".to_owned(), RUBY.replace("CONTEXT", context)];
        arguments.extend(place(server));
        Self::new("ruby", arguments)
    }

    /// openssl's, which says by itself whether it has resumed.
    pub(crate) fn s_client(server: &Server) -> Self {
        Self::s_client_that(server, &["-verify_return_error", "-verify_hostname", NAME])
    }

    pub(crate) fn s_client_that(server: &Server, verifies: &[&str]) -> Self {
        let to = server.address.to_string();
        let own = ["s_client", "-connect", &to, "-servername", NAME, "-ign_eof", "-verify_quiet"];
        Self::new("openssl", own.iter().chain(verifies).map(|&text| text.to_owned()).collect())
    }

    pub(crate) fn all(server: &Server) -> [Self; 4] {
        [Self::curl(server, &[]), Self::python(server), Self::ruby(server), Self::s_client(server)]
    }

    /// It trusts the certificate for this name alone, beside the system's.
    pub(crate) fn trusting(mut self, name: &'static str) -> Self {
        self.trusts = name;
        self
    }

    /// Gives it the patience that users have.
    pub(crate) fn in_a_hurry(mut self) -> Self {
        self.patience = None;
        self
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
        command.env("SSL_CERT_FILE", files.path(&format!("{}.pem", self.trusts)));
        command.envs(self.patience.map(|patience| ("HEADSTART_PATIENCE_MS", patience)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A peer that does not read it may be gone.
        let _ = child.stdin.take().unwrap().write_all(REQUEST);
        child.wait_with_output().unwrap()
    }

    /// Returns true if its connection is resumed.
    pub(crate) fn resumes(&self, agent: &Agent, files: &Files, options: &[&str]) -> bool {
        resumed(&self.page(&agent.socket(), files, options))
    }

    /// It has no connection, and says why.
    pub(crate) fn fails(&self, agent: &Agent, files: &Files, options: &[&str]) -> String {
        let output = self.output(&agent.socket(), files, options);
        let page = String::from_utf8_lossy(&output.stdout);
        let none = !page.contains("<pre>") && !page.contains("Reused, ");
        assert!(!output.status.success() && none, "{}: {page}", self.name);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Reads the page of openssl s_server.
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
