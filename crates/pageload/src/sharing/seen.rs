use serde::Serialize;

/// Counts of everything else in the recordings, and of what could not be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Seen {
    /// Packets of captures.
    pub packets: u64,
    /// Packets that are not TCP or UDP over IP, or are damaged.
    pub other_packets: u64,
    /// Packets of a link type that is not known, and those of pcapng that do not say which: of an
    /// interface that is not described, or in a Packet Block, obsolete since 2004.
    pub unknown_link_packets: u64,
    /// Pieces of IP packets of TCP and UDP; they are not put together.
    pub fragments: u64,
    /// TCP connections whose beginning was captured.
    pub tcp_connections: u64,
    /// Connections that carried something other than TLS, or nothing.
    pub not_tls: u64,
    /// Handshakes that were counted already: seen on both sides of a NAT or a proxy that passes TLS
    /// through, or in another capture of the same time.
    pub copies: u64,
    /// ClientHellos that contradict their own lengths, or are larger than 16 KiB.
    pub unreadable: u64,
    /// Handshakes that are not whole in the capture, or were refused: of most the answer is
    /// missing.
    pub unanswered: u64,
    /// Handshakes of which the capture lacks bytes, because it was limited to the first of each
    /// packet.
    pub cut_off: u64,
    /// Connections that had to give way before their handshake was read, as too many were open.
    pub displaced: u64,
    /// TLS connections beyond the limits on their number and that of names.
    pub left_out: u64,
    /// TLS connections that offered a session. Beside encrypted_client_hello an offer may be noise,
    /// so there only those count that were accepted.
    pub resumption_offered: u64,
    /// Resumptions that were refused.
    pub resumption_refused: u64,
    /// TLS connections that announced early data; whether it was taken cannot be seen.
    pub early_data_offered: u64,
    /// TLS connections with encrypted_client_hello, real or not: their names may be those of the
    /// outer ClientHello.
    pub encrypted_client_hello: u64,
    /// TLS connections that took a HelloRetryRequest, and so a round trip more.
    pub hello_retry: u64,
    /// TLS connections whose server asked for a client certificate, seen in TLS 1.2 only. They are
    /// not shared.
    pub client_certificate_requested: u64,
    /// TLS connections without the name of a server.
    pub without_name: u64,
    /// Pairs of addresses and ports that used QUIC; not counted among the connections.
    pub quic_connections: u64,
    /// Datagrams of TurboTLS clients; their handshakes are not counted among the connections.
    pub turbotls_datagrams: u64,
    /// TCP connections that go on with a handshake begun by TurboTLS; not counted, either.
    pub turbotls_joins: u64,
    /// Requests in HAR files.
    pub har_requests: u64,
    /// Requests in HAR files that went over QUIC.
    pub har_quic_requests: u64,
    /// TLS connections of HAR files that lack the server's address, a name that can be one, or a
    /// time; not counted.
    pub har_incomplete: u64,
}
