//! HAR 1.2 files (<http://www.softwareishard.com/blog/har-12-spec/>), entry by entry.
//!
//! A HAR file tells connections by the time that their TLS handshake took (`timings.ssl`); it does
//! not tell whether a session was resumed.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, Visitor};

use super::connection::{Findings, Found, Handshake};
use super::error::ReadError;
use super::limits::CONNECTION_ID_MAX;
use super::limits::Limits;
use crate::har::stream::{self, Log, StreamError};
use crate::har::value::{self, Scalar, time, unix_time};

/// RFC 1035 section 2.3.4.
const HOST_NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Counts the connections of a HAR file.
pub(crate) fn read(
    input: impl Read,
    found: &mut Findings,
    limits: &Limits,
) -> Result<(), ReadError> {
    let mut page = Page { found, limits, counted: HashSet::new() };
    stream::read(input, &mut page).map_err(|error| match error {
        StreamError::Io(error) => ReadError::Io(error),
        StreamError::TooLarge => ReadError::HarTooLarge,
        StreamError::TooDeep => ReadError::HarTooDeep,
        StreamError::Json { error, .. } => ReadError::Har(error),
    })
}

/// The connections of one file.
struct Page<'a> {
    found: &'a mut Findings,
    limits: &'a Limits,
    /// Names of connections whose handshake was counted: some programs repeat it with each request.
    counted: HashSet<String>,
}

impl Log for Page<'_> {
    type Entry = Entry;
    type Page = IgnoredAny;

    fn on_page(&mut self, _: IgnoredAny) {}

    fn on_entry(&mut self, entry: Entry) {
        self.found.seen.har_requests += 1;
        if entry.is_quic() {
            self.found.seen.har_quic_requests += 1;
            return;
        }
        let Some(authority) = over_tls(&entry.request.url) else { return };
        if entry.timings.ssl.is_none_or(|ssl| ssl <= 0.0) {
            return;
        }
        let target = Target::from_authority(authority);
        let id = target.as_ref().and_then(|target| entry.connection_id(target.port));
        if id.as_ref().is_some_and(|id| self.counted.contains(id)) {
            return;
        }
        let (Some(target), Some(at), Some(address)) =
            (target, entry.handshake_at(), entry.address())
        else {
            self.found.seen.har_incomplete += 1;
            return;
        };
        let connection = Found {
            at,
            ready: at.saturating_add(entry.until_response()),
            name: target.name.as_deref(),
            address,
            handshake: Handshake::Unknown,
            is_private: false,
        };
        if self.found.push(connection, self.limits) {
            self.count_version(&entry);
            // One for each connection kept: their number is bounded.
            self.counted.extend(id);
        }
    }
}

impl Page<'_> {
    fn count_version(&mut self, entry: &Entry) {
        let details = entry.security_details.as_ref().or(entry.own_security_details.as_ref());
        let protocol = details.and_then(|details| details.protocol.as_deref());
        let versions = &mut self.found.versions;
        match protocol {
            Some("TLS 1.3" | "TLSv1.3") => versions.tls13 += 1,
            Some("TLS 1.2" | "TLSv1.2") => versions.tls12 += 1,
            Some(other) if other.starts_with("TLS") || other.starts_with("SSL") => {
                versions.older += 1;
            }
            _ => versions.unknown += 1,
        }
    }
}

/// The relevant part of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    started_date_time: String,
    request: Request,
    response: Option<Response>,
    #[serde(default)]
    timings: Timings,
    #[serde(rename = "serverIPAddress")]
    server_ip_address: Option<String>,
    connection: Option<ConnectionId>,
    /// Chromium since 2023, where `connection` is the port.
    #[serde(rename = "_connectionId", default)]
    own_connection: Scalar,
    security_details: Option<SecurityDetails>,
    #[serde(rename = "_securityDetails")]
    own_security_details: Option<SecurityDetails>,
}

#[derive(Debug, Deserialize)]
struct Request {
    url: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    http_version: Option<String>,
}

/// Times in milliseconds; -1 or missing where a part does not apply.
#[derive(Debug, Default, Deserialize)]
struct Timings {
    blocked: Option<f64>,
    dns: Option<f64>,
    connect: Option<f64>,
    ssl: Option<f64>,
    send: Option<f64>,
    wait: Option<f64>,
}

/// Text by the specification; some programs write a number.
#[derive(Debug)]
struct ConnectionId(String);

