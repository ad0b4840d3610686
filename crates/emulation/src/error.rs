use std::fmt;
use std::io;

/// Reason why a lab could not be set up.
#[derive(Debug)]
pub enum LabError {
    /// The description is wrong: two nodes with one name, say.
    Topology(String),
    /// There is no `ip` command.
    IpMissing,
    /// The `ip` command refused.
    Ip {
        /// Part that was being set up.
        what: String,
        /// Output of the command.
        output: String,
    },
    /// There is no `tor` command, or no `tor-gencert`.
    TorMissing,
    /// A private Tor network does not stand.
    Tor {
        /// Progress of the bootstrap.
        what: String,
        /// Last words of Tor.
        output: String,
    },
    /// The system refused.
    System {
        /// Step that was under way.
        what: String,
        /// The error.
        source: io::Error,
    },
}

impl LabError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::System { what, source }
    }

    /// Returns advice for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LabError::IpMissing => Some("install the package iproute2"),
            LabError::TorMissing => Some("install the package tor"),
            LabError::Tor { .. } => Some("a machine that is busy may need another try"),
            LabError::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run as root, or where the system allows user namespaces")
            }
            _ => None,
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Topology(what) => f.write_str(what),
            LabError::IpMissing => f.write_str("the command `ip` was not found"),
            LabError::TorMissing => {
                f.write_str("the commands `tor` and `tor-gencert` were not found")
            }
            LabError::Tor { what, output } => {
                write!(f, "the Tor network is not bootstrapped: {what}; Tor said last:\n{output}")
            }
            LabError::Ip { what, output } => write!(f, "{what}: ip: {output}"),
            LabError::System { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(crate) fn no_node(name: &str) -> LabError {
    LabError::Topology(format!("there is no node called {name}"))
}
