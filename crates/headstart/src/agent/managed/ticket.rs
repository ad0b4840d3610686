//! Sessions for the preload library, whose programs speak TLS themselves: the only interface that
//! hands out a session, or takes one from outside.
//!
//! They are apart from those of managed connections, whatever a request says: what a program puts,
//! another can believe only as far as it believes the program.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use headstart_net::Context;
use headstart_sessions::limits::TICKET_BYTES_MAX;
use headstart_sessions::{Origin, Server, SessionStore, Sharing, Stamp, Ticket};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use openssl::sha::Sha256;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use super::answer::{self, Answer, Refusal};
use super::audit;
use super::caller::Caller;
use super::request::label;
use crate::agent::inbound::Host;
use crate::agent::serve::Settings;

const AGE: HeaderName = HeaderName::from_static("headstart-age");
const OPENED: HeaderName = HeaderName::from_static("headstart-opened");

/// Prefix that no hash of managed connections has: those are of 34 bytes.
const APART: &[u8] = b"headstart: sessions of programs that speak TLS themselves, version 1\0";

/// Bytes of what a program says of its TLS settings, percent-encoded: three times sixty, and two
/// paths.
const SETTINGS_MAX: usize = 3 * 1024;

/// Bytes of its application protocols, as they are on the wire.
const ALPN_MAX: usize = 256;

/// Answers GET and PUT of `/ticket`, of `user`.
///
/// # Errors
/// Why it is not fulfilled.
pub(super) async fn answer(
    request: Request<Incoming>,
    user: u32,
    caller: &Caller,
    settings: &Settings,
) -> Result<Answer, Refusal> {
    let (head, body) = request.into_parts();
    let ask = Ask::read(head.uri.query().unwrap_or_default())?;
    let place = Place::from_ask(&ask, user, caller.process)?;
    match head.method {
        Method::GET => Ok(take(&ask, &place, &mut settings.known.store())),
        Method::PUT => {
            let body = Limited::new(body, TICKET_BYTES_MAX).collect().await;
            let session = Zeroizing::new(body.map_err(|_| too_large())?.to_bytes().to_vec());
            put(&ask, &place, session, &mut settings.known.store())
        }
        _ => Err(answer::wrong_method()),
    }
}

/// A request for tickets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ask {
    server: String,
    alpn: Vec<Vec<u8>>,
    settings: String,
    context: Option<String>,
    age: Duration,
    lifetime: Duration,
    opened: Option<String>,
}

impl Ask {
    fn read(query: &str) -> Result<Self, Refusal> {
        let mut ask = Self::default();
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if seen.contains(&name) {
                return Err(Refusal::malformed(format!("{name} is there more than once")));
            }
            seen.push(name);
            ask.set(name, value)?;
        }
        if ask.server.is_empty() {
            return Err(Refusal::malformed("a ticket is for a server: name it"));
        }
        Ok(ask)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "server" => self.server = server(&text(name, value)?)?,
            "alpn" => self.alpn = protocols(&percent_decode_str(value).collect::<Vec<_>>())?,
            "settings" if value.len() > SETTINGS_MAX => {
                return Err(Refusal::malformed("the settings are too long"));
            }
            "settings" => self.settings = text(name, value)?,
            "context" => self.context = Some(label(&text(name, value)?)?),
            "age_ms" => self.age = Duration::from_millis(number(name, value)?),
            "lifetime" => {
                self.lifetime = Duration::from_secs(u64::from(number::<u32>(name, value)?))
            }
            "opened" => self.opened = Some(text(name, value)?),
            _ => return Err(Refusal::malformed("a ticket has no such parameter")),
        }
        Ok(())
    }
}

fn text(name: &str, value: &str) -> Result<String, Refusal> {
    let decoded = percent_decode_str(value).decode_utf8();
    decoded.map(String::from).map_err(|_| Refusal::malformed(format!("{name} is UTF-8")))
}

