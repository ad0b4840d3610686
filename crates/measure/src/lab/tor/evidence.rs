//! Evidence of the exit's packets: true if data followed without waiting.
//!
//! An exit that has a client's data when the origin answers its SYN sends them at once. One that
//! has none tells the client, and gets them a round trip of the circuit later.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use headstart_emulation::{CapturedPacket, TcpSegment};
use serde_json::{Value, json};

use super::Arm;
use crate::stats::Summary;

/// In parts of the circuit's round trip: less is at once, more is after waiting. The circuit's
/// round trip is that with the origin; without its links, four fifths are left.
const AT_ONCE: f64 = 0.25;
const AFTER_WAITING: f64 = 0.6;

/// The share of connections that must show it: on a busy machine one or another is late.
const LEAST: f64 = 0.8;

/// Time after the origin's SYN-ACK at which the first data left the exit, in ms, of each arm.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    waiting: Vec<f64>,
    optimistic: Vec<f64>,
    /// True if all connections were captured.
    whole: bool,
}

/// A connection of the exit to the origin.
#[derive(Default)]
struct Connection {
    answered: Option<Duration>,
    data: Option<Duration>,
}

impl Evidence {
    /// Reads a capture at the exit's interface; `order` tells whose connections came one after the
    /// other.
    pub(super) fn from_packets(packets: &[CapturedPacket], order: &[Arm], whole: bool) -> Self {
        let connections = connections(packets);
        let mut evidence =
            Self { whole: whole && connections.len() == order.len(), ..Self::default() };
        for (connection, arm) in connections.iter().zip(order) {
            let (Some(answered), Some(data)) = (connection.answered, connection.data) else {
                continue;
            };
            let later = data.saturating_sub(answered).as_secs_f64() * 1e3;
            match arm {
                Arm::Waiting => evidence.waiting.push(later),
                Arm::Optimistic => evidence.optimistic.push(later),
            }
        }
        evidence
    }

    /// Returns the reason why the figures do not show what they claim, if there is one.
    pub(super) fn contradiction(&self, rtt: Duration) -> Option<String> {
        let rtt = rtt.as_secs_f64() * 1e3;
        let at_once = share(&self.optimistic, |later| later < AT_ONCE * rtt);
        let waited = share(&self.waiting, |later| later > AFTER_WAITING * rtt);
        if !self.whole {
            return Some("the exit's capture lacks connections".into());
        }
        if at_once < LEAST {
            return Some("the exit's packets show no data that are there at once".into());
        }
        (waited < LEAST).then(|| "the exit's packets show no waiting".into())
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "ms_from_origins_syn_ack_to_first_data": {
                "waiting": Summary::from_samples(&self.waiting),
                "optimistic": Summary::from_samples(&self.optimistic),
            },
            "whole": self.whole,
        })
    }
}

fn share(times: &[f64], is: impl Fn(f64) -> bool) -> f64 {
    let count = times.iter().filter(|later| is(**later)).count();
    if times.is_empty() { 0.0 } else { count as f64 / times.len() as f64 }
}

/// The exit's connections to ports of the origin, in the order of their SYNs.
fn connections(packets: &[CapturedPacket]) -> Vec<Connection> {
    let mut numbers = HashMap::<SocketAddr, usize>::new();
    let mut connections = Vec::<Connection>::new();
    for packet in packets {
        let Some(segment) = TcpSegment::read(&packet.bytes) else { continue };
        let (own, other) = match packet.from_node {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        if !matches!(other.port(), 80 | 443) {
            continue;
        }
        if packet.from_node && segment.syn {
            let is_new = numbers
                .get(&own)
                .and_then(|number| connections.get(*number))
                .is_none_or(|known| known.answered.is_some());
            if is_new {
                numbers.insert(own, connections.len());
                connections.push(Connection::default());
            }
            continue;
        }
        let Some(known) = numbers.get(&own).and_then(|number| connections.get_mut(*number)) else {
            continue;
        };
        if !packet.from_node && segment.syn {
            known.answered.get_or_insert(packet.at);
        }
        if packet.from_node && !segment.payload.is_empty() {
            known.data.get_or_insert(packet.at);
        }
    }
    connections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(waiting: f64, optimistic: f64) -> Evidence {
        Evidence { waiting: vec![waiting; 5], optimistic: vec![optimistic; 5], whole: true }
    }

    #[test]
    fn data_at_once_and_after_a_round_trip_are_told_apart() {
        let rtt = Duration::from_millis(100);
        assert_eq!(evidence(98.0, 0.3).contradiction(rtt), None);
        assert!(evidence(98.0, 90.0).contradiction(rtt).is_some());
        assert!(evidence(20.0, 0.3).contradiction(rtt).is_some());
        assert!(Evidence::default().contradiction(rtt).is_some());
        assert!(Evidence { whole: false, ..evidence(98.0, 0.3) }.contradiction(rtt).is_some());
    }
}
