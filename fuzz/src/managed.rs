//! Programs at the agent's socket for managed TLS.

use std::cell::RefCell;
use std::rc::Rc;

use headstart::agent::ManagedAgent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{options_of, pieces, run, settle};

/// The user that sends the bytes, and one that has left a session.
const USER: u32 = 1000;
const OTHER: u32 = 1001;

/// Beginning of that session, which has a number behind it: none is taken twice.
const SESSION: &str = "the session of somebody else";
const PLACE: &str = "/ticket?server=a.test&context=own";

/// The token of the port.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Any bytes as a program at the socket, the first says how they are cut, and whether they come to
/// the port instead: read in pieces they get the same answers as whole, all answers are HTTP,
/// nothing is done without the token, and what another user has stays there.
pub fn managed(bytes: &[u8]) {
    let Some((&how, stream)) = bytes.split_first() else { return };
    let token = (how & 128 != 0).then_some(TOKEN);
    let [whole, cut] = [stream.len().max(1), pieces(stream, how)].map(|length| {
        let Agent { agent, visits } = agent(stream);
        let session = format!("{SESSION} {visits}");
        run(async {
            leave(&agent, &session).await;
            let answers = ask(&agent, USER, token, stream.chunks(length)).await;
            let get = format!("GET {PLACE} HTTP/1.1\r\n\r\n");
            let taken = ask(&agent, OTHER, None, [get.as_bytes()].into_iter()).await;
            assert_eq!(
                (taken[0].status, &taken[0].body[..]),
                (200, session.as_bytes()),
                "it is gone"
            );
            answers
        })
    });
    assert_eq!(whole, cut);
    for answer in &whole {
        assert!(!String::from_utf8_lossy(&answer.body).contains(SESSION));
    }
    if token.is_some() {
        let proofs = whole.iter().filter(|answer| answer.status == 200);
        assert!(proofs.count() <= 1, "a connection has one attempt");
        let refused = [200, 400, 407, 431];
        assert!(whole.iter().all(|answer| refused.contains(&answer.status)), "{whole:?}");
    }
}

#[derive(Clone)]
struct Agent {
    agent: Rc<ManagedAgent>,
    visits: u32,
}

/// Returns an agent that remembers nothing of other bytes: a new one, unless these change nothing.
fn agent(stream: &[u8]) -> Agent {
    thread_local! { static LAST: RefCell<Option<Agent>> = const { RefCell::new(None) }; }
    let last = LAST.with(|last| last.borrow_mut().take());
    let mut agent = last.filter(|last| last.visits < VISITS_MAX).unwrap_or_else(|| {
        // Nobody listens there: no name is looked up, and no connection opens.
        let options = options_of(&["--upstream=socks5://127.0.0.1:1"]);
        run(async { Agent { agent: Rc::new(ManagedAgent::new(options).unwrap()), visits: 0 } })
    });
    agent.visits += 1;
    if ![b"PUT", &b"DELETE"[..]].iter().any(|method| has(stream, method)) {
        LAST.with(|last| *last.borrow_mut() = Some(agent.clone()));
    }
    agent
}

/// Spent sessions are remembered for a while.
const VISITS_MAX: u32 = 256;

fn has(stream: &[u8], word: &[u8]) -> bool {
    stream.windows(word.len()).any(|part| part == word)
}

/// Leaves the other user's session.
async fn leave(agent: &ManagedAgent, session: &str) {
    let get = format!("GET {PLACE} HTTP/1.1\r\n\r\n");
    let none = ask(agent, OTHER, None, [get.as_bytes()].into_iter()).await;
    assert_eq!(none[0].status, 204);
    let (opened, length) = (none[0].opened.as_deref().unwrap(), session.len());
    let put = format!(
        "PUT {PLACE}&lifetime=3600&age_ms=0&opened={opened} HTTP/1.1\r\n\
         content-length: {length}\r\n\r\n"
    );
    let left = ask(agent, OTHER, None, [put.as_bytes(), session.as_bytes()].into_iter()).await;
    assert_eq!(left[0].status, 204);
}

/// An answer, as far as it matters.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: Vec<u8>,
    /// The moment that a session has to be brought back with.
    opened: Option<String>,
}

impl PartialEq for Answer {
    /// The moments of two connections differ.
    fn eq(&self, other: &Self) -> bool {
        (self.status, &self.body) == (other.status, &other.body)
    }
}

/// Sends bytes as a program of `user`, and returns the answers.
async fn ask(
    agent: &ManagedAgent,
    user: u32,
    token: Option<&str>,
    pieces: impl Iterator<Item = &[u8]>,
) -> Vec<Answer> {
    let (mut program, socket) = UnixStream::pair().unwrap();
    let asking = async {
        for piece in pieces {
            // One that was refused is not listened to any more.
            let _ = program.write_all(piece).await;
            settle().await;
        }
        let _ = program.shutdown().await;
        let mut received = Vec::new();
        let _ = program.read_to_end(&mut received).await;
        received
    };
    let (received, ()) = tokio::join!(asking, agent.serve(socket, user, token));
    answers(&received)
}

fn answers(mut received: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !received.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let parsed = head.parse(received);
        let Ok(httparse::Status::Complete(length)) = parsed else {
            panic!("no answer, {parsed:?}: {:?}", String::from_utf8_lossy(received))
        };
        let status = head.code.unwrap();
        received = &received[length..];
        // To HEAD there is none, whatever its length would be.
        let is_none = received.is_empty() || received.starts_with(b"HTTP/1.");
        let length = text(&head, "content-length").filter(|_| !is_none);
        let (body, rest) = received.split_at(length.map_or(0, |length| length.parse().unwrap()));
        received = rest;
        // The library looks into a head that comes in pieces only when it is whole, and says
        // whether to go on only to who has not.
        let is_of_library = status == 100 || body.is_empty() && [400, 431].contains(&status);
        if !is_of_library {
            answers.push(Answer {
                status,
                body: body.to_vec(),
                opened: text(&head, "headstart-opened"),
            });
        }
    }
    answers
}

/// Returns a field's value.
fn text(head: &httparse::Response<'_, '_>, name: &str) -> Option<String> {
    let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    field.map(|field| String::from_utf8(field.value.to_vec()).unwrap())
}
