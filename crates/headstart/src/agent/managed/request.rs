//! A CONNECT request, as docs/managed.md describes it.

use std::path::PathBuf;
use std::sync::Arc;

use headstart_sessions::Sharing;
use headstart_sessions::limits::{ALPN_MAX, LABEL_MAX};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use openssl::base64::decode_block;

use super::answer::Refusal;
use super::limits::EARLY_DATA_MAX;
use crate::agent::inbound::{Host, authority};

pub(super) const TLS: HeaderName = HeaderName::from_static("headstart-tls");
pub(super) const ALPN: HeaderName = HeaderName::from_static("headstart-alpn");
pub(super) const EARLY_DATA: HeaderName = HeaderName::from_static("headstart-early-data");
const CONTEXT: HeaderName = HeaderName::from_static("headstart-context");
const POLICY: HeaderName = HeaderName::from_static("headstart-policy");
const SERVER_NAME: HeaderName = HeaderName::from_static("headstart-server-name");
const VERIFY: HeaderName = HeaderName::from_static("headstart-verify");
const CERTIFICATE: HeaderName = HeaderName::from_static("headstart-client-certificate");

const BAD_TARGET: &str =
    "CONNECT needs a host and a port, for example: CONNECT www.example.com:443 HTTP/1.1";

/// A program's request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The program's name of its context.
    pub(super) label: Option<String>,
    /// TLS parameters; `None` if the bytes pass unchanged.
    pub(super) tls: Option<Arc<TlsAsk>>,
}

/// TLS parameters that a program asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TlsAsk {
    /// Whom to ask for, and the certificate is to be for.
    pub(super) server: Host,
    pub(super) alpn: Vec<Vec<u8>>,
    /// Minimum strictness of sharing, whatever the context's policy is.
    pub(super) sharing: Option<Sharing>,
    /// Bytes that may be sent early.
    pub(super) early_data: Vec<u8>,
    pub(super) verify: Verify,
    /// The agent's name of a certificate to be shown.
    pub(super) certificate: Option<String>,
}

/// Trust anchors for the server's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verify {
    System,
    /// An absolute path of PEM.
    Roots(PathBuf),
    Nobody,
}

impl Ask {
    /// # Errors
    /// What is wrong with the request.
    pub(super) fn read<B>(request: &Request<B>) -> Result<Self, Refusal> {
        let fields = Fields::from_headers(request.headers())?;
        let (host, port) = target(request.uri())?;
        let label = fields.text(&CONTEXT)?.map(label).transpose()?;
        let tls = match fields.text(&TLS)? {
            Some("managed") => Some(Arc::new(TlsAsk::read(&fields, &host)?)),
            Some(_) => return Err(Refusal::malformed("Headstart-TLS is `managed`, or not there")),
            None => {
                fields.no_tls()?;
                None
            }
        };
        Ok(Self { host, port, label, tls })
    }
}

impl TlsAsk {
    fn read(fields: &Fields<'_>, host: &Host) -> Result<Self, Refusal> {
        let server = match fields.text(&SERVER_NAME)? {
            Some(name) => Host::parse(name)
                .ok_or_else(|| Refusal::malformed("Headstart-Server-Name is no host name"))?,
            None => host.clone(),
        };
        Ok(Self {
            server,
            alpn: fields.text(&ALPN)?.map(alpn).transpose()?.unwrap_or_default(),
            sharing: fields.text(&POLICY)?.map(sharing).transpose()?,
            early_data: fields.text(&EARLY_DATA)?.map(bytes).transpose()?.unwrap_or_default(),
            verify: fields.text(&VERIFY)?.map_or(Ok(Verify::System), verify)?,
            certificate: fields.text(&CERTIFICATE)?.map(str::to_owned),
        })
    }
}

/// The fields that are ours, each once.
struct Fields<'a>(&'a HeaderMap);

