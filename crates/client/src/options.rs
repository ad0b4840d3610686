//! Options of a connection.

use std::path::PathBuf;

/// Options of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A label within this user: connections of different contexts have nothing in common that a server could see.
    pub context: Option<String>,
    /// For this connection: stricter than that of the context, and never laxer.
    pub policy: Option<Policy>,
    /// Trust anchors for the server's name.
    pub verify: Verify,
    /// The name to ask for and to check the certificate for, if it is not the host.
    pub server_name: Option<String>,
    /// The agent's name of a certificate to be shown (`headstart agent --client-certificate
    /// NAME=FILE`).
    pub client_certificate: Option<String>,
    /// Application protocols, the best first. Connections that differ in them share no session.
    pub alpn: Vec<String>,
}

impl Default for Options {
    /// HTTP/1.1, the roots of the system, and what the policy of the user says.
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
    /// Sessions, with others of its context.
    Share,
    /// Nothing.
    Isolate,
    /// No sessions.
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
    /// Anybody's.
    Nobody,
}
