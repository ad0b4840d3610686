//! Link elements: one small file each, and one line in [`KINDS`].

use std::fmt;
use std::time::Duration;

use crate::parse::{ParseError, Words};
use crate::{Packet, Protocol};

mod delay;
mod duplicate;
mod loss;
mod only;
mod reorder;

pub use delay::Delay;
pub use duplicate::Duplicate;
pub use loss::Loss;
pub use only::Only;
pub use reorder::Reorder;

/// Something that happens to packets on their way: a list of these makes a [`Link`](crate::Link).
pub trait Element: fmt::Debug + Send {
    /// Takes a packet that arrives at `now` and says what comes out, when.
    ///
    /// Called in the order of arrival, with a `now` that never goes back. A packet not given to `out` is dropped.
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs);

    /// The same element, seeing only packets of one protocol; others pass at once and are not counted.
    fn only(self, protocol: Protocol) -> Only
    where
        Self: Sized + 'static,
    {
        Only::new(protocol, Box::new(self))
    }
}

/// What an element lets out for one packet.
#[derive(Debug, Default)]
pub struct Outputs {
    packets: Vec<(Duration, Packet)>,
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

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Duration, Packet)> {
        self.packets.drain(..)
    }
}

/// One kind of element in text form: its first word, its whole form, its parser.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) form: &'static str,
    pub(crate) parse: fn(&mut Words<'_>) -> Result<Box<dyn Element>, ParseError>,
}

/// Every kind that can be written as text.
pub(crate) const KINDS: &[Kind] =
    &[delay::KIND, loss::DROP_KIND, duplicate::KIND, loss::KIND, reorder::KIND];