impl<'a> Fields<'a> {
    /// Reads the fields; refuses unknown ones, which would otherwise seem to be obeyed.
    fn from_headers(all: &'a HeaderMap) -> Result<Self, Refusal> {
        let known = [TLS, ALPN, EARLY_DATA, CONTEXT, POLICY, SERVER_NAME, VERIFY, CERTIFICATE];
        for name in all.keys().filter(|name| name.as_str().starts_with("headstart-")) {
            if !known.contains(name) {
                return Err(Refusal::malformed(format!("there is no {name}")));
            }
            if all.get_all(name).iter().count() > 1 {
                return Err(Refusal::malformed(format!("{name} is there more than once")));
            }
        }
        Ok(Self(all))
    }

    fn text(&self, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
        self.0
            .get(name)
            .map(|value: &'a HeaderValue| std::str::from_utf8(value.as_bytes()))
            .transpose()
            .map(|value| value.map(str::trim))
            .map_err(|_| Refusal::malformed(format!("{name} is no UTF-8")))
    }

    /// Without TLS nothing of the rest happens.
    fn no_tls(&self) -> Result<(), Refusal> {
        let useless = [ALPN, EARLY_DATA, POLICY, SERVER_NAME, VERIFY, CERTIFICATE];
        match useless.iter().find(|name| self.0.contains_key(*name)) {
            None => Ok(()),
            Some(name) => {
                Err(Refusal::malformed(format!("{name} needs Headstart-TLS: managed beside it")))
            }
        }
    }
}

fn target(uri: &Uri) -> Result<(Host, u16), Refusal> {
    authority(uri).ok_or_else(|| Refusal::malformed(BAD_TARGET))
}

/// Checks a program's name of a context.
///
/// # Errors
/// It is empty, too long, or would garble logs and lists.
pub(super) fn label(text: &str) -> Result<String, Refusal> {
    let is_label = (1..=LABEL_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    is_label.then(|| text.to_owned()).ok_or_else(|| {
        Refusal::malformed("a context has 1 to 255 bytes without control characters")
    })
}

fn alpn(list: &str) -> Result<Vec<Vec<u8>>, Refusal> {
    let names: Vec<_> = list.split(',').map(|name| name.trim().as_bytes().to_vec()).collect();
    let wire: usize = names.iter().map(|name| name.len() + 1).sum();
    if names.iter().any(|name| !(1..=255).contains(&name.len())) || wire > ALPN_MAX {
        return Err(Refusal::malformed(
            "Headstart-ALPN is a list of protocols with commas between, of 256 bytes at most",
        ));
    }
    Ok(names)
}

fn sharing(text: &str) -> Result<Sharing, Refusal> {
    match text {
        "share" => Ok(Sharing::Share),
        "isolate" => Ok(Sharing::Isolate),
        "off" => Ok(Sharing::Off),
        _ => Err(Refusal::malformed("Headstart-Policy is share, isolate or off")),
    }
}

fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    match decode_block(text) {
        Ok(bytes) if bytes.len() <= EARLY_DATA_MAX => Ok(bytes),
        Ok(_) => Err(Refusal::malformed("Headstart-Early-Data has more than 16 KiB")),
        Err(_) => Err(Refusal::malformed("Headstart-Early-Data is no base64")),
    }
}

fn verify(text: &str) -> Result<Verify, Refusal> {
    match text {
        "system" => Ok(Verify::System),
        "none" => Ok(Verify::Nobody),
        path if path.starts_with('/') => Ok(Verify::Roots(path.into())),
        _ => Err(Refusal::malformed("Headstart-Verify is system, none or an absolute path")),
    }
}

#[cfg(test)]
mod tests {
    use openssl::base64::encode_block;

    use super::*;

