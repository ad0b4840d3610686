//! Values of options: addresses and choices.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headstart_net::OpeningPolicy;
use hyper::http::uri::Authority;
use ipnet::IpNet;

use crate::base::names::NamePattern;

/// A host name or IP address with a port: `example.com:443`, `192.0.2.1:443`, `[2001:db8::1]:443`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The name or address, without brackets.
    pub host: String,
    /// The port, not 0.
    pub port: u16,
}

impl HostPort {
    /// The host as an address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or("a port is missing; write HOST:PORT, for example localhost:8443")?;
        let port = match port.parse() {
            Ok(0) | Err(_) => return Err(format!("'{port}' is not a port from 1 to 65535")),
            Ok(port) => port,
        };
        let host = unbracketed(host)?.to_owned();
        Ok(Self { host, port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads an address to listen on.
///
/// # Errors
/// A text that shows what such an address looks like.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an IP address and a port are needed, such as 127.0.0.1:443, or 0.0.0.0:443 and [::]:443 \
         for all addresses"
            .into()
    })
}

/// Reads a network such as 10.0.0.0/8, or an address alone.
///
/// # Errors
/// Words for the user, if it is neither.
pub fn network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical()));
    let network = address.or_else(|_| text.parse());
    network.map_err(|_| format!("'{text}' is neither an address nor a network such as 10.0.0.0/8"))
}

fn unbracketed(host: &str) -> Result<&str, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(_) => Ok(inner),
            Err(_) => Err(format!("'{inner}' is not an IPv6 address")),
        };
    }
    if host.contains(':') {
        return Err("an IPv6 address is written in brackets, for example [::1]:443".into());
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=') {
        return Err(format!("'{host}' is not a host name or address"));
    }
    Ok(host)
}

/// Service of an edge for an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Passes TLS on unchanged: `HOST:PORT`.
    PassThrough,
    /// Speaks TLS itself and hands over HTTP requests: `http://HOST:PORT`.
    Http,
    /// Speaks TLS itself and hands over the bytes inside: `tcp://HOST:PORT`.
    Tcp,
}

impl Service {
    /// Returns true if the edge speaks TLS for it, and so needs a certificate.
    pub const fn terminates(self) -> bool {
        matches!(self, Self::Http | Self::Tcp)
    }

    /// Returns the scheme before the address, and the default port.
    const fn scheme(self) -> (&'static str, Option<u16>) {
        match self {
            Self::PassThrough => ("", None),
            Self::Http => ("http://", Some(80)),
            Self::Tcp => ("tcp://", None),
        }
    }
}

/// A server behind an edge, and how it is served: `HOST:PORT`, `http://HOST[:PORT]` or
/// `tcp://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginServer {
    /// Service for connections to it.
    pub service: Service,
    /// Where it listens.
    pub address: HostPort,
}

impl FromStr for OriginServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self { service: Service::PassThrough, address: text.parse()? });
        };
        let service = match scheme.to_ascii_lowercase().as_str() {
            "http" => Service::Http,
            "tcp" => Service::Tcp,
            "https" => {
                return Err("for a server that speaks TLS itself write HOST:PORT; \
                            the edge passes TLS on to it"
                    .into());
            }
            _ => return Err(format!("'{scheme}://' is unknown; there are http:// and tcp://")),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains(['/', '?', '#', '@']) {
            return Err(
                "an origin has no path and no user; paths go to it as clients ask for them".into(),
            );
        }
        let address = with_port(host, service.scheme().1)?;
        // It becomes part of a URI on the way to the origin.
        if address.to_string().parse::<Authority>().is_err() {
            return Err(format!("'{host}' is not a host name or address"));
        }
        Ok(Self { service, address })
    }
}

impl fmt::Display for OriginServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.service.scheme().0, self.address)
    }
}

/// An address whose port may be left out if there is a usual one.
fn with_port(host: &str, usual: Option<u16>) -> Result<HostPort, String> {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match usual {
        Some(port) if !after_address.contains(':') => format!("{host}:{port}").parse(),
        _ => host.parse(),
    }
}

