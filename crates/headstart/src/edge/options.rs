//! Options of `headstart edge`.

use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use headstart_net::advert::Advert;
use headstart_net::fastopen::PIN_DIR;
use hyper::header::HeaderName;
use ipnet::IpNet;

use crate::base::failure::Failure;
use crate::base::logging::LogOptions;
use crate::base::names::NameMap;
use crate::base::settings::SOURCES;
use crate::base::value::{HostPort, Origin, OriginServer, listen_address, network};
use crate::check::CheckOptions;
use crate::fleet::storage::{FilterStorage, KeySource};
use crate::metrics::options::MetricsOptions;
use crate::qlog::options::QlogOptions;
use crate::takeover::options::TakeoverOptions;

/// Heading of the options for several edges of one site.
const FLEET: &str = "Several edges of one site (docs/fleet.md)";

/// Heading of the options for origins that do not speak TLS.
const TLS: &str = "TLS, for origins http:// and tcp://";

const EXAMPLES: &str = r#"Examples:
  A web server on this machine, moved from port 443 to 8443:
      headstart edge --origin localhost:8443

  Several servers behind one address, by the name the client asks for:
      headstart edge --origin www.example.com=10.0.0.1:443 \
                     --origin '*.example.com=10.0.0.2:443' --origin 10.0.0.3:443

  The edge speaks TLS itself, and hands requests to a web application on this machine:
      headstart edge --origin http://localhost:8080 \
                     --cert /etc/ssl/fullchain.pem --key /etc/ssl/privkey.pem

  Both on one port, by name; the first two share the certificate if it has both names:
      headstart edge --origin www.example.com=http://localhost:8080 \
                     --origin mail.example.com=tcp://localhost:143 \
                     --origin old.example.com=10.0.0.2:443 \
                     --cert fullchain.pem --key privkey.pem

  Several edges of one site take each other's session tickets:
      headstart keys new /etc/headstart/keys      (once; then copy the file to each edge)
      headstart edge ... --keys /etc/headstart/keys

  The same with keys in Redis, and early data that each ticket brings once to all of them:
      headstart keys new --fleet /etc/headstart/fleet           (once; then copy it to each edge)
      headstart keys new redis://redis.internal --fleet /etc/headstart/fleet
      headstart edge ... --fleet /etc/headstart/fleet --keys redis://redis.internal \
                         --early-data-filter redis://redis.internal --early-data-requests safe

  The server learns the client's address (nginx: listen 8443 ssl proxy_protocol):
      headstart edge --origin localhost:8443 --proxy-protocol

  The same from a file, with --config edge.toml:
      [edge]
      origin = ["www.example.com=10.0.0.1:443", "10.0.0.3:443"]
      proxy-protocol = true
      idle-timeout = "5m"

  So that clients find it, publish the record that this prints:
      headstart dns-record www.example.com

Open TCP and UDP of the same port in the firewall. Where UDP is closed, clients connect as
they would without headstart.

Signals: SIGHUP reads --config, certificates and keys again and keeps connections; SIGTERM and
SIGINT stop accepting, tell HTTP clients to leave and wait up to --shutdown-timeout for
connections to end. A second one ends them at once. Changes that need a restart are named.

Files of --cert, --key and --keys are read again by themselves within seconds of a change. A file
with a mistake changes nothing but the log."#;

/// Stand before a TLS server and let clients open connections in one round trip
///
/// The edge accepts TLS connections on TCP and, for clients that speak TurboTLS, the first flight
/// over UDP. To an origin HOST:PORT it passes the bytes unchanged: certificates and keys stay with
/// the origin, and the edge can read no more than any observer of the network. For an origin
/// http://HOST:PORT or tcp://HOST:PORT it speaks TLS itself, with the certificate given.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = format!("{SOURCES}\nIn the environment --idle-timeout is \
    HEADSTART_EDGE_IDLE_TIMEOUT; lists are separated by commas.\nIn the file it is the key \
    idle-timeout in the table [edge].\n\n{EXAMPLES}"))]
