//! Answers of the agent, as the preload library reads them.

use crate::link::{AgentLink, put, take};
use crate::query::{Answer, Query};

/// Bytes of answers that are read at most.
const READ_MAX: usize = 24 * 1024;

/// Any bytes as the agent's answer, the first says how they are cut: read in pieces they are the
/// same as whole, a part of an answer is incomplete, and no more is read than an answer may have.
pub fn preload(bytes: &[u8]) {
    let Some((&cut, sent)) = bytes.split_first() else { return };
    let whole = Answer::read(sent);
    let length = usize::from(cut) + 1;
    let mut agent = Agent { sent, length, read: 0, received: Vec::new() };
    let taken = take(&mut agent, &Query::default());
    assert!(agent.read <= READ_MAX);
    assert!(agent.received.starts_with(b"GET /ticket?"));
    if let Some(taken) = &taken {
        // It is taken as soon as it is there.
        assert_eq!(Answer::read(&sent[..agent.read]).as_ref(), Some(taken));
        assert_eq!(whole.as_ref(), Some(taken), "what follows changes nothing");
        let end = taken.body.len();
        let head = sent.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(&sent[head..head + end], taken.body);
        for part in (0..head + end).step_by(sent.len() / 64 + 1) {
            assert_eq!(Answer::read(&sent[..part]), None, "a part of it");
        }
    } else if sent.len() <= READ_MAX - 4096 {
        assert_eq!(whole, None);
    }
    // The agent may have a session that it did not clearly refuse.
    let mut agent = Agent { sent, length, read: 0, received: Vec::new() };
    let may_have_it = put(&mut agent, &Query::default(), "&lifetime=1", b"session");
    assert_eq!(may_have_it, taken.is_none_or(|answer| answer.status == 204));
    assert!(agent.received.ends_with(b"\r\n\r\nsession"));
}

/// An agent that says these bytes in pieces, whatever it is asked.
struct Agent<'a> {
    sent: &'a [u8],
    length: usize,
    read: usize,
    received: Vec<u8>,
}

impl AgentLink for Agent<'_> {
    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.received.extend_from_slice(bytes);
        Some(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let rest = &self.sent[self.read..];
        let length = rest.len().min(self.length).min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.read += length;
        Some(length)
    }
}
