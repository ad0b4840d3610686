//! Tells the hosts that the operator of a page can give an edge from those of others.

use std::fmt;
use std::str::FromStr;

use crate::har::frames::site;
use crate::page::Page;

/// Hosts of the operator. If none is named, those of the document's site count, by the public
/// suffix list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own(Vec<OwnHost>);

/// A host, or all below a suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnHost {
    /// This host alone.
    Host(String),
    /// The host of this name, and all below it.
    Suffix(String),
}

impl Own {
    /// Returns the hosts that are named.
    pub fn new(hosts: Vec<OwnHost>) -> Self {
        Self(hosts)
    }

    /// Returns the hosts that count on a page.
    pub(super) fn on(&self, page: &Page) -> Vec<OwnHost> {
        if !self.0.is_empty() {
            return self.0.clone();
        }
        let document = page.servers().get(page.document().server);
        document
            .map(|server| OwnHost::Suffix(site(&server.host).to_ascii_lowercase()))
            .into_iter()
            .collect()
    }
}

impl OwnHost {
    /// Returns true if a host is meant.
    pub fn takes(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        match self {
            Self::Host(name) => host == *name,
            Self::Suffix(name) => host
                .strip_suffix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        }
    }
}

/// Writes what [`FromStr`] reads.
impl fmt::Display for OwnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Suffix(name) => write!(f, ".{name}"),
        }
    }
}

impl FromStr for OwnHost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.to_ascii_lowercase();
        let (name, is_suffix) = match text.strip_prefix('.') {
            Some(name) => (name, true),
            None => (text.as_str(), false),
        };
        let is_part = |letter: char| letter.is_alphanumeric() || "-_.:[]".contains(letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_part) {
            return Err("write a host, such as www.example.com, or a suffix, such as .example.com");
        }
        Ok(if is_suffix { Self::Suffix(name.to_owned()) } else { Self::Host(name.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Protocol, Resource, Server};

    #[test]
    fn a_suffix_ends_between_labels() {
        let suffix: OwnHost = ".Example.com".parse().unwrap();
        assert_eq!(suffix.to_string(), ".example.com");
        let hosts = ["example.com", "WWW.example.com", "badexample.com", "example.com.test"];
        assert_eq!(hosts.map(|host| suffix.takes(host)), [true, true, false, false]);
        let host: OwnHost = "www.example.com".parse().unwrap();
        assert_eq!(
            ["www.example.com", "a.www.example.com"].map(|name| host.takes(name)),
            [true, false]
        );
        for wrong in ["", ".", "..com", "https://a.test", "a test"] {
            assert!(wrong.parse::<OwnHost>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_site_of_the_document_is_own_unless_others_are_named() {
        let servers = ["www.example.co.uk", "cdn.example.net"]
            .map(|host| Server::https(host, Protocol::Http2));
        let resources = vec![Resource { server: 0, ..Resource::default() }];
        let page = Page::new("page".into(), servers.into(), resources).unwrap();
        assert_eq!(Own::default().on(&page), [OwnHost::Suffix("example.co.uk".into())]);
        let named = vec![OwnHost::Host("cdn.example.net".into())];
        assert_eq!(Own::new(named.clone()).on(&page), named);
    }
}
