//! HAR 1.2 files (<http://www.softwareishard.com/blog/har-12-spec/>), entry by entry.
//!
//! A HAR file tells connections by the time that their TLS handshake took (`timings.ssl`); it does not tell
//! whether a session was resumed.

use std::collections::HashSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::audit::Limits;
use super::bounded_json::BoundedJson;
use super::connection::{Findings, Found, Handshake};
use super::error::ReadError;
use super::limits::{CONNECTION_ID_MAX, HAR_BYTES};

/// RFC 1035 section 2.3.4.
const HOST_NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Counts the connections of a HAR file.
pub(crate) fn read(
    input: impl Read,
    found: &mut Findings,
    limits: &Limits,
) -> Result<(), ReadError> {
    let mut input = BufReader::new(BoundedJson::new(input.take(HAR_BYTES)));
    let mut page = Page { found, limits, counted: HashSet::new() };
    let mut json = serde_json::Deserializer::from_reader(&mut input);
    let file = Object { key: "log", inner: Object { key: "entries", inner: Entries(&mut page) } };
    let read = file.deserialize(&mut json).and_then(|()| json.end());
    drop(json);
    let text = input.get_ref();
    match read {
        Ok(()) => Ok(()),
        Err(_) if text.is_too_deep => Err(ReadError::HarTooDeep),
        Err(_) if text.input.limit() == 0 => Err(ReadError::HarTooLarge),
        Err(error) if error.is_io() => Err(ReadError::Io(error.into())),
        Err(error) => Err(ReadError::Har(error)),
    }
}

/// The connections of one file.
struct Page<'a> {
    found: &'a mut Findings,
    limits: &'a Limits,
    /// Names of connections whose handshake was counted: some programs repeat it with each request.
    counted: HashSet<String>,
}

impl Page<'_> {
    fn on_entry(&mut self, entry: &Entry) {
        self.found.seen.har_requests += 1;
        if entry.is_quic() {
            self.found.seen.har_quic_requests += 1;
            return;
        }
        let Some(authority) = over_tls(&entry.request.url) else { return };
        if entry.timings.ssl.is_none_or(|ssl| ssl <= 0.0) {
            return;
        }
        let target = Target::of(authority);
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
            self.count_version(entry);
            // One for each connection that is kept: their number is bounded.
            self.counted.extend(id);
        }
    }

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

/// A request, as far as it counts.
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

/// Milliseconds; -1 or none where it does not apply.
#[derive(Debug, Default, Deserialize)]
struct Timings {
    blocked: Option<f64>,
    dns: Option<f64>,
    connect: Option<f64>,
    ssl: Option<f64>,
    send: Option<f64>,
    wait: Option<f64>,
}

/// Text by the specification, a number by some programs.
#[derive(Debug)]
struct ConnectionId(String);

/// By hand: serde's untagged enums keep whatever comes before they look at it, however large.
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

    /// What names the connection; Firefox gives the server's port instead, which names none.
    fn connection_id(&self, port: u16) -> Option<String> {
        let ConnectionId(id) = self.connection.as_ref()?;
        let names_one = (1..=CONNECTION_ID_MAX).contains(&id.len()) && *id != port.to_string();
        names_one.then(|| id.clone())
    }

    fn address(&self) -> Option<IpAddr> {
        let text = self.server_ip_address.as_deref()?;
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let text = text.split_once('%').map_or(text, |(address, _zone)| address);
        text.parse().ok()
    }

    /// When the TLS handshake began; `connect` includes `ssl`.
    fn handshake_at(&self) -> Option<Duration> {
        let Timings { blocked, dns, connect, ssl, .. } = self.timings;
        let tcp = time(connect).saturating_sub(time(ssl));
        let before = [time(blocked), time(dns), tcp].into_iter().sum::<Duration>();
        unix_time(&self.started_date_time)?.checked_add(before)
    }

    /// From there until the response begins, when tickets have come, too.
    fn until_response(&self) -> Duration {
        let Timings { ssl, send, wait, .. } = self.timings;
        [time(ssl), time(send), time(wait)].into_iter().sum()
    }
}

