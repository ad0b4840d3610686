//! Changes to the heads of requests and responses on their way (RFC 9110 section 7.6).
//!
//! Hop-by-hop fields stay on their connection; clients' claims of their own address are dropped,
//! since the edge is the first that knows; the edge writes `Forwarded` (RFC 7239) and its older
//! forms itself.

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::{request, response, uri};
use hyper::{Method, StatusCode, Uri, Version};
use openssl::base64::encode_block;

/// Pseudonym of this edge in `Via` (RFC 9110 section 7.6.3).
const PSEUDONYM: &str = "headstart";

/// Fields of one connection and not of the message (RFC 9110 section 7.6.1), beside those that
/// `Connection` names. The edge itself responds to `Expect: 100-continue`, once the origin begins
/// to take the body.
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

/// Lines of a request's head at most: one less than the library has room for over HTTP/1.1, so that
/// it is this program that refuses more, and counts it.
pub(super) const HEAD_LINES: usize = 99;

/// Bytes of a request's head at most: what nginx allows (`large_client_header_buffers`).
pub(super) const HEAD_MAX: usize = 32 * 1024;

/// Prefixes of fields in which a proxy describes a client and its certificate, beside [`CLAIMED`].
/// From a client itself it would be taken for ours.
const CLAIMED_PREFIXES: [&str; 5] =
    ["forwarded", "ssl-client", "x-client-cert", "x-forwarded", "x-ssl-client"];

/// Fields of the same kind, those that stand for another target, and `Proxy`, which CGI programs
/// take for the setting of their own proxy (CVE-2016-5385).
const CLAIMED: [&str; 35] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "front-end-https",
    "incap-client-ip",
    "proxy",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-dn",
    "x-client-ip",
    "x-client-verify",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forward-for",
    "x-host",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-rewrite-url",
    "x-scheme",
    "x-sucuri-clientip",
];

/// Fields that have a meaning of their own here, so that no other name may pass for theirs: where
/// headers become variables (CGI, WSGI, PHP), underscores and dots cannot be told from hyphens.
const OURS: [&str; 5] = ["content-length", "early-data", "host", "trailer", "via"];

/// Fields of clients that do not reach origins.
#[derive(Debug, Default)]
pub(in crate::edge) struct Claims {
    /// Names that the operator adds.
    more: Vec<HeaderName>,
}

const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Facts about a request's path, for the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// The client's address if it is proven.
    pub(super) client: Option<IpAddr>,
    /// The certificate that the client showed, as a field's value.
    pub(super) certificate: Option<&'a HeaderValue>,
    /// True if the request is passed on before the handshake is done.
    pub(super) early: bool,
    /// The name that TLS was opened for.
    pub(super) server_name: Option<&'a str>,
}

/// Refusal of a request, as the client sees it.
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
        // RFC 9113 section 8.3.1: two hosts in one request are an error.
        (Some(authority), Some(host)) if head.version == Version::HTTP_2 && *authority != host => {
            return Err(Refusal::bad("Host and :authority differ"));
        }
        // RFC 9112 section 3.2.2: Host does not count beside an absolute form.
        (Some(authority), _) => authority.clone(),
        (None, Some(host)) => host,
        // Only HTTP/1.0 may omit it; TLS has the name.
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

/// Makes of a client's request to `authority` the one for the origin at `origin`; `has_body` if
/// something may follow the head.
///
/// # Errors
/// The request cannot be passed to an origin.
pub(super) fn request(
    head: request::Parts,
    has_body: bool,
    authority: &uri::Authority,
    origin: &uri::Authority,
    hop: &Hop<'_>,
    claims: &Claims,
) -> Result<request::Parts, Refusal> {
    let upgrade = wanted_upgrade(head.version, &head.headers);
    let mut request = hyper::Request::new(()).into_parts().0;
    request.uri = target(&head.uri, origin)?;
    request.method = head.method;
    request.headers = head.headers;
    let headers = &mut request.headers;
    delimit(&request.method, headers, has_body)?;
    claims.remove(headers);
    join_cookies(headers)?;
    headers.insert(HOST, value(authority.as_str())?);
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers.append(VIA, value(&format!("{} {PSEUDONYM}", version(head.version)))?);
    describe_client(headers, hop)?;
    Ok(request)
}

