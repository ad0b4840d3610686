//! Options of the agent about the proxy that its connections go through.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use headstart_net::upstream::{Credentials, Login, Optimistic, Timeouts, Upstream};
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use crate::agent::isolation::Isolation;
use crate::base::failure::Failure;
use crate::base::value::HostPort;

const FORM: &str = "write socks5://HOST:PORT or socks5://USER:PASSWORD@HOST:PORT, with %XX for : \
    @ / and % in either";

/// A proxy for all connections of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Upstream proxy")]
pub struct UpstreamOptions {
    /// Connect through this SOCKS5 proxy, such as Tor, without waiting for its replies
    ///
    /// Greeting, login, request and what the application says first leave together (optimistic
    /// data), which saves the proxy's round trips: one of the circuit with Tor. Host names go to
    /// the proxy, none is looked up here but its own. There are no datagrams and no SYN of ours on
    /// that way, so TurboTLS and Fast Open are not used; TLS of the agent (--socket) resumes
    /// sessions and sends early data through it.
    ///
    /// Others see command lines: give passwords in HEADSTART_AGENT_UPSTREAM or in --config. See
    /// docs/optimistic.md.
    #[arg(long, value_name = "socks5://[USER:PASSWORD@]HOST:PORT", hide_env_values = true)]
    pub upstream: Option<UpstreamUrl>,

    /// When bytes are sent ahead of the proxy's replies
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub upstream_optimistic: OptimisticName,

    /// Connections that the proxy is asked to keep apart
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub upstream_isolation: IsolationName,

    /// Ports besides --tls-ports on which the client speaks first, when there is an upstream proxy
    ///
    /// Their clients are answered at once, and a failure shows as a closed connection. On other
    /// ports the answer waits for the proxy's and repeats it.
    #[arg(long, value_name = "PORT,...", value_delimiter = ',', default_values = ["80"])]
    pub upstream_ports: Vec<u16>,
}

/// When bytes are sent ahead of a proxy's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OptimisticName {
    /// A ClientHello at once, other early data once the proxy has accepted some; after a failure,
    /// neither for an hour
    Auto,
    /// Everything, from the first connection: for Tor, and proxies that are known to accept it
    Always,
    /// Never: step by step
    Never,
}

/// Connections that a proxy is asked to keep apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IsolationName {
    /// Nothing: all connections have the login of --upstream, if any
    None,
    /// Contexts: each user, and within a user each SOCKS5 user name or Headstart-Context, has a
    /// login of its own (Tor: IsolateSOCKSAuth, on by default)
    Context,
}

/// The text of `--upstream`, which may hold a password: never shown, and wiped.
///
/// Any text is taken, since mistakes are shown with the value they are in, and found when all
/// options are read.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamUrl(Zeroizing<String>);

impl FromStr for UpstreamUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamUrl(..)")
    }
}

impl UpstreamOptions {
    /// The proxy that is meant, if any.
    ///
    /// # Errors
    /// A text that is no such URL; a login that is given and derived. Neither error shows the text.
    pub(crate) fn resolve(&self, isolation: &Arc<Isolation>) -> Result<Option<Upstream>, Failure> {
        let Some(url) = &self.upstream else {
            return self.unused().map(|()| None);
        };
        let (place, fixed) =
            url.parts().map_err(|why| Failure::usage(format!("--upstream: {why}")).hint(FORM))?;
        let login = match (fixed, self.upstream_isolation) {
            (None, IsolationName::None) => Login::None,
            (Some(credentials), IsolationName::None) => Login::Fixed(credentials),
            (None, IsolationName::Context) => derived(isolation),
            (Some(_), IsolationName::Context) => {
                return Err(Failure::usage(
                    "--upstream has a user name, and --upstream-isolation context makes them",
                )
                .hint("leave out one of the two"));
            }
        };
        let optimistic = match self.upstream_optimistic {
            OptimisticName::Auto => Optimistic::Auto,
            OptimisticName::Always => Optimistic::Always,
            OptimisticName::Never => Optimistic::Never,
        };
        let HostPort { host, port } = place;
        Ok(Some(Upstream { host, port, login, optimistic, timeouts: Timeouts::default() }))
    }

