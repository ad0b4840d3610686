//! Network links emulated in virtual time and on real packets.
//!
//! A [`Link`] is one direction of a network path, made of [`Element`]s such as [`Delay`] and [`Loss`]. It has no
//! clock: a test drives it in virtual time.
//!
//! ```
//! use std::time::Duration;
//! use headstart_lab::{Delay, Link, Loss, Packet};
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

mod element;
mod link;
mod packet;
mod parse;
mod pick;

pub use element::{Delay, Duplicate, Element, Loss, Only, Outputs, Reorder};
pub use link::{Link, LinkCounts, MAX_QUEUED};
pub use packet::{Packet, Protocol};
pub use parse::{ParseError, element_forms, parse_elements};
pub use pick::Pick;
