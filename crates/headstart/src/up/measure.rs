//! Connections to this machine's server, before and after.

use std::env;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use serde_json::{Value, json};

use crate::base::failure::Failure;
use crate::edge::proxy_protocol;
use crate::up::link::{Link, RTT};

/// Fetches of which the median counts.
const FETCHES: usize = 5;

/// Longest wait for a server on this machine.
const LIMIT: Duration = Duration::from_secs(5);

/// ALPN identifiers in their wire form.
const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";

/// A server, as its handshake shows it.
pub(super) struct Identity {
    /// The name to ask it for.
    pub(super) name: String,
    /// True if it speaks HTTP/2.
    pub(super) is_h2: bool,
}

impl Identity {
    /// Shakes hands with the server at `at`, which `proxied` expects a PROXY header.
    ///
    /// # Errors
    /// It speaks no TLS, or its certificate has no name and none is given.
    pub(super) fn ask(at: SocketAddr, name: Option<&str>, proxied: bool) -> Result<Self, Failure> {
        let shaken = handshake(at, name.unwrap_or_default(), proxied);
        let (names, is_h2) = shaken.map_err(|error| {
            Failure::negative(format!("no TLS server answers at {at}: {error}"))
                .hint("--name HOST says which name to ask for; --proxy-protocol sends a header")
        })?;
        let first = names.into_iter().find(|name| !name.starts_with("*."));
        let name = name.map(str::to_owned).or(first).ok_or_else(|| {
            Failure::negative(format!("the certificate of {at} names no host"))
                .hint("--name HOST says what clients connect to")
        })?;
        Ok(Self { name, is_h2 })
    }
}

/// Returns the names in the certificate, and true for HTTP/2.
fn handshake(
    at: SocketAddr,
    name: &str,
    proxied: bool,
) -> Result<(Vec<String>, bool), Box<dyn std::error::Error>> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // The names are those of this machine; a client checks them.
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_alpn_protos(PROTOCOLS)?;
    let mut config = builder.build().configure()?.verify_hostname(false);
    config.set_use_server_name_indication(!name.is_empty());
    let mut tcp = TcpStream::connect_timeout(&at, LIMIT)?;
    tcp.set_read_timeout(Some(LIMIT))?;
    if proxied {
        tcp.write_all(&proxy_protocol::header(tcp.local_addr()?, at)?)?;
    }
    let tls = config.connect(name, tcp)?;
    let certificate = tls.ssl().peer_certificate();
    let names = certificate.and_then(|certificate| certificate.subject_alt_names());
    let names = names.iter().flatten().filter_map(|name| name.dnsname().map(str::to_owned));
    Ok((names.collect(), tls.ssl().selected_alpn_protocol() == Some(b"h2")))
}

/// The way to the server: an emulated link, or loopback.
pub(super) struct Way {
    link: Result<Link, String>,
    port: u16,
    name: String,
}

/// Median of some fetches.
pub(super) struct Cost {
    /// Opening by which most bytes travelled first, as `headstart get` names it.
    opening: String,
    not_used: Option<String>,
    /// Status of the answer.
    pub(super) status: u64,
    /// Round trips until the request left; none over loopback.
    round_trips: Option<f64>,
}

impl Way {
    pub(super) fn new(port: u16, name: &str) -> Self {
        Self { link: Link::open(), port, name: name.to_owned() }
    }

    /// Reason why round trips are not measured.
    pub(super) fn unmeasured(&self) -> Option<&str> {
        self.link.as_ref().err().map(String::as_str)
    }

    /// Fetches a page several times.
    ///
    /// # Errors
    /// The words of the fetch that failed.
    pub(super) fn measure(&self, opening: &str) -> Result<Cost, String> {
        let at = match &self.link {
            Ok(link) => link.far(self.port),
            Err(_) => (Ipv4Addr::LOCALHOST, self.port).into(),
        };
        let fetches: Result<Vec<_>, _> = (0..FETCHES).map(|_| self.fetch(at, opening)).collect();
        let mut fetches = fetches?;
        let trips =
            |fetch: &Value| fetch["rtts_to_first_request_byte"].as_f64().unwrap_or(f64::MAX);
        fetches.sort_by(|a, b| trips(a).total_cmp(&trips(b)));
        let median = fetches.get(FETCHES / 2).ok_or("nothing was fetched")?;
        Ok(Cost {
            opening: median["opening"].as_str().unwrap_or_default().into(),
            not_used: median["not_used"][0]["detail"]
                .as_str()
                .filter(|_| opening != "plain")
                .map(str::to_owned),
            status: median["status"].as_u64().unwrap_or_default(),
            round_trips: self.link.is_ok().then(|| trips(median)),
        })
    }

    fn fetch(&self, at: SocketAddr, opening: &str) -> Result<Value, String> {
        let name = &self.name;
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new(program)
            .args(["get", "--json", "--head", "--insecure", "--max-time", "10s"])
            .args(["--opening", opening, "--edge", &format!("{name}={at}")])
            .arg(format!("https://{name}/"))
            .output()
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let words = String::from_utf8_lossy(&output.stderr);
            words.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })
    }
}

impl Cost {
    /// Describes the cost in words; `None` over loopback.
    pub(super) fn line(&self, when: &str) -> Option<String> {
        let trips = self.round_trips?;
        let why = self.not_used.as_ref().map(|why| format!("; TurboTLS not used: {why}"));
        Some(format!(
            "{when:<8}{trips:.2} round trips of {} ms before the request ({}){}\n",
            RTT.as_millis(),
            self.opening,
            why.unwrap_or_default()
        ))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "opening": self.opening,
            "not_used": self.not_used,
            "status": self.status,
            "rtts_to_first_request_byte": self.round_trips,
        })
    }
}
