use std::net::IpAddr;
use std::sync::Arc;

use crate::host::normal;
use crate::limits::NAMES_BYTES_MAX;

/// The host names of a server's certificate, in any order.
///
/// Servers with one certificate are one party for sessions: a holder of its key can be any of its
/// names (Hiller et al. 2019). They share sessions only if the policy allows it
/// ([`Sharing::ShareCertificate`](crate::Sharing::ShareCertificate)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateNames(
    /// Sorted and separated by spaces.
    Arc<str>,
);

impl CertificateNames {
    /// Takes the names of a certificate's subjectAltName, wildcards included.
    ///
    /// Returns `None` if there are none, one of them is not a host name, or they exceed
    /// [`NAMES_BYTES_MAX`] bytes in all: such a certificate shares no sessions.
    #[must_use]
    pub fn new<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Option<Self> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        for name in names {
            let name = normal(name.as_ref()).filter(|name| is_plain(name))?;
            bytes += name.len();
            if bytes > NAMES_BYTES_MAX {
                return None;
            }
            all.push(name);
        }
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then(|| Self(all.join(" ").into()))
    }

    /// Returns true if the certificate is for `host`, by its name or a wildcard (RFC 9525 section
    /// 6.3).
    ///
    /// This does not replace verification of the certificate, which may have expired.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Some(host) = normal(host) else { return false };
        let parent = parent(&host);
        self.iter().any(|name| match name.strip_prefix("*.") {
            Some(of) => parent == Some(of),
            None => *name == *host,
        })
    }

    /// Returns all names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(' ')
    }
}

/// Returns true if the name has only visible ASCII characters, so no spaces.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the rest of the name after a first label that a wildcard may match; `None` if no
/// wildcard may: before a top-level domain, or in an address.
fn parent(host: &str) -> Option<&str> {
    let (label, parent) = host.split_once('.')?;
    let is_name = host.parse::<IpAddr>().is_err();
    (is_name && !label.is_empty() && parent.contains('.')).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> CertificateNames {
        CertificateNames::new(names).unwrap()
    }

    #[test]
    fn order_and_spelling_do_not_matter() {
        let one = names(&["a.example", "B.example.", "a.example"]);
        assert_eq!(one, names(&["b.example", "a.example"]));
        assert_eq!(one.iter().collect::<Vec<_>>(), ["a.example", "b.example"]);
        assert_ne!(one, names(&["a.example"]));
    }

    #[test]
    fn names_and_wildcards_cover_hosts() {
        let names = names(&["example.org", "*.example.org", "*.test"]);
        for covered in ["example.org", "www.example.org", "WWW.Example.org."] {
            assert!(names.covers(covered), "{covered}");
        }
        let not_covered =
            ["", "org", "a.b.example.org", ".example.org", "xexample.org", "www.test", "*.test"];
        for host in not_covered {
            assert!(!names.covers(host), "{host}");
        }
    }

    #[test]
    fn a_wildcard_covers_no_address() {
        assert!(!names(&["*.0.2.1"]).covers("192.0.2.1"));
        assert!(names(&["192.0.2.1"]).covers("192.0.2.1"));
    }

    #[test]
    fn invalid_names_are_none() {
        assert_eq!(CertificateNames::new([""; 0]), None);
        for name in ["", "a b", "a\0b", "\u{e4}.example"] {
            assert_eq!(CertificateNames::new(["a.example", name]), None, "{name}");
        }
    }

    #[test]
    fn limits_the_length_of_all_names() {
        let mut names = vec!["x".repeat(NAMES_BYTES_MAX / 32); 32];
        assert!(CertificateNames::new(&names).is_some());
        names.push("x".to_owned());
        assert_eq!(CertificateNames::new(&names), None);
    }
}