/// Written by hand: serde's untagged enums buffer a value before looking at it, however large it
/// is.
impl<'de> Deserialize<'de> for ConnectionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = ConnectionId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ConnectionId, E> {
                Ok(ConnectionId(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<ConnectionId, E> {
                Ok(ConnectionId(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<ConnectionId, E> {
                Ok(ConnectionId(number.to_string()))
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}

#[derive(Debug, Deserialize)]
struct SecurityDetails {
    protocol: Option<String>,
}

impl Entry {
    fn is_quic(&self) -> bool {
        let version = self.response.as_ref().and_then(|response| response.http_version.as_deref());
        version.is_some_and(|version| {
            let version = version.to_ascii_lowercase();
            version.starts_with("h3") || version.starts_with("http/3") || version.contains("quic")
        })
    }

    /// Returns the name of the connection; Firefox gives the server's port instead, which names
    /// none.
    fn connection_id(&self, port: u16) -> Option<String> {
        let named = self.connection.as_ref().map(|ConnectionId(id)| id.clone());
        let id =
            self.own_connection.name().or_else(|| named.filter(|id| *id != port.to_string()))?;
        (1..=CONNECTION_ID_MAX).contains(&id.len()).then_some(id)
    }

    fn address(&self) -> Option<IpAddr> {
        value::address(self.server_ip_address.as_deref()?)
    }

    /// Returns the start of the TLS handshake; `connect` includes `ssl`.
    fn handshake_at(&self) -> Option<Duration> {
        let Timings { blocked, dns, connect, ssl, .. } = self.timings;
        let tcp = time(connect).saturating_sub(time(ssl));
        let before = [time(blocked), time(dns), tcp].into_iter().sum::<Duration>();
        unix_time(&self.started_date_time)?.checked_add(before)
    }

    /// Returns the time from the start of the handshake until the response begins, by which tickets
    /// have arrived.
    fn until_response(&self) -> Duration {
        let Timings { ssl, send, wait, .. } = self.timings;
        [time(ssl), time(send), time(wait)].into_iter().sum()
    }
}

/// Returns the destination of a URL; `None` if that is not over TLS.
fn over_tls(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_tls = ["https", "wss"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls));
    rest.split(['/', '?', '#']).next().filter(|_| is_tls)
}

/// Destination of a request.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// Host in lower case, without a trailing dot; none for an address.
    name: Option<String>,
    port: u16,
}

impl Target {
    /// Reads the authority of a URL (RFC 3986 section 3.2); `None` if it cannot be a server.
    fn from_authority(authority: &str) -> Option<Self> {
        let authority = authority.rsplit_once('@').map_or(authority, |(_user, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, 443),
        };
        let unbracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if unbracketed.unwrap_or(host).parse::<IpAddr>().is_ok() {
            return Some(Self { name: None, port });
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        is_host_name(&name).then_some(Self { name: Some(name), port })
    }
}

/// Returns true for a valid host name. Browsers write other scripts as A-labels; anything else
/// might contain control characters.
fn is_host_name(name: &str) -> bool {
    name.len() <= HOST_NAME_MAX
        && name.split('.').all(|label: &str| {
            (1..=LABEL_MAX).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Option<(Option<String>, u16)> {
        over_tls(url).and_then(Target::from_authority).map(|target| (target.name, target.port))
    }

    fn named(name: &str, port: u16) -> Option<(Option<String>, u16)> {
        Some((Some(name.into()), port))
    }

    #[test]
    fn hosts_and_ports_of_urls() {
        assert_eq!(target("https://WWW.Example.com/a?b@c:1"), named("www.example.com", 443));
        assert_eq!(target("HTTPS://example.com.:8443#x"), named("example.com", 8443));
        assert_eq!(target("wss://user:pass@example.com?q"), named("example.com", 443));
        assert_eq!(target("https://192.0.2.1/"), Some((None, 443)));
        assert_eq!(target("https://[2001:db8::1]/"), Some((None, 443)));
        assert_eq!(target("https://[2001:db8::1]:8443/"), Some((None, 8443)));
        for other in ["http://example.com/", "data:text/plain,https://", "https://a:b/", ""] {
            assert_eq!(target(other), None, "{other}");
        }
    }

    #[test]
    fn malformed_names_are_none() {
        assert_eq!(
            target("https://a_b.xn--bcher-kva.example/"),
            named("a_b.xn--bcher-kva.example", 443)
        );
        let (label, long) = ("x".repeat(64), "a.".repeat(128));
        for host in ["", "a..b", "a b", "\u{1b}[31mred", "b\u{fc}cher.example", &label, &long] {
            let url = format!("https://{host}/");
            assert!(over_tls(&url).is_some());
            assert_eq!(target(&url), None, "{host:?}");
        }
    }
}
