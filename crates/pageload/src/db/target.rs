//! URLs as databases hold them: an origin, and a path with query.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::limits::{HOST_BYTES, PATH_BYTES};

/// Scheme, host and port (RFC 6454).
///
/// Origins are ordered by their names from the right, so that those of one site stand together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// True for https, false for http.
    pub tls: bool,
    host: Arc<str>,
    /// Port of TCP.
    pub port: u16,
}

/// A URL without fragment: an origin with path and query.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Origin of the URL.
    pub origin: Origin,
    path: Arc<str>,
}

/// Reason why a URL cannot be in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetError {
    /// The URL is malformed.
    Malformed,
    /// The scheme is neither http nor https.
    Scheme,
    /// The URL has a user name or password.
    Credentials,
    /// The host is an address, has no dot, or is a name of private networks: useless to others.
    Private,
    /// The host exceeds [`HOST_BYTES`], or the path exceeds [`PATH_BYTES`].
    TooLong,
}

impl Origin {
    /// Makes the origin of a host that is in lower case and has no dot at its end.
    ///
    /// # Errors
    /// The host is none, private or too long.
    pub fn new(tls: bool, host: Arc<str>, port: u16) -> Result<Self, TargetError> {
        check_host(&host)?;
        Ok(Self { tls, host, port })
    }

    /// Returns its name, in lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if the port is the default of the scheme.
    #[must_use]
    pub(crate) fn has_default_port(&self) -> bool {
        self.port == default_port(self.tls)
    }
}

impl Target {
    /// Makes the target of a path that begins with a slash.
    ///
    /// # Errors
    /// The path is too long, or has bytes that are escaped in URLs.
    pub fn new(origin: Origin, path: Arc<str>) -> Result<Self, TargetError> {
        check_path(&path)?;
        Ok(Self { origin, path })
    }

    /// Returns the path, with the query if it has one.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the part after the question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.path.split_once('?').map(|(_, query)| query)
    }

    /// Returns the URL without its query.
    #[must_use]
    pub(crate) fn without_query(&self) -> Self {
        let path = self.path.split_once('?').map_or(&*self.path, |(path, _)| path);
        Self { origin: self.origin.clone(), path: path.into() }
    }
}

/// Reads a URL as browsers do (WHATWG URL); drops the fragment.
impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let url = url::Url::parse(text).map_err(|_| TargetError::Malformed)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(TargetError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        let host = url.host_str().ok_or(TargetError::Malformed)?;
        let host = host.strip_suffix('.').unwrap_or(host);
        let port = url.port().unwrap_or(default_port(tls));
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()).into(),
            None => url.path().into(),
        };
        Self::new(Origin::new(tls, host.into(), port)?, path)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.host)?;
        if self.has_default_port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl Ord for Origin {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_hosts(&self.host, &other.host)
            .then(self.port.cmp(&other.port))
            .then(self.tls.cmp(&other.tls))
    }
}

