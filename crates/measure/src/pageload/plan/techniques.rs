//! Techniques in words.

use headstart_pageload::sim::tcp::Technique;

/// Returns what a technique is, in a line.
pub(super) fn about(technique: Technique) -> &'static str {
    match technique {
        Technique::FastOpen => {
            "TCP Fast Open (RFC 7413): data in the SYN, with a cookie per address"
        }
        Technique::FastOpenPrivacy => "Fast Open with cookies per name that came inside TLS",
        Technique::TurboTls => "TLS's first flights go over UDP while TCP connects",
        Technique::Spares => "an idle TCP connection waits at each host that follows",
        Technique::Resumption => "TLS sessions are resumed: fewer bytes, the same round trips",
        Technique::ZeroRtt => "the first request leaves with the ClientHello (TLS early data)",
        Technique::SessionSharing => "all programs of the machine resume each other's sessions",
        Technique::OptimisticData => "data leaves before a proxy says that it is connected",
        Technique::RedirectDatabase => "the browser knows where the page's redirects lead",
        Technique::Http2Database => "the browser knows which hosts speak HTTP/2",
        Technique::PrefetchDatabase => "the browser knows what the page loads, and asks at once",
        Technique::ServerDatabase => "the browser knows the page's hosts, and connects at once",
        Technique::EarlyHints => "the server names what the page needs before it has the page",
        Technique::Http3 => "QUIC in place of TCP and TLS, for comparison",
    }
}

/// Returns what an operator does for a technique at `hosts`.
pub(super) fn action(technique: Technique, hosts: &str) -> String {
    match technique {
        Technique::FastOpen => format!("Turn TCP Fast Open on at {hosts}"),
        Technique::FastOpenPrivacy => format!("Run `headstart fastopen` at {hosts}"),
        Technique::TurboTls => format!("Put an edge in front of {hosts}"),
        Technique::Spares => "Have agents hold spare connections (docs/spares.md)".into(),
        Technique::Resumption => format!("Have TLS sessions resumed at {hosts}"),
        Technique::ZeroRtt => format!("Let edges take early data in front of {hosts}"),
        Technique::SessionSharing => "Have clients share sessions (docs/sessions.md)".into(),
        Technique::OptimisticData => {
            "Have agents send early to their proxy (docs/optimistic.md)".into()
        }
        Technique::RedirectDatabase
        | Technique::Http2Database
        | Technique::PrefetchDatabase
        | Technique::ServerDatabase => {
            format!("Give browsers the page database: {technique} (docs/databases.md)")
        }
        Technique::EarlyHints => "Send 103 Early Hints with the document".into(),
        Technique::Http3 => format!("Serve HTTP/3 at {hosts}"),
    }
}

/// Returns true if a database says what the technique needs to know.
pub(super) fn needs_database(technique: Technique) -> bool {
    matches!(
        technique,
        Technique::RedirectDatabase
            | Technique::Http2Database
            | Technique::PrefetchDatabase
            | Technique::ServerDatabase
    )
}
