//! What becomes of the heads of requests and answers on their way (RFC 9110 section 7.6).
//!
//! What belongs to one connection stays there; what clients say of their own address is dropped, since the
//! edge is the first that knows; `Forwarded` (RFC 7239) and its older forms are written anew.

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::{request, response, uri};
use hyper::{Method, StatusCode, Uri, Version};

/// As which this edge is known to whoever reads a `Via` (RFC 9110 section 7.6.3).
const PSEUDONYM: &str = "headstart";

/// Of one connection, and not of the message (RFC 9110 section 7.6.1), beside those that `Connection` names.
/// `Expect: 100-continue` is answered here, when the origin begins to take the body.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// What a proxy says of a client. From a client itself it would be taken for ours.
const CLAIMS: [&str; 9] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-real-ip",
];

const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// What an origin is told of where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// The client's address if it is proven.
    pub(super) client: Option<IpAddr>,
    /// Whether it is passed on before the handshake is done.
    pub(super) early: bool,
    /// The name that TLS was opened for.
    pub(super) server_name: Option<&'a str>,
}

/// Why a request is not passed on, as the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

impl Refusal {
    const fn bad(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why }
    }
}

/// The host that a request is for, with its port if it names one.
///
/// # Errors
/// None, two, or what is no host; CONNECT, which is for no host that we serve.
pub(super) fn authority(head: &request::Parts, hop: &Hop<'_>) -> Result<uri::Authority, Refusal> {
    if head.method == Method::CONNECT {
        return Err(Refusal { status: StatusCode::NOT_IMPLEMENTED, why: "this is no proxy" });
    }
    let authority = match (head.uri.authority(), host(&head.headers)?) {
        // RFC 9113 section 8.3.1: two hosts in one request are none.
        (Some(authority), Some(host)) if head.version == Version::HTTP_2 && *authority != host => {
            return Err(Refusal::bad("Host and :authority differ"));
        }
        // RFC 9112 section 3.2.2: Host does not count beside an absolute form.
        (Some(authority), _) => authority.clone(),
        (None, Some(host)) => host,
        // Only HTTP/1.0 may leave it out; TLS has been told.
        (None, None) => match hop.server_name.filter(|_| head.version == Version::HTTP_10) {
            Some(name) => name.parse::<uri::Authority>().map_err(|_| Refusal::bad("no host"))?,
            None => return Err(Refusal::bad("no host")),
        },
    };
    if authority.as_str().contains('@') {
        return Err(Refusal::bad("a user in the host"));
    }
    Ok(authority)
}

fn host(headers: &HeaderMap) -> Result<Option<uri::Authority>, Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::bad("more than one Host"));
    }
    host.map(|host| uri::Authority::try_from(host.as_bytes()))
        .transpose()
        .map_err(|_| Refusal::bad("Host is no host"))
}

/// Makes of what a client asks `authority` for what the origin at `origin` is asked.
///
/// # Errors
/// What cannot be asked of an origin.
pub(super) fn request(
    head: request::Parts,
    authority: &uri::Authority,
    origin: &uri::Authority,
    hop: &Hop<'_>,
) -> Result<request::Parts, Refusal> {
    let upgrade = wanted_upgrade(&head);
    let mut asked = hyper::Request::new(()).into_parts().0;
    asked.uri = target(&head.uri, origin)?;
    asked.method = head.method;
    asked.headers = head.headers;
    let headers = &mut asked.headers;
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 section 6.3: then a length is none, and somebody may want us and the origin to disagree.
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(headers);
    remove_claims(headers);
    join_cookies(headers)?;
    headers.insert(HOST, value(authority.as_str())?);
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers.append(VIA, value(&format!("{} {PSEUDONYM}", version(head.version)))?);
    tell(headers, hop)?;
    Ok(asked)
}

/// What is told of the client. An address that is only claimed is not told: RFC 7239 section 6.2 has a word for
/// that, which Squid writes into the older form, too. An origin that found no address at all might take the
/// edge's own.
fn tell(headers: &mut HeaderMap, hop: &Hop<'_>) -> Result<(), Refusal> {
    let (node, plain) = match hop.client.map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(ip)) => (ip.to_string(), ip.to_string()),
        Some(IpAddr::V6(ip)) => (format!("\"[{ip}]\""), ip.to_string()),
        None => ("unknown".into(), "unknown".into()),
    };
    headers.insert(FORWARDED, value(&format!("for={node};proto=https"))?);
    headers.insert(X_FORWARDED_FOR, value(&plain)?);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    if hop.early {
        // Of a client that says so itself it stays, RFC 8470 section 5.1; never twice.
        headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    Ok(())
}

