use serde::Serialize;

/// Counts of everything else in the recordings, and of what could not be determined.
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
    /// IP fragments of TCP and UDP; they are not reassembled.
    pub fragments: u64,
    /// TCP connections whose start was captured.
    pub tcp_connections: u64,
    /// Connections that carried something other than TLS, or nothing.
    pub not_tls: u64,
    /// Handshakes that were already counted: seen on both sides of a NAT or a proxy that passes TLS
    /// through, or in another capture of the same time.
    pub copies: u64,
    /// ClientHellos that contradict their own lengths, or are larger than 16 KiB.
    pub unreadable: u64,
    /// Handshakes that are incomplete in the capture, or were refused: mostly the answer is
    /// missing.
    pub unanswered: u64,
    /// Handshakes whose bytes are missing because only the start of each packet was captured.
    pub cut_off: u64,
    /// Connections that were displaced before their handshake was read, as too many were open.
    pub displaced: u64,
    /// TLS connections beyond the limits on connections and names.
    pub left_out: u64,
    /// TLS connections that offered a session. With encrypted_client_hello an offer may be GREASE,
    /// so only accepted ones count.
    pub resumption_offered: u64,
    /// Resumptions that were refused.
    pub resumption_refused: u64,
    /// TLS connections that announced early data; whether it was accepted is not visible.
    pub early_data_offered: u64,
    /// TLS connections with encrypted_client_hello, real or not: their names may be those of the
    /// outer ClientHello.
    pub encrypted_client_hello: u64,
    /// TLS connections with a HelloRetryRequest, which costs another round trip.
    pub hello_retry: u64,
    /// TLS connections whose server asked for a client certificate, seen in TLS 1.2 only. They are
    /// not shared.
    pub client_certificate_requested: u64,
    /// TLS connections without a server name.
    pub without_name: u64,
    /// Pairs of addresses and ports that used QUIC; not counted among the connections.
    pub quic_connections: u64,
    /// Datagrams of TurboTLS clients; their handshakes are not counted among the connections.
    pub turbotls_datagrams: u64,
    /// TCP connections that continue a handshake begun by TurboTLS; not counted either.
    pub turbotls_joins: u64,
    /// Requests in HAR files.
    pub har_requests: u64,
    /// Requests in HAR files that went over QUIC.
    pub har_quic_requests: u64,
    /// TLS connections of HAR files without a server address, a valid name or a time; not counted.
    pub har_incomplete: u64,
}
