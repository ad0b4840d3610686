//! Where a site keeps what its machines share: a file, or Redis (also Valkey, which speaks the
//! same).

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

/// The port of Redis where none is given.
const PORT: u16 = 6379;

/// Name of a site whose address gives none.
const NAME: &str = "headstart";

/// Characters of a name at most; it is part of the keys in Redis.
const NAME_MAX: usize = 64;

/// `redis://[USER][:PASSWORD@]HOST[:PORT][/DB][?name=NAME&password-file=FILE&ca=FILE]`; with
/// `rediss://` inside TLS.
///
/// Shown without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// True for TLS, with the server's certificate checked.
    pub tls: bool,
    /// The name or address, without brackets.
    pub host: String,
    /// The port, not 0.
    pub port: u16,
    /// The number of the database.
    pub db: u16,
    /// The user of Redis's access control list; none is the default user.
    pub user: Option<String>,
    /// The password, if it stands in the address.
    pub password: Option<Zeroizing<String>>,
    /// The file that holds the password.
    pub password_file: Option<PathBuf>,
    /// Trust anchors for the server's certificate; `None` for the system's authorities.
    pub ca: Option<PathBuf>,
    /// Name of the site: several may share a Redis.
    pub name: String,
}

impl RedisAddress {
    /// Returns true if `text` is meant to be one, and not the path of a file.
    fn is_meant(text: &str) -> bool {
        text.starts_with("redis://") || text.starts_with("rediss://")
    }
}

impl FromStr for RedisAddress {
    type Err = String;

    /// No error repeats the text: there may be a password in it.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "write redis://[:PASSWORD@]HOST[:PORT][/DB][?name=NAME]";
        let url = Url::parse(text).map_err(|error| format!("{error}; {FORM}"))?;
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err(FORM.into()),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(FORM)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = url.port().unwrap_or(PORT);
        let db = match url.path().trim_matches('/') {
            "" => 0,
            number => {
                number.parse().map_err(|_| format!("the path is no database number; {FORM}"))?
            }
        };
        if port == 0 || url.fragment().is_some() {
            return Err(FORM.into());
        }
        let user = decoded(url.username())?.filter(|user| !user.is_empty());
        let mut address = Self {
            tls,
            host: host.to_owned(),
            port,
            db,
            user: user.map(|user| user.to_string()),
            password: url.password().map(decoded).transpose()?.flatten(),
            password_file: None,
            ca: None,
            name: NAME.into(),
        };
        for (key, value) in url.query_pairs() {
            address.set(&key, &value)?;
        }
        Ok(address)
    }
}

impl RedisAddress {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" => self.name = name(value)?,
            "password-file" if self.password.is_none() => self.password_file = Some(value.into()),
            "password-file" => return Err("a password and a password-file are given".into()),
            "ca" if self.tls => self.ca = Some(value.into()),
            "ca" => return Err("ca is for rediss://, which speaks TLS".into()),
            _ => return Err(format!("'{key}' is unknown; there are name, password-file and ca")),
        }
        Ok(())
    }
}

fn decoded(text: &str) -> Result<Option<Zeroizing<String>>, String> {
    let decoded =
        percent_decode_str(text).decode_utf8().map_err(|_| "user or password is not UTF-8")?;
    Ok(Some(Zeroizing::new(decoded.into_owned())))
}

/// Plain characters alone, so that names cannot run into the rest of a key.
fn name(text: &str) -> Result<String, String> {
    if (1..=NAME_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    {
        Ok(text.into())
    } else {
        Err(format!("a name has 1 to {NAME_MAX} letters, digits, dots, dashes and underscores"))
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{host}:{}/{}?name={}", self.port, self.db, self.name)
    }
}

/// Without the password.
impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

/// Source of a site's key ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In a file on this machine.
    File(PathBuf),
    /// In Redis, sealed with the fleet key.
    Redis(RedisAddress),
}

impl KeySource {
    /// Returns clap's parser: a path may be any bytes.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        Unshown(Self::parse)
    }

    fn parse(text: &OsStr) -> Result<Self, String> {
        match text.to_str() {
            Some(address) if RedisAddress::is_meant(address) => address.parse().map(Self::Redis),
            _ => Ok(Self::File(text.into())),
        }
    }

    /// Returns the path, if it is a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Redis(_) => None,
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