#[command(after_help = "See --help for examples, or `headstart man` for the manual page.")]
pub struct EdgeOptions {
    /// Address to listen on, TCP and UDP; may be given several times
    #[arg(
        long, value_name = "ADDR:PORT", value_delimiter = ',', value_parser = listen_address,
        default_values = ["0.0.0.0:443", "[::]:443"]
    )]
    pub listen: Vec<SocketAddr>,

    /// Server to pass connections to; with NAME=, those for that name; may be given several times
    ///
    /// HOST:PORT is a server that speaks TLS; its connections pass unchanged. http://HOST:PORT is
    /// one that speaks HTTP/1.1, on port 80 where none is given: the edge speaks TLS and HTTP/1.1
    /// or HTTP/2 with clients, and tells the server their address (X-Forwarded-For, Forwarded).
    /// tcp://HOST:PORT gets the bytes inside of TLS.
    ///
    /// NAME is a server name (SNI) or a wildcard such as *.example.com, which stands for names of
    /// any depth below. The most specific name wins; an origin without a name takes the rest.
    /// If there is none, connections for unknown names are closed, and counted in the metrics.
    #[arg(long, value_name = "[NAME=]ORIGIN", value_delimiter = ',')]
    pub origin: Vec<Origin>,

    /// Certificate chain in PEM form, the server's own first; may be given several times
    ///
    /// Which of several a client gets is decided by the name it asks for and the names in the
    /// certificates (subjectAltName); the first one serves clients that ask for none of these.
    #[arg(long, value_name = "FILE", value_delimiter = ',', help_heading = TLS)]
    pub cert: Vec<PathBuf>,

    /// Private key of the certificate, in PEM form; one for each --cert, in the same order
    ///
    /// May be left out where the files of --cert hold the keys, too. A file that everybody may read
    /// is refused.
    #[arg(long, value_name = "FILE", value_delimiter = ',', help_heading = TLS)]
    pub key: Vec<PathBuf>,

    /// Authorities of clients, in PEM form: a client has to show a certificate that one of them has
    /// issued
    ///
    /// For origins http:// and tcp://. An origin http:// gets the certificate in the header
    /// Client-Cert (RFC 9440). A resumed session stands for the certificate of its first handshake,
    /// for up to a week. Not with --early-data-requests or --ticket-peers.
    #[arg(long, value_name = "FILE", help_heading = TLS)]
    pub client_ca: Option<PathBuf>,

    /// Clients that --client-ca lets in [default: required]
    #[arg(long, value_name = "WHICH", value_enum, help_heading = TLS)]
    pub client_auth: Option<ClientCertificates>,

    /// Keys of session tickets: a file made by `headstart keys new`, or redis:// [default: made at
    /// the start]
    ///
    /// With the same keys, edges take each other's tickets, and a restart does not cost clients a
    /// full handshake. Who reads the file can read early data of the last day and a half, but no
    /// other bytes of TLS 1.3: keep it as you keep --key. Renew it with `headstart keys rotate`,
    /// twice a day for example; without --keys the edge renews its own every 12 hours. Keys in
    /// Redis are sealed with the key of --fleet; where Redis does not answer, those at hand go on.
    #[arg(long, value_name = "FILE|URL", value_parser = KeySource::parser(), help_heading = TLS)]
    pub keys: Option<KeySource>,

    /// Tell clients inside TLS that they may open connections by TurboTLS, as the DNS record would
    ///
    /// VALUE is what `headstart dns-record` puts in it, such as v=2,slots=6; clients believe no
    /// more than the slots. It goes in every ticket of TLS 1.3, and `headstart agent` keeps it in
    /// managed mode for a day, for the address that it came from: the next connection then needs no
    /// record. Only where datagrams to TCP's address and port reach this edge, or edges of one
    /// --fleet: elsewhere connections wait for their grace.
    #[arg(long, value_name = "VALUE", help_heading = TLS)]
    pub advertise: Option<Advert>,

    /// Requests that may come as TLS early data (0-RTT), before the handshake is done
    ///
    /// Such a request saves returning clients a round trip. It has no forward secrecy, and whoever
    /// recorded it could send it again: this edge takes it once, but see docs/edge.md before you
    /// turn it on. Origins learn of it by the header Early-Data: 1 and may refuse it with status
    /// 425 (RFC 8470).
    #[arg(long, value_name = "WHICH", value_enum, default_value_t, help_heading = TLS)]
    pub early_data_requests: EarlyDataRequests,

    /// Where to keep the replay cache of early data: memory, or redis://HOST:PORT/DB?name=NAME
    ///
    /// Port, database and name may be left out. With memory an edge takes early data with tickets
    /// that it made itself. With Redis, it takes it with those of all edges that name the same
    /// place, each once among them; Redis must not evict keys (maxmemory-policy noeviction).
    /// Whatever is wrong with Redis, early data is refused and sessions are resumed.
    #[arg(
        long, value_name = "WHERE", default_value_t, value_parser = FilterStorage::parser(),
        help_heading = TLS
    )]
    pub early_data_filter: FilterStorage,

    /// Other servers of the site with the same ticket keys (see headstart keys export)
    ///
    /// Sessions are then bound as theirs are, so that clients resume them at either: with nginx for
    /// the same certificates, with haproxy for any. Not with --fast-open, whose cookies stand where
    /// those look for the name of a key.
    #[arg(long, value_name = "SERVER", value_enum, default_value_t, help_heading = FLEET)]
    pub ticket_peers: TicketPeers,

    /// Let clients resume a session for every name of the certificate, and tell them so
    ///
    /// Only where all servers for these names have the same --keys: a ticket that another server
    /// cannot read is lost, and the handshake is a full one. Early data stays with the name. Not
    /// with --client-ca or --ticket-peers.
    #[arg(long, help_heading = FLEET)]
    pub resume_across_names: bool,

    /// File of the fleet, made by `headstart keys new --fleet`: its key, and where its edges are
    ///
    /// Needed for keys in Redis, and to forward TurboTLS clients whose TCP came to another edge
    /// than their datagrams. Who reads it can make himself one of the edges.
    #[arg(long, value_name = "FILE", help_heading = FLEET)]
    pub fleet: Option<PathBuf>,

    /// The number of this edge in the file of --fleet; it then takes joins from the others at the
    /// address there
    ///
    /// For balancers that do not keep a client's UDP and TCP together. Needs --keys that all edges
    /// share.
    #[arg(long, value_name = "N", requires = "fleet", requires = "keys", help_heading = FLEET)]
    pub fleet_edge: Option<NonZeroU8>,

    /// Hand out cookies for TCP Fast Open, and take ClientHellos in SYNs that bring them
    ///
    /// For clients that run headstart, whose next visit then saves a round trip; cookies are
    /// private, each is spent once (docs/fop.md). Needs `headstart fastopen attach server` on this
    /// machine before, as root; the edge itself needs no privilege. Not behind a
    /// balancer or NAT that hides the addresses of clients. Clients use it if the DNS record says
    /// so: see headstart dns-record --fast-open.
    #[arg(
        long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false",
        action = ArgAction::Set, help_heading = TLS
    )]
    pub fast_open: bool,

    /// Where `headstart fastopen attach server` has pinned its maps
    #[arg(long, value_name = "DIR", default_value = PIN_DIR, help_heading = TLS)]
    pub fast_open_maps: PathBuf,

    /// Begin TurboTLS connections with a window that their path has borne before (RFC 9959)
    ///
    /// For large answers over long or fast paths: a client that comes again need not wait for slow
    /// start. The edge remembers, by the network of clients, how much an earlier connection got
    /// through in a round trip; docs/careful-resume.md says what it does with that. Needs
    /// `headstart careful-resume attach` on this machine before, as root; the edge itself needs no
    /// privilege, and without the program it serves as usual. A connection takes a third file.
    #[arg(
        long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false",
        action = ArgAction::Set
    )]
    pub careful_resume: bool,

    /// Header of clients that origins http:// are not to get, beside those that docs/edge.md lists;
    /// may be given several times
    ///
    /// For headers in which something behind the edge trusts, such as X-Internal-User. The same
    /// name with underscores or dots is dropped, too.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = TLS)]
    pub drop_header: Vec<HeaderName>,

    /// Oldest version of TLS to speak
    #[arg(long, value_name = "VERSION", value_enum, default_value_t, help_heading = TLS)]
    pub min_tls: TlsVersion,

    /// Send the client's address to the origin in a PROXY protocol version 2 header
    ///
    /// The origin must expect it, or it answers no connection. TurboTLS connections are then
    /// accepted only if UDP and TCP come from the same address.
    ///
    /// The address of a TurboTLS connection is not proven when the origin is told it, with the
    /// ClientHello: anybody can have a false one appear there, with a handshake that never ends.
    /// Let nothing such as fail2ban act on handshakes alone. Requests come from proven addresses
    /// only.
    #[arg(
        long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false",
        action = ArgAction::Set
    )]
    pub proxy_protocol: bool,

    /// Balancer whose TCP connections begin with a PROXY protocol version 2 header: ADDR or
    /// ADDR/LEN; may be given several times
    ///
    /// The header says the client's address. The edge closes a connection from there without one,
    /// and reads none from elsewhere. Let nobody but balancers connect from these addresses: the
    /// edge believes them. Datagrams have no header, and have to come from the client's address.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = network)]
    pub proxy_protocol_from: Vec<IpNet>,

    /// Take TLS early data (0-RTT) that comes over UDP
    ///
    /// Only where one edge serves all addresses of the name. Clients send it so if the DNS record
    /// allows it: see headstart dns-record --early-data. For origins http:// and tcp:// it takes
    /// --early-data-requests as well. With --proxy-protocol it waits until TCP has proven the
    /// address.
    #[arg(
        long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false",
        action = ArgAction::Set
    )]
    pub early_data: bool,

    /// Server for QUIC (HTTP/3) on the UDP port that the edge listens on (that of --udp-port)
    ///
    /// Its datagrams are passed on unchanged, each client's from a port of its own; the server sees
    /// the edge's address. It has to advertise the edge's port, as in nginx: add_header Alt-Svc
    /// 'h3=":443"'. TurboTLS and QUIC differ in the first byte of each datagram.
    #[arg(long, value_name = "HOST:PORT")]
    pub quic: Option<HostPort>,

    /// UDP port of TurboTLS, if it is not the port of TCP
    ///
    /// Where another server has that port on UDP. Clients have to know: see headstart dns-record
    /// --udp.
    #[arg(long, value_name = "PORT")]
    pub udp_port: Option<NonZeroU16>,

    /// TOML file with options, in its table named edge; paths in it begin where the edge starts
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Threads for connections [default: one for each CPU]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub workers: Option<NonZeroUsize>,

    /// Threads for datagrams, for each address, each with a socket of its own
    // One, as the TurboTLS paper suspected: two with SO_REUSEPORT gave 0.93 of the handshakes a
    // second (95 % interval 0.89 to 0.97) for 1.10 of the processor time (1.06 to 1.13) on two
    // CPUs, and no clear difference at the 99th percentile of a fixed load (bench/README.md).
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Limits")]
    pub udp_workers: NonZeroUsize,

    /// QUIC clients at one time, for each address, each with an open file; a sixteenth of them may
    /// have one address
    #[arg(long, value_name = "N", default_value = "4096", help_heading = "Limits")]
    pub quic_flows: NonZeroUsize,

    /// Connections at one time; more wait in the kernel's queue
    #[arg(long, value_name = "N", default_value = "16384", help_heading = "Limits")]
    pub max_connections: NonZeroUsize,

    /// Handshakes a second with TurboTLS clients whose TCP connection does not come [default: a
    /// twentieth of the processors' time]
    ///
    /// Their addresses may be forged. Twice as many may be under way at once; beyond that, clients
    /// are left to TCP. The default weighs handshakes of this edge by what they cost, and takes
    /// 0.5 ms for each of a server behind it: give a number if that server is slower.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_unproven_handshakes: Option<NonZeroU32>,

    /// Close a connection on which nothing was sent either way for this long (30s, 5m, 1h)
    #[arg(
        long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration,
        help_heading = "Limits"
    )]
    pub idle_timeout: Duration,

    /// Close a connection after this long whatever happens [default: never]
    #[arg(
        long, value_name = "TIME", value_parser = humantime::parse_duration,
        help_heading = "Limits"
    )]
    pub total_timeout: Option<Duration>,

    /// Give up connecting to an origin after this long
    #[arg(
        long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration,
        help_heading = "Limits"
    )]
    pub origin_connect_timeout: Duration,

    /// Connect to each origin this often to see that it is there [default: never]
    ///
    /// At least 1s. The log says which is down and which is back, the metric headstart_origins how
    /// many are; /readyz answers 503 while none can be connected to. Connections go to origins that
    /// are down all the same.
    #[arg(long, value_name = "TIME", value_parser = patience, help_heading = "Limits")]
    pub health_check: Option<Duration>,

    /// Respond with 504 if an origin http:// has not begun its response after this long
    ///
    /// The time starts again while the client sends its request; a client that sends less than 1
    /// KiB in that time gets 408.
    #[arg(
        long, value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration,
        help_heading = "Limits"
    )]
    pub origin_response_timeout: Duration,

    /// Close a connection whose client has begun the head of a request and not completed it after
    /// this long
    ///
    /// At least 1s. For origins http://.
    #[arg(
        long, value_name = "TIME", default_value = "1m", value_parser = patience,
        help_heading = "Limits"
    )]
    pub request_head_timeout: Duration,

    /// Cancel a response of an origin http:// of which the client takes next to nothing for so long
    ///
    /// Next to nothing is less than 1 KiB. At least 1s. Over HTTP/1.1 its connection ends.
    #[arg(
        long, value_name = "TIME", default_value = "1m", value_parser = patience,
        help_heading = "Limits"
    )]
    pub client_timeout: Duration,

    /// Connections at one time of one address [default: three quarters of those that are free]
    ///
    /// The default leaves room for others, however many connections one opens. Addresses of IPv6
    /// are one by their first 64 bits, and a site of 48 bits has twice as many, or as many by
    /// default; sessions over UDP that have not joined count for the address
    /// that they name. Loopback and --proxy-protocol-from have no share. Set it to
    /// --max-connections behind anything that hides the addresses of clients: a container's
    /// network, a balancer.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_address_connections: Option<NonZeroUsize>,

    /// Requests to origins http:// at one time for clients at one address [default: an eighth of
    /// --max-connections]
    ///
    /// The default is at least 16, or half of --max-connections where that is less.
    ///
    /// Addresses of IPv6 are one by their first 64 bits; those with the same first 48 have twice as
    /// many together. Raise it to --max-connections behind a balancer that hides the addresses of
    /// clients. All clients whose address is not proven yet count as one, which may have half of
    /// --max-connections at least.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_address_requests: Option<NonZeroUsize>,

    /// Memory in MiB for responses of origins http:// that wait for their clients
    ///
    /// Beyond it, connections end: first those of the address for which most has waited for
    /// longest.
    #[arg(long, value_name = "MIB", default_value = "512", help_heading = "Limits")]
    pub answer_memory: NonZeroUsize,

    /// Close a connection whose client has not sent its whole ClientHello, or join, after this long
    ///
    /// At least 1s. For origins http:// and tcp:// the rest of the handshake has the same time
    /// again. The TCP part of a TurboTLS connection is awaited for two minutes; with less than that
    /// here, it may come too late on a lossy network.
    #[arg(
        long, value_name = "TIME", default_value = "2m", value_parser = patience,
        help_heading = "Limits"
    )]
    pub hello_timeout: Duration,

    /// Time that a stop waits for connections to end
    #[arg(
        long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration,
        help_heading = "Limits"
    )]
    pub shutdown_timeout: Duration,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub check: CheckOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub takeover: TakeoverOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub metrics: MetricsOptions,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub qlog: QlogOptions,

    /// Log a line for each request, and each connection as it ends
    ///
    /// Where the edge speaks HTTP: the client, method, host, path without its query, protocol,
    /// status, bytes of the response if its head says so, milliseconds to that head. Of each
    /// connection: the client, how it was opened, how it ended, and after how long. With
    /// --log-format json, one object a line.
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", action = ArgAction::Set,
        help_heading = "Logs"
    )]
    pub access_log: bool,

    #[command(flatten)]
    #[allow(missing_docs)] // a comment here would replace the command's own help text
    pub log: LogOptions,
}

