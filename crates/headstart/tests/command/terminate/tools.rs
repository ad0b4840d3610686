//! Clients: the system's curl and openssl, and one of this test's own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use headstart_testkit::Running;
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslStream};

use crate::edge::{Edge, PATIENCE};
use crate::files::Files;

/// Output of a tool.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The output of a tool that succeeded.
    pub(crate) fn ok(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{}{}", self.text(), self.err);
        self.out
    }
}

/// `curl` for `name` at the edge, which it trusts as far as the certificate of that name goes.
pub(crate) fn curl(
    edge: &Edge,
    files: &Files,
    name: &str,
    path: &str,
    arguments: &[&str],
) -> Outcome {
    outcome(&mut curl_command(edge, files, name, path, arguments), "")
}

/// Starts the same; it ends when dropped.
pub(crate) fn start_curl(
    edge: &Edge,
    files: &Files,
    name: &str,
    path: &str,
    arguments: &[&str],
) -> Running {
    let mut command = curl_command(edge, files, name, path, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

fn curl_command(edge: &Edge, files: &Files, name: &str, path: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "150", "--cacert", &files.path(&format!("{name}.pem"))]);
    command.args(["--resolve", &format!("{}:127.0.0.1", edge.at(name))]);
    command.args(arguments).arg(format!("https://{}{path}", edge.at(name)));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
}

/// `openssl s_client` for `name`, which stays until the server closes; `input` is what it sends.
pub(crate) fn s_client(edge: &Edge, name: &str, arguments: &[&str], input: &str) -> String {
    s_client_to(edge.address, name, arguments, input)
}

pub(crate) fn s_client_to(to: SocketAddr, name: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["150", "openssl", "s_client", "-ign_eof", "-connect", &to.to_string()]);
    command.args(["-servername", name, "-alpn", "http/1.1"]).args(arguments);
    let output = outcome(&mut command, input);
    format!("{}{}", output.text(), output.err)
}

/// Returns the output of a command that gets `input`.
pub(crate) fn run(command: &[&str], input: &str) -> String {
    let (program, arguments) = command.split_first().unwrap();
    let output = outcome(Command::new(program).args(arguments), input);
    format!("{}{}", output.text(), output.err)
}

/// A request after which the server closes.
pub(crate) fn request(method: &str, path: &str, host: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
}

fn outcome(command: &mut Command, input: &str) -> Outcome {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A caller that does not read it has already failed, and reports why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Outcome { code: output.status.code(), out: output.stdout, err }
}

/// TLS of this test's own, which agrees on no protocol and trusts anybody.
pub(crate) fn tls(edge: &Edge, name: &str) -> SslStream<TcpStream> {
    let tcp = TcpStream::connect(edge.address).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.set_nodelay(true).unwrap();
    let context = SslContextBuilder::new(SslMethod::tls_client()).unwrap().build();
    let mut ssl = Ssl::new(&context).unwrap();
    ssl.set_hostname(name).unwrap();
    let mut stream = SslStream::new(ssl, tcp).unwrap();
    stream.connect().unwrap();
    stream
}

/// Reads until `end` has come.
pub(crate) fn read_until(stream: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(end.len()).any(|window| window == end) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..count]);
    }
    read
}
