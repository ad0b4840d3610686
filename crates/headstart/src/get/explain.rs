//! The timeline in words.

use std::fmt::Write;
use std::time::Duration;

use headstart_net::{Carrier, FastOpenEvent, What};
use headstart_proto::{ClientEvent, PlainReason};

use super::Account;

impl Account {
    /// What happened when, and what it means; lines with their ends.
    pub fn explain(&self) -> String {
        let mut text = String::from("       ms    RTT\n");
        for (at, what) in self.events() {
            let _ = writeln!(text, "{} {what}", self.stamp(at));
        }
        text.push('\n');
        text.push_str(&self.summary());
        text
    }

    fn events(&self) -> Vec<(Duration, String)> {
        let moments = self.report.iter().flat_map(|report| &report.timeline);
        let mut events: Vec<_> =
            std::iter::once((Duration::ZERO, format!("asked for {}", self.host)))
                .chain(moments.map(|moment| (moment.at, words(&moment.what))))
                .collect();
        let own = [
            (self.secured, self.established()),
            (self.written, "first request byte".to_owned()),
            (self.read, "first response byte".into()),
            (self.done, format!("done, {} bytes of body", self.bytes)),
        ];
        events.extend(own.into_iter().filter_map(|(at, what)| Some((at?, what))));
        // Stable: what happened at once stays in the order of what caused what.
        events.sort_by_key(|(at, _)| *at);
        events
    }

    fn established(&self) -> String {
        self.facts.as_ref().map_or("TLS established".into(), |facts| {
            let group = facts.group.map(|group| format!(", {group}")).unwrap_or_default();
            format!("TLS established: {}{group}, {}", facts.version, facts.cipher)
        })
    }

    /// Milliseconds and round trips since an address was known.
    fn stamp(&self, at: Duration) -> String {
        let ms = (at.as_secs_f64() - self.lookup().as_secs_f64()) * 1000.0;
        let trips = self.rtt().filter(|rtt| !rtt.is_zero() && ms >= 0.0);
        match trips {
            Some(rtt) => format!("{ms:>9.2} {:>6.2}", ms / 1000.0 / rtt.as_secs_f64()),
            None => format!("{ms:>9.2}       "),
        }
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        let (Some(rtt), Some(request)) = (self.rtt(), self.to_request()) else {
            return text;
        };
        let name = match (self.opened_by(), self.secure) {
            (Carrier::TurboTls, _) => "TurboTLS",
            (Carrier::Fop, _) => "Fast Open with a private cookie",
            (Carrier::FastOpen, _) => "Fast Open",
            (Carrier::Quic, _) => "QUIC",
            (Carrier::Proxy { .. }, _) => "a proxy",
            (Carrier::Tcp, true) => "plain TLS over TCP",
            (Carrier::Tcp, false) => "TCP without TLS",
        };
        let trips = self.round_trips(request).unwrap_or_default();
        let (ms, rtt) = (request.as_secs_f64() * 1000.0, rtt.as_secs_f64() * 1000.0);
        let _ = writeln!(
            text,
            "Opened by {name}: the request left after {ms:.1} ms, {trips:.2} round trips of {rtt:.1} ms."
        );
        match (self.opened_by(), self.not_used()) {
            (Carrier::TurboTls | Carrier::Fop, _) => {
                text.push_str("Plain TLS 1.3 takes at least 2 round trips.\n");
            }
            (Carrier::Tcp, Some(reason)) if self.secure => {
                let _ = writeln!(text, "TurboTLS not used: {reason}.");
            }
            _ => {}
        }
        if let Some(reason) = self.fast_open_not_used().filter(|_| self.secure) {
            let _ = writeln!(text, "Fast Open not used: {reason}.");
        }
        text
    }
}

/// One event of a timeline in words.
pub(crate) fn words(what: &What) -> String {
    match what {
        What::Resolved(1) => "address known".into(),
        What::Resolved(count) => format!("{count} addresses known"),
        What::Offered => "TurboTLS offered there".into(),
        What::Syn(address) => format!("TCP  -> SYN to {address}"),
        What::NotUsed(reason) => format!("TurboTLS not used: {reason}"),
        What::FastOpen(event) => fast_open(event),
        What::FastOpenNotUsed(reason) => format!("Fast Open not used: {reason}"),
        What::Transport(event) => transport(event),
        What::Upstream(event) => format!("proxy: {event:?}"),
    }
}

fn fast_open(event: &FastOpenEvent) -> String {
    match event {
        FastOpenEvent::Waiting => "TCP     the SYN waits for the ClientHello".into(),
        FastOpenEvent::NotFast(reason) => format!("TCP     the SYN leaves without data: {reason}"),
        FastOpenEvent::SynSent { bytes, early_data } => {
            let what =
                if *early_data { "the ClientHello and early data" } else { "the ClientHello" };
            format!("TCP  -> with it a cookie and {bytes} bytes: {what}")
        }
        FastOpenEvent::Silent => "TCP     no answer to that SYN: a plain one beside it".into(),
        FastOpenEvent::Failed => "TCP <-  that connection failed: a plain one in its place".into(),
        FastOpenEvent::Answered { accepted: true } => {
            "TCP <-  the data in the SYN were taken".into()
        }
        FastOpenEvent::Answered { accepted: false } => {
            "TCP <-  the data in the SYN were not taken: they go again".into()
        }
    }
}

fn transport(event: &ClientEvent) -> String {
    match event {
        ClientEvent::FlightSent { seq, offset, bytes } => {
            format!("UDP  -> #{seq} client bytes {offset}..{}", end(*offset, *bytes))
        }
        ClientEvent::SlotSent { seq } => format!("UDP  -> #{seq} slot for an answer"),
        ClientEvent::DatagramReceived { seq, ack, bytes: 0, .. } => {
            format!("UDP <-  #{seq} the edge has {ack} bytes")
        }
        ClientEvent::DatagramReceived { seq, offset, bytes, .. } => {
            format!("UDP <-  #{seq} server bytes {offset}..{}", end(*offset, *bytes))
        }
        ClientEvent::DatagramIgnored => "UDP <-  a datagram of no use".into(),
        ClientEvent::Unreachable => "UDP <-  unreachable (ICMP)".into(),
        ClientEvent::TcpConnected => "TCP <-  connected".into(),
        ClientEvent::Plain(PlainReason::NotOffered) => "plain TLS over TCP from here on".into(),
        ClientEvent::Plain(reason) => format!("plain TLS over TCP from here on: {reason}"),
        ClientEvent::GivenUp(reason) => format!("UDP  given up: {reason}"),
        ClientEvent::JoinSent { client_offset, server_offset } => {
            format!(
                "TCP  -> join: from client byte {client_offset}, server byte {server_offset} on"
            )
        }
        ClientEvent::JoinAnswered(status) => format!("TCP <-  join answered: {status:?}"),
        ClientEvent::FirstServerBytes { udp: true } => "first server bytes to TLS, from UDP".into(),
        ClientEvent::FirstServerBytes { udp: false } => {
            "first server bytes to TLS, from TCP".into()
        }
        ClientEvent::LateDatagram => "UDP <-  a datagram after the fallback: too late".into(),
        ClientEvent::Reset(reason) => format!("reset: {}", reason.name()),
    }
}

fn end(offset: u32, bytes: usize) -> u64 {
    u64::from(offset) + u64::try_from(bytes).unwrap_or_default()
}
