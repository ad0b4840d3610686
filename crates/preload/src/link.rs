//! One request to the agent, in a few milliseconds or not at all.

use std::time::{Duration, Instant};

use crate::query::{Query, Said};

/// How long the agent has for an answer: it looks at memory. A handshake waits for it twice at most.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// Bytes of an answer at most: a session has 16 KiB at most.
pub(crate) const ANSWER_MAX: usize = 20 * 1024;

/// A connection to the agent that blocks for [`PATIENCE`] at most.
pub(crate) trait Line {
    /// Sends all, or fails.
    fn send(&mut self, bytes: &[u8]) -> Option<()>;
    /// What has come; 0 at the end.
    fn receive(&mut self, room: &mut [u8]) -> Option<usize>;
}

/// Takes a session out, or learns that there is none.
pub(crate) fn take(line: &mut impl Line, query: &Query) -> Option<Said> {
    ask(line, "GET", &query.path(""), &[])
}

/// Leaves a session; whether the agent has kept it.
pub(crate) fn put(line: &mut impl Line, query: &Query, more: &str, session: &[u8]) -> bool {
    ask(line, "PUT", &query.path(more), session).is_some_and(|said| said.status == 204)
}

fn ask(line: &mut impl Line, method: &str, path: &str, body: &[u8]) -> Option<Said> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-length: {length}\r\n\r\n");
    let end = Instant::now() + PATIENCE;
    line.send(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    let mut room = [0; 4096];
    while Instant::now() < end && answer.len() < ANSWER_MAX {
        match line.receive(&mut room)? {
            0 => break,
            count => answer.extend_from_slice(room.get(..count)?),
        }
        if let Some(said) = Said::read(&answer) {
            return Some(said);
        }
    }
    None
}