/// Makes of an origin's answer what the client gets; `upgraded` if it changes the protocol.
pub(super) fn answer(head: &mut response::Parts, upgraded: bool) {
    let protocol = head.headers.get(UPGRADE).filter(|_| upgraded).cloned();
    remove_hop_by_hop(&mut head.headers);
    if let Some(protocol) = protocol {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, protocol);
    }
    // An origin of HTTP/1.0 is no reason to speak it with the client.
    head.version = Version::HTTP_11;
}

/// The protocol that the client would like to change to. Only HTTP/1.1 has that.
///
/// Not another version of HTTP: its requests would reach the origin past all that is done here, with whatever
/// address the client likes (request smuggling by h2c).
pub(super) fn wanted_upgrade(head: &request::Parts) -> Option<HeaderValue> {
    let wants = head.version == Version::HTTP_11
        && tokens(&head.headers).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let protocol = head.headers.get(UPGRADE).filter(|_| wants)?;
    let mut names = protocol.to_str().ok()?.split(',').map(|name| name.trim().to_ascii_lowercase());
    let is_http = names.any(|name| name.starts_with("h2") || name.starts_with("http"));
    (!is_http).then(|| protocol.clone())
}

/// The request target in the form that the client library takes: with the address to connect to.
fn target(asked: &Uri, origin: &uri::Authority) -> Result<Uri, Refusal> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(uri::Scheme::HTTP);
    parts.authority = Some(origin.clone());
    let path = asked.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or_else(|| uri::PathAndQuery::from_static("/")));
    Uri::from_parts(parts).map_err(|_| Refusal::bad("no path"))
}

