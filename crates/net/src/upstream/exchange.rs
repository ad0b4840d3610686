//! The client's side of SOCKS5 without IO.
//!
//! ```text
//! poll_bytes     -> proxy     after new, and after every handle_bytes
//! wants          what to read at most: never a byte of what follows the last reply
//! handle_bytes   <- proxy     until is_granted
//! ```

use std::collections::VecDeque;
use std::net::IpAddr;

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

/// A reply up to its type of address.
const REPLY_HEAD: usize = 4;
const PORT: usize = 2;

/// One conversation with a proxy, up to its word that it has connected.
pub(super) struct Exchange {
    /// What is still to be said.
    messages: VecDeque<Zeroizing<Vec<u8>>>,
    /// How many of them may be said now.
    open: usize,
    /// The login that was offered, the only one.
    method: u8,
    stage: Stage,
    /// What has come of the reply that is awaited.
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Awaits(Step),
    Granted,
}

impl Exchange {
    /// Asks for a connection to `host`, a name or an address, at `port`: all at once if `early`, else each message behind
    /// the reply to that before it.
    ///
    /// A name goes to the proxy as it is. One login is offered, never a choice: what is said behind the greeting depends
    /// on which it will be. None if the name is too long to be asked for.
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

    /// A message that may be sent now.
    pub(super) fn poll_bytes(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        self.open = self.open.checked_sub(1)?;
        self.messages.pop_front()
    }

    /// Whether everything is said, so that other bytes may follow.
    pub(super) fn has_asked(&self) -> bool {
        self.messages.is_empty()
    }

    /// The reply that is awaited, if any.
    pub(super) const fn awaits(&self) -> Option<Step> {
        match self.stage {
            Stage::Awaits(step) => Some(step),
            Stage::Granted => None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        self.stage == Stage::Granted
    }

    /// How many bytes of replies may be read: what is behind them is the target's.
    pub(super) fn wants(&self) -> usize {
        match self.stage {
            Stage::Granted => 0,
            Stage::Awaits(Step::Method | Step::Login) => 2_usize.saturating_sub(self.reply.len()),
            Stage::Awaits(Step::Request) => {
                reply_length(&self.reply).saturating_sub(self.reply.len())
            }
        }
    }

    /// Takes at most as many bytes as it [wants](Self::wants).
    ///
    /// # Errors
    /// What the proxy says, if that is no, and what is not SOCKS5.
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

    /// Tor (0.4.9) answers a greeting and a login that come together by its word on the login alone. Its version says
    /// which reply that is, and who takes a login has taken its kind.
    fn is_answered_as_one(&self) -> bool {
        self.stage == Stage::Awaits(Step::Method)
            && self.method == USER_AND_PASSWORD
            && self.has_asked()
            && self.reply.first() == Some(&LOGIN_VERSION)
    }

    /// Judges what has come so far: a no need not be complete.
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

/// RFC 1929 section 2. No error occurs: credentials are within their limits.
fn login_message(login: &Credentials) -> Result<Zeroizing<Vec<u8>>, std::num::TryFromIntError> {
    let mut message = Zeroizing::new(Vec::with_capacity(3 + 2 * Credentials::LENGTH_MAX));
    message.push(LOGIN_VERSION);
    for text in [&login.user, &login.password] {
        message.push(u8::try_from(text.len())?);
        message.extend_from_slice(text);
    }
    Ok(message)
}

/// RFC 1928 section 4.
fn request(host: &str, port: u16) -> Option<Vec<u8>> {
    let mut message = vec![VERSION, CONNECT, 0];
    match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).ok().filter(|length| *length > 0)?;
            message.extend([NAME, length]);
            message.extend(host.bytes());
        }
    }
    message.extend(port.to_be_bytes());
    Some(message)
}

/// Bytes of the reply that begins so, or of as much of it as tells the rest (RFC 1928 section 6).
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
