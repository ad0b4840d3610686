//! TurboTLS on tokio: byte streams that open in one round trip, under any TLS library.
//!
//! * [`Connector`] opens a [`ClientStream`]: DNS lookup, Happy Eyeballs, the UDP flight, the join.
//! * [`Acceptor`] yields a [`ServerStream`] for each connection, over UDP and TCP or TCP alone;
//!   several acceptors form a [`Fleet`].
//! * [`TlsStream`] runs TLS over either, or over any other stream, and knows early data.
//! * [`bridge`] joins either to a TCP connection; once open, bytes are spliced.
//! * [`dns`] finds out which names advertise TurboTLS.
//! * [`upstream`] connects through a SOCKS5 proxy without waiting for its replies.
//! * [`careful`] lets connections begin with a window that their path has borne before.
//! * [`fastopen`] puts the first flight into the SYN, for clients that hold a cookie.
//!
//! A client that looks for the server's advertisement in DNS, and connects plainly without one:
//!
//! ```no_run
//! use headstart_net::dns::{DnsConfig, Resolver};
//! use headstart_net::{Connector, ConnectorConfig, Target};
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let config = ConnectorConfig::new(Resolver::new(&DnsConfig::default())?);
//! let stream = Connector::new(config).connect(&Target::new("www.example.com", 443))?;
//! // Speak TLS on `stream`: the first bytes written leave over UDP while TCP connects.
//! # Ok(())
//! # }
//! ```
//!
//! A server that accepts plain TLS on the same port:
//!
//! ```no_run
//! use headstart_net::{Acceptor, AcceptorConfig};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let mut acceptor = Acceptor::bind("0.0.0.0:443".parse()?, AcceptorConfig::default())?;
//! loop {
//!     let arrival = acceptor.accept().await?;
//!     tokio::spawn(async move {
//!         // `None`: the TCP part of a connection that another task serves already.
//!         if let Ok(Some(stream)) = arrival.establish().await {
//!             // Accept TLS on `stream`.
//!             println!("{:?} from {}", stream.opened_by(), stream.peer_addr());
//!         }
//!     });
//! }
//! # }
//! ```
//!
//! The folder `examples` has both with OpenSSL.
//!
//! Two features, both on by default, bring most of the dependencies: `attach` loads the programs of
//! Fast Open into the kernel; `dns` queries HTTPS records, and without it the system resolves names
//! and edges have to be configured.
//!
//! `headstart-proto` makes the protocol's decisions; this crate moves bytes.

mod acceptor;
mod bridge;
mod clock;
mod closing;
mod connector;
mod name;
mod netlink;
mod opener;
mod path;
mod proven_addr;
mod race;
mod redirect;
mod relay;
mod report;
// Attaching needs all of it.
#[cfg_attr(not(feature = "attach"), allow(dead_code))]
mod sys;
mod target;
mod tcp_info;
#[cfg(test)]
#[path = "../tests/loopback/time.rs"]
mod time;
mod timeline;
mod tls_stream;
mod udp;
mod wakers;

pub use headstart_proto::fastopen::{FastOpenEvent, NotFast};
pub use headstart_proto::{
    Carrier, ClientEvent, EdgeNumber, PlainReason, ResetReason, ServerConfig, hello,
};
pub use headstart_sessions::{Context, Network};

#[doc(hidden)]
pub use acceptor::read_proxy_header;
pub use acceptor::{
    Acceptor, AcceptorConfig, Arrival, Direction, Fleet, Generations, Inherited, ListenAddress,
    ListenSockets, QuicServer, ServerStream, StrayJoin, listen_tcp,
};
pub use bridge::{Handoff, bridge};
pub use clock::BootClock;
pub use closing::close_after_drain;
pub use connector::{
    ClientStream, Connector, ConnectorConfig, Edge, EdgeLookup, OpeningPolicy, UnknownPolicy,
};
pub use netlink::{is_anyone, tcp_listener, tcp_owner};
pub use path::{PathReason, SILENCES_TO_BLOCK};
pub use proven_addr::{ProvenAddr, ProvenBy};
pub use race::{Attempt, AttemptOutcome, RaceError, RaceFailure};
pub use redirect::original_destination;
pub use relay::{LimitClock, RelayCounts, RelayEnd, RelayLimits, RelayReason, Side, TimeLimit};
pub use report::{FastOpenNotUsed, NotUsed, OpeningEvent, Report, TimelineEntry};
pub use sys::{steer_connections, tun};
pub use target::Target;
pub use timeline::{EdgeEvent, EdgeTimeline};
pub use tls_stream::{ByteCounts, TlsHandle, TlsStream};
pub use udp::{Datagram, LISTEN_BUFFER, Received, RecvBuffers, RecvError, UdpPort};
pub mod advert;
pub mod careful;
pub mod dns;
#[cfg_attr(not(feature = "attach"), allow(dead_code))]
pub mod fastopen;
pub mod upstream;