/// Where the edge sends connections: a server, or `NAME=` before it for one name only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The server name (SNI) this origin is for; without one it is for all others.
    pub name: Option<NamePattern>,
    /// The server.
    pub server: OriginServer,
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, server) = match text.split_once('=') {
            Some((name, server)) => (Some(name.parse()?), server),
            None => (None, text),
        };
        let server = server.parse()?;
        Ok(Self { name, server })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        self.server.fmt(f)
    }
}

/// Another SYN where the first is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SecondSyn {
    /// After two round trips, once, where at most one in a hundred was in vain
    Auto,
    /// Never: the kernel repeats the first after a second
    Off,
}

/// Idle connections that the agent may hold: `auto`, `off` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spares(pub usize);

impl Spares {
    /// Number of `auto`: a page with thirty hosts has one for each, and as many are left for other
    /// contexts.
    pub const AUTO: Self = Self(64);

    /// Most that may be asked for.
    const MAX: usize = 1024;
}

impl FromStr for Spares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "auto" => return Ok(Self::AUTO),
            "off" => 0,
            number => number.parse().unwrap_or(usize::MAX),
        };
        if number > Self::MAX {
            return Err(format!("'{text}' is neither auto, nor off, nor at most {}", Self::MAX));
        }
        Ok(Self(number))
    }
}

/// Parses which openings a connection may use.
pub(crate) fn opening_policy() -> impl TypedValueParser<Value = OpeningPolicy> {
    let names = OpeningPolicy::ALL.map(|policy| {
        PossibleValue::new(policy.name()).help(match policy {
            OpeningPolicy::Auto => {
                "Fast Open or TurboTLS where the server advertises it, TurboTLS where --edge names \
                 one; else TCP"
            }
            OpeningPolicy::Plain => "TCP only, as without headstart; for comparison",
            OpeningPolicy::Turbo => {
                "As auto, and try TurboTLS also on a path that is known to block it; no \
                 Fast Open"
            }
            OpeningPolicy::Fop => {
                "As auto, and try Fast Open also on a path that is known to block it, and \
                 at all edges of --edge"
            }
        })
    });
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_port(text: &str) -> Result<(String, u16), String> {
        text.parse::<HostPort>().map(|at| (at.host, at.port))
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(host_port("localhost:8443"), Ok(("localhost".into(), 8443)));
        assert_eq!(host_port("192.0.2.1:443"), Ok(("192.0.2.1".into(), 443)));
        assert_eq!(host_port("[2001:db8::1]:443"), Ok(("2001:db8::1".into(), 443)));
        for wrong in ["", "host", "host:", "host:0", "host:65536", "host:https", ":443", "a b:443"]
        {
            assert!(host_port(wrong).is_err(), "{wrong}");
        }
        for wrong in ["::1:443", "[::1:443", "[::1]", "[host]:443", "2001:db8::1"] {
            assert!(host_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn printed_values_parse_again() {
        for text in [
            "[::1]:443",
            "*.example.com=origin:1",
            "localhost:8443",
            "www.example.com=http://[::1]:8080",
            "tcp://localhost:25",
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_scheme_of_an_origin_says_who_speaks_tls() {
        for (text, service, address) in [
            ("o:1", Service::PassThrough, "o:1"),
            ("HTTP://o:1/", Service::Http, "o:1"),
            ("http://o", Service::Http, "o:80"),
            ("http://[::1]", Service::Http, "[::1]:80"),
            ("tcp://[::1]:2", Service::Tcp, "[::1]:2"),
        ] {
            let server: OriginServer = text.parse().unwrap();
            assert_eq!((server.service, server.address.to_string().as_str()), (service, address));
        }
        for (wrong, why) in [
            ("tcp://o", "a port is missing"),
            ("https://o:443", "speaks TLS itself"),
            ("ftp://o:21", "there are http:// and tcp://"),
            ("http://o:80/path", "no path"),
            ("http://user@o", "no path and no user"),
            ("http://", "is not a host name"),
            ("http://o:0", "not a port"),
        ] {
            let message = wrong.parse::<OriginServer>().unwrap_err();
            assert!(message.contains(why), "{wrong}: {message}");
        }
    }

    #[test]
    fn an_origin_may_have_a_name() {
        let origin: Origin = "WWW.Example.com=o:1".parse().unwrap();
        assert!(origin.name.unwrap().matches("www.example.com"));
        assert_eq!("o:1".parse::<Origin>().unwrap().name, None);
    }
}
