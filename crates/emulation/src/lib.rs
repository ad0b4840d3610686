//! Network links emulated in virtual time and on real packets.
//!
//! A [`Link`] is one direction of a network path, made of [`Element`]s such as [`Delay`] and
//! [`Loss`]. It has no clock: a test drives it in virtual time.
//!
//! ```
//! use std::time::Duration;
//! use headstart_emulation::{Delay, Link, Loss, Packet};
//!
//! let mut link = Link::default().with(Delay::millis(25)).with(Loss::exact([2]));
//! for byte in 1..=3 {
//!     link.send(Duration::ZERO, Packet::udp([byte]));
//! }
//! assert_eq!(link.next_due(), Some(Duration::from_millis(25)));
//! assert_eq!(link.poll(Duration::from_millis(24)), None);
//! assert_eq!(link.poll(Duration::from_millis(25)), Some(Packet::udp([1])));
//! assert_eq!(link.poll(Duration::from_millis(25)), Some(Packet::udp([3])));
//! ```
//!
//! A [`Path`] is both directions between a node and the network, written as text, with boxes that
//! see both:
//!
//! ```
//! use headstart_emulation::Path;
//!
//! let text = "preset lte, down(rate 10Mbit queue 64kB), dpi tls-only, nat 203.0.113.1";
//! let path: Path = text.parse()?;
//! # Ok::<(), headstart_emulation::ParseError>(())
//! ```
//!
//! A [`Lab`] drives the same links with real packets: each node is a network namespace, and a
//! thread of this process carries its packets. It needs root, or [`enter_user_namespace`] where the
//! system allows it.
//!
//! ```no_run
//! use std::time::Duration;
//! use headstart_emulation::{Host, Lab};
//!
//! let client = Host::new("client").delay(Duration::from_millis(25));
//! let lab = Lab::build(vec![client, Host::new("server")])?;
//! let server = lab.node("server").and_then(|node| node.ipv4());
//! let ping = lab.nodes()[0].command("ping").arg(server.unwrap().to_string()).status()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod balance;
mod capture;
mod element;
mod error;
mod forwarder;
mod host;
mod ip;
mod lab;
mod link;
mod mounts;
mod namespace;
mod node;
mod packet;
mod parse;
mod path;
mod pick;
mod presets;
mod privilege;
mod probe;
mod record;
mod schedule;
mod splice;
mod split;
mod switch;
mod sys;
mod tls;
mod tor;
mod transport_view;
mod wiring;
mod words;

pub use balance::Balance;
pub use capture::{Capture, Captured, CapturedPacket, read_capture, read_packets};
pub use element::{
    Delay, DropSynData, Duplicate, Element, Jitter, Loss, Mtu, Only, Outputs, Rate, Reorder,
    StripFastOpen,
};
pub use error::LabError;
pub use forwarder::{Counters, Lateness, PortCounters};
pub use host::Host;
pub use lab::{Lab, LabOptions};
pub use link::{Link, LinkCounts, MAX_QUEUED};
pub use mounts::{own_bpf_mount, own_hosts_file};
pub use namespace::Namespace;
pub use node::Node;
pub use packet::{Packet, Protocol};
pub use parse::{element_forms, parse_elements};
pub use path::{Path, path_forms};
pub use pick::Pick;
pub use presets::{PRESETS, Preset};
pub use privilege::{Privilege, Refusal, enter_user_namespace, privilege};
pub use probe::{ProbeOptions, Seen, probe};
pub use record::Disturbance;
pub use schedule::{Exactness, Scheduling};
pub use split::SplitTcp;
pub use sys::interrupt_with_parent;
pub use tor::{TorCircuit, TorNetwork, TorStream};
pub use transport_view::{TcpSegment, UdpDatagram};
pub use wiring::{INTERFACE, IP_COMMANDS};
pub use words::ParseError;
