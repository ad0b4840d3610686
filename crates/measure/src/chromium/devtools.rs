//! Chromium's DevTools protocol over two pipes: JSON, each message ended by a zero byte.
//!
//! Pipes, and not the WebSocket that most use: no port is open by which others could drive the
//! browser, it ends by itself when the pipes do, and it may be in another network namespace.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use headstart_pageload::printable;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::interrupt::Interrupt;

/// Bytes of a message that are taken: a picture of a page has some 100 kB, an event some kB. What
/// is larger is passed over.
const MESSAGE_MAX: u64 = 64 << 20;

/// Messages read ahead; then Chromium has to wait.
const MESSAGES: usize = 4096;

/// Commands that Chromium has not read yet, at most: each event needs three at most.
const COMMANDS: usize = 16 << 10;

/// Bytes of the messages that come while an answer is waited for, at most: those of a load of
/// 50,000 requests.
const SET_ASIDE: usize = 256 << 20;

/// Letters of a text by the page or the browser that are shown.
const SHOWN: usize = 300;

/// Interval at which a wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) enum Message {
    /// Something happened, in this session: none is the browser's own.
    Event { session: Option<String>, method: String, params: Value },
    /// The answer to the command of this number.
    Answer { id: u64, result: Result<Value, String> },
    /// An event of which nothing else is known: it was larger than is taken.
    TooLarge,
}

/// Reason why there is no load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Chromium ended, hangs or says nonsense.
    Browser(String),
    /// The page cannot be loaded.
    Page(String),
    Interrupted,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Much of the text comes from the page or the browser.
            Self::Browser(text) => write!(f, "Chromium {}", printable(text)),
            Self::Page(text) => f.write_str(&printable(text)),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// A text by the page or the browser as people are shown it: on one line, without what commands a
/// terminal, and not endless.
pub(crate) fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN).collect();
    let end = if beginning.len() < text.len() { "…" } else { "" };
    printable(&beginning) + end
}

/// The one tab that a browser has.
#[derive(Debug)]
pub(crate) struct Tab {
    pub(super) target: String,
    pub(super) session: String,
    pub(super) frame: String,
}

/// A connection to Chromium. No wait takes longer than its deadline, whatever comes meanwhile.
#[derive(Debug)]
pub(crate) struct Devtools {
    commands: SyncSender<Vec<u8>>,
    messages: Receiver<Weighed>,
    set_aside: VecDeque<Weighed>,
    /// Bytes of these.
    aside: usize,
    last: u64,
    interrupt: Interrupt,
}