/// A time of at least a second: with less every client would be too slow.
fn patience(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_secs(1) { Err("less than 1s".into()) } else { Ok(time) }
}

impl EdgeOptions {
    /// The origins by server name.
    ///
    /// # Errors
    /// No origin at all, or two for the same name.
    pub fn origins(&self) -> Result<NameMap<OriginServer>, Failure> {
        if self.origin.is_empty() {
            return Err(Failure::usage("no origin given")
                .hint("say where the TLS server is, for example --origin localhost:8443"));
        }
        let entries = self.origin.iter().cloned().map(|o| (o.name, o.server));
        NameMap::new(entries).map_err(|name| match name {
            Some(name) => Failure::usage(format!("two origins for {name}"))
                .hint("give each name one --origin NAME=HOST:PORT"),
            None => Failure::usage("two origins without a name")
                .hint("one takes all connections; others need a name: --origin NAME=HOST:PORT"),
        })
    }

    /// The files of certificates, each with that of its key: none if no origin wants the edge to
    /// speak TLS.
    ///
    /// # Errors
    /// An origin that needs a certificate and no certificate, or the other way round; a number of
    /// keys that is not that of the certificates.
    pub fn certificates(&self) -> Result<Vec<CertificateFiles>, Failure> {
        let terminated = self.origin.iter().find(|origin| origin.server.service.terminates());
        let Some(origin) = terminated else { return self.no_tls() };
        if self.cert.is_empty() {
            return Err(Failure::usage(format!("no certificate to serve {origin} with")).hint(
                "give one with --cert FILE --key FILE; or let a server that speaks TLS have the \
                 connections: --origin HOST:PORT",
            ));
        }
        self.check_client_certificates()?;
        if self.key.is_empty() {
            return Ok(self
                .cert
                .iter()
                .map(|file: &PathBuf| CertificateFiles { chain: file.clone(), key: file.clone() })
                .collect());
        }
        if self.key.len() != self.cert.len() {
            let (certs, keys) = (self.cert.len(), self.key.len());
            return Err(Failure::usage(format!("{certs} times --cert and {keys} times --key"))
                .hint("give each --cert its --key, in the same order"));
        }
        let pairs = self.cert.iter().cloned().zip(self.key.iter().cloned());
        Ok(pairs.map(|(chain, key)| CertificateFiles { chain, key }).collect())
    }