/// Those that `Connection` names, and those that are always of one connection.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<_> =
        tokens(headers).filter_map(|token| token.parse::<HeaderName>().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Also with underscores: where headers become variables (CGI, WSGI) they cannot be told from hyphens.
fn remove_claims(headers: &mut HeaderMap) {
    let found: Vec<_> = headers.keys().filter(|name| is_claim(name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

fn is_claim(name: &str) -> bool {
    CLAIMS.contains(&name)
        || (name.contains('_') && CLAIMS.contains(&name.replace('_', "-").as_str()))
}

/// HTTP/2 may send a cookie in pieces, which HTTP/1.1 may not (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let pieces: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1 {
        let joined = HeaderValue::from_bytes(&pieces.join(&b"; "[..]));
        headers.insert(COOKIE, joined.map_err(|_| Refusal::bad("no cookie"))?);
    }
    Ok(())
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

fn value(text: &str) -> Result<HeaderValue, Refusal> {
    HeaderValue::from_str(text).map_err(|_| Refusal::bad("no such host"))
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const HOP: Hop<'_> = Hop { client: None, early: false, server_name: None };

    fn head(version: Version, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// What the origin at `o:1` is asked.
    fn asked(head: request::Parts, hop: Hop<'_>) -> Result<request::Parts, Refusal> {
        let authority = authority(&head, &hop)?;
        request(head, &authority, &uri::Authority::from_static("o:1"), &hop)
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_origin_is_told_who_asks_and_how() {
        let hop = |client: &str| Hop { client: Some(client.parse().unwrap()), ..HOP };
        let get = || head(Version::HTTP_11, "/a?b", &[("host", "www.example.com"), ("x", "y")]);
        let four = asked(get(), hop("::ffff:192.0.2.1")).unwrap();
        assert_eq!(
            lines(&four.headers),
            [
                "forwarded: for=192.0.2.1;proto=https",
                "host: www.example.com",
                "via: 1.1 headstart",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-proto: https",
                "x: y",
            ]
        );
        assert_eq!(
            (four.uri.to_string(), four.version),
            ("http://o:1/a?b".into(), Version::HTTP_11)
        );
        let six = asked(get(), hop("2001:db8::1")).unwrap();
        assert_eq!(six.headers["forwarded"], "for=\"[2001:db8::1]\";proto=https");
        assert_eq!(six.headers["x-forwarded-for"], "2001:db8::1");
    }

    #[test]
    fn an_address_that_is_not_proven_is_not_told() {
        let get = head(Version::HTTP_11, "/", &[("host", "h")]);
        let asked = asked(get, Hop { early: true, ..HOP }).unwrap();
        assert_eq!(asked.headers["forwarded"], "for=unknown;proto=https");
        assert_eq!(asked.headers["x-forwarded-for"], "unknown");
        assert_eq!(asked.headers["early-data"], "1");
    }

    #[test]
    fn early_data_of_a_proxy_before_us_stays_known() {
        let get = || head(Version::HTTP_11, "/", &[("host", "h"), ("early-data", "1")]);
        for early in [false, true] {
            let asked = asked(get(), Hop { early, ..HOP }).unwrap();
            let values: Vec<_> = asked.headers.get_all("early-data").iter().collect();
            assert_eq!(values, ["1"]);
        }
    }

    #[test]
    fn what_clients_claim_is_dropped() {
        let claims: Vec<_> = CLAIMS.iter().map(|name| (*name, "192.0.2.66")).collect();
        let with_underscores = [("x_forwarded_for", "192.0.2.66"), ("X_Real-IP", "192.0.2.66")];
        let headers = [&claims[..], &with_underscores, &[("host", "h")]].concat();
        let asked = asked(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
        assert!(!lines(&asked.headers).join("\n").contains("192.0.2.66"));
        assert_eq!(asked.headers.len(), 5);
    }

    #[test]
    fn what_belongs_to_the_connection_stays_there() {
        let headers = [
            ("host", "h"),
            ("connection", "close, X-Secret"),
            ("connection", "te"),
            ("x-secret", "s"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("upgrade", "websocket"),
            ("x", "y"),
        ];
        let asked = asked(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
        let names: Vec<_> = lines(&asked.headers)
            .iter()
            .filter_map(|line| line.split(':').next().map(str::to_owned))
            .collect();
        assert_eq!(
            names,
            ["forwarded", "host", "via", "x-forwarded-for", "x-forwarded-proto", "x"]
        );
    }

    #[test]
    fn an_upgrade_is_asked_for_only_by_http_1_1() {
        let headers =
            [("host", "h"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let upgraded = asked(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
        assert_eq!(upgraded.headers["connection"], "upgrade");
        assert_eq!(upgraded.headers["upgrade"], "websocket");
        let old = asked(head(Version::HTTP_10, "/", &headers), HOP).unwrap();
        assert!(!old.headers.contains_key("upgrade") && !old.headers.contains_key("connection"));
    }

    #[test]
    fn no_version_of_http_is_upgraded_to() {
        for protocol in ["h2c", "websocket, H2C", "HTTP/2.0"] {
            let headers = [("host", "h"), ("connection", "upgrade"), ("upgrade", protocol)];
            let asked = asked(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
            assert!(!asked.headers.contains_key("upgrade"), "{protocol}");
        }
    }

    #[test]
    fn of_two_lengths_one_is_none() {
        let headers = [("host", "h"), ("transfer-encoding", "chunked"), ("content-length", "5")];
        let asked = asked(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
        assert!(!asked.headers.contains_key("content-length"));
    }

    #[test]
    fn http_2_becomes_http_1_1() {
        let headers = [("cookie", "a=1"), ("cookie", "b=2")];
        let asked =
            asked(head(Version::HTTP_2, "https://www.example.com/x", &headers), HOP).unwrap();
        assert_eq!(asked.headers["host"], "www.example.com");
        assert_eq!(asked.headers["cookie"], "a=1; b=2");
        assert_eq!(asked.headers["via"], "2 headstart");
        assert_eq!(asked.uri.path(), "/x");
    }

    #[test]
    fn an_absolute_form_goes_before_host() {
        let get = head(Version::HTTP_11, "http://a.example/x", &[("host", "b.example")]);
        assert_eq!(asked(get, HOP).unwrap().headers["host"], "a.example");
    }

    #[test]
    fn a_request_without_one_host_is_refused() {
        let refused = |version, uri, headers: &[(&str, &str)]| {
            asked(head(version, uri, headers), HOP).unwrap_err().why
        };
        assert_eq!(refused(Version::HTTP_11, "/", &[]), "no host");
        assert_eq!(refused(Version::HTTP_10, "/", &[]), "no host");
        let two = [("host", "a"), ("host", "b")];
        assert_eq!(refused(Version::HTTP_11, "/", &two), "more than one Host");
        assert_eq!(refused(Version::HTTP_11, "/", &[("host", "a b")]), "Host is no host");
        assert_eq!(refused(Version::HTTP_11, "/", &[("host", "u@a")]), "a user in the host");
        let other = [("host", "b.example")];
        assert_eq!(
            refused(Version::HTTP_2, "https://a.example/", &other),
            "Host and :authority differ"
        );
        let named = Hop { server_name: Some("n.example"), ..HOP };
        let old = asked(head(Version::HTTP_10, "/", &[]), named).unwrap();
        assert_eq!(old.headers["host"], "n.example");
    }

    #[test]
    fn connect_is_for_proxies() {
        let mut connect = head(Version::HTTP_2, "https://a.example:443/", &[]);
        connect.method = Method::CONNECT;
        assert_eq!(asked(connect, HOP).unwrap_err().status, StatusCode::NOT_IMPLEMENTED);
    }

    #[test]
    fn an_answer_keeps_what_is_for_the_client() {
        let response = hyper::Response::builder()
            .version(Version::HTTP_10)
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("upgrade", "h2c")
            .header("content-length", "3");
        let mut head = response.body(()).unwrap().into_parts().0;
        answer(&mut head, false);
        assert_eq!(
            (lines(&head.headers).join("\n"), head.version),
            ("content-length: 3".into(), Version::HTTP_11)
        );
    }
}
