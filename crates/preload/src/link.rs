//! One request to the agent, answered in a few milliseconds or not at all.

use std::time::Duration;

use crate::query::{Answer, Query};

/// Time that the agent has for an answer, which it finds in memory. A connection waits for it at
/// most twice.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_millis(5);

/// Largest value of HEADSTART_PATIENCE_MS.
pub(crate) const ANSWER_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Pause after an agent has timed out: a hanging agent delays few connections.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Largest answer in bytes: a session has at most 16 KiB.
pub(crate) const ANSWER_MAX: usize = 20 * 1024;

/// A connection to the agent, with a deadline.
pub(crate) trait AgentLink {
    /// Sends all bytes, or fails.
    fn send(&mut self, bytes: &[u8]) -> Option<()>;
    /// Receives bytes; 0 at the end, `None` after the deadline.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize>;
}

/// Takes a session from the agent, or learns that there is none.
pub(crate) fn take(line: &mut impl AgentLink, query: &Query) -> Option<Answer> {
    line.send(&request("GET", &query.path(""), &[]))?;
    answer(line)
}

/// Leaves a session with the agent. Returns true if the agent may have got it: then the program
/// must not use it.
pub(crate) fn put(line: &mut impl AgentLink, query: &Query, more: &str, session: &[u8]) -> bool {
    let sent = line.send(&request("PUT", &query.path(more), session)).is_some();
    sent && answer(line).is_none_or(|answer| answer.status == 204)
}

fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn answer(line: &mut impl AgentLink) -> Option<Answer> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while answer.len() < ANSWER_MAX {
        match line.receive(&mut buffer)? {
            0 => break,
            count => answer.extend_from_slice(buffer.get(..count)?),
        }
        if let Some(answer) = Answer::read(&answer) {
            return Some(answer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of an agent, piece by piece; after the last one it stays silent.
    struct Script(Vec<Option<Vec<u8>>>, bool);

    impl AgentLink for Script {
        fn send(&mut self, _: &[u8]) -> Option<()> {
            self.1.then_some(())
        }

        fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
            let piece = if self.0.is_empty() { Some(Vec::new()) } else { self.0.remove(0) }?;
            buffer[..piece.len()].copy_from_slice(&piece);
            Some(piece.len())
        }
    }

    fn judge(pieces: &[&str]) -> Script {
        Script(pieces.iter().map(|piece| Some(piece.as_bytes().to_vec())).collect(), true)
    }

    #[test]
    fn an_answer_comes_in_pieces_and_has_an_end() {
        let query = Query::default();
        let answer =
            take(&mut judge(&["HTTP/1.1 200 OK\r\ncontent-le", "ngth: 3\r\n\r\na", "bc"]), &query)
                .unwrap();
        assert_eq!(answer.body, b"abc");
        assert!(
            take(&mut judge(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"]), &query).is_none()
        );
        let endless = "x".repeat(4096);
        let mut line = judge(&[&*endless; 100]);
        assert!(take(&mut line, &query).is_none());
        assert!(line.0.len() > 90, "more than one answer was read");
    }

    #[test]
    fn a_session_that_the_agent_may_have_is_gone_for_the_program() {
        for (mut line, may_have_it) in [
            (judge(&["HTTP/1.1 204 No Content\r\n\r\n"]), true),
            (judge(&["HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n"]), false),
            // No answer in time.
            (Script(vec![None], true), true),
            // The request was not sent.
            (Script(vec![], false), false),
        ] {
            assert_eq!(put(&mut line, &Query::default(), "", b"x"), may_have_it, "{:?}", line.0);
        }
    }
}