    /// Checks the options of client certificates. A mistake must not let everybody in.
    fn check_client_certificates(&self) -> Result<(), Failure> {
        if self.client_ca.is_none() {
            return match self.client_auth {
                None => Ok(()),
                Some(_) => Err(Failure::usage("--client-auth is given, and no --client-ca")
                    .hint("name the authorities of clients: --client-ca FILE")),
            };
        }
        if self.early_data_requests != EarlyDataRequests::Off {
            return Err(Failure::usage("--client-ca and --early-data-requests exclude each other")
                .hint("early data comes before the certificate; leave one of them out"));
        }
        if self.ticket_peers != TicketPeers::None {
            return Err(Failure::usage("--client-ca and --ticket-peers exclude each other")
                .hint("tickets of other servers do not tell whom those have asked for what"));
        }
        if self.resume_across_names {
            return Err(Failure::usage("--client-ca and --resume-across-names exclude each other")
                .hint("a resumed session would show the client's certificate to every name"));
        }
        Ok(())
    }

    /// Returns the names, but for wildcards, for which the edge needs a certificate.
    pub(super) fn terminated_names(&self) -> impl Iterator<Item = String> {
        let terminated = self.origin.iter().filter(|origin| origin.server.service.terminates());
        let names = terminated.filter_map(|origin| origin.name.as_ref()).map(ToString::to_string);
        names.filter(|name| !name.starts_with("*."))
    }