/// Leaves the origin one way to find the end of a request, the same as ours (RFC 9112 section 6.3):
/// what it took for the next request of the connection would be one that nobody has asked.
fn delimit(method: &Method, headers: &mut HeaderMap, has_body: bool) -> Result<(), Refusal> {
    let length = length(headers).map_err(|()| Refusal::bad("more than one length"))?;
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    if !is_decoded(headers) {
        let why = "an unknown transfer coding";
        return Err(Refusal { status: StatusCode::NOT_IMPLEMENTED, why });
    }
    remove_hop_by_hop(headers);
    // Trailers do not pass, no matter who announces them.
    headers.remove(TRAILER);
    headers.remove(CONTENT_LENGTH);
    match length {
        _ if !has_body => {
            // Some servers expect it (RFC 9110 section 8.6).
            if length.is_some() || [Method::POST, Method::PUT, Method::PATCH].contains(method) {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        }
        Some(length) if !is_chunked => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // Said here, since the client library takes it for granted that GET has no body.
        _ => {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    Ok(())
}

/// Returns true if no transfer coding is left: chunked is taken off here, and another one would be
/// lost with its name.
fn is_decoded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next().map_or(&b"chunked"[..], HeaderValue::as_bytes);
    coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none()
}

/// The one length that there is, however often (RFC 9110 section 8.6).
fn length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut found = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for text in value.to_str().map_err(|_| ())?.split(',').map(str::trim) {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let length = text.parse::<u64>().ok().filter(|_| is_number).ok_or(())?;
            if found.replace(length).is_some_and(|before| before != length) {
                return Err(());
            }
        }
    }
    Ok(found)
}

/// Adds the fields that describe the client. An address that is only claimed is not told: RFC 7239
/// section 6.2 has a word for that, which Squid writes into the older form, too. An origin that
/// found no address at all might take the edge's own.
fn describe_client(headers: &mut HeaderMap, hop: &Hop<'_>) -> Result<(), Refusal> {
    let (node, plain) = match hop.client.map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(ip)) => (ip.to_string(), ip.to_string()),
        Some(IpAddr::V6(ip)) => (format!("\"[{ip}]\""), ip.to_string()),
        None => ("unknown".into(), "unknown".into()),
    };
    headers.insert(FORWARDED, value(&format!("for={node};proto=https"))?);
    headers.insert(X_FORWARDED_FOR, value(&plain)?);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
    if let Some(certificate) = hop.certificate {
        headers.insert(CLIENT_CERT, certificate.clone());
    }
    if hop.early {
        headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    Ok(())
}

/// Returns the value of `Client-Cert` for a certificate in DER (RFC 9440 section 2.2): a byte
/// sequence of structured fields (RFC 8941 section 3.3.5).
pub(super) fn client_certificate(der: &[u8]) -> Option<HeaderValue> {
    HeaderValue::try_from(format!(":{}:", encode_block(der))).ok()
}

