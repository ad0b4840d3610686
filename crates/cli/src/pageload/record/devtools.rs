//! Chromium's DevTools protocol over two pipes: JSON, each message ended by a zero byte.
//!
//! Pipes, and not the WebSocket that most use: no port is open by which others could drive the browser, it ends by itself
//! when the pipes do, and it may be in another network namespace.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::lab::interrupt::Interrupt;

/// Bytes of a message at most: a picture of a page has some 100 kB, an event some kB.
const MESSAGE_MAX: u64 = 64 << 20;

/// Messages read ahead; then Chromium has to wait.
const MESSAGES: usize = 4096;

/// Commands that Chromium has not read yet, at most: each event needs three at most.
const COMMANDS: usize = 16 << 10;

/// Messages that come while an answer is waited for, at most: as many as there are in a load of 50,000 requests.
const SET_ASIDE: usize = 1 << 20;

/// How often a wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// What Chromium says.
#[derive(Debug)]
pub(super) enum Message {
    /// Something happened, in this session: none is the browser's own.
    Event { session: Option<String>, method: String, params: Value },
    /// The answer to the command of this number.
    Answer { id: u64, result: Result<Value, String> },
}

/// Why there is no load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Chromium ended, hangs or says nonsense.
    Browser(String),
    /// The page cannot be loaded.
    Page(String),
    /// The user interrupted.
    Interrupted,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Browser(text) => write!(f, "Chromium {text}"),
            Self::Page(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// A connection to Chromium.
#[derive(Debug)]
pub(super) struct Devtools {
    commands: SyncSender<Vec<u8>>,
    messages: Receiver<Message>,
    set_aside: VecDeque<Message>,
    last: u64,
    interrupt: Interrupt,
}

#[derive(Deserialize)]
struct RawMessage {
    id: Option<u64>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    result: Option<Value>,
    error: Option<RawError>,
    #[serde(rename = "sessionId")]
    session: Option<String>,
}

#[derive(Deserialize)]
struct RawError {
    #[serde(default)]
    message: String,
}

impl Devtools {
    /// Of pipes to and from Chromium.
    pub(super) fn new(
        to: impl Write + Send + 'static,
        from: impl Read + Send + 'static,
        interrupt: Interrupt,
    ) -> Self {
        let (commands, written) = sync_channel::<Vec<u8>>(COMMANDS);
        let (read, messages) = sync_channel(MESSAGES);
        // They end with the pipes.
        thread::spawn(move || write_all(to, &written));
        thread::spawn(move || read_all(from, &read));
        Self { commands, messages, set_aside: VecDeque::new(), last: 0, interrupt }
    }

    /// Sends a command; the number that its answer will have.
    pub(super) fn ask(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<u64, Trouble> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        match self.commands.try_send(bytes) {
            Ok(()) => Ok(self.last),
            Err(TrySendError::Full(_)) => Err(Trouble::Browser("reads no commands".into())),
            Err(TrySendError::Disconnected(_)) => Err(ended()),
        }
    }

    /// Sends a command and waits for its answer; what else comes meanwhile is kept for [`next`](Self::next).
    pub(super) fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
        patience: Duration,
    ) -> Result<Value, Trouble> {
        let asked = self.ask(session, method, params)?;
        let until = Instant::now() + patience;
        loop {
            match self.receive(until)? {
                Some(Message::Answer { id, result }) if id == asked => {
                    return result
                        .map_err(|why| Trouble::Browser(format!("refuses {method}: {why}")));
                }
                Some(_) if self.set_aside.len() >= SET_ASIDE => {
                    return Err(Trouble::Browser(format!(
                        "talks on without an answer to {method}"
                    )));
                }
                Some(other) => self.set_aside.push_back(other),
                None => {
                    return Err(Trouble::Browser(format!(
                        "gave no answer to {method} for {patience:.0?}"
                    )));
                }
            }
        }
    }

    /// The next message; none if there was none until then.
    pub(super) fn next(&mut self, until: Instant) -> Result<Option<Message>, Trouble> {
        match self.set_aside.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.receive(until),
        }
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Message>, Trouble> {
        loop {
            if self.interrupt.is_set() {
                return Err(Trouble::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left.min(LOOK)) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn ended() -> Trouble {
    Trouble::Browser("ended".into())
}

fn write_all(mut to: impl Write, commands: &Receiver<Vec<u8>>) {
    for command in commands {
        if to.write_all(&command).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Reads messages until the pipe ends, or one is none: whoever waits then sees that nothing more comes.
fn read_all(from: impl Read, messages: &SyncSender<Message>) {
    let mut from = BufReader::new(from);
    loop {
        let mut bytes = Vec::new();
        let read = from.by_ref().take(MESSAGE_MAX).read_until(0, &mut bytes);
        if read.is_err() || bytes.pop() != Some(0) {
            return;
        }
        let Some(message) = message(&bytes) else { return };
        if messages.send(message).is_err() {
            return;
        }
    }
}

fn message(bytes: &[u8]) -> Option<Message> {
    let raw: RawMessage = serde_json::from_slice(bytes).ok()?;
    match (raw.id, raw.method) {
        (Some(id), _) => {
            let result = match raw.error {
                Some(error) => Err(error.message),
                None => Ok(raw.result.unwrap_or_default()),
            };
            Some(Message::Answer { id, result })
        }
        (None, Some(method)) => {
            Some(Message::Event { session: raw.session, method, params: raw.params })
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn said(text: &'static [u8]) -> Devtools {
        // Like a browser that lives on: the end of the pipe is not seen.
        let from = text.chain(Forever);
        Devtools::new(io::sink(), from, Interrupt::default())
    }

    struct Forever;

    impl Read for Forever {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            loop {
                thread::park();
            }
        }
    }

    #[test]
    fn answers_are_waited_for_and_events_kept() {
        let mut devtools = said(
            b"{\"method\":\"A.b\",\"params\":{\"x\":1},\"sessionId\":\"s\"}\0{\"id\":7,\"result\":{}}\0{\"id\":1,\"result\":{\"y\":2}}\0{\"id\":2,\"error\":{\"message\":\"no\"}}\0",
        );
        assert_eq!(devtools.call(None, "C.d", json!({}), PATIENCE), Ok(json!({ "y": 2 })));
        let refused = devtools.call(Some("s"), "E.f", json!({}), PATIENCE).unwrap_err();
        assert_eq!(refused.to_string(), "Chromium refuses E.f: no");
        let first = devtools.next(Instant::now() + PATIENCE).unwrap().unwrap();
        assert!(
            matches!(first, Message::Event { session: Some(session), method, .. } if session == "s" && method == "A.b")
        );
        assert!(matches!(
            devtools.next(Instant::now() + PATIENCE),
            Ok(Some(Message::Answer { id: 7, .. }))
        ));
        assert!(matches!(devtools.next(Instant::now()), Ok(None)));
        let none = devtools.call(None, "G.h", json!({}), Duration::ZERO).unwrap_err();
        assert!(none.to_string().contains("gave no answer to G.h"), "{none}");
    }

    #[test]
    fn a_browser_that_ends_or_says_nonsense_is_noticed() {
        for text in [&b""[..], b"{\"method\":\"A\"}", b"hello\0", b"{}\0", b"[]\0", b"\xff\0"] {
            let mut devtools = Devtools::new(io::sink(), text, Interrupt::default());
            let trouble = devtools.next(Instant::now() + PATIENCE).unwrap_err();
            assert_eq!(trouble.to_string(), "Chromium ended", "{text:?}");
        }
    }
}
