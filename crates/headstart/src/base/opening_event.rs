//! Events of a connection in words.

use headstart_net::{FastOpenEvent, OpeningEvent};
use headstart_proto::{ClientEvent, PlainReason};

/// One event of a timeline in words.
pub(crate) fn words(what: &OpeningEvent) -> String {
    match what {
        OpeningEvent::Resolved(1) => "address known".into(),
        OpeningEvent::Resolved(count) => format!("{count} addresses known"),
        OpeningEvent::Offered => "TurboTLS offered there".into(),
        OpeningEvent::Syn(address) => format!("TCP  -> SYN to {address}"),
        OpeningEvent::SecondSyn(address) => {
            format!("TCP  -> no answer in time: a second SYN to {address}")
        }
        OpeningEvent::Spare(address) => format!("TCP  -> over a spare connection to {address}"),
        OpeningEvent::SpareDead => "TCP  <- the spare was dead: another connection".into(),
        OpeningEvent::NotUsed(reason) => format!("TurboTLS not used: {reason}"),
        OpeningEvent::FastOpen(event) => fast_open(event),
        OpeningEvent::FastOpenNotUsed(reason) => format!("Fast Open not used: {reason}"),
        OpeningEvent::Transport(event) => transport(event),
        OpeningEvent::Upstream(event) => format!("proxy: {event:?}"),
        OpeningEvent::HandedOver => "TCP     alone carries the connection from here on".into(),
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
        ClientEvent::JoinAccepted { server_offset } => {
            format!("TCP <-  join accepted, server bytes from {server_offset} on")
        }
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