    /// Returns true if clients of `port` speak first, and are answered at once.
    pub(crate) fn speaks_first(&self, port: u16) -> bool {
        self.upstream.is_some() && self.upstream_ports.contains(&port)
    }

    /// Refuses options of a proxy without a proxy: the mistake would go unnoticed.
    fn unused(&self) -> Result<(), Failure> {
        match self.upstream_isolation {
            IsolationName::None => Ok(()),
            IsolationName::Context => {
                Err(Failure::usage("--upstream-isolation needs --upstream").hint(FORM))
            }
        }
    }
}

fn derived(isolation: &Arc<Isolation>) -> Login {
    let isolation = Arc::clone(isolation);
    Login::ByContext(Arc::new(move |context| isolation.credentials(context)))
}

impl UpstreamUrl {
    fn parts(&self) -> Result<(HostPort, Option<Credentials>), String> {
        let (scheme, rest) = self.0.split_once("://").ok_or("it is no URL")?;
        match scheme.to_ascii_lowercase().as_str() {
            // With `h`, names go to the proxy; here they always do.
            "socks5" | "socks5h" => {}
            "socks4" | "socks4a" | "http" | "https" => {
                return Err(format!("{} is not supported, socks5 is", scheme.to_ascii_lowercase()));
            }
            _ => return Err("the scheme is not socks5".into()),
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        // Its own message could show a password that was written with a bare '@' or '/' in it.
        let place = place.parse().map_err(|_| "HOST:PORT is missing or malformed")?;
        Ok((place, login.map(credentials).transpose()?))
    }
}

fn credentials(login: &str) -> Result<Credentials, String> {
    let (user, password) = login.split_once(':').ok_or("there is a user name and no password")?;
    Credentials::new(&decoded(user), &decoded(password)).ok_or_else(|| {
        format!("user name and password have 1 to {} bytes each", Credentials::LENGTH_MAX)
    })
}

fn decoded(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str, isolation: IsolationName) -> UpstreamOptions {
        UpstreamOptions {
            upstream: Some(url.parse().unwrap()),
            upstream_optimistic: OptimisticName::Auto,
            upstream_isolation: isolation,
            upstream_ports: vec![80],
        }
    }

    fn resolve(url: &str) -> Result<Upstream, Failure> {
        options(url, IsolationName::None).resolve(&Arc::default()).map(Option::unwrap)
    }

    #[test]
    fn a_url_has_a_place_and_maybe_a_login() {
        let plain = resolve("socks5://localhost:9050").unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("localhost", 9050));
        assert!(matches!(plain.login, Login::None));
        let v6 = resolve("SOCKS5H://a%3ab:p%40ss@[::1]:9050/").unwrap();
        assert_eq!((v6.host.as_str(), v6.port), ("::1", 9050));
        let Login::Fixed(credentials) = v6.login else { panic!("no login") };
        assert_eq!(Some(credentials), Credentials::new(b"a:b", b"p@ss"));
    }

    #[test]
    fn mistakes_are_found_and_never_show_the_text() {
        let long = format!("socks5://{}:secret@localhost:1", "u".repeat(256));
        for wrong in [
            "localhost:9050",
            "http://secret:secret@localhost:1",
            "ftp://localhost:1",
            "socks5://localhost",
            "socks5://secret@localhost:1",
            "socks5://:secret@localhost:1",
            "socks5://user:@localhost:1",
            "socks5://user:secret@localhost:0",
            "socks5://user:se/cret@",
            &long,
        ] {
            let failure = resolve(wrong).unwrap_err();
            let shown = format!("{} {failure:?}", failure.message());
            assert!(!shown.contains("secret") && !shown.contains("se/cret"), "{shown}");
        }
        let shown = format!("{:?}", options("socks5://user:secret@h:1", IsolationName::None));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn logins_are_given_or_derived_and_not_both() {
        let both = options("socks5://a:b@localhost:1", IsolationName::Context);
        assert!(both.resolve(&Arc::default()).is_err());
        let derived = options("socks5://localhost:1", IsolationName::Context);
        let upstream = derived.resolve(&Arc::default()).unwrap().unwrap();
        assert!(upstream.login.is_by_context());
        let nowhere = UpstreamOptions { upstream: None, ..derived };
        assert!(nowhere.resolve(&Arc::default()).is_err() && !nowhere.speaks_first(80));
    }
}