/// A host as all others are written: lists show it to people.
fn server(text: &str) -> Result<String, Refusal> {
    let host = Host::parse(text).ok_or_else(|| Refusal::malformed("server is no host"))?;
    Ok(host.to_string())
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, Refusal> {
    value.parse().map_err(|_| Refusal::malformed(format!("{name} is a number")))
}

/// Protocols as they are on the wire: each with its length before it (RFC 7301).
fn protocols(wire: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
    split(wire).ok_or_else(|| {
        Refusal::malformed(
            "alpn is a list of protocols in visible ASCII, each with its length before it",
        )
    })
}

fn split(mut wire: &[u8]) -> Option<Vec<Vec<u8>>> {
    if wire.len() > ALPN_MAX {
        return None;
    }
    let mut all = Vec::new();
    while let Some((&length, rest)) = wire.split_first() {
        let (protocol, rest) = rest.split_at_checked(length.into())?;
        if protocol.is_empty() || !protocol.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        all.push(protocol.to_vec());
        wire = rest;
    }
    Some(all)
}

/// Where a program's sessions are in the store.
struct Place {
    context: Context,
    settings: [u8; 32],
}

impl Place {
    /// Without a context that it names, a program shares with others of the same executable alone.
    fn from_ask(ask: &Ask, user: u32, process: Option<i32>) -> Result<Self, Refusal> {
        let executable = match &ask.context {
            Some(_) => Vec::new(),
            None => process.and_then(executable).ok_or_else(no_program)?,
        };
        let context = Context { uid: Some(user), label: ask.context.clone() };
        Ok(Self { context, settings: settings(&ask.settings, &executable) })
    }

    fn origin<'a>(&'a self, ask: &'a Ask, context: &'a Context) -> Origin<'a> {
        let server = Server::Name(&ask.server);
        Origin { server, alpn: &ask.alpn, settings: &self.settings, context }
    }

    /// The context as the policy has it: nobody's, where nothing is shared.
    fn shared(&self, store: &SessionStore) -> Context {
        match store.policy(&self.context).sharing {
            Sharing::Share | Sharing::ShareCertificate => self.context.clone(),
            Sharing::Isolate | Sharing::Off => Context::UNKNOWN,
        }
    }
}

fn settings(declared: &str, executable: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(APART);
    for part in [declared.as_bytes(), executable] {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finish()
}

/// The file that a process runs. It tells programs apart that mean no harm: another of the same
/// user can have that file run its own code.
fn executable(process: i32) -> Option<Vec<u8>> {
    let path = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    Some(path.as_os_str().as_bytes().to_vec())
}

fn take(ask: &Ask, place: &Place, store: &mut SessionStore) -> Answer {
    let (now, context) = (Instant::now(), place.shared(store));
    let opened = opened(store.stamp());
    let taken = store.take(&place.origin(ask, &context), now);
    audit::ticket(&place.context, &ask.server, if taken.is_some() { "taken" } else { "none" });
    let mut answer = match &taken {
        Some(taken) => answer::bytes(StatusCode::OK, taken.session().to_vec()),
        None => answer::bytes(StatusCode::NO_CONTENT, Vec::new()),
    };
    let fields = answer.headers_mut();
    if let Some(taken) = taken {
        let age = now.saturating_duration_since(taken.verified()).as_millis();
        fields.insert(AGE, HeaderValue::from(u64::try_from(age).unwrap_or(u64::MAX)));
    }
    if let Ok(opened) = HeaderValue::from_str(&opened) {
        fields.insert(OPENED, opened);
    }
    answer
}

fn put(
    ask: &Ask,
    place: &Place,
    session: Zeroizing<Vec<u8>>,
    store: &mut SessionStore,
) -> Result<Answer, Refusal> {
    let now = Instant::now();
    let verified = now.checked_sub(ask.age).ok_or_else(|| not_kept("it is too old"))?;
    let opened =
        ask.opened.as_deref().and_then(stamp).ok_or_else(|| not_kept("it is of another agent"))?;
    let ticket = Ticket {
        session,
        alpn: None,
        // A program sends early data with a session of its own.
        early_data_max: 0,
        lifetime: ask.lifetime,
        received: now,
        verified,
        opened: opened.min(store.stamp()),
        reusable: false,
    };
    let context = place.shared(store);
    let kept = store.put(&place.origin(ask, &context), ticket, now);
    audit::ticket(&place.context, &ask.server, if kept.is_ok() { "put" } else { "not kept" });
    kept.map_err(|reason| not_kept(&reason.to_string()))?;
    Ok(answer::bytes(StatusCode::NO_CONTENT, Vec::new()))
}

/// A moment, for a program to bring back; of no use to the next agent, which has forgotten what
/// this one was told to forget.
fn opened(stamp: Stamp) -> String {
    format!("{:x}-{:x}", run(), stamp.number())
}

fn stamp(opened: &str) -> Option<Stamp> {
    let (of, number) = opened.split_once('-')?;
    let is_ours = u64::from_str_radix(of, 16).ok()? == run();
    is_ours.then(|| u64::from_str_radix(number, 16).ok().map(Stamp::from_number))?
}

/// A number of this process alone.
fn run() -> u64 {
    static RUN: OnceLock<u64> = OnceLock::new();
    *RUN.get_or_init(|| RandomState::new().build_hasher().finish())
}

fn not_kept(why: &str) -> Refusal {
    let hint = "headstart sessions policy shows what is kept for whom";
    Refusal::new(StatusCode::CONFLICT, "not_kept", format!("the session is not kept: {why}"), hint)
}

fn too_large() -> Refusal {
    let hint = "a session has 1 to 8 KiB";
    let text = "the body is not whole, or has more than 16 KiB";
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text, hint)
}

