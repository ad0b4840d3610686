//! Where edges are, and what they offer: what DNS would say, said on the command line.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use headstart_net::advert::{Advert, VERSION};
use headstart_net::{Edge, EdgeLookup};

use crate::base::failure::Failure;
use crate::base::names::{NameMap, NamePattern};
use crate::base::value::HostPort;

/// Keys of what an edge offers, as in the DNS record's value.
const KEYS: [&str; 4] = ["slots", "udp", "fop", "ed"];

/// The edge that stands before a name, and what it offers:
/// `NAME=HOST:PORT[,slots=N][,udp=PORT][,fop=1][,ed=1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeAddress {
    /// The names whose connections go to this edge.
    pub name: NamePattern,
    /// Where the edge listens: on TCP, and on UDP unless it offers another port.
    pub address: HostPort,
    /// Offers of the edge.
    pub advert: Advert,
}

impl FromStr for EdgeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, offer) = text.split_once(',').map_or((text, None), |(at, o)| (at, Some(o)));
        let (name, address) = place
            .split_once('=')
            .ok_or("write NAME=HOST:PORT, for example www.example.com=192.0.2.1:443")?;
        let advert = offer.map_or_else(|| Ok(Advert::default()), advert)?;
        Ok(Self { name: name.parse()?, address: address.parse()?, advert })
    }
}

/// Parses the part behind the address, in the form of the DNS record's value without its version.
/// There, unknown keys are for later versions; here, they are mistakes.
fn advert(text: &str) -> Result<Advert, String> {
    for item in text.split(',') {
        let key = item.split_once('=').map_or(item, |(key, _)| key);
        if !KEYS.contains(&key) {
            return Err(format!(
                "an edge has no option '{key}'; there are slots=1..14, udp=PORT, fop=1 and ed=1 \
                    (and each edge has a port)"
            ));
        }
    }
    let parsed = format!("v={VERSION},{text}").parse::<Advert>();
    parsed.map_err(|error| format!("'{text}': {error}; write for example slots=6,fop=1,ed=1"))
}

impl fmt::Display for EdgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usual, Advert { slots, udp, fop, early_data, .. }) = (Advert::default(), self.advert);
        write!(f, "{}={}", self.name, self.address)?;
        if slots != usual.slots {
            write!(f, ",slots={slots}")?;
        }
        if let Some(port) = udp {
            write!(f, ",udp={port}")?;
        }
        if fop {
            f.write_str(",fop=1")?;
        }
        if early_data {
            f.write_str(",ed=1")?;
        }
        Ok(())
    }
}

/// One edge or several, separated by commas as the values of other lists are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeAddresses(pub Vec<EdgeAddress>);

impl FromStr for EdgeAddresses {
    type Err = String;

    /// A part with a colon begins an edge, since each has a port; others belong to the edge before
    /// them.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut edges: Vec<String> = Vec::new();
        for part in text.split(',') {
            match edges.last_mut() {
                Some(edge) if !part.contains(':') => {
                    edge.push(',');
                    edge.push_str(part);
                }
                _ => edges.push(part.to_owned()),
            }
        }
        edges.iter().map(|edge| edge.parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// The table of `edges` by server name.
///
/// # Errors
/// Two edges for the same name.
pub(crate) fn by_name<'e>(
    edges: impl IntoIterator<Item = &'e EdgeAddress>,
) -> Result<NameMap<EdgeAddress>, Failure> {
    let named = edges.into_iter().map(|edge| (Some(edge.name.clone()), edge.clone()));
    NameMap::new(named).map_err(|name| {
        let name = name.map(|name| name.to_string()).unwrap_or_default();
        Failure::usage(format!("two edges for {name}"))
            .hint("give each name one --edge NAME=HOST:PORT")
    })
}

/// The edges of a connector.
pub(crate) fn edge_lookup(edges: NameMap<EdgeAddress>) -> EdgeLookup {
    Arc::new(move |name| {
        let EdgeAddress { address, advert, .. } = edges.find(Some(name))?;
        Some(Edge { host: address.host.clone(), port: address.port, advert: *advert })
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use headstart_net::advert::SLOTS_DEFAULT;

    use super::*;

    fn edge(text: &str) -> Result<EdgeAddress, String> {
        text.parse()
    }

    #[test]
    fn an_edge_is_a_name_an_address_and_what_it_offers() {
        let plain = edge("WWW.Example.com=192.0.2.1:443").unwrap();
        assert!(plain.name.matches("www.example.com"));
        assert_eq!(plain.advert, Advert::default());
        let all = edge("*.example.com=[::1]:8443,ed=1,slots=6,udp=8443,fop=1").unwrap();
        let offer = Advert {
            slots: 6,
            udp: NonZeroU16::new(8443),
            fop: true,
            early_data: true,
            ..Advert::default()
        };
        assert_eq!((all.address.to_string(), all.advert), ("[::1]:8443".into(), offer));
        assert_eq!(edge("a=b:1,fop=0").unwrap().advert, Advert::default());
    }

    #[test]
    fn malformed_edges_are_refused_with_the_reason() {
        for (wrong, why) in [
            ("192.0.2.1:443", "write NAME=HOST:PORT"),
            ("=192.0.2.1:443", "is not a server name"),
            ("a=b", "a port is missing"),
            ("a=b,fop=1", "a port is missing"),
            ("a=b:1,fpo=1", "no option 'fpo'"),
            ("a=b:1,fop", "not a list of key=value"),
            ("a=b:1,", "no option ''"),
            ("a=b:1,fop=yes", "a value out of range"),
            ("a=b:1,slots=0", "a value out of range"),
            ("a=b:1,fop=1,fop=1", "a key comes twice"),
            ("a=b:1,v=2", "no option 'v'"),
        ] {
            let message = edge(wrong).unwrap_err();
            assert!(message.contains(why), "{wrong}: {message}");
        }
    }

    #[test]
    fn printed_edges_parse_again() {
        for text in ["a.example=b:1", "*.a=[::1]:443,slots=9,udp=8443,fop=1,ed=1", "a=b:1,ed=1"] {
            assert_eq!(edge(text).unwrap().to_string(), text);
        }
        let usual = format!("a=b:1,slots={SLOTS_DEFAULT}");
        assert_eq!(edge(&usual).unwrap().to_string(), "a=b:1");
    }

    fn list(text: &str) -> Result<Vec<String>, String> {
        let list = text.parse::<EdgeAddresses>()?;
        Ok(list.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_list_has_commas_between_edges_and_before_what_they_offer() {
        let expected = ["a=b:1,slots=6,fop=1", "c=[::1]:2", "fop=d:3,ed=1"];
        assert_eq!(list(&expected.join(",")).unwrap(), expected);
        assert_eq!(list("a=b:1").unwrap(), ["a=b:1"]);
        assert!(list("fop=1,a=b:1").unwrap_err().contains("a port is missing"));
        assert!(list("a=b:1,c=d").unwrap_err().contains("no option 'c'"));
        assert!(list("").is_err());
    }
}
