use std::net::IpAddr;
use std::sync::Arc;

use crate::host::normal;
use crate::limits::NAMES_BYTES_MAX;

/// The host names that a server's certificate is for, in whatever order it has them.
///
/// Servers of one certificate are one party as far as sessions go: who has its key can be any of
/// its names (Hiller et al. 2019). Sessions are shared between them only where the policy says so
/// ([`Sharing::ShareCertificate`](crate::Sharing::ShareCertificate)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CertificateNames(
    /// In order, with spaces between them.
    Arc<str>,
);

impl CertificateNames {
    /// Collects the names of a certificate's subjectAltName, wildcards as they stand there.
    ///
    /// None if there are none, one of them is no host name, or they have more than
    /// [`NAMES_BYTES_MAX`] bytes together: such a certificate is shared by nobody.
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
    /// No substitute for checking the certificate itself, which may have ended.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Some(host) = normal(host) else { return false };
        let parent = parent(&host);
        self.iter().any(|name| match name.strip_prefix("*.") {
            Some(of) => parent == Some(of),
            None => *name == *host,
        })
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(' ')
    }
}

/// Returns true if it could be a host name: without spaces, to begin with.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the part that a wildcard in place of the first label has to stand before; `None` where
/// it may not stand: before a top-level domain, or in an address.
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
    fn order_and_spelling_make_no_difference() {
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
    fn what_has_no_names_is_none() {
        assert_eq!(CertificateNames::new([""; 0]), None);
        for name in ["", "a b", "a\0b", "\u{e4}.example"] {
            assert_eq!(CertificateNames::new(["a.example", name]), None, "{name}");
        }
    }

    #[test]
    fn bytes_at_the_limit_and_one_over() {
        let mut names = vec!["x".repeat(NAMES_BYTES_MAX / 32); 32];
        assert!(CertificateNames::new(&names).is_some());
        names.push("x".to_owned());
        assert_eq!(CertificateNames::new(&names), None);
    }
}