    fn read(target: &str, fields: &[(&str, &str)]) -> Result<Ask, Refusal> {
        let mut request = Request::connect(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Ask::read(&request.body(()).unwrap())
    }

    fn managed(fields: &[(&str, &str)]) -> Result<Arc<TlsAsk>, Refusal> {
        let fields = [&[("Headstart-TLS", "managed")][..], fields].concat();
        read("Www.Example.com.:443", &fields).map(|ask| ask.tls.unwrap())
    }

    #[test]
    fn without_tls_bytes_pass_unchanged() {
        let ask =
            read("[::1]:8443", &[("Headstart-Context", "work"), ("user-agent", "x")]).unwrap();
        assert_eq!((ask.host.to_string().as_str(), ask.port), ("::1", 8443));
        assert_eq!((ask.label.as_deref(), ask.tls), (Some("work"), None));
        for field in ["ALPN", "Early-Data", "Policy", "Server-Name", "Verify", "Client-Certificate"]
        {
            let refused = read("a.example:443", &[(&format!("Headstart-{field}"), "off")]);
            assert_eq!(refused.unwrap_err().name, "bad_request", "{field}");
        }
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let ask = managed(&[]).unwrap();
        assert_eq!(ask.server.to_string(), "www.example.com");
        assert!(ask.alpn.is_empty() && ask.early_data.is_empty());
        assert_eq!((ask.sharing, &ask.verify, &ask.certificate), (None, &Verify::System, &None));
    }

    #[test]
    fn everything_can_be_said() {
        let ask = managed(&[
            ("Headstart-ALPN", "h2, http/1.1"),
            ("Headstart-Policy", "isolate"),
            ("Headstart-Early-Data", "R0VUIC8="),
            ("Headstart-Server-Name", "Other.example"),
            ("Headstart-Verify", "/etc/roots.pem"),
            ("Headstart-Client-Certificate", "work"),
        ]);
        let ask = ask.unwrap();
        assert_eq!(ask.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!(ask.sharing, Some(Sharing::Isolate));
        assert_eq!(ask.early_data, b"GET /");
        assert_eq!(ask.server.to_string(), "other.example");
        assert_eq!(ask.verify, Verify::Roots("/etc/roots.pem".into()));
        assert_eq!(ask.certificate.as_deref(), Some("work"));
    }

    #[test]
    fn what_cannot_be_heeded_is_refused() {
        for (name, value) in [
            ("Headstart-Unknown", "1"),
            ("Headstart-ALPN", "h2,,http/1.1"),
            ("Headstart-ALPN", ""),
            ("Headstart-Policy", "certificate"),
            ("Headstart-Early-Data", "*"),
            ("Headstart-Server-Name", "a b"),
            ("Headstart-Verify", "roots.pem"),
            ("Headstart-Context", ""),
        ] {
            assert_eq!(managed(&[(name, value)]).unwrap_err().name, "bad_request", "{name}");
        }
        let twice = [("Headstart-Policy", "share"), ("Headstart-Policy", "off")];
        assert!(managed(&twice).is_err());
        assert!(read("a.example:443", &[("Headstart-TLS", "yes")]).is_err());
        for target in ["a.example", "a.example:0", "http://a.example/"] {
            assert!(read(target, &[]).is_err(), "{target}");
        }
    }

    #[test]
    fn lengths_at_the_limit_and_one_over() {
        let lengths = [EARLY_DATA_MAX, EARLY_DATA_MAX + 1];
        let [full, over] = lengths.map(|length| encode_block(&vec![b'x'; length]));
        assert!(managed(&[("Headstart-Early-Data", &full)]).is_ok());
        assert!(managed(&[("Headstart-Early-Data", &over)]).is_err());
        assert!(managed(&[("Headstart-ALPN", &"x".repeat(ALPN_MAX - 1))]).is_ok());
        assert!(managed(&[("Headstart-ALPN", &"x".repeat(ALPN_MAX))]).is_err());
        assert!(label(&"x".repeat(LABEL_MAX)).is_ok());
        assert!(label(&"x".repeat(LABEL_MAX + 1)).is_err());
        assert!(label("tab\there").is_err());
    }
}