/// Makes of an origin's response what the client gets; `upgraded` if it changes the protocol,
/// `trailers` if the client is sent those.
///
/// # Errors
/// A body that the client could not read.
pub(super) fn response(
    head: &mut response::Parts,
    upgraded: bool,
    trailers: bool,
) -> Result<(), UnknownCoding> {
    let headers = &mut head.headers;
    if !is_decoded(headers) {
        return Err(UnknownCoding);
    }
    let protocol = headers.get(UPGRADE).filter(|_| upgraded).cloned();
    let length = length(headers).unwrap_or_default();
    headers.remove(CONTENT_LENGTH);
    // A transfer coding overrides a length (RFC 9112 section 6.3), which would cut the body
    // short for the client; where there never is a body it is wrong (RFC 9110 section 8.6), and
    // HTTP/2 clients say so.
    let has_none = headers.contains_key(TRANSFER_ENCODING)
        || head.status == StatusCode::NO_CONTENT
        || head.status.is_informational();
    if let Some(length) = length.filter(|_| !has_none) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    remove_hop_by_hop(headers);
    if !trailers || headers.contains_key(CONTENT_LENGTH) {
        headers.remove(TRAILER);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    // An origin of HTTP/1.0 is no reason to speak it with the client.
    head.version = Version::HTTP_11;
    Ok(())
}

/// A response has a transfer coding that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownCoding;

/// The protocol that the client would like to change to. Only HTTP/1.1 has that.
///
/// Not another version of HTTP: its requests would reach the origin past all that is done here,
/// with whatever address the client likes (request smuggling by h2c).
pub(super) fn wanted_upgrade(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = version == Version::HTTP_11
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let protocol = headers.get(UPGRADE).filter(|_| wants)?;
    let mut names = protocol.to_str().ok()?.split(',').map(|name| name.trim().to_ascii_lowercase());
    let is_http = names.any(|name| name.starts_with("h2") || name.starts_with("http"));
    (!is_http).then(|| protocol.clone())
}

/// The request target in the form that the client library takes: with the address to connect to.
fn target(requested: &Uri, origin: &uri::Authority) -> Result<Uri, Refusal> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(uri::Scheme::HTTP);
    parts.authority = Some(origin.clone());
    // Without one it is the authority form, which is for CONNECT alone (RFC 9112 section 3.2.3).
    parts.path_and_query =
        Some(requested.path_and_query().cloned().ok_or(Refusal::bad("no path"))?);
    Uri::from_parts(parts).map_err(|_| Refusal::bad("no path"))
}

/// Removes the fields that `Connection` names, and those that are always of one connection.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        tokens(headers, &CONNECTION).filter_map(|token| token.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

impl Claims {
    pub(in crate::edge) fn new(more: Vec<HeaderName>) -> Self {
        Self { more }
    }

    fn remove(&self, headers: &mut HeaderMap) {
        let early = headers.remove(EARLY_DATA).is_some();
        let found: Vec<_> =
            headers.keys().filter(|name| self.has(name.as_str())).cloned().collect();
        for name in found {
            headers.remove(name);
        }
        if early {
            // A proxy before us may have said it, and then it stays (RFC 8470 section 5.2); several
            // values or others than this one mean the same.
            headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
        }
    }

    fn has(&self, name: &str) -> bool {
        let hyphens = hyphens(name);
        CLAIMED.contains(&hyphens.as_str())
            || CLAIMED_PREFIXES.iter().any(|claim| hyphens.starts_with(claim))
            || self.more.iter().any(|more| self::hyphens(more.as_str()) == hyphens)
            || hyphens != name && is_ours(&hyphens)
    }
}

/// Returns a name with hyphens for all that is neither letter nor digit: PHP takes a dot for an
/// underscore, and other programs may go further.
fn hyphens(name: &str) -> String {
    name.replace(|sign: char| !sign.is_ascii_alphanumeric(), "-")
}

fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || HOP_BY_HOP.iter().any(|ours| *ours == name)
}

/// Checks the size of a request's head, which is bounded alike in all versions of HTTP.
///
/// # Errors
/// More lines or bytes than are taken.
pub(super) fn check_size(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    // HTTP/2 sends a cookie in as many lines as it likes.
    let crumbs = headers.get_all(COOKIE).iter().count().saturating_sub(1);
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let line = method.as_str().len() + target;
    if headers.len() - crumbs <= HEAD_LINES && line + bytes.sum::<usize>() <= HEAD_MAX {
        return Ok(());
    }
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Err(Refusal { status, why: "the head of the request is too large" })
}

/// Returns true if a client is sent trailers: over HTTP/1.1 only one that wants them.
pub(super) fn takes_trailers(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2
        || version == Version::HTTP_11
            && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"))
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
mod tests;