impl PartialOrd for Origin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares label by label, from the right.
pub(super) fn compare_hosts(left: &str, right: &str) -> Ordering {
    left.rsplit('.').cmp(right.rsplit('.'))
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// Ends of names that mean something in one network only (RFC 6762 with its appendix G, RFC 6761,
/// RFC 8375, ICANN's `internal`, what systems take for their own), or are reached by other means
/// (RFC 7686, RFC 9476).
const PRIVATE: [&str; 12] = [
    "local",
    "localhost",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "onion",
    "alt",
];

pub(super) fn check_host(host: &str) -> Result<(), TargetError> {
    if host.len() > HOST_BYTES {
        return Err(TargetError::TooLong);
    }
    if host.starts_with('[') {
        return Err(TargetError::Private);
    }
    if !host.bytes().all(|byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
        || host.split('.').any(str::is_empty)
    {
        return Err(TargetError::Malformed);
    }
    // A browser does not visit names that are invalid in Unicode or map to another name.
    let is_as_read =
        || matches!(url::Host::parse(host), Ok(url::Host::Domain(name)) if name == host);
    if host.contains("xn--") && !is_as_read() {
        return Err(TargetError::Malformed);
    }
    // The last label of an address is a number, that of no name is (WHATWG URL, "ends in a
    // number").
    let last = host.rsplit_once('.').map(|(_, last)| last);
    match last.is_none_or(|label: &str| {
        let hex = label.strip_prefix("0x");
        label.bytes().all(|byte| byte.is_ascii_digit())
            || hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }) || PRIVATE
        .iter()
        .any(|end: &&str| host.strip_suffix(*end).is_some_and(|rest| rest.ends_with('.')))
    {
        true => Err(TargetError::Private),
        false => Ok(()),
    }
}

pub(super) fn check_path(path: &str) -> Result<(), TargetError> {
    if path.len() > PATH_BYTES {
        return Err(TargetError::TooLong);
    }
    // What URLs have escaped, so that they can stand in header fields, quoted or not.
    let (names, query) = path.split_once('?').unwrap_or((path, ""));
    // Browsers read these otherwise (WHATWG URL, path state and query state): one URL would have
    // several names.
    let is_as_read = !names.contains(['\\', '`', '{', '}'])
        && !names.split('/').any(is_dots)
        && !query.contains('\'');
    match path.starts_with('/')
        && path
            .bytes()
            .all(|byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'#'))
        && is_as_read
    {
        true => Ok(()),
        false => Err(TargetError::Malformed),
    }
}

/// Returns true if a name in a path means the folder that it is in, or the one above, escaped or
/// not.
fn is_dots(name: &str) -> bool {
    let mut rest = name;
    let mut dots = 0;
    while dots < 3 && !rest.is_empty() {
        let escaped = rest.get(..3).filter(|first| first.eq_ignore_ascii_case("%2e"));
        match escaped.map_or_else(|| rest.strip_prefix('.'), |_| rest.get(3..)) {
            Some(behind) => (dots, rest) = (dots + 1, behind),
            None => return false,
        }
    }
    matches!(dots, 1 | 2)
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "not a URL",
            Self::Scheme => "neither http nor https",
            Self::Credentials => "a user name or password in the URL",
            Self::Private => "an address, or a name of a private network",
            Self::TooLong => "too long",
        })
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<String, TargetError> {
        text.parse::<Target>().map(|target| target.to_string())
    }

    #[test]
    fn urls_are_read_as_browsers_read_them() {
        assert_eq!(read("HTTPS://WWW.Example.COM:443").unwrap(), "https://www.example.com/");
        assert_eq!(
            read("http://example.com.:8080/a b?q#f").unwrap(),
            "http://example.com:8080/a%20b?q"
        );
        assert_eq!(
            read("https://b\u{fc}cher.example/\u{e4}").unwrap(),
            "https://xn--bcher-kva.example/%C3%A4"
        );
        assert_eq!(read("https://a.example/\"<>").unwrap(), "https://a.example/%22%3C%3E");
    }

    #[test]
    fn targets_of_no_use_to_others_are_refused() {
        assert_eq!(read("no url"), Err(TargetError::Malformed));
        assert_eq!(read("data:text/plain,x"), Err(TargetError::Scheme));
        assert_eq!(read("https://user@a.example/"), Err(TargetError::Credentials));
        for host in
            ["localhost", "10.0.0.1", "[2001:db8::1]", "printer", "nas.local", "a.home.arpa"]
        {
            assert_eq!(read(&format!("https://{host}/")), Err(TargetError::Private), "{host}");
        }
        assert!(read("https://notlocal/").is_err() && read("https://a.notlocal/").is_ok());
        let longest = format!("https://a.example/{}", "x".repeat(PATH_BYTES - 1));
        assert!(read(&longest).is_ok());
        assert_eq!(read(&(longest + "x")), Err(TargetError::TooLong));
    }

    /// Accepted URLs are read as they are written: a file may say what browsers make of it, so that
    /// one URL has one name.
    #[test]
    fn written_targets_are_read_back() {
        let of =
            |host: &str, path: &str| Target::new(Origin::new(true, host.into(), 443)?, path.into());
        for path in [
            "/",
            "//b.example/",
            "/a//b",
            "/...",
            "/a.b/.c/..d",
            "/%2ex",
            "/%2e%2e%2e",
            "/a|b[c]'@:;=,!$&()*+~_-",
            "/%20%zz",
            "/?",
            "/?/../x",
            "/?{}|\\^`",
            "/a%2Fb",
            "/^",
        ] {
            let target = of("a.example", path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(target.to_string().parse::<Target>(), Ok(target), "{path}");
        }
        for path in [
            "",
            "a",
            "/.",
            "/..",
            "/./",
            "/a/../b",
            "/%2e",
            "/%2E%2e/a",
            "/.%2e",
            "/a/%2e./b",
            "/\\b.example/",
            "/`",
            "/{",
            "/a}",
            "/?'",
            "/a b",
            "/\"",
            "/<",
            "/\r\n",
            "/\u{e4}",
            "/#",
        ] {
            assert_eq!(of("a.example", path), Err(TargetError::Malformed), "{path}");
        }
        let target = of("xn--bcher-kva.example", "/").unwrap();
        assert_eq!(target.to_string().parse::<Target>(), Ok(target));
        for host in [
            "xn--a.example",
            "xn--.example",
            "a.xn--zz--",
            "A.example",
            "a..example",
            "a%2e.example",
            "a/b.example",
        ] {
            assert_eq!(of(host, "/"), Err(TargetError::Malformed), "{host}");
        }
        for host in [
            "a.1",
            "a.0x1f",
            "a.0x",
            "1.2.3.4",
            "[::1]",
            "nas.corp",
            "nas.home",
            "a.localdomain",
            "a.alt",
            "a.onion",
        ] {
            assert_eq!(of(host, "/"), Err(TargetError::Private), "{host}");
        }
    }

    #[test]
    fn hosts_of_a_site_stand_together() {
        let mut hosts = ["b.example.com", "a.test", "example.com", "a.example.com", "example.co"];
        hosts.sort_by(|left, right| compare_hosts(left, right));
        assert_eq!(
            hosts,
            ["example.co", "example.com", "a.example.com", "b.example.com", "a.test"]
        );
    }

    #[test]
    fn queries_can_be_told_and_left_out() {
        let target: Target = "https://a.example/p?q?r".parse().unwrap();
        assert_eq!(target.query(), Some("q?r"));
        assert_eq!(target.without_query().to_string(), "https://a.example/p");
        assert_eq!(target.without_query().query(), None);
    }
}
