//! The proxy that programs are led to. Any user may listen on a port of this machine while the
//! agent does not, so the kernel is asked whose listener it is.

use std::ffi::{OsStr, OsString};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use headstart_net::{is_anyone, tcp_listener};

use crate::base::failure::Failure;
use crate::base::own_address::is_own_address;
use crate::base::trust::is_trusted;

/// A proxy as it was named, by host and port.
pub(super) struct Proxy<'a>(&'a str);

impl<'a> Proxy<'a> {
    /// Parses the name of a proxy; an empty one is none.
    ///
    /// # Errors
    /// It is no host and port.
    pub(super) fn parse(text: &'a str) -> Result<Option<Self>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && port.parse::<u16>().is_ok_and(|port| port > 0)
                && !host.contains(['/', '@', ' '])
        });
        // Connections to it go to an address that is not named here.
        let is_unspecified = text.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_unspecified());
        if !is_address || is_unspecified {
            return Err(Failure::usage(format!("'{text}' is no proxy"))
                .hint("write HOST:PORT, as of --listen of the agent: --proxy 127.0.0.1:1080"));
        }
        Ok(Some(Self(text)))
    }

    /// Returns the address at which root, this user or `agent_uid` listens; of another machine the
    /// proxy as it was named, since nobody here knows who listens there.
    ///
    /// # Errors
    /// Another user listens at one of its addresses, or nobody at any.
    pub(super) fn trusted(&self, agent_uid: Option<u32>) -> Result<String, Failure> {
        let addresses = self.0.to_socket_addrs().map_err(|error| {
            Failure::usage(format!("the proxy {} has no address: {error}", self.0))
                .hint("name it by address: --proxy 127.0.0.1:1080")
        })?;
        let (mut trusted, mut is_remote) = (None, false);
        for address in addresses {
            match listener(address)? {
                Some(user) if is_trusted(user, agent_uid) => trusted = trusted.or(Some(address)),
                Some(user) => return Err(held(address, user)),
                None => is_remote |= !is_own_address(address.ip()),
            }
        }
        match trusted {
            Some(address) => Ok(address.to_string()),
            None if is_remote => Ok(self.0.to_owned()),
            None => Err(Failure::usage(format!("nobody listens at {}", self.0)).hint(format!(
                "start the agent first: headstart agent --listen {}; or connect without it: \
                 --proxy ''",
                self.0
            ))),
        }
    }
}

/// Returns false for wget2, which speaks TLS to an HTTP proxy in place of CONNECT, and fails
/// (rockdaboot/wget2#258).
pub(super) fn is_usable_by(program: &OsStr) -> bool {
    Path::new(program).file_name() != Some(OsStr::new("wget2"))
}

/// Returns the variables of an HTTP proxy, whose CONNECT every program with proxies takes, and
/// which leaves the name of the host to the agent. Without http_proxy: the agent takes no plain
/// HTTP. Without ALL_PROXY: httpx ends at once for a kind of proxy that it does not know.
pub(super) fn variables(address: &str) -> [(&'static str, OsString); 2] {
    let http = OsString::from(format!("http://{address}"));
    [("HTTPS_PROXY", http.clone()), ("https_proxy", http)]
}

fn listener(address: SocketAddr) -> Result<Option<u32>, Failure> {
    tcp_listener(address).map_err(|error| {
        Failure::usage(format!("cannot find out who listens at {address}: {error}"))
            .hint("connect without the agent's proxy: --proxy ''")
    })
}

fn held(address: SocketAddr, user: u32) -> Failure {
    let hint = if is_anyone(user) {
        "run the agent as this user or root, in this user namespace".to_owned()
    } else {
        format!(
            "if the agent runs as that user, say so: --agent-uid {user}; or connect without it: \
             --proxy ''"
        )
    };
    let message =
        format!("the listener at {address} is not trusted: it is user {user}, neither this user");
    Failure::usage(format!("{message} nor root")).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        assert!(Proxy::parse("").unwrap().is_none());
        for good in ["127.0.0.1:1080", "localhost:1", "[::1]:65535"] {
            assert!(Proxy::parse(good).unwrap().is_some(), "{good}");
        }
        for wrong in [
            "localhost",
            ":1080",
            "a:0",
            "a:65536",
            "http://a:1",
            "u@a:1",
            "0.0.0.0:1080",
            "[::]:1080",
        ] {
            assert!(Proxy::parse(wrong).err().unwrap().is_usage(), "{wrong}");
        }
    }

    #[test]
    fn https_alone_goes_through_the_proxy() {
        let all = variables("127.0.0.1:1080");
        assert_eq!(all.each_ref().map(|(name, _)| *name), ["HTTPS_PROXY", "https_proxy"]);
        assert!(all.iter().all(|(_, proxy)| proxy == "http://127.0.0.1:1080"));
    }

    #[test]
    fn a_name_becomes_the_address_where_a_trusted_user_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        for name in [at.to_string(), format!("localhost:{}", at.port())] {
            let proxy = Proxy::parse(&name).unwrap().unwrap();
            assert_eq!(proxy.trusted(None).unwrap(), at.to_string(), "{name}");
        }
    }

    #[test]
    fn an_address_of_another_machine_stays_as_it_is() {
        // For documentation (RFC 5737): no machine has it.
        let proxy = Proxy::parse("192.0.2.1:1080").unwrap().unwrap();
        assert_eq!(proxy.trusted(None).unwrap(), "192.0.2.1:1080");
    }
}
