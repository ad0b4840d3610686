//! Answers to programs.

use std::io;

use bytes::Bytes;
use headstart_net::dns::DnsError;
use headstart_tls::{CertificateFault, TlsError};
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, PROXY_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde_json::Value;

use crate::agent::inbound::{Reason, upstream};

pub(super) type Answer = Response<Full<Bytes>>;

pub(super) const ERROR: HeaderName = HeaderName::from_static("headstart-error");

/// Reason why a request is not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    /// From a fixed set, for programs, logs and metrics.
    pub(super) name: &'static str,
    /// Words for people.
    pub(super) text: String,
    hint: &'static str,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        name: &'static str,
        text: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { status, name, text: text.into(), hint }
    }

    /// The request is malformed, or asks for something unknown.
    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            text,
            "docs/managed.md says what a request looks like",
        )
    }

    pub(super) fn token() -> Self {
        Self::new(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "token",
            "the proof of the token is missing or wrong",
            "docs/managed.md says how to prove it; the Unix socket needs no proof",
        )
    }

    pub(super) fn timed_out() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timed_out",
            "the server did not answer in time",
            "is it reachable from here? --connect-timeout of the agent is how long it waits",
        )
    }

    pub(super) fn internal(text: impl Into<String>) -> Self {
        let hint = "is there memory? the agent's log says more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", text, hint)
    }

    /// A connection to a server that could not be opened, up to the end of its handshake.
    pub(super) fn from_error(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(error) => Self::of_tls(*error),
            None => Self::of_transport(error),
        }
    }

    fn of_tls(error: TlsError) -> Self {
        let (name, hint) = match error {
            TlsError::Certificate(fault, _) => of_certificate(fault),
            TlsError::Unsupported(_) => {
                ("tls", "does the server speak TLS 1.2 or 1.3 on this port?")
            }
            TlsError::Alert(_) => ("tls", "the server may want another name, or a certificate"),
            _ => ("tls", "does the server speak TLS on this port?"),
        };
        Self::new(StatusCode::BAD_GATEWAY, name, format!("no TLS with the server: {error}"), hint)
    }

    fn of_transport(error: &io::Error) -> Self {
        if let Some(error) = upstream(error) {
            let status = match Reason::Upstream(error) {
                reason if reason.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            };
            return Self::new(status, error.name(), error.to_string(), error.hint());
        }
        if is_without_name_servers(error) {
            let hint = "check the network, or give the agent other servers: --resolver ADDR:PORT";
            let text = format!("the host name cannot be looked up: {error}");
            return Self::new(StatusCode::BAD_GATEWAY, "name", text, hint);
        }
        match Reason::from(error) {
            Reason::TimedOut => Self::timed_out(),
            Reason::NotAllowed => Self::new(
                StatusCode::FORBIDDEN,
                "not_allowed",
                format!("not connected: {error}"),
                "if it is a name of yours, give the agent --allow-inside NAME",
            ),
            Reason::NameUnknown => unreached("name", "the host name has no address".into()),
            Reason::Refused => unreached("refused", "the server refused the connection".into()),
            Reason::NetworkUnreachable | Reason::HostUnreachable => {
                unreached("unreachable", format!("the server cannot be reached: {error}"))
            }
            _ if error.kind() == io::ErrorKind::NotFound => {
                unreached("name", format!("the host name cannot be looked up: {error}"))
            }
            _ => unreached("connect", format!("the connection failed: {error}")),
        }
    }

    pub(super) fn answer(&self) -> Answer {
        let mut answer = text(self.status, format!("{}\nhint: {}\n", self.text, self.hint));
        let fields = answer.headers_mut();
        fields.insert(ERROR, HeaderValue::from_static(self.name));
        match self.status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                fields.insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Headstart"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                fields.insert(ALLOW, HeaderValue::from_static("CONNECT, GET, PUT, DELETE"));
            }
            _ => {}
        }
        answer
    }
}

/// Returns true if no name server told whether the name has an address.
fn is_without_name_servers(error: &io::Error) -> bool {
    let dns = error.get_ref().and_then(|inner| inner.downcast_ref::<DnsError>());
    dns.is_some_and(|error| {
        use DnsError::{Malformed, Refused, Timeout, Unavailable};
        matches!(error, Malformed | Refused | Timeout | Unavailable)
    })
}

fn unreached(name: &'static str, text: String) -> Refusal {
    let hint = "is the server up, and reachable from here?";
    Refusal::new(StatusCode::BAD_GATEWAY, name, text, hint)
}

const fn of_certificate(fault: CertificateFault) -> (&'static str, &'static str) {
    match fault {
        CertificateFault::Expired => {
            ("certificate_expired", "have it renewed, or check the date of this machine")
        }
        CertificateFault::NotYetValid => {
            ("certificate_not_yet_valid", "check the date of this machine")
        }
        CertificateFault::Name => {
            ("certificate_name", "check the name, or give Headstart-Server-Name another one")
        }
        CertificateFault::Untrusted => (
            "certificate_untrusted",
            "if you know its issuer, give the issuer's certificate: Headstart-Verify: /path/to.pem",
        ),
        CertificateFault::Other(_) => ("certificate", "have another one issued"),
    }
}

/// An answer after which the connection is closed.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    closing(status, "text/plain; charset=utf-8", text.into())
}

/// Bytes of a session, or none.
pub(super) fn bytes(status: StatusCode, bytes: Vec<u8>) -> Answer {
    closing(status, "application/octet-stream", bytes.into())
}

pub(super) fn json(value: &Value) -> Answer {
    closing(StatusCode::OK, "application/json", format!("{value}\n").into())
}

fn closing(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Refuses a method that the resource does not have.
pub(super) fn wrong_method() -> Refusal {
    let hint = "docs/managed.md says what can be done with it";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", "that cannot be done with it", hint)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let expired = TlsError::Certificate(CertificateFault::Expired, "expired");
        for (error, status, name) in [
            (io::Error::new(io::ErrorKind::InvalidData, expired), 502, "certificate_expired"),
            (io::Error::new(io::ErrorKind::InvalidData, TlsError::Alert(40)), 502, "tls"),
            (io::ErrorKind::ConnectionRefused.into(), 502, "refused"),
            (io::ErrorKind::TimedOut.into(), 504, "timed_out"),
            (io::ErrorKind::HostUnreachable.into(), 502, "unreachable"),
            (DnsError::NotPermitted.into(), 403, "not_allowed"),
            (DnsError::NoSuchName.into(), 502, "name"),
            (DnsError::Timeout.into(), 502, "name"),
            (DnsError::Unavailable.into(), 502, "name"),
            (DnsError::Refused.into(), 502, "name"),
            (io::ErrorKind::Other.into(), 502, "connect"),
        ] {
            let refusal = Refusal::from_error(&error);
            assert_eq!((refusal.status.as_u16(), refusal.name), (status, name), "{error}");
        }
    }

    #[test]
    fn a_refusal_is_for_programs_and_for_people() {
        let answer = Refusal::token().answer();
        assert_eq!(answer.status(), 407);
        assert_eq!(answer.headers()[ERROR], "token");
        assert_eq!(answer.headers()[PROXY_AUTHENTICATE], "Headstart");
        assert_eq!(answer.headers()[CONNECTION], "close");
    }
}
