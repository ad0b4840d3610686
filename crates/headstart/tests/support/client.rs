//! Programs: raw ones on the Unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::agent::Agent;
use crate::edge::PATIENCE;

/// A connection behind the head of its answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) stream: UnixStream,
}

impl Answer {
    /// The value of a field, empty if it is not there.
    pub(crate) fn field(&self, name: &str) -> &str {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut fields = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        fields.next().map_or("", |(_, value)| value)
    }

    pub(crate) fn resumed(&self) -> bool {
        assert_eq!(self.status, 200, "{}", self.head);
        self.field("Headstart-Resumed") == "1"
    }

    /// Returns the status and the error of a refusal.
    pub(crate) fn refused(&self) -> (u16, &str) {
        (self.status, self.field("Headstart-Error"))
    }

    /// Returns the same as owned values.
    pub(crate) fn owned_refusal(&self) -> (u16, String) {
        let (status, error) = self.refused();
        (status, error.to_owned())
    }

    /// All that still comes.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = Vec::new();
        // A server that closes after its answer has answered.
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Returns the answer to an HTTP request, up to the end.
    pub(crate) fn get(mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
        self.rest()
    }
}

/// A connection to the socket on which nothing was said yet.
pub(crate) fn dial(agent: &Agent) -> UnixStream {
    let stream = UnixStream::connect(agent.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, and reads the head of its answer.
pub(crate) fn ask(agent: &Agent, request: &str) -> Answer {
    let mut stream = dial(agent);
    // A refusal may come before all of it has left.
    let _ = stream.write_all(request.as_bytes());
    answer(stream)
}

/// The head of an answer, byte for byte, so that nothing behind it is taken.
pub(crate) fn answer(mut stream: UnixStream) -> Answer {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut byte).unwrap();
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&head));
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, stream }
}

/// CONNECT with these fields.
pub(crate) fn connect(agent: &Agent, to: &str, fields: &[(&str, &str)]) -> Answer {
    ask(agent, &request(to, fields))
}

pub(crate) fn request(to: &str, fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n{}\r\n", fields.collect::<String>())
}

/// Any other request: its status, and the JSON that is the answer.
pub(crate) fn call(
    agent: &Agent,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, serde_json::Value) {
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = ask(agent, &request);
    let status = answer.status;
    let rest = answer.rest();
    (status, serde_json::from_str(&rest).unwrap_or(serde_json::Value::String(rest)))
}
