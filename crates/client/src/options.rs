//! Options of a connection.

use std::path::PathBuf;

/// Options of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A label within this user: connections of different contexts share nothing that a server
    /// could see.
    pub context: Option<String>,
    /// Policy for this connection: may be stricter than that of the context, never laxer.
    pub policy: Option<Policy>,
    /// Trust anchors for the server's name.
    pub verify: Verify,
    /// Name to send and to verify the certificate for, if it is not the host.
    pub server_name: Option<String>,
    /// The agent's name of a certificate to be shown (`headstart agent --client-certificate
    /// NAME=FILE`).
    pub client_certificate: Option<String>,
    /// Application protocols in order of preference. Connections that differ in them share no
    /// session.
    pub alpn: Vec<String>,
}

impl Default for Options {
    /// HTTP/1.1, the system's roots and the user's policy.
    fn default() -> Self {
        Self {
            context: None,
            policy: None,
            verify: Verify::System,
            server_name: None,
            client_certificate: None,
            alpn: vec!["http/1.1".into()],
        }
    }
}

/// Sharing of sessions with other connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Shares sessions with others of its context.
    Share,
    /// Shares nothing.
    Isolate,
    /// Uses no sessions.
    Off,
}

impl Policy {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Isolate => "isolate",
            Self::Off => "off",
        }
    }
}

/// Trust anchors for the name of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// The roots of the agent's system.
    #[default]
    System,
    /// The roots in a PEM file, which the agent reads.
    Roots(PathBuf),
    /// No verification: any certificate is accepted.
    Nobody,
}
