//! The client's side of SOCKS5 without IO.
//!
//! ```text
//! poll_bytes     -> proxy     after new, and after every handle_bytes
//! wants          bytes to read at most: never a byte beyond the last reply
//! handle_bytes   <- proxy     until is_granted
//! ```

use std::collections::VecDeque;
use std::net::IpAddr;

use headstart_proto::hello::address_literal;
use zeroize::Zeroizing;

use super::{Credentials, Step, UpstreamError};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Bytes of a reply up to and including its address type.
const REPLY_HEAD: usize = 4;
const PORT: usize = 2;

/// One exchange with a proxy, until the proxy reports that it has connected.
pub(super) struct Exchange {
    /// Messages not sent yet.
    messages: VecDeque<Zeroizing<Vec<u8>>>,
    /// Number of them that may be sent now.
    open: usize,
    /// The one login method offered.
    method: u8,
    stage: Stage,
    /// Bytes of the awaited reply received so far.
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Awaits(Step),
    Granted,
}

impl Exchange {
    /// Requests a connection to `host`, a name or an address, at `port`. If `early`, sends
    /// everything together, else each message only after the reply to the previous one.
    ///
    /// A name goes to the proxy unresolved. Only one login method is offered, never a choice: what
    /// follows the greeting depends on the method. Returns `None` if the name is too long for a
    /// request.
    pub(super) fn new(
        host: &str,
        port: u16,
        login: Option<&Credentials>,
        early: bool,
    ) -> Option<Self> {
        let method = if login.is_some() { USER_AND_PASSWORD } else { NO_LOGIN };
        let greeting = Zeroizing::new(vec![VERSION, 1, method]);
        let login = login.map(login_message).transpose().ok()?;
        let request = Zeroizing::new(request(host, port)?);
        let messages: VecDeque<_> =
            [Some(greeting), login, Some(request)].into_iter().flatten().collect();
        let open = if early { messages.len() } else { 1 };
        let stage = Stage::Awaits(Step::Method);
        Some(Self { messages, open, method, stage, reply: Vec::new() })
    }

    /// Returns the next message that may be sent now.
    pub(super) fn poll_bytes(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        self.open = self.open.checked_sub(1)?;
        self.messages.pop_front()
    }

    /// Returns true once everything is sent, so that other bytes may follow.
    pub(super) fn has_requested(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the reply that is awaited, if any.
    pub(super) const fn awaits(&self) -> Option<Step> {
        match self.stage {
            Stage::Awaits(step) => Some(step),
            Stage::Granted => None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.stage == Stage::Granted
    }

    /// Returns how many bytes of replies may be read; any bytes beyond are the target's.
    pub(super) fn wants(&self) -> usize {
        match self.stage {
            Stage::Granted => 0,
            Stage::Awaits(Step::Method | Step::Login) => 2_usize.saturating_sub(self.reply.len()),
            Stage::Awaits(Step::Request) => {
                reply_length(&self.reply).saturating_sub(self.reply.len())
            }
        }
    }

    /// Handles at most as many bytes as it [wants](Self::wants).
    ///
    /// # Errors
    /// The proxy's refusal, or [`UpstreamError::Garbage`] for anything that is not SOCKS5.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), UpstreamError> {
        self.reply.extend_from_slice(bytes);
        if self.is_answered_as_one() {
            self.stage = Stage::Awaits(Step::Login);
        }
        let Stage::Awaits(step) = self.stage else { return Ok(()) };
        self.check(step)?;
        if self.wants() == 0 {
            self.reply.clear();
            self.stage = match step {
                Step::Method if self.method == USER_AND_PASSWORD => Stage::Awaits(Step::Login),
                Step::Method | Step::Login => Stage::Awaits(Step::Request),
                Step::Request => Stage::Granted,
            };
            self.open = self.messages.len().min(self.open.max(1));
        }
        Ok(())
    }

    /// Returns true if one reply answers both the greeting and the login. Tor (0.4.9) answers the
    /// two, when they arrive together, with the login's reply alone. The version byte says which
    /// reply it is, and accepting a login implies accepting its method.
    fn is_answered_as_one(&self) -> bool {
        self.stage == Stage::Awaits(Step::Method)
            && self.method == USER_AND_PASSWORD
            && self.has_requested()
            && self.reply.first() == Some(&LOGIN_VERSION)
    }

    /// Checks the bytes received so far: a refusal need not be complete.
    fn check(&self, step: Step) -> Result<(), UpstreamError> {
        let garbage = UpstreamError::Garbage(step);
        let version = if step == Step::Login { LOGIN_VERSION } else { VERSION };
        match (step, self.reply.as_slice()) {
            (_, [first, ..]) if *first != version => Err(garbage),
            (Step::Method, [_, 0xff]) => Err(UpstreamError::NoMethod),
            (Step::Method, [_, chosen]) if *chosen != self.method => Err(garbage),
            (Step::Login, [_, status]) if *status != 0 => Err(UpstreamError::LoginRefused),
            (Step::Request, [_, code, ..]) if *code != 0 => Err(UpstreamError::Refused(*code)),
            (Step::Request, [_, _, _, kind, ..]) if !matches!(*kind, IPV4 | NAME | IPV6) => {
                Err(garbage)
            }
            _ => Ok(()),
        }
    }
}

/// Encodes a login (RFC 1929 section 2). Never fails: credentials are within their limits.
fn login_message(login: &Credentials) -> Result<Zeroizing<Vec<u8>>, std::num::TryFromIntError> {
    let mut message = Zeroizing::new(Vec::with_capacity(3 + 2 * Credentials::LENGTH_MAX));
    message.push(LOGIN_VERSION);
    for text in [&login.user, &login.password] {
        message.push(u8::try_from(text.len())?);
        message.extend_from_slice(text);
    }
    Ok(message)
}

/// Encodes a CONNECT request (RFC 1928 section 4).
fn request(host: &str, port: u16) -> Option<Vec<u8>> {
    let mut message = vec![VERSION, CONNECT, 0];
    match address_literal(host) {
        Some(IpAddr::V4(address)) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        Some(IpAddr::V6(address)) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
        None => {
            let length = u8::try_from(host.len()).ok().filter(|length| *length > 0)?;
            message.extend([NAME, length]);
            message.extend(host.bytes());
        }
    }
    message.extend(port.to_be_bytes());
    Some(message)
}

/// Returns the length in bytes of the reply that begins with `reply`, or the number of bytes needed
/// to tell it (RFC 1928 section 6).
fn reply_length(reply: &[u8]) -> usize {
    let address = match reply {
        [_, _, _, IPV4, ..] => 4,
        [_, _, _, IPV6, ..] => 16,
        [_, _, _, NAME, length, ..] => 1 + usize::from(*length),
        [_, _, _, NAME] => return REPLY_HEAD + 1,
        _ => return REPLY_HEAD,
    };
    REPLY_HEAD + address + PORT
}