/// A message, and the bytes that it takes, about.
type Weighed = (Message, usize);

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
    /// Starts with pipes to and from Chromium.
    pub(crate) fn new(
        to: impl Write + Send + 'static,
        from: impl Read + Send + 'static,
        interrupt: Interrupt,
    ) -> Self {
        let (commands, written) = sync_channel::<Vec<u8>>(COMMANDS);
        let (read, messages) = sync_channel(MESSAGES);
        // The threads end with the pipes.
        thread::spawn(move || write_all(to, &written));
        thread::spawn(move || read_all(from, &read));
        Self { commands, messages, set_aside: VecDeque::new(), aside: 0, last: 0, interrupt }
    }

    /// Sends a command; the number that its answer will have.
    pub(crate) fn ask(
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

    /// Sends a command and waits for its answer; what else comes meanwhile is kept for
    /// [`next`](Self::next).
    pub(crate) fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let began = Instant::now();
        let request = self.ask(session, method, params)?;
        loop {
            match self.receive(until)? {
                Some((Message::Answer { id, result }, _)) if id == request => {
                    return result.map_err(|why| {
                        Trouble::Browser(format!("refuses {method}: {}", shown(&why)))
                    });
                }
                Some(other) => {
                    self.aside += other.1;
                    self.set_aside.push_back(other);
                    if self.aside > SET_ASIDE {
                        return Err(Trouble::Browser(format!(
                            "talks on without an answer to {method}"
                        )));
                    }
                }
                None => {
                    let waited = began.elapsed();
                    return Err(Trouble::Browser(format!(
                        "gave no answer to {method} for {waited:.0?}"
                    )));
                }
            }
        }
    }

    /// Returns the next message; `None` if none came before `until`, and always after it.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Option<Message>, Trouble> {
        if Instant::now() < until
            && let Some((message, bytes)) = self.set_aside.pop_front()
        {
            self.aside -= bytes;
            return Ok(Some(message));
        }
        Ok(self.receive(until)?.map(|(message, _)| message))
    }

    /// Drops what comes until then, and what is there by then.
    pub(crate) fn forget(&mut self, until: Instant) -> Result<(), Trouble> {
        (self.set_aside, self.aside) = (VecDeque::new(), 0);
        while self.receive(until)?.is_some() {}
        // No more than are queued now: others may arrive as fast as these are taken.
        (0..MESSAGES).map_while(|_| self.messages.try_recv().ok()).for_each(drop);
        Ok(())
    }

    /// Drops messages until none has come for this long.
    ///
    /// # Errors
    /// There is no such pause until then.
    pub(crate) fn forget_until_quiet(
        &mut self,
        quiet: Duration,
        until: Instant,
    ) -> Result<(), Trouble> {
        (self.set_aside, self.aside) = (VecDeque::new(), 0);
        while self.receive(until.min(Instant::now() + quiet))?.is_some() {}
        match Instant::now() < until {
            true => Ok(()),
            false => Err(Trouble::Browser("does not come to rest".into())),
        }
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Weighed>, Trouble> {
        loop {
            if self.interrupt.is_set() {
                return Err(Trouble::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            match self.messages.recv_timeout(left.min(LOOK)) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
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

/// Reads messages until the pipe ends or one is malformed: the receiver then sees the end.
fn read_all(from: impl Read, messages: &SyncSender<Weighed>) {
    let mut from = BufReader::new(from);
    while let Some(message) = read_one(&mut from, MESSAGE_MAX) {
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// A message, of which no more than `max` bytes are kept.
fn read_one(from: &mut impl BufRead, max: u64) -> Option<Weighed> {
    let mut bytes = Vec::new();
    from.by_ref().take(max + 1).read_until(0, &mut bytes).ok()?;
    if bytes.last() == Some(&0) {
        bytes.pop();
        return Some((message(&mut bytes)?, bytes.len() + size_of::<Weighed>()));
    }
    if bytes.len() as u64 <= max {
        return None;
    }
    from.skip_until(0).ok()?;
    let too_large = match answered(&bytes) {
        Some(id) => {
            let result = Err(format!("the answer has more than {} MB", max >> 20));
            Message::Answer { id, result }
        }
        None => Message::TooLarge,
    };
    Some((too_large, size_of::<Weighed>()))
}

/// The number of the answer that begins so; none if it is an event. Chromium writes the number
/// first.
fn answered(beginning: &[u8]) -> Option<u64> {
    let number = beginning.strip_prefix(b"{\"id\":")?.split(|byte| *byte == b',').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Reads a message. Where a script has made half of a pair of UTF-16, which no text has in Rust,
/// U+FFFD is put.
fn message(bytes: &mut [u8]) -> Option<Message> {
    let raw: RawMessage = serde_json::from_slice(bytes).ok().or_else(|| {
        mend(bytes);
        serde_json::from_slice(bytes).ok()
    })?;
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

fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        at += match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                rest.iter_mut().skip(2).zip(b"fffd").for_each(|(to, from)| *to = *from);
                6
            }
            // The character after a backslash may be another backslash.
            _ if rest.first() == Some(&b'\\') => 2,
            _ => 1,
        };
    }
}

/// The unit of UTF-16 that is written here as `\uXXXX`.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn receiving(text: &'static [u8]) -> Devtools {
        // Imitates a browser that keeps running: the end of the pipe does not arrive.
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

    /// Says the same far longer than any wait here takes; then it ends, which tests can tell apart.
    fn talkative() -> Devtools {
        let event = b"{\"method\":\"A.b\",\"params\":{\"x\":1}}\0";
        let from = io::Cursor::new(event.repeat(1 << 12));
        Devtools::new(io::sink(), Again { from, left: 1 << 10 }, Interrupt::default())
    }

    /// Repeats its bytes `left` more times.
    struct Again {
        from: io::Cursor<Vec<u8>>,
        left: u32,
    }

    impl Read for Again {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.from.read(buffer)? {
                0 if self.left > 0 => {
                    self.left -= 1;
                    self.from.set_position(0);
                    self.from.read(buffer)
                }
                read => Ok(read),
            }
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn answers_are_waited_for_and_events_kept() {
        let mut devtools = receiving(
            b"{\"method\":\"A.b\",\"params\":{\"x\":1},\"sessionId\":\"s\"}\0\
              {\"id\":7,\"result\":{}}\0{\"id\":1,\"result\":{\"y\":2}}\0\
              {\"id\":2,\"error\":{\"message\":\"no\"}}\0",
        );
        let patience = Instant::now() + PATIENCE;
        assert_eq!(devtools.call(None, "C.d", json!({}), patience), Ok(json!({ "y": 2 })));
        let refused = devtools.call(Some("s"), "E.f", json!({}), patience).unwrap_err();
        assert_eq!(refused.to_string(), "Chromium refuses E.f: no");
        let first = devtools.next(patience).unwrap().unwrap();
        let Message::Event { session, method, .. } = first else { panic!("no event") };
        assert_eq!((session.as_deref(), &method[..]), (Some("s"), "A.b"));
        assert!(matches!(devtools.next(patience), Ok(Some(Message::Answer { id: 7, .. }))));
        assert_eq!((devtools.set_aside.len(), devtools.aside), (0, 0));
        assert!(matches!(devtools.next(soon()), Ok(None)));
        let none = devtools.call(None, "G.h", json!({}), Instant::now()).unwrap_err();
        assert!(none.to_string().contains("gave no answer to G.h"), "{none}");
    }

    #[test]
    fn browser_output_does_not_extend_timeouts() {
        let mut devtools = talkative();
        let none = devtools.call(None, "A.b", json!({}), soon()).unwrap_err();
        assert!(none.to_string().contains("gave no answer to A.b"), "{none}");
        assert!(matches!(devtools.next(Instant::now()), Ok(None)), "not even what was set aside");
        let until = soon();
        while devtools.next(until).unwrap().is_some() {}
        assert_eq!(devtools.forget(soon()), Ok(()));
        assert_eq!((devtools.set_aside.len(), devtools.aside), (0, 0));
        let restless = devtools.forget_until_quiet(Duration::from_secs(1), soon()).unwrap_err();
        assert_eq!(restless.to_string(), "Chromium does not come to rest");
    }

    #[test]
    fn idle_requests_are_ignored_until_they_move() {
        let mut devtools =
            receiving(b"{\"method\":\"A.b\"}\0{\"method\":\"A.b\"}\0{\"id\":1,\"result\":{}}\0");
        let patience = Instant::now() + PATIENCE;
        // Both events came before the answer.
        assert_eq!(devtools.call(None, "C.d", json!({}), patience), Ok(json!({})));
        assert_eq!(devtools.forget_until_quiet(Duration::from_millis(100), patience), Ok(()));
        assert!(matches!(devtools.next(soon()), Ok(None)));
    }

    #[test]
    fn queued_messages_are_bounded() {
        let event =
            format!("{{\"method\":\"A.b\",\"params\":\"{}\"}}\0", "x".repeat(SET_ASIDE / 8));
        let from = Again { from: io::Cursor::new(event.into_bytes()), left: 8 };
        let mut devtools = Devtools::new(io::sink(), from, Interrupt::default());
        let none =
            devtools.call(None, "C.d", json!({}), Instant::now() + 4 * PATIENCE).unwrap_err();
        assert_eq!(none.to_string(), "Chromium talks on without an answer to C.d");
        assert_eq!(devtools.set_aside.len(), 8);
    }

    #[test]
    fn oversized_messages_are_skipped() {
        let mut from = &b"{\"method\":\"A\"}\0{\"method\":\"AB\"}\0{\"id\":3,\"result\":[]}\0\
            {\"method\":\"C\"}\0{\"method\":\"cut off\""[..];
        let messages = std::iter::from_fn(|| read_one(&mut from, 14).map(|(message, _)| message));
        let messages: Vec<Message> = messages.collect();
        let [Message::Event { method: whole, .. }, Message::TooLarge, third, fourth, last] =
            &messages[..]
        else {
            panic!("as large as is taken, a byte larger, and three more: {messages:?}")
        };
        assert_eq!(whole, "A");
        let Message::Answer { id: 3, result: Err(why) } = third else { panic!("{third:?}") };
        assert!(why.contains("more than"), "{why}");
        assert!(matches!(fourth, Message::Event { method, .. } if method == "C"), "{fourth:?}");
        assert!(matches!(last, Message::TooLarge), "{last:?}");
    }

    #[test]
    fn halves_of_pairs_are_mended() {
        for (text, expected) in [
            (r"a\ud800b\uDC00", "a\u{fffd}b\u{fffd}"),
            (r"\ud83d\ud83d\ude00\ude00", "\u{fffd}\u{1f600}\u{fffd}"),
            (r"\\ud800\ud800\\\ud800", "\\ud800\u{fffd}\\\u{fffd}"),
            (r"\ud800\u0041\n", "\u{fffd}A\n"),
        ] {
            let mut bytes = format!("{{\"method\":\"A\",\"params\":\"{text}\"}}").into_bytes();
            match message(&mut bytes) {
                Some(Message::Event { params: Value::String(text), .. }) => {
                    assert_eq!(text, expected);
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn text_of_others_cannot_control_the_terminal() {
        for text in ["a\x1b[31mb\r\nc", "a\u{9b}31mb\u{202e}"] {
            for trouble in [Trouble::Page(text.into()), Trouble::Browser(text.into())] {
                assert_eq!(printable(&trouble.to_string()), trouble.to_string());
            }
            assert_eq!(printable(&shown(text)), shown(text));
        }
        let long = "ä".repeat(SHOWN);
        assert_eq!(shown(&long), long);
        assert_eq!(shown(&format!("{long}x")), format!("{long}…"));
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
