use crate::context::Context;
use crate::host::normal;
use crate::limits::ALPN_MAX;
use crate::names::CertificateNames;
use crate::not_kept::NotKept;
use crate::table::Owned;

/// The properties that two connections must share before one may use the other's tickets.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Destination of the connection.
    pub server: Server<'a>,
    /// The application protocols offered, in order.
    pub alpn: &'a [Vec<u8>],
    /// Hash of everything else that a session depends on: certificate verification, trust anchors,
    /// TLS settings, and the certificate that the client shows, if any: a server takes whoever
    /// resumes a session for its owner. For headstart's own engine, `ClientContext::fingerprint`.
    pub settings: &'a [u8; 32],
    /// Owner of the connection.
    pub context: &'a Context,
}

/// Destination of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server<'a> {
    /// This host, by name or address, in any case, with or without a final dot.
    Name(&'a str),
    /// Any host that a certificate with these names is for. Requires the policy
    /// [`ShareCertificate`](crate::Sharing::ShareCertificate), and never allows early data. Tickets
    /// come here by [`put_across_names`](crate::SessionStore::put_across_names).
    Certificate(&'a CertificateNames),
}

/// Selects what to forget.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// This host, and certificates that are for it; `None` means all servers.
    pub server: Option<&'a str>,
    /// Contexts to which it applies.
    pub whose: Whose<'a>,
}

/// A set of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose<'a> {
    /// The contexts of all users.
    Everybody,
    /// All contexts of one user.
    User(u32),
    /// One context.
    Context(&'a Context),
}

impl Whose<'_> {
    pub(crate) fn includes(&self, context: &Context) -> bool {
        match self {
            Self::Everybody => true,
            Self::User(user) => context.uid == Some(*user),
            Self::Context(one) => *one == context,
        }
    }
}

/// An [`Origin`] in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) server: ServerKey,
    /// Protocols in wire format: each preceded by its length.
    alpn: Box<[u8]>,
    settings: [u8; 32],
    pub(crate) context: Context,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerKey {
    Name(Box<str>),
    Certificate(CertificateNames),
}

impl Key {
    pub(crate) fn from_origin(origin: &Origin<'_>) -> Result<Self, NotKept> {
        if !origin.context.is_shared() {
            return Err(NotKept::Context);
        }
        let server = match origin.server {
            Server::Name(host) => ServerKey::Name(normal(host).ok_or(NotKept::Host)?),
            Server::Certificate(names) => ServerKey::Certificate(names.clone()),
        };
        let alpn = alpn_wire(origin.alpn).ok_or(NotKept::Alpn)?;
        Ok(Self { server, alpn, settings: *origin.settings, context: origin.context.clone() })
    }

    pub(crate) fn server(&self) -> Server<'_> {
        match &self.server {
            ServerKey::Name(host) => Server::Name(host),
            ServerKey::Certificate(names) => Server::Certificate(names),
        }
    }

    /// Returns the protocols in the order offered.
    pub(crate) fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        let mut list = &*self.alpn;
        std::iter::from_fn(move || {
            let (&length, rest) = list.split_first()?;
            let (protocol, rest) = rest.split_at_checked(length.into())?;
            list = rest;
            Some(protocol)
        })
    }

    /// Returns the names if this is a certificate's key that equals `other` in all else.
    pub(crate) fn names_beside(&self, other: &Self) -> Option<&CertificateNames> {
        let ServerKey::Certificate(names) = &self.server else { return None };
        let is_beside = self.alpn == other.alpn
            && self.settings == other.settings
            && self.context == other.context;
        is_beside.then_some(names)
    }

    pub(crate) fn is_of(&self, filter: &Filter<'_>) -> bool {
        filter.whose.includes(&self.context)
            && filter.server.is_none_or(|host| self.server.covers(host))
    }
}

impl ServerKey {
    fn covers(&self, host: &str) -> bool {
        match self {
            Self::Name(own) => normal(host).is_some_and(|host| *own == host),
            Self::Certificate(names) => names.covers(host),
        }
    }
}

impl Owned for Key {
    fn user(&self) -> Option<u32> {
        self.context.uid
    }
}

/// Encodes protocols. `None` if one is empty or longer than ALPN allows, or all exceed
/// [`ALPN_MAX`].
fn alpn_wire(protocols: &[Vec<u8>]) -> Option<Box<[u8]>> {
    let mut wire = Vec::new();
    for protocol in protocols {
        let length = u8::try_from(protocol.len()).ok().filter(|length| *length > 0)?;
        wire.push(length);
        wire.extend_from_slice(protocol);
        if wire.len() > ALPN_MAX {
            return None;
        }
    }
    Some(wire.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(server: Server<'_>, alpn: &[Vec<u8>]) -> Result<Key, NotKept> {
        Key::from_origin(&Origin { server, alpn, settings: &[7; 32], context: &Context::user(1) })
    }

    fn named(alpn: &[Vec<u8>]) -> Result<Key, NotKept> {
        key(Server::Name("a.example"), alpn)
    }

    #[test]
    fn protocols_come_back_in_order() {
        let key = named(&[b"h2".to_vec(), b"http/1.1".to_vec()]).unwrap();
        assert_eq!(key.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
        assert_ne!(key, named(&[b"http/1.1".to_vec(), b"h2".to_vec()]).unwrap());
        assert_ne!(
            named(&[b"ab".to_vec()]).unwrap(),
            named(&[b"a".to_vec(), b"b".to_vec()]).unwrap()
        );
    }

    #[test]
    fn limits_the_length_of_protocols() {
        let [most, more] = [[1, ALPN_MAX - 3], [2, ALPN_MAX - 3]]
            .map(|lengths| named(&lengths.map(|length| vec![b'x'; length])));
        assert!(most.is_ok());
        assert_eq!(more, Err(NotKept::Alpn));
        assert_eq!(named(&[Vec::new()]), Err(NotKept::Alpn));
        assert_eq!(named(&[vec![b'x'; 256]]), Err(NotKept::Alpn));
    }

    fn is_of(key: &Key, server: Option<&str>) -> bool {
        key.is_of(&Filter { server, whose: Whose::Everybody })
    }

    #[test]
    fn a_filter_selects_hosts_and_certificates_for_them() {
        let names = CertificateNames::new(["*.example.org", "other.test"]).unwrap();
        let certificate = key(Server::Certificate(&names), &[]).unwrap();
        let host = key(Server::Name("www.example.org"), &[]).unwrap();
        for key in [&certificate, &host] {
            assert!(is_of(key, Some("WWW.example.org.")) && is_of(key, None));
            assert!(!is_of(key, Some("example.org")) && !is_of(key, Some("")));
        }
        assert!(is_of(&certificate, Some("other.test")) && !is_of(&host, Some("other.test")));
    }

    #[test]
    fn sets_of_contexts_include_the_right_contexts() {
        let labelled = Context { label: Some("work".into()), ..Context::user(1) };
        assert!(Whose::User(1).includes(&labelled) && !Whose::User(2).includes(&labelled));
        assert!(!Whose::Context(&Context::user(1)).includes(&labelled));
        assert!(Whose::Context(&labelled).includes(&labelled));
    }
}