/// Storage of the replay filter for early data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FilterStorage {
    /// In the memory of the edge: it takes early data with its own tickets alone.
    #[default]
    Memory,
    /// In Redis: an edge takes early data with the tickets of all that share it.
    Redis(RedisAddress),
}

impl FilterStorage {
    /// Returns clap's parser.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        Unshown(|text| text.to_string_lossy().parse())
    }
}

/// Parses values that may hold a password: clap by itself says what is wrong beside the value.
#[derive(Clone)]
struct Unshown<T>(fn(&OsStr) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Unshown<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        (self.0)(value).map_err(|why| {
            let option = option.map(ToString::to_string).unwrap_or_default();
            let text = format!("invalid value for '{option}': {why}");
            let mut error = clap::Error::raw(ErrorKind::ValueValidation, text).with_cmd(command);
            error.insert(ContextKind::InvalidArg, ContextValue::String(option));
            error
        })
    }
}

impl FromStr for FilterStorage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memory" => Ok(Self::Memory),
            address if RedisAddress::is_meant(address) => address.parse().map(Self::Redis),
            _ => Err("write memory, or redis://HOST[:PORT][/DB][?name=NAME]".into()),
        }
    }
}

impl fmt::Display for FilterStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> RedisAddress {
        text.parse().unwrap()
    }

    #[test]
    fn omitted_parts_have_defaults() {
        let plain = address("redis://localhost");
        assert_eq!(plain.to_string(), "redis://localhost:6379/0?name=headstart");
        assert_eq!((plain.user, plain.password, plain.tls), (None, None, false));
        let full = address("rediss://me:p%40ss@[::1]:7000/3?name=www.1&ca=/etc/ca.pem");
        assert_eq!(full.to_string(), "rediss://[::1]:7000/3?name=www.1");
        assert_eq!((full.host.as_str(), full.user.as_deref()), ("::1", Some("me")));
        assert_eq!(full.password.as_ref().map(|password| password.as_str()), Some("p@ss"));
        assert_eq!(full.ca, Some("/etc/ca.pem".into()));
        let file = address("redis://h/?password-file=/etc/password").password_file;
        assert_eq!(file, Some("/etc/password".into()));
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for (text, why) in [
            ("redis://", "write redis://"),
            ("redis://h:0", "write redis://"),
            ("redis://:secret@h:port", "invalid port"),
            ("redis://:secret@h/db", "no database number"),
            ("redis://:secret@h#insecure", "write redis://"),
            ("redis://:secret@h?nmae=x", "'nmae' is unknown"),
            ("redis://:secret@h?name=a{b", "a name has"),
            ("redis://:secret@h?name=", "a name has"),
            ("redis://:secret@h?password-file=/x", "a password and a password-file"),
            ("redis://:secret@h?ca=/x", "ca is for rediss"),
        ] {
            let message = text.parse::<RedisAddress>().unwrap_err();
            assert!(message.contains(why) && !message.contains("secret"), "{text}: {message}");
        }
    }

    #[test]
    fn an_option_with_a_wrong_value_does_not_show_the_password() {
        let keys = Arg::new("keys").long("keys").value_parser(KeySource::parser());
        let filter = Arg::new("filter").long("filter").value_parser(FilterStorage::parser());
        let command = Command::new("edge").args([keys, filter]);
        for option in ["--keys", "--filter"] {
            let words = ["edge", option, "redis://:secret@h/db"];
            let message = command.clone().try_get_matches_from(words).unwrap_err().to_string();
            let place = format!("invalid value for '{option} <");
            assert!(
                message.contains(&place) && message.contains("no database number"),
                "{message}"
            );
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn passwords_do_not_show() {
        let address = address("redis://:secret@localhost");
        let shown = format!("{address} {address:?} {:?}", KeySource::Redis(address.clone()));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn everything_else_is_a_file() {
        for (text, file) in [
            ("/etc/keys", Some("/etc/keys")),
            ("redis:/etc/keys", Some("redis:/etc/keys")),
            ("redis://localhost", None),
        ] {
            let source = KeySource::parse(OsStr::new(text)).unwrap();
            assert_eq!(source.file(), file.map(Path::new), "{text}");
        }
        assert_eq!("memory".parse(), Ok(FilterStorage::Memory));
        assert!("redis".parse::<FilterStorage>().is_err());
    }
}
