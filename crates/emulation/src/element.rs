//! Link elements: one small file each, and one line in [`KINDS`].

use std::fmt;
use std::time::Duration;

use crate::words::{ParseError, Words};
use crate::{Packet, Protocol};

#[cfg(test)]
mod any_bytes;
mod bursts;
mod delay;
mod drop_syn;
mod duplicate;
mod fast_open;
mod flow_table;
mod jitter;
mod loss;
mod mtu;
mod nat;
mod one_reply;
mod only;
mod rate;
mod reorder;
mod tls_only;
mod two_way;
mod udp_dies;

pub use delay::Delay;
pub use duplicate::Duplicate;
pub(crate) use fast_open::fast_open_options;
pub use fast_open::{DropSynData, StripFastOpen};
pub(crate) use flow_table::FlowTable;
pub use jitter::Jitter;
pub use loss::Loss;
pub use mtu::Mtu;
pub use only::Only;
pub use rate::Rate;
pub use reorder::Reorder;
pub(crate) use two_way::TwoWay;

/// Something that happens to packets on their way: a list of these makes a [`Link`](crate::Link).
pub trait Element: fmt::Debug + Send {
    /// Takes a packet that arrives at `now` and says what comes out, when.
    ///
    /// Called in the order of arrival, with a `now` that never goes back. A packet not given to
    /// `out` is dropped.
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs);

    /// Returns the delay of every packet when the element is idle, for
    /// [`Path::nominal_delay`](crate::Path::nominal_delay); `None` if it differs between packets.
    ///
    /// What an element does to some packets only, such as those it reorders, does not count, nor
    /// does the time that bytes take at a limited rate.
    fn nominal_delay(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// The same element, seeing only packets of one protocol; others pass at once and are not
    /// counted.
    fn only(self, protocol: Protocol) -> Only
    where
        Self: Sized + 'static,
    {
        Only::new(protocol, Box::new(self))
    }
}

/// Packets that an element lets out for one that arrived.
#[derive(Debug, Default)]
pub struct Outputs {
    packets: Vec<(Duration, Packet)>,
    replies: Vec<Packet>,
    changes: u64,
}

impl Outputs {
    /// Lets a packet out at once.
    pub fn pass(&mut self, packet: Packet) {
        self.pass_after(Duration::ZERO, packet);
    }

    /// Lets a packet out after some time.
    pub fn pass_after(&mut self, delay: Duration, packet: Packet) {
        self.packets.push((delay, packet));
    }

    /// Sends a packet of the element's own back, such as an ICMP error, at once.
    ///
    /// A lab's switch takes it into the link of the other direction. On a
    /// [`Path`](crate::Path) it passes the elements between this one and the end it goes to; of an
    /// element in a link made otherwise, as if it stood at the network's core. An element must not
    /// answer ICMP errors and resets, or two could answer each other for ever.
    pub fn reply(&mut self, packet: Packet) {
        self.replies.push(packet);
    }

    /// Notes that the element now treats packets in another way, for
    /// [`LinkCounts::changed`](crate::LinkCounts).
    pub fn change(&mut self) {
        self.changes += 1;
    }

    pub(crate) fn take_changes(&mut self) -> u64 {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Duration, Packet)> {
        self.packets.drain(..)
    }

    pub(crate) fn drain_replies(&mut self) -> impl Iterator<Item = Packet> {
        self.replies.drain(..)
    }
}

/// One kind of element in text form: its first word, its whole form, its parser.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) form: &'static str,
    pub(crate) parse: Parse,
}

/// Reads what follows the first word.
pub(crate) enum Parse {
    /// An element for one direction; in a path each direction has one of its own.
    OneWay(fn(&mut Words<'_>) -> Result<Box<dyn Element>, ParseError>),
    /// A box that sees both directions of a path.
    TwoWay(fn(&mut Words<'_>) -> Result<TwoWay, ParseError>),
}

/// Every kind that can be written as text.
pub(crate) const KINDS: &[Kind] = &[
    delay::KIND,
    loss::DROP_KIND,
    drop_syn::SYN_KIND,
    drop_syn::SYN_ACK_KIND,
    fast_open::DROP_KIND,
    duplicate::KIND,
    loss::KIND,
    bursts::KIND,
    reorder::KIND,
    rate::KIND,
    mtu::KIND,
    fast_open::STRIP_KIND,
    one_reply::KIND,
    udp_dies::KIND,
    tls_only::KIND,
    nat::KIND,
];
