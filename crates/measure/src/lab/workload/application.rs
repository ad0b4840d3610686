use serde::{Deserialize, Serialize};

/// A program that connects; all are packages of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Application {
    /// curl(1), with libcurl and OpenSSL 3.
    Curl,
    /// `file(DOWNLOAD)` of CMake, with libcurl and OpenSSL 3.
    Cmake,
    /// urllib of Python, with OpenSSL 3.
    Python,
    /// requests of Python.
    Requests,
    /// The extension curl of PHP, with libcurl and OpenSSL 3, or streams.
    Php,
    /// net/http of Ruby.
    Ruby,
    /// Node.js, with an OpenSSL of its own or that of the system.
    Node,
    /// HTTP::Tiny and IO::Socket::SSL of Perl.
    Perl,
    /// nginx before a host, for which it speaks TLS.
    Nginx,
    /// HAProxy before a host, for which it speaks TLS.
    Haproxy,
    /// wget, with GnuTLS.
    Wget,
}

/// Way in which a program takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Unmodified under `headstart run`, with the library that shares sessions of OpenSSL 3, and
    /// through the agent's proxy.
    Library,
    /// Some lines for the agent's socket, which speaks TLS for it.
    Socket,
    /// It runs all the time and keeps its own sessions: only what servers share helps it.
    OwnSessions,
    /// Under `headstart run`, of which it uses the proxy alone.
    ProxyOnly,
}

impl Way {
    /// Name in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Socket => "socket",
            Self::OwnSessions => "own sessions",
            Self::ProxyOnly => "proxy only",
        }
    }
}

/// Needs of a program on the machine.
pub(crate) struct Needs {
    /// File to execute.
    pub(crate) executable: &'static str,
    /// Succeeds where all is there.
    pub(crate) probe: &'static [&'static str],
    /// Packages of Debian.
    pub(crate) packages: &'static str,
}

impl Application {
    /// The name in experiments and results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Cmake => "cmake",
            Self::Python => "python",
            Self::Requests => "requests",
            Self::Php => "php",
            Self::Ruby => "ruby",
            Self::Node => "node",
            Self::Perl => "perl",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Wget => "wget",
        }
    }

    pub(crate) const fn way(self) -> Way {
        match self {
            Self::Curl | Self::Cmake | Self::Python => Way::Library,
            // PHP loads its extensions so that they find OpenSSL's own functions first
            // (RTLD_DEEPBIND): the library would not see what protocols they offer.
            Self::Php | Self::Requests | Self::Ruby | Self::Node | Self::Perl => Way::Socket,
            Self::Nginx | Self::Haproxy => Way::OwnSessions,
            Self::Wget => Way::ProxyOnly,
        }
    }

    /// The host that it is before, counted from 0: a reverse proxy has one.
    pub(crate) const fn own_host(self) -> Option<usize> {
        match self {
            Self::Nginx => Some(0),
            Self::Haproxy => Some(1),
            _ => None,
        }
    }

    /// Python by its path: others than the system's come first on some machines, with an OpenSSL of
    /// their own.
    pub(crate) const fn needs(self) -> Needs {
        let (executable, probe, packages): (_, &[_], _) = match self {
            Self::Curl => ("curl", &["--version"], "curl"),
            Self::Cmake => ("cmake", &["--version"], "cmake"),
            Self::Python => {
                ("/usr/bin/python3", &["-c", "import ssl; print(ssl.OPENSSL_VERSION)"], "python3")
            }
            Self::Requests => (
                "/usr/bin/python3",
                &["-c", "import requests; print('requests', requests.__version__)"],
                "python3-requests",
            ),
            Self::Php => (
                "php",
                &[
                    "-r",
                    "echo 'PHP ', PHP_VERSION, ', ', curl_version()['ssl_version'] ?? exit(1);",
                ],
                "php-cli php-curl",
            ),
            Self::Ruby => ("ruby", &["-ropenssl", "-e", "puts RUBY_DESCRIPTION"], "ruby"),
            Self::Node => ("node", &["--version"], "nodejs"),
            Self::Perl => (
                "perl",
                &[
                    "-MIO::Socket::SSL",
                    "-e",
                    "print \"Perl $^V, IO::Socket::SSL $IO::Socket::SSL::VERSION\"",
                ],
                "perl libio-socket-ssl-perl",
            ),
            Self::Nginx => ("nginx", &["-v"], "nginx"),
            Self::Haproxy => ("haproxy", &["-v"], "haproxy"),
            Self::Wget => ("wget", &["--version"], "wget"),
        };
        Needs { executable, probe, packages }
    }
}
