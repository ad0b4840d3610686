//! Server names, wildcards, and tables by name.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// Longest host name in characters (RFC 1035 section 2.3.4, without the root's length byte).
const NAME_MAX: usize = 253;

/// A server name or `*.` before one, which stands for every name below it, at any depth.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamePattern {
    wildcard: bool,
    /// Lower case, no final dot.
    name: String,
}

impl NamePattern {
    /// Returns true if the pattern means `name` (in any case).
    pub fn matches(&self, name: &str) -> bool {
        let name = canonical(name);
        if self.wildcard {
            name.strip_suffix(&self.name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            name == self.name
        }
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = canonical(name);
        let valid = (1..=NAME_MAX).contains(&name.len()) && name.split('.').all(valid_label);
        if !valid {
            return Err(format!(
                "'{text}' is not a server name; write for example www.example.com or *.example.com"
            ));
        }
        Ok(Self { wildcard, name })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.wildcard { "*." } else { "" }, self.name)
    }
}

/// Values by server name: an exact name goes before a wildcard, a longer wildcard before a
/// shorter one, any of them before the default.
#[derive(Debug, Clone)]
pub struct NameMap<T> {
    exact: HashMap<String, T>,
    below: HashMap<String, T>,
    default: Option<T>,
}

impl<T> NameMap<T> {
    /// A table of `entries`; one without a name is the default.
    ///
    /// # Errors
    /// The name that is given twice, or `None` if the default is.
    pub fn new(
        entries: impl IntoIterator<Item = (Option<NamePattern>, T)>,
    ) -> Result<Self, Option<NamePattern>> {
        let mut map = Self { exact: HashMap::new(), below: HashMap::new(), default: None };
        for (pattern, value) in entries {
            if map.insert(pattern.as_ref(), value).is_some() {
                return Err(pattern);
            }
        }
        Ok(map)
    }

    /// The value for `name`; without a name (a ClientHello without SNI) the default.
    pub fn find(&self, name: Option<&str>) -> Option<&T> {
        name.and_then(|name| self.named(&canonical(name))).or(self.default.as_ref())
    }

    /// Returns all values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.below.values()).chain(&self.default)
    }

    /// Returns all of them in the order of names, the default last and without one.
    pub fn iter(&self) -> impl Iterator<Item = (Option<String>, &T)> {
        let exact = self.exact.iter().map(|(name, value)| (name.clone(), value));
        let below = self.below.iter().map(|(name, value)| (format!("*.{name}"), value));
        let mut named: Vec<_> = exact.chain(below).collect();
        named.sort_by(|one, other| one.0.cmp(&other.0));
        let named = named.into_iter().map(|(name, value)| (Some(name), value));
        named.chain(self.default.iter().map(|value| (None, value)))
    }

    fn named(&self, name: &str) -> Option<&T> {
        let parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        self.exact.get(name).or_else(|| parents.filter_map(|parent| self.below.get(parent)).next())
    }

    fn insert(&mut self, pattern: Option<&NamePattern>, value: T) -> Option<T> {
        match pattern {
            None => self.default.replace(value),
            Some(p) if p.wildcard => self.below.insert(p.name.clone(), value),
            Some(p) => self.exact.insert(p.name.clone(), value),
        }
    }
}

/// Lower case and without the dot of an absolute name: the form in which names are compared.
fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Letters, digits, hyphens; underscores too, which occur in names in use (RFC 2181 section 11).
fn valid_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, u8)]) -> Result<NameMap<u8>, Option<NamePattern>> {
        NameMap::new(entries.iter().map(|(name, value)| {
            let pattern = (!name.is_empty()).then(|| name.parse().unwrap());
            (pattern, *value)
        }))
    }

    #[test]
    fn the_most_specific_name_wins() {
        let map = map(&[
            ("", 0),
            ("*.example.com", 1),
            ("*.eu.example.com", 2),
            ("www.eu.example.com", 3),
        ])
        .unwrap();
        assert_eq!(map.find(Some("WWW.eu.Example.com.")), Some(&3));
        assert_eq!(map.find(Some("mail.eu.example.com")), Some(&2));
        assert_eq!(map.find(Some("a.b.example.com")), Some(&1));
        assert_eq!(map.find(Some("example.com")), Some(&0));
        assert_eq!(map.find(Some("badexample.com")), Some(&0));
        assert_eq!(map.find(None), Some(&0));
    }

    #[test]
    fn without_a_default_unknown_names_have_no_value() {
        let map = map(&[("example.com", 1)]).unwrap();
        assert_eq!(map.find(Some("example.org")), None);
        assert_eq!(map.find(Some("")), None);
        assert_eq!(map.find(None), None);
    }

    #[test]
    fn a_name_given_twice_is_an_error() {
        let twice = map(&[("a.example", 1), ("A.example.", 2)]).unwrap_err();
        assert_eq!(twice, Some("a.example".parse().unwrap()));
        assert_eq!(map(&[("", 1), ("", 2)]).unwrap_err(), None);
    }

    #[test]
    fn patterns_are_names() {
        for wrong in ["", "*", "*.", "a..b", "a b", "*.*.example", "ex*mple", "a/b", "héé.example"]
        {
            assert!(wrong.parse::<NamePattern>().is_err(), "{wrong}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert!(long.parse::<NamePattern>().is_err());
        let below: NamePattern = "*.example.com".parse().unwrap();
        assert!(below.matches("a.example.com"));
        assert!(!below.matches("example.com"));
        assert!(!below.matches(".example.com"));
        assert!(!below.matches("aexample.com"));
    }
}
