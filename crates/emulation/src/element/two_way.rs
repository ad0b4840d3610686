use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Element, Outputs};
use crate::Packet;

/// A box whose state both directions share.
pub(super) trait Middlebox: std::fmt::Debug + Send {
    /// Takes a packet from the node.
    fn outbound(&mut self, now: Duration, packet: Packet, out: &mut Outputs);

    /// Takes a packet to the node.
    fn inbound(&mut self, now: Duration, packet: Packet, out: &mut Outputs);
}

/// The two elements by which a box stands in both links of a node.
#[derive(Debug)]
pub(crate) struct TwoWay {
    pub(crate) outbound: Box<dyn Element>,
    pub(crate) inbound: Box<dyn Element>,
    /// Addresses under which the box shows the node to others.
    pub(crate) public: Vec<IpAddr>,
}

impl TwoWay {
    pub(super) fn new(middlebox: impl Middlebox + 'static, public: Vec<IpAddr>) -> TwoWay {
        let shared = Arc::new(Mutex::new(middlebox));
        TwoWay {
            outbound: Box::new(Half { shared: Arc::clone(&shared), is_outbound: true }),
            inbound: Box::new(Half { shared, is_outbound: false }),
            public,
        }
    }
}

#[derive(Debug)]
struct Half<M> {
    shared: Arc<Mutex<M>>,
    is_outbound: bool,
}

impl<M: Middlebox> Element for Half<M> {
    fn handle(&mut self, now: Duration, packet: Packet, out: &mut Outputs) {
        let mut middlebox = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_outbound {
            middlebox.outbound(now, packet, out);
        } else {
            middlebox.inbound(now, packet, out);
        }
    }
}
