//! SOCKS version 5 (RFC 1928), with user names as contexts (RFC 1929).

use fast_socks5::server::{
    AuthMethodSuccessState, Socks5ServerProtocol, SocksServerError, StandardAuthentication,
    StandardAuthenticationStarted, states,
};
use fast_socks5::util::target_addr::{AddrError, TargetAddr};
use fast_socks5::{ReplyError, Socks5Command};
use headstart_net::close_after_drain;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::Refusal;
use super::target::{Host, Target, Via};

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
    let told = stream.write_all(&SOCKS4_REJECTED).await;
    match told.and(close_after_drain(stream).await) {
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
            SocksServerError::EmptyUsername | SocksServerError::EmptyPassword => {
                Refusal::Malformed("empty user name or password")
            }
            SocksServerError::FromUtf8 { .. } => Refusal::Malformed("user name or password"),
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

/// Takes any user name and password, preferring a client that gives them to one that does not.
async fn authenticate(
    stream: &mut TcpStream,
) -> Result<(Authenticated<'_>, Option<String>), SocksServerError> {
    let methods = StandardAuthentication::allow_no_auth(true);
    match Socks5ServerProtocol::start(stream).negotiate_auth(methods).await? {
        StandardAuthenticationStarted::NoAuthentication(none) => Ok((none.finish_auth(), None)),
        StandardAuthenticationStarted::PasswordAuthentication(password) => {
            let (user, _, received) = password.read_username_password().await?;
            Ok((received.accept().await?.finish_auth(), Some(user)))
        }
    }
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
