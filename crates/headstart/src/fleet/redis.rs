//! A connection to Redis, and commands whose answers are awaited for a bounded time.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use headstart_net::TlsStream;
use headstart_tls::{ClientConfig, ClientContext, Trust};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::guard::{Guard, Surplus};
use crate::base::files::{self, FileFault};
use crate::fleet::storage::RedisAddress;

/// Time that a connection may take, with its handshakes and the password.
const CONNECT: Duration = Duration::from_secs(2);

/// Time that an answer may take where nobody waits for it in a handshake.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);

/// A password has no use for more, and a wrong file may be large.
const PASSWORD_MAX: usize = 4096;

/// Longest excerpt of an error of Redis that is passed on, in characters: it goes into logs.
const WORDS_MAX: usize = 200;

/// Closed when dropped.
pub(crate) struct Redis {
    connection: MultiplexedConnection,
    /// Surplus of its answers.
    surplus: Surplus,
    /// Moves the bytes. A task of its own, also so that whatever malformed bytes do to the parser
    /// ends there.
    _driver: JoinSet<()>,
}

/// Reason why Redis gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisFailure {
    /// There is no connection, or it broke.
    Away(String),
    /// It took too long.
    Slow,
    /// It answered with an error of its own.
    Refused(String),
    /// The answer does not fit the question.
    Malformed(String),
}

impl fmt::Display for RedisFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(words) => write!(f, "Redis cannot be reached: {words}"),
            Self::Slow => f.write_str("Redis does not answer in time"),
            Self::Refused(words) => write!(f, "Redis refuses: {words}"),
            Self::Malformed(words) => {
                write!(f, "Redis answers something else than was asked: {words}")
            }
        }
    }
}

impl From<redis::RedisError> for RedisFailure {
    fn from(error: redis::RedisError) -> Self {
        if error.is_timeout() {
            Self::Slow
        } else if error.is_io_error() || error.is_connection_dropped() {
            Self::Away(words(&error))
        } else if error.code().is_some() || error.kind() == redis::ErrorKind::AuthenticationFailed {
            Self::Refused(words(&error))
        } else {
            Self::Malformed(words(&error))
        }
    }
}

fn words(error: &redis::RedisError) -> String {
    error
        .to_string()
        .chars()
        .map(|letter: char| if letter.is_control() { ' ' } else { letter })
        .take(WORDS_MAX)
        .collect()
}

impl From<io::Error> for RedisFailure {
    fn from(error: io::Error) -> Self {
        Self::Away(error.to_string())
    }
}

impl Redis {
    /// Connects, shows the password and chooses the database.
    pub(crate) async fn connect(address: &RedisAddress) -> Result<Self, RedisFailure> {
        let mut connecting = JoinSet::new();
        connecting.spawn(open(address.clone()));
        match timeout(CONNECT, connecting.join_next()).await {
            Err(_) => Err(RedisFailure::Slow),
            Ok(Some(Ok(opened))) => opened,
            Ok(_) => Err(RedisFailure::Malformed("not even a greeting".into())),
        }
    }

    /// The answer to `command`, if it comes within `limit`.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        command: &Cmd,
        limit: Duration,
    ) -> Result<T, RedisFailure> {
        let mut connection = self.connection.clone();
        let answer = timeout(limit, command.query_async(&mut connection)).await;
        let answer = answer.map_err(|_| RedisFailure::Slow)?;
        self.surplus.answered();
        Ok(answer?)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

/// A byte stream of whatever kind.
trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Transport for S {}

async fn open(address: RedisAddress) -> Result<Redis, RedisFailure> {
    let info = credentials(&address)?;
    let transport = Guard::new(transport(&address).await?);
    let surplus = transport.surplus();
    // Each answer has its own limit, and connecting has one in total.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, transport, config).await?;
    let mut running = JoinSet::new();
    running.spawn(driver);
    Ok(Redis { connection, surplus, _driver: running })
}

fn credentials(address: &RedisAddress) -> Result<RedisConnectionInfo, RedisFailure> {
    let info = RedisConnectionInfo::default().set_db(address.db.into()).set_skip_set_lib_name();
    let info = match &address.user {
        Some(user) => info.set_username(user),
        None => info,
    };
    Ok(match password(address)? {
        Some(password) => info.set_password(password.as_str()),
        None => info,
    })
}

/// Read for each connection, so that it can be changed while programs run.
fn password(address: &RedisAddress) -> Result<Option<Zeroizing<String>>, RedisFailure> {
    let Some(path) = &address.password_file else { return Ok(address.password.clone()) };
    match read(path) {
        Ok(text) if text.len() <= PASSWORD_MAX => {
            Ok(Some(Zeroizing::new(text.trim_end().to_owned())))
        }
        Ok(_) => Err(RedisFailure::Away(format!("{} is too large for a password", path.display()))),
        Err(fault) => Err(unusable(path, &fault)),
    }
}

fn unusable(path: &Path, fault: &FileFault) -> RedisFailure {
    RedisFailure::Away(format!("cannot use {}: {fault}", path.display()))
}

/// A byte more than a password at most.
fn read(path: &Path) -> Result<Zeroizing<String>, FileFault> {
    // It has room for more than is read, because growing would leave a copy behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * PASSWORD_MAX));
    files::open_secret(path)?.take(PASSWORD_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

async fn transport(address: &RedisAddress) -> Result<Box<dyn Transport>, RedisFailure> {
    let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
    tcp.set_nodelay(true)?;
    if !address.tls {
        return Ok(Box::new(tcp));
    }
    let ca = address.ca.clone();
    // Reading the system's authorities takes long enough to delay connections.
    let context = tokio::task::spawn_blocking(move || context(ca.as_deref()));
    let context = context.await.map_err(|error| away(&error))??;
    let conn = context.connect(&address.host, None, false).map_err(|error| away(&error))?;
    let stream = TlsStream::new(conn, tcp);
    stream.handle().done().await?;
    Ok(Box::new(stream))
}

/// Returns the context of clients that trust the authorities in the file `ca`, or the system's.
fn context(ca: Option<&Path>) -> Result<ClientContext, RedisFailure> {
    let trust = match ca {
        Some(path) => {
            let mut roots = Vec::new();
            files::open_configuration(path)
                .and_then(|mut file| Ok(file.read_to_end(&mut roots)?))
                .map_err(|fault| unusable(path, &fault))?;
            Trust::Roots(roots)
        }
        None => Trust::System,
    };
    ClientContext::new(&ClientConfig::new(trust)).map_err(|error| away(&error))
}

fn away(error: &dyn fmt::Display) -> RedisFailure {
    RedisFailure::Away(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn authorities_that_others_may_write_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        fs::write(&file, headstart_testkit::self_signed(&["redis.internal"], -60..60).chain)
            .unwrap();
        for (mode, is_used) in [(0o644, true), (0o646, false)] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            match context(Some(&file)) {
                Ok(_) => assert!(is_used, "{mode:o}"),
                Err(failure) => {
                    assert!(!is_used && failure.to_string().contains("others may write to it"));
                }
            }
        }
    }
}
