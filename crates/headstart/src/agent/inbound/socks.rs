//! SOCKS version 5 (RFC 1928), with user names as contexts (RFC 1929).

use fast_socks5::server::{AuthMethod, Socks5ServerProtocol, SocksServerError, states};
use fast_socks5::util::target_addr::{AddrError, TargetAddr};
use fast_socks5::{ReplyError, Socks5Command};
use headstart_net::close_after_drain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Refusal;
use super::target::{Host, Target, Via};

/// Version of the negotiation of user name and password (RFC 1929 section 2).
const PASSWORD_VERSION: u8 = 1;

/// Reply code of success (RFC 1928 section 6).
pub(super) const SUCCEEDED: u8 = 0x00;

/// SOCKS4 reply: version 0, "request rejected or failed" (91), and six bytes of no meaning.
const SOCKS4_REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// The largest request is 257 + 515 + 262 bytes, so the protocol itself bounds memory.
pub(super) async fn accept(mut stream: TcpStream) -> Result<(Target, TcpStream), Refusal> {
    match request(&mut stream).await {
        Ok(target) => Ok((target, stream)),
        Err(unanswered) => {
            if let Some(code) = unanswered.code {
                reply(&mut stream, code).await?;
            }
            close_after_drain(stream).await?;
            Err(unanswered.refusal)
        }
    }
}

/// Refuses a SOCKS4 client.
pub(super) async fn refuse_version_4(mut stream: TcpStream) -> Refusal {
    let sent = stream.write_all(&SOCKS4_REJECTED).await;
    match sent.and(close_after_drain(stream).await) {
        Ok(()) => Refusal::Socks4,
        Err(error) => error.into(),
    }
}

/// Sends the reply to a request. The address is that of the agent's side of the connection to
/// the target, which is not known when the reply is sent ahead; clients do not use it.
pub(super) async fn reply(stream: &mut TcpStream, code: u8) -> std::io::Result<()> {
    let unspecified = [1, 0, 0, 0, 0, 0, 0];
    let mut reply = vec![super::SOCKS5, code, 0];
    reply.extend(unspecified);
    stream.write_all(&reply).await
}

/// A refusal, and the reply that the library has not sent yet.
struct Unanswered {
    refusal: Refusal,
    code: Option<u8>,
}

impl Unanswered {
    fn new(refusal: Refusal, reply: &ReplyError) -> Self {
        let code = Some(reply.as_u8());
        Self { refusal, code }
    }
}

impl From<std::io::Error> for Unanswered {
    fn from(error: std::io::Error) -> Self {
        Self { refusal: error.into(), code: None }
    }
}

/// The library's errors: it has replied where the protocol has a reply.
impl From<SocksServerError> for Unanswered {
    fn from(error: SocksServerError) -> Self {
        let refusal = match error {
            SocksServerError::Io { source, .. } => source.into(),
            SocksServerError::AddrError(AddrError::IncorrectAddressType) => {
                Refusal::Malformed("address type")
            }
            SocksServerError::AddrError(AddrError::Utf8(_)) => Refusal::Malformed("host name"),
            SocksServerError::AddrError(_) => Refusal::Closed,
            SocksServerError::AuthMethodUnacceptable(_) => Refusal::Authentication,
            SocksServerError::UnknownCommand(_) => Refusal::Command,
            _ => Refusal::Malformed("SOCKS version"),
        };
        Self { refusal, code: None }
    }
}

async fn request(stream: &mut TcpStream) -> Result<Target, Unanswered> {
    let (authenticated, context) = authenticate(stream).await?;
    let (_, command, address) = authenticated.read_command().await?;
    if command != Socks5Command::TCPConnect {
        return Err(Unanswered::new(Refusal::Command, &ReplyError::CommandNotSupported));
    }
    target(address, context)
}

type Authenticated<'s> = Socks5ServerProtocol<&'s mut TcpStream, states::Authenticated>;

/// Methods of authentication (RFC 1928 section 3), the preferred one first.
#[derive(Clone, Copy)]
enum Method {
    /// RFC 1929. The library's own refuses an empty password, which curl and Java send for a user
    /// name alone.
    UserName,
    None,
}

impl<T> AuthMethod<T> for Method {
    type StartingState = (Self, T);

    fn method_id(self) -> u8 {
        match self {
            Self::UserName => 2,
            Self::None => 0,
        }
    }

    fn new(self, inner: T) -> (Self, T) {
        (self, inner)
    }
}

/// Takes any user name and password, both may be empty, preferring a client that gives them to one
/// that does not. An empty user name is none.
async fn authenticate(
    stream: &mut TcpStream,
) -> Result<(Authenticated<'_>, Option<String>), Unanswered> {
    let methods = [Method::UserName, Method::None];
    let (method, stream) = Socks5ServerProtocol::start(stream).negotiate_auth(&methods).await?;
    let user = match method {
        Method::None => None,
        Method::UserName => Some(user_name(stream).await?).filter(|user| !user.is_empty()),
    };
    Ok((Socks5ServerProtocol::skip_auth_this_is_not_rfc_compliant(stream), user))
}

/// Reads a user name and a password, and answers that they are good (RFC 1929 section 2).
async fn user_name(stream: &mut TcpStream) -> Result<String, Unanswered> {
    let malformed = || Unanswered { refusal: Refusal::Malformed("user name"), code: None };
    if stream.read_u8().await? != PASSWORD_VERSION {
        return Err(malformed());
    }
    let user = read_field(stream).await?;
    read_field(stream).await?;
    let user = String::from_utf8(user).map_err(|_| malformed())?;
    stream.write_all(&[PASSWORD_VERSION, SUCCEEDED]).await?;
    Ok(user)
}

/// Reads a field of up to 255 bytes behind its length.
async fn read_field(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut field = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut field).await?;
    Ok(field)
}

fn target(address: TargetAddr, context: Option<String>) -> Result<Target, Unanswered> {
    let (host, port) = match address {
        TargetAddr::Ip(address) => (Some(Host::Ip(address.ip().to_canonical())), address.port()),
        TargetAddr::Domain(name, port) => (Host::parse(&name), port),
    };
    match host {
        Some(host) if port != 0 => Ok(Target { host, port, via: Via::Socks5, context }),
        Some(_) => {
            Err(Unanswered::new(Refusal::Malformed("port 0"), &ReplyError::ConnectionRefused))
        }
        None => Err(Unanswered::new(Refusal::Malformed("host name"), &ReplyError::HostUnreachable)),
    }
}