/// No time of a page is longer than a day.
fn time(ms: Option<f64>) -> Duration {
    let ms = ms.filter(|ms| ms.is_finite()).unwrap_or_default();
    Duration::try_from_secs_f64(ms.clamp(0.0, 86_400_000.0) / 1e3).unwrap_or_default()
}

/// Since 1970, of a time by RFC 3339 with any offset from UTC.
fn unix_time(text: &str) -> Option<Duration> {
    let (local, offset, is_east) = split_offset(text)?;
    let local = humantime::parse_rfc3339_weak(local).ok()?.duration_since(UNIX_EPOCH).ok()?;
    if is_east { local.checked_sub(offset) } else { local.checked_add(offset) }
}

/// The time without its offset, the offset, and whether it is east of UTC.
fn split_offset(text: &str) -> Option<(&str, Duration, bool)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, Duration::ZERO, true));
    }
    let at = text.rfind(['+', '-']).filter(|at| *at > "2026-11-21".len())?;
    let (local, offset) = text.split_at_checked(at)?;
    let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let offset_time = Duration::from_secs(hours * 3600 + minutes * 60);
    (digits.len() == 4).then_some((local, offset_time, offset.starts_with('+')))
}

/// The part of a URL that says where it goes; none if that is not over TLS.
fn over_tls(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_tls = ["https", "wss"].iter().any(|tls| scheme.eq_ignore_ascii_case(tls));
    rest.split(['/', '?', '#']).next().filter(|_| is_tls)
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// Lower case, without a trailing dot; none for an address.
    name: Option<String>,
    port: u16,
}

impl Target {
    /// Of the authority of a URL (RFC 3986 section 3.2); none if no such server can be.
    fn of(authority: &str) -> Option<Self> {
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

/// Browsers write other scripts as A-labels; anything else is no name, and might command a terminal.
fn is_host_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(legal);
    name.len() <= HOST_NAME_MAX && name.split('.').all(label)
}

/// An object of which one key counts, which has to be there.
struct Object<S> {
    key: &'static str,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Object<S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Object<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with \"{}\"", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inner = Some(self.inner);
        while let Some(key) = map.next_key::<String>()? {
            match inner.take_if(|_| key == self.key) {
                Some(inner) => map.next_value_seed(inner)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match inner {
            None => Ok(()),
            Some(_) => Err(A::Error::missing_field(self.key)),
        }
    }
}

/// The entries, one after another: they are not kept.
struct Entries<'a, 'b>(&'a mut Page<'b>);

impl<'de> DeserializeSeed<'de> for Entries<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(entry) = list.next_element::<Entry>()? {
            self.0.on_entry(&entry);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Option<(Option<String>, u16)> {
        over_tls(url).and_then(Target::of).map(|target| (target.name, target.port))
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
    fn what_is_no_name_is_none() {
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

    #[test]
    fn times_with_offsets() {
        let at = |text| unix_time(text).map(|time| time.as_millis());
        assert_eq!(at("1970-01-01T00:00:01.500Z"), Some(1500));
        assert_eq!(at("1970-01-01T02:00:01+02:00"), Some(1000));
        assert_eq!(at("1970-01-01T00:00:00-0130"), Some(5_400_000));
        assert_eq!(at("1970-01-01T00:00:00+02:00"), None, "before 1970");
        for other in
            ["", "Z", "yesterday", "2026-11-21", "2026-11-21T10:00:00", "2026-11-21T10:00+1"]
        {
            assert_eq!(at(other), None, "{other}");
        }
    }

    #[test]
    fn times_that_make_no_sense_count_as_none() {
        for ms in [None, Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(time(ms), Duration::ZERO);
        }
        assert_eq!(time(Some(1.5)), Duration::from_micros(1500));
        assert_eq!(time(Some(1e300)), Duration::from_secs(86_400));
    }
}
