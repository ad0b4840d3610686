use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::counts::{TicketCount, Versions};
use super::limits::Limits;
use super::seen::Seen;

/// Kind of the handshake of a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Full,
    Resumed,
    /// Unknown from the recording; counts as full.
    Unknown,
}

/// Number of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(u32);

impl NameId {
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The relevant facts of a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Time of its ClientHello, since 1970.
    pub(crate) at: Duration,
    /// Approximate time from which its tickets can be used.
    pub(crate) ready: Duration,
    pub(crate) name: Option<NameId>,
    pub(crate) address: IpAddr,
    pub(crate) handshake: Handshake,
    /// True if it may have used a client certificate: its session is not shared.
    pub(crate) is_private: bool,
}

/// A connection before its name is numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) at: Duration,
    pub(crate) ready: Duration,
    pub(crate) name: Option<&'a str>,
    pub(crate) address: IpAddr,
    pub(crate) handshake: Handshake,
    pub(crate) is_private: bool,
}

/// Everything found in the recordings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) connections: Vec<Connection>,
    pub(crate) names: Names,
    /// Digests that identify handshakes in captures among the connections.
    pub(crate) handshakes: HashSet<u64>,
    pub(crate) seen: Seen,
    pub(crate) tickets: TicketCount,
    pub(crate) versions: Versions,
}

impl Findings {
    /// Keeps a connection; returns false if there is no room for it.
    pub(crate) fn push(&mut self, found: Found<'_>, limits: &Limits) -> bool {
        let has_room = self.connections.len() < limits.connections;
        // A name without a kept connection takes no room, either.
        let names = if has_room { limits.names } else { 0 };
        let name = found.name.map(|name| self.names.number(name, names));
        if !has_room || name == Some(None) {
            self.seen.left_out += 1;
            return false;
        }
        self.seen.without_name += u64::from(name.is_none());
        self.connections.push(Connection {
            at: found.at,
            ready: found.ready,
            name: name.flatten(),
            address: found.address.to_canonical(),
            handshake: found.handshake,
            is_private: found.is_private,
        });
        true
    }
}

/// Names, each kept once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, NameId>,
    list: Vec<Arc<str>>,
}

impl Names {
    /// Returns the names, by their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(AsRef::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of a name; `None` if it is new and there is no room.
    fn number(&mut self, name: &str, most: usize) -> Option<NameId> {
        if let Some(id) = self.numbers.get(name) {
            return Some(*id);
        }
        if self.list.len() >= most {
            return None;
        }
        let id = NameId(u32::try_from(self.list.len()).ok()?);
        let name: Arc<str> = name.into();
        self.list.push(Arc::clone(&name));
        self.numbers.insert(name, id);
        Some(id)
    }
}
