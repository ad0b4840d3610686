use std::collections::HashMap;

use openssl::ssl::SslContext;

/// The virtual hosts of a server, by name.
pub(super) struct Hosts {
    list: Vec<Host>,
    exact: HashMap<String, usize>,
    /// Keyed by the part after the star, with its dot.
    wildcard: HashMap<String, usize>,
}

/// One certificate, or several for the same names.
pub(super) struct Host {
    pub(super) names: Vec<String>,
    /// True if no name leads to another host.
    pub(super) owns_names: bool,
    /// The session id context that nginx uses for HTTP with the same certificates.
    pub(super) nginx: [u8; 20],
    pub(super) context: SslContext,
}

impl Hosts {
    /// Creates the hosts from the first, which serves all unknown names, and the others. The
    /// earlier of two with the same name gets it.
    pub(super) fn new(first: Host, others: impl IntoIterator<Item = Host>) -> Self {
        let mut hosts = Self { list: Vec::new(), exact: HashMap::new(), wildcard: HashMap::new() };
        hosts.add(first);
        others.into_iter().for_each(|host| hosts.add(host));
        hosts.mark_owners();
        hosts
    }

    fn add(&mut self, host: Host) {
        let at = self.list.len();
        for name in &host.names {
            let (names, name) = match name.strip_prefix('*') {
                Some(parent) => (&mut self.wildcard, parent),
                None => (&mut self.exact, name.as_str()),
            };
            names.entry(name.to_owned()).or_insert(at);
        }
        self.list.push(host);
    }

    /// Marks hosts that share a name with another one, or have a wildcard for a name of another.
    fn mark_owners(&mut self) {
        let mut owns: Vec<_> = (0..self.list.len()).map(|at| self.is_found_by_all(at)).collect();
        for (name, owner) in &self.exact {
            if let Some(wide) = self.by_wildcard(name).filter(|wide| *wide != owner) {
                owns[*wide] = false;
            }
        }
        for (host, owns) in self.list.iter_mut().zip(owns) {
            host.owns_names = owns;
        }
    }

    fn is_found_by_all(&self, at: usize) -> bool {
        self.list[at].names.iter().all(|name| match name.strip_prefix('*') {
            Some(parent) => self.wildcard.get(parent) == Some(&at),
            None => self.exact.get(name) == Some(&at),
        })
    }

    /// Returns the host for `name`: exact, by a wildcard for the first label, or the first.
    pub(super) fn find(&self, name: Option<&str>) -> &Host {
        let found = name.and_then(|name| self.exact.get(name).or_else(|| self.by_wildcard(name)));
        &self.list[found.copied().unwrap_or(0)]
    }

    pub(super) fn first(&self) -> &Host {
        self.find(None)
    }

    /// Finds a wildcard, which stands for one label (RFC 9525 section 6.3).
    fn by_wildcard(&self, name: &str) -> Option<&usize> {
        let dot = name.find('.').filter(|dot| *dot > 0)?;
        self.wildcard.get(&name[dot..])
    }
}

#[cfg(test)]
mod tests {
    use openssl::ssl::{SslContextBuilder, SslMethod};

    use super::*;

    fn host(names: &[&str]) -> Host {
        let context = SslContextBuilder::new(SslMethod::tls_server()).unwrap().build();
        Host {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            owns_names: true,
            nginx: [0; 20],
            context,
        }
    }

    #[test]
    fn exact_names_precede_wildcards_and_those_the_first() {
        let others = [host(&["*.b.test"]), host(&["x.b.test", "a.test"])];
        let hosts = Hosts::new(host(&["a.test"]), others);
        for (name, found) in [
            (None, "a.test"),
            (Some("a.test"), "a.test"), // the earlier host gets it
            (Some("x.b.test"), "x.b.test"),
            (Some("y.b.test"), "*.b.test"),
            (Some("z.y.b.test"), "a.test"), // a wildcard is one label
            (Some("b.test"), "a.test"),     // not zero labels
            (Some(".b.test"), "a.test"),
        ] {
            assert_eq!(hosts.find(name).names[0], found, "{name:?}");
        }
    }

    fn owns(names: [&[&str]; 2]) -> [bool; 2] {
        let [first, second] = names.map(host);
        let hosts = Hosts::new(first, [second]);
        [hosts.list[0].owns_names, hosts.list[1].owns_names]
    }

    #[test]
    fn hosts_own_names_that_lead_to_no_other() {
        assert_eq!(owns([&["a.test", "*.b.test"], &["b.test", "x.y.b.test"]]), [true, true]);
        assert_eq!(owns([&["a.test"], &["c.test", "a.test"]]), [true, false]);
        assert_eq!(owns([&["*.b.test"], &["x.b.test"]]), [false, true]);
        assert_eq!(owns([&["*.b.test"], &["*.b.test", "c.test"]]), [true, false]);
    }
}
