//! One request to the agent, answered in a few milliseconds or not at all.

use std::time::Duration;

use crate::query::{Query, Said};

/// Time that the agent has for an answer: it looks at memory. A connection waits for it twice at
/// most.
pub(crate) const PATIENCE: Duration = Duration::from_millis(5);

/// Largest value of HEADSTART_PATIENCE_MS.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// Time that an agent is not asked after it has let the time pass: one that hangs costs few
/// connections something.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Largest answer in bytes: a session has at most 16 KiB.
pub(crate) const ANSWER_MAX: usize = 20 * 1024;

/// A connection to the agent, with a deadline.
pub(crate) trait Line {
    /// Sends all bytes, or fails.
    fn send(&mut self, bytes: &[u8]) -> Option<()>;
    /// Receives bytes; 0 at the end. None when the time is over.
    fn receive(&mut self, room: &mut [u8]) -> Option<usize>;
}

/// Takes a session from the agent, or learns that there is none.
pub(crate) fn take(line: &mut impl Line, query: &Query) -> Option<Said> {
    line.send(&request("GET", &query.path(""), &[]))?;
    answer(line)
}

/// Leaves a session with the agent. Returns true if the agent may have got it: then the program
/// must not use it.
pub(crate) fn put(line: &mut impl Line, query: &Query, more: &str, session: &[u8]) -> bool {
    let sent = line.send(&request("PUT", &query.path(more), session)).is_some();
    sent && answer(line).is_none_or(|said| said.status == 204)
}

fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn answer(line: &mut impl Line) -> Option<Said> {
    let mut answer = Vec::new();
    let mut room = [0; 4096];
    while answer.len() < ANSWER_MAX {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces that an agent sends; `None`: it is silent from there.
    struct Script(Vec<Option<Vec<u8>>>, bool);

    impl Line for Script {
        fn send(&mut self, _: &[u8]) -> Option<()> {
            self.1.then_some(())
        }

        fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
            let piece = if self.0.is_empty() { Some(Vec::new()) } else { self.0.remove(0) }?;
            room[..piece.len()].copy_from_slice(&piece);
            Some(piece.len())
        }
    }

    fn says(pieces: &[&str]) -> Script {
        Script(pieces.iter().map(|piece| Some(piece.as_bytes().to_vec())).collect(), true)
    }

    #[test]
    fn an_answer_comes_in_pieces_and_has_an_end() {
        let query = Query::default();
        let said =
            take(&mut says(&["HTTP/1.1 200 OK\r\ncontent-le", "ngth: 3\r\n\r\na", "bc"]), &query)
                .unwrap();
        assert_eq!(said.body, b"abc");
        assert!(
            take(&mut says(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"]), &query).is_none()
        );
        let endless = "x".repeat(4096);
        let mut line = says(&[&*endless; 100]);
        assert!(take(&mut line, &query).is_none());
        assert!(line.0.len() > 90, "more than one answer was read");
    }

    #[test]
    fn a_session_that_the_agent_may_have_is_gone_for_the_program() {
        let put = |mut line: Script| put(&mut line, &Query::default(), "", b"x");
        assert!(put(says(&["HTTP/1.1 204 No Content\r\n\r\n"])));
        assert!(!put(says(&["HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n"])));
        assert!(put(Script(vec![None], true)), "no answer in time");
        assert!(!put(Script(vec![], false)), "it was not sent");
    }
}