    /// Nothing that only a TLS server can use may be given, or somebody expects more than happens.
    fn no_tls(&self) -> Result<Vec<CertificateFiles>, Failure> {
        let useless = [
            ("--cert", !self.cert.is_empty()),
            ("--key", !self.key.is_empty()),
            // Tags for the other edges are made with them, too.
            ("--keys", self.keys.is_some() && self.fleet_edge.is_none()),
            ("--advertise", self.advertise.is_some()),
            ("--early-data-requests", self.early_data_requests != EarlyDataRequests::Off),
            ("--early-data-filter", self.early_data_filter != FilterStorage::Memory),
            ("--ticket-peers", self.ticket_peers != TicketPeers::None),
            ("--resume-across-names", self.resume_across_names),
            ("--client-ca", self.client_ca.is_some()),
            ("--client-auth", self.client_auth.is_some()),
            ("--drop-header", !self.drop_header.is_empty()),
            ("--fast-open", self.fast_open),
        ];
        match useless.iter().find(|(_, given)| *given) {
            None => Ok(Vec::new()),
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} is given, but all origins speak TLS themselves"
            ))
            .hint(
                "so that the edge speaks TLS, write --origin http://HOST:PORT or tcp://HOST:PORT",
            )),
        }
    }
}

impl EdgeOptions {
    /// Checks the options of a fleet, which belong together.
    ///
    /// # Errors
    /// Keys in Redis without the fleet's file; cookies, or tickets for all names, beside servers
    /// that would not understand them.
    pub fn check_fleet(&self) -> Result<(), Failure> {
        if matches!(self.keys, Some(KeySource::Redis(_))) && self.fleet.is_none() {
            return Err(Failure::usage("keys in Redis are sealed, and --fleet is missing")
                .hint("name the file that `headstart keys new --fleet FILE` made: --fleet FILE"));
        }
        if self.fast_open && self.ticket_peers != TicketPeers::None {
            return Err(Failure::usage("--fast-open and --ticket-peers exclude each other")
                .hint("tickets that begin with a cookie are worth nothing to other servers"));
        }
        if self.resume_across_names && self.ticket_peers != TicketPeers::None {
            return Err(Failure::usage(
                "--resume-across-names and --ticket-peers exclude each other",
            )
            .hint("those servers say nothing about other names; leave one of them out"));
        }
        Ok(())
    }
}

/// Where a certificate and its private key are; may be one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, in PEM form.
    pub chain: PathBuf,
    /// The key, in PEM form.
    pub key: PathBuf,
}

/// Requests that are taken as early data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum EarlyDataRequests {
    /// No requests: clients are not offered it
    #[default]
    Off,
    /// Requests of safe methods (GET, HEAD, OPTIONS, TRACE); others wait until the handshake is
    /// done
    Safe,
    /// All, also for tcp:// origins; only where every origin tolerates a repeated request
    On,
}

/// Clients that are served where the edge knows their authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientCertificates {
    /// Clients with a certificate of --client-ca
    Required,
    /// Clients without a certificate, too; one of another authority ends the handshake
    Optional,
}

/// Servers that are no headstart and share its ticket keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TicketPeers {
    /// Sharing with no other name: a session is for its server name
    #[default]
    None,
    /// nginx: a session is for the certificates
    Nginx,
    /// HAProxy: a session is for all names
    Haproxy,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3
    #[value(name = "1.3")]
    V1_3,
}