fn no_program() -> Refusal {
    let hint = "name a context, or run the agent as the same user and with the socket";
    Refusal::new(StatusCode::FORBIDDEN, "user", "nobody can say which program this is", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: &str = "server=a.example&alpn=%02h2&settings=x&context=work";

    fn me() -> Option<i32> {
        i32::try_from(std::process::id()).ok()
    }

    fn session() -> Zeroizing<Vec<u8>> {
        Zeroizing::new(b"DER of a session".to_vec())
    }

    fn putting(query: &str, opened: &str) -> Ask {
        Ask::read(&format!("{query}&lifetime=3600&age_ms=0&opened={opened}")).unwrap()
    }

    #[test]
    fn a_request_is_read_or_refused() {
        let ask = Ask::read(ASK).unwrap();
        assert_eq!((ask.server.as_str(), &ask.alpn[0][..]), ("a.example", &b"h2"[..]));
        let long = format!("server=a&settings={}", "x".repeat(SETTINGS_MAX + 1));
        for wrong in [
            "",
            "server=a&server=b",
            "server=a&alpn=%05h2",
            "server=a&alpn=%00",
            "server=a&x=1",
            "server=a&age_ms=-1",
            "server=%ff",
            "server=a.example%1b%5d0;owned%07",
            "server=a.example%0ab.example",
            "server=a&alpn=%03%1b%5b7",
            &long,
        ] {
            assert_eq!(Ask::read(wrong).unwrap_err().name, "bad_request", "{wrong}");
        }
    }

    fn place_of(ask: &Ask, user: u32) -> Place {
        Place::from_ask(ask, user, me()).unwrap()
    }

    fn status(query: &str, user: u32, store: &mut SessionStore) -> StatusCode {
        let ask = Ask::read(query).unwrap();
        take(&ask, &place_of(&ask, user), store).status()
    }

    #[test]
    fn a_ticket_is_given_once_and_only_where_it_was_put() {
        let mut store = SessionStore::default();
        let moment = opened(store.stamp());
        let ask = putting(ASK, &moment);
        put(&ask, &place_of(&ask, 5), session(), &mut store).unwrap();
        for other in [
            "server=b.example&alpn=%02h2&settings=x&context=work",
            "server=a.example&settings=x&context=work",
            "server=a.example&alpn=%02h2&settings=y&context=work",
            "server=a.example&alpn=%02h2&settings=x",
        ] {
            assert_eq!(status(other, 5, &mut store), StatusCode::NO_CONTENT, "{other}");
        }
        assert_eq!(status(ASK, 6, &mut store), StatusCode::NO_CONTENT, "another user");
        assert_eq!(status(ASK, 5, &mut store), StatusCode::OK);
        assert_eq!(status(ASK, 5, &mut store), StatusCode::NO_CONTENT, "twice");
    }

    #[test]
    fn what_was_forgotten_does_not_come_back_nor_what_another_agent_gave() {
        let mut store = SessionStore::default();
        let before = opened(store.stamp());
        let context = Context { uid: Some(5), label: Some("work".into()) };
        store.end_context(&context);
        for moment in [&*before, "0-0", "", "ffffffffffffffff-0"] {
            let ask = putting(ASK, moment);
            let place = Place::from_ask(&ask, 5, None).unwrap();
            assert_eq!(
                put(&ask, &place, session(), &mut store).unwrap_err().name,
                "not_kept",
                "{moment}"
            );
        }
    }

    #[test]
    fn a_program_that_nobody_knows_needs_a_context() {
        assert!(Place::from_ask(&Ask::read("server=a").unwrap(), 5, None).is_err());
        assert!(Place::from_ask(&Ask::read("server=a&context=b").unwrap(), 5, None).is_ok());
    }
}
