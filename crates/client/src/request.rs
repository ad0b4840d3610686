//! The request for a connection, as docs/managed.md describes it.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;
use crate::options::{Options, Verify};

/// Largest early data in bytes that the agent accepts.
pub(crate) const EARLY_DATA_MAX: usize = 16 * 1024;

/// The head of a request.
pub(crate) struct Request(String);

impl Request {
    /// Starts a request for a connection to `host`, without TLS so far.
    ///
    /// # Errors
    /// `host` is not a host name.
    pub(crate) fn to(host: &str, port: u16) -> Result<Self, Error> {
        if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Unsupported("a host name must be ASCII, without spaces"));
        }
        let host = match host {
            bare if bare.contains(':') && !bare.starts_with('[') => format!("[{bare}]"),
            host => host.to_owned(),
        };
        Ok(Self(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n")))
    }

    /// Requests TLS.
    ///
    /// # Errors
    /// An option has a value that no field can hold.
    pub(crate) fn managed(&mut self, options: &Options, early_data: &[u8]) -> Result<(), Error> {
        self.field("Headstart-TLS", "managed")?;
        if !options.alpn.is_empty() {
            self.field("Headstart-ALPN", &options.alpn.join(", "))?;
        }
        let policy = options.policy.map(|policy| policy.name());
        let verify = verify(&options.verify)?;
        let early_data = (!early_data.is_empty()).then(|| STANDARD.encode(early_data));
        for (name, value) in [
            ("Headstart-Context", options.context.as_deref()),
            ("Headstart-Policy", policy),
            ("Headstart-Verify", verify.as_deref()),
            ("Headstart-Server-Name", options.server_name.as_deref()),
            ("Headstart-Client-Certificate", options.client_certificate.as_deref()),
            ("Headstart-Early-Data", early_data.as_deref()),
        ] {
            if let Some(value) = value {
                self.field(name, value)?;
            }
        }
        Ok(())
    }

    /// Adds a field.
    ///
    /// # Errors
    /// `value` has a line break, which would start another field, or spaces at its ends, which do
    /// not arrive.
    pub(crate) fn field(&mut self, name: &str, value: &str) -> Result<(), Error> {
        if value.is_empty() || value.trim() != value || value.chars().any(char::is_control) {
            return Err(Error::Unsupported(
                "an option must not be empty, nor have control characters or outer spaces",
            ));
        }
        self.0.extend([name, ": ", value, "\r\n"]);
        Ok(())
    }

    /// Returns the complete request.
    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("\r\n");
        self.0
    }
}

fn verify(verify: &Verify) -> Result<Option<String>, Error> {
    match verify {
        Verify::System => Ok(None),
        Verify::Nobody => Ok(Some("none".into())),
        Verify::Roots(path) => absolute(path).map(Some),
    }
}

/// Makes a path absolute, because the agent has another working directory.
fn absolute(path: &Path) -> Result<String, Error> {
    let path = std::path::absolute(path).ok();
    let path = path.as_deref().and_then(Path::to_str);
    path.map(str::to_owned)
        .ok_or(Error::Unsupported("the path of the roots must be UTF-8, and not empty"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Policy;

    fn managed(options: &Options, early_data: &[u8]) -> Result<String, Error> {
        let mut request = Request::to("www.example.com", 443)?;
        request.managed(options, early_data)?;
        Ok(request.finish())
    }

    #[test]
    fn unset_options_are_left_out() {
        assert_eq!(
            managed(&Options::default(), b"").unwrap(),
            "CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\
             Headstart-TLS: managed\r\nHeadstart-ALPN: http/1.1\r\n\r\n"
        );
        let bare = Options { alpn: Vec::new(), ..Options::default() };
        assert!(!managed(&bare, b"").unwrap().contains("ALPN"));
    }

    #[test]
    fn every_option_has_a_field() {
        let options = Options {
            context: Some("work".into()),
            policy: Some(Policy::Isolate),
            verify: Verify::Roots("/etc/roots.pem".into()),
            server_name: Some("other.example".into()),
            client_certificate: Some("mine".into()),
            alpn: vec!["h2".into(), "http/1.1".into()],
        };
        let text = managed(&options, b"GET /").unwrap();
        for line in [
            "ALPN: h2, http/1.1",
            "Context: work",
            "Policy: isolate",
            "Verify: /etc/roots.pem",
            "Server-Name: other.example",
            "Client-Certificate: mine",
            "Early-Data: R0VUIC8=",
        ] {
            assert!(text.contains(&format!("\r\nHeadstart-{line}\r\n")), "{text}");
        }
        let nobody = Options { verify: Verify::Nobody, ..Options::default() };
        assert!(managed(&nobody, b"").unwrap().contains("Headstart-Verify: none\r\n"));
        let relative = Options { verify: Verify::Roots("roots.pem".into()), ..Options::default() };
        assert!(managed(&relative, b"").unwrap().contains("Headstart-Verify: /"));
    }

    #[test]
    fn addresses_have_brackets_once() {
        for host in ["::1", "[::1]"] {
            let text = Request::to(host, 8443).unwrap().finish();
            assert!(text.starts_with("CONNECT [::1]:8443 HTTP/1.1\r\n"), "{text}");
        }
    }

    #[test]
    fn values_cannot_inject_fields() {
        for host in ["", "a b", "a\r\nx: y", "b\u{fc}cher.example"] {
            assert!(matches!(Request::to(host, 1), Err(Error::Unsupported(_))), "{host:?}");
        }
        for context in ["", " a", "a\r\nHeadstart-Verify: none", "a\tb"] {
            let options = Options { context: Some(context.into()), ..Options::default() };
            assert!(matches!(managed(&options, b""), Err(Error::Unsupported(_))), "{context:?}");
        }
        let empty = Options { verify: Verify::Roots("".into()), ..Options::default() };
        assert!(managed(&empty, b"").is_err());
    }
}
