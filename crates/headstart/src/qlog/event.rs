//! Events of connections by their names and fields in qlog (docs/qlog.md has the table).

use std::net::SocketAddr;

use headstart_net::upstream::UpstreamEvent;
use headstart_net::{ClientEvent, EdgeEvent, FastOpenEvent, OpeningEvent};
use serde_json::{Value, json};

/// Event of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// At a client.
    Opening(OpeningEvent),
    /// At an edge.
    Edge(EdgeEvent),
    /// The end; `remote` is the server at a client, and the client at an edge.
    Ended { opening: &'static str, result: &'static str, remote: Option<SocketAddr> },
}

/// Name and data of an event.
pub(super) type Entry = (&'static str, Value);

impl Event {
    /// Returns the name and the data, with addresses only if they are `shown`.
    pub(super) fn entry(&self, shown: bool) -> Entry {
        match self {
            Self::Opening(event) => opening(event, shown),
            Self::Edge(event) => edge(event),
            Self::Ended { opening, result, remote } => {
                let data = json!({ "opening": opening, "result": result });
                ("turbotls:connection_ended", with_remote(data, remote.filter(|_| shown)))
            }
        }
    }
}

fn with_remote(mut data: Value, remote: Option<SocketAddr>) -> Value {
    if let Some(remote) = remote {
        data["remote"] = remote.to_string().into();
    }
    data
}

fn opening(event: &OpeningEvent, shown: bool) -> Entry {
    let to = |data, address: &SocketAddr| with_remote(data, shown.then_some(*address));
    match event {
        OpeningEvent::Resolved(addresses) => {
            ("turbotls:name_resolved", json!({ "addresses": addresses }))
        }
        OpeningEvent::Offered => ("turbotls:offered", json!({})),
        OpeningEvent::Syn(address) => ("tcp:syn_sent", to(json!({}), address)),
        OpeningEvent::SecondSyn(address) => ("tcp:second_syn_sent", to(json!({}), address)),
        OpeningEvent::Spare(address) => ("tcp:spare_taken", to(json!({}), address)),
        OpeningEvent::SpareDead => ("tcp:spare_dead", json!({})),
        OpeningEvent::NotUsed(reason) => ("turbotls:not_used", json!({ "reason": reason.name() })),
        OpeningEvent::FastOpen(event) => fast_open(event),
        OpeningEvent::FastOpenNotUsed(reason) => {
            ("tcp:syn_data_not_used", json!({ "reason": reason.name() }))
        }
        OpeningEvent::Transport(event) => transport(event),
        OpeningEvent::Upstream(event) => upstream(event),
        OpeningEvent::HandedOver => ("turbotls:handed_over", json!({})),
    }
}

fn fast_open(event: &FastOpenEvent) -> Entry {
    match event {
        FastOpenEvent::Waiting => ("tcp:syn_delayed", json!({})),
        FastOpenEvent::NotFast(reason) => {
            ("tcp:syn_data_not_sent", json!({ "reason": reason.name() }))
        }
        FastOpenEvent::SynSent { bytes, early_data } => {
            ("tcp:syn_data_sent", json!({ "bytes": bytes, "early_data": early_data }))
        }
        FastOpenEvent::Silent => ("tcp:syn_data_unanswered", json!({})),
        FastOpenEvent::Failed => ("tcp:syn_data_failed", json!({})),
        FastOpenEvent::Answered { accepted } => {
            ("tcp:syn_data_answered", json!({ "accepted": accepted }))
        }
    }
}

fn transport(event: &ClientEvent) -> Entry {
    match event {
        ClientEvent::FlightSent { seq, offset, bytes } => {
            ("turbotls:datagram_sent", json!({ "seq": seq, "offset": offset, "bytes": bytes }))
        }
        ClientEvent::SlotSent { seq } => ("turbotls:datagram_sent", json!({ "seq": seq })),
        ClientEvent::DatagramReceived { seq, ack, offset, bytes } => (
            "turbotls:datagram_received",
            json!({ "seq": seq, "ack": ack, "offset": offset, "bytes": bytes }),
        ),
        ClientEvent::DatagramIgnored => dropped("unusable"),
        ClientEvent::LateDatagram => dropped("late"),
        ClientEvent::Unreachable => ("turbotls:unreachable", json!({})),
        ClientEvent::TcpConnected => ("tcp:connected", json!({})),
        ClientEvent::Plain(reason) => ("turbotls:fallback", json!({ "reason": reason.name() })),
        ClientEvent::GivenUp(reason) => ("turbotls:given_up", json!({ "reason": reason.name() })),
        ClientEvent::JoinSent { client_offset, server_offset } => {
            join("turbotls:join_sent", *client_offset, *server_offset)
        }
        ClientEvent::JoinAccepted { server_offset } => answered(*server_offset),
        ClientEvent::FirstServerBytes { udp: true } => ("turbotls:committed", json!({})),
        ClientEvent::FirstServerBytes { udp: false } => ("tcp:server_bytes_received", json!({})),
        ClientEvent::Reset(reason) => ("turbotls:reset", json!({ "reason": reason.name() })),
    }
}

fn upstream(event: &UpstreamEvent) -> Entry {
    match event {
        UpstreamEvent::Connected => ("proxy:connected", json!({})),
        UpstreamEvent::SentEarly(bytes) => ("proxy:early_bytes_sent", json!({ "bytes": bytes })),
        UpstreamEvent::Granted => ("proxy:granted", json!({})),
        UpstreamEvent::Answered => ("proxy:early_bytes_answered", json!({})),
        UpstreamEvent::FellBack(reason) => ("proxy:fallback", json!({ "reason": reason.name() })),
    }
}

fn edge(event: &EdgeEvent) -> Entry {
    match event {
        EdgeEvent::DatagramReceived { seq, offset, bytes } => {
            ("turbotls:datagram_received", json!({ "seq": seq, "offset": offset, "bytes": bytes }))
        }
        EdgeEvent::DatagramDropped(discard) => dropped(discard.name()),
        EdgeEvent::DatagramSent { seq, ack, offset, bytes } => (
            "turbotls:datagram_sent",
            json!({ "seq": seq, "ack": ack, "offset": offset, "bytes": bytes }),
        ),
        EdgeEvent::SessionStarted => ("turbotls:session_started", json!({})),
        EdgeEvent::SessionExpired => ("turbotls:session_expired", json!({})),
        EdgeEvent::TcpConnected => ("tcp:connected", json!({})),
        EdgeEvent::JoinReceived { client_offset, server_offset } => {
            join("turbotls:join_received", *client_offset, *server_offset)
        }
        EdgeEvent::JoinAnswered { server_offset } => answered(*server_offset),
        EdgeEvent::JoinRefused => ("turbotls:join_refused", json!({})),
        EdgeEvent::Attached => ("turbotls:attached", json!({})),
        EdgeEvent::Forwarded => ("turbotls:forwarded", json!({})),
        EdgeEvent::PassedOn => ("turbotls:passed_on", json!({})),
        EdgeEvent::CarefulResume { from, to, window } => {
            ("tcp:careful_resume", json!({ "from": from, "to": to, "window": window }))
        }
        EdgeEvent::HandedOver => ("turbotls:handed_over", json!({})),
    }
}

fn dropped(reason: &str) -> Entry {
    ("turbotls:datagram_dropped", json!({ "reason": reason }))
}

fn join(name: &'static str, client_offset: u32, server_offset: u32) -> Entry {
    (name, json!({ "client_offset": client_offset, "server_offset": server_offset }))
}

fn answered(server_offset: u32) -> Entry {
    ("turbotls:join_answered", json!({ "server_offset": server_offset }))
}
