use std::fmt;
use std::str::FromStr;

/// A way to open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arm {
    /// TCP without TLS: what pages were loaded over once. Only of whole pages.
    Http,
    /// The same with the request in the SYN (RFC 7413).
    HttpFastOpen,
    /// TCP, then TLS 1.3.
    Tls13,
    /// The same with a session of an earlier connection.
    Tls13Resumed,
    /// The same, and the request is early data.
    Tls13EarlyData,
    /// TLS 1.3 whose ClientHello is in the SYN (RFC 7413). A baseline: its cookies can be linked.
    FastOpen,
    /// The same with a session of an earlier connection.
    FastOpenResumed,
    /// The same, and the request is early data in the SYN.
    FastOpenEarlyData,
    /// The same with the cookies of Fast Open Privacy, handed out by the extension of TLS.
    Fop,
    /// The same with a session of an earlier connection.
    FopResumed,
    /// The same, and the request is early data in the SYN.
    FopEarlyData,
    /// A plain client with sessions, of an agent (SOCKS5) that reads cookies out of its tickets, and a plain server
    /// of HTTP behind an edge that speaks TLS.
    FopAgent,
    /// TurboTLS in the program itself.
    Turbo,
    /// The same with a session of an earlier connection.
    TurboResumed,
    /// The same, and the request is early data over UDP.
    TurboEarlyData,
    /// A plain client of an agent (SOCKS5), and a plain server behind an edge.
    TurboAgent,
    /// TCP, then TLS 1.3 with Encrypted ClientHello (RFC 9849). Its server is a program of its own.
    Tls13Ech,
    /// The same over TurboTLS, through an edge that sees the outer name only.
    TurboEch,
    /// QUIC.
    Quic,
    /// QUIC with a session of an earlier connection, and the request is early data.
    QuicEarlyData,
    /// Programs as they come, and terminating edges each with keys of its own.
    Today,
    /// The same programs with an agent that keeps their sessions.
    Shared,
    /// The same, and edges that share one ring of keys.
    SharedByServers,
}

/// What carries an arm's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Tcp,
    FastOpen,
    /// Fast Open with cookies of our own.
    Fop,
    Turbo,
    Quic,
}

impl Arm {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Http,
        Self::HttpFastOpen,
        Self::Tls13,
        Self::Tls13Resumed,
        Self::Tls13EarlyData,
        Self::FastOpen,
        Self::FastOpenResumed,
        Self::FastOpenEarlyData,
        Self::Fop,
        Self::FopResumed,
        Self::FopEarlyData,
        Self::FopAgent,
        Self::Turbo,
        Self::TurboResumed,
        Self::TurboEarlyData,
        Self::TurboAgent,
        Self::Tls13Ech,
        Self::TurboEch,
        Self::Quic,
        Self::QuicEarlyData,
        Self::Today,
        Self::Shared,
        Self::SharedByServers,
    ];

    /// The name in experiments and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpFastOpen => "http-tfo",
            Self::Tls13 => "tls13",
            Self::Tls13Resumed => "tls13-resumed",
            Self::Tls13EarlyData => "tls13-0rtt",
            Self::FastOpen => "tfo",
            Self::FastOpenResumed => "tfo-resumed",
            Self::FastOpenEarlyData => "tfo-0rtt",
            Self::Fop => "fop",
            Self::FopResumed => "fop-resumed",
            Self::FopEarlyData => "fop-0rtt",
            Self::FopAgent => "fop-agent",
            Self::Turbo => "turbo",
            Self::TurboResumed => "turbo-resumed",
            Self::TurboEarlyData => "turbo-0rtt",
            Self::TurboAgent => "turbo-agent",
            Self::Tls13Ech => "tls13-ech",
            Self::TurboEch => "turbo-ech",
            Self::Quic => "quic",
            Self::QuicEarlyData => "quic-0rtt",
            Self::Today => "today",
            Self::Shared => "client",
            Self::SharedByServers => "client-server",
        }
    }

    /// Whether there is such an arm with `suite`: rustls, below QUIC and with Encrypted ClientHello, lacks
    /// ML-KEM-512, and the chain of RSA certificates would compare nothing that the others do not. Programs of
    /// others choose by themselves what they agree on with a certificate of P-256.
    #[must_use]
    pub const fn supports(self, suite: Suite) -> bool {
        if self.is_of_programs() {
            return matches!(suite, Suite::P256);
        }
        let by_rustls = matches!(self.carrier(), Carrier::Quic) || self.encrypts_hello();
        !by_rustls || matches!(suite, Suite::P256 | Suite::X25519MlKem768)
    }

    /// Whether it has no TLS.
    #[must_use]
    pub const fn is_clear(self) -> bool {
        matches!(self, Self::Http | Self::HttpFastOpen)
    }

    /// Whether whole pages can be loaded by it: its client opens all connections itself, and its server can be at the
    /// addresses of all hosts.
    #[must_use]
    pub const fn loads_pages(self) -> bool {
        !self.has_agent() && !self.encrypts_hello() && !self.is_of_programs()
    }

    /// Whether its client resumes, so that the first connection only makes a session.
    #[must_use]
    pub const fn resumes(self) -> bool {
        let resumed = matches!(
            self,
            Self::Tls13Resumed
                | Self::FastOpenResumed
                | Self::FopResumed
                | Self::FopAgent
                | Self::TurboResumed
        );
        resumed || self.sends_early_data()
    }

    /// Whether its request is early data.
    #[must_use]
    pub const fn sends_early_data(self) -> bool {
        matches!(
            self,
            Self::Tls13EarlyData
                | Self::FastOpenEarlyData
                | Self::FopEarlyData
                | Self::TurboEarlyData
                | Self::QuicEarlyData
        )
    }

    /// Whether its connections may begin with data in the SYN, by the kernel's cookies or by ours.
    #[must_use]
    pub const fn opens_fast(self) -> bool {
        matches!(self.carrier(), Carrier::FastOpen) || self.has_private_cookies()
    }

    /// Whether it has cookies of Fast Open Privacy, for which programs must be attached to the kernel.
    #[must_use]
    pub const fn has_private_cookies(self) -> bool {
        matches!(self.carrier(), Carrier::Fop) || matches!(self, Self::FopAgent)
    }

    /// Whether an agent opens its connections.
    #[must_use]
    pub const fn has_agent(self) -> bool {
        matches!(self, Self::TurboAgent | Self::FopAgent)
    }

    /// Whether its client can be told at which of several addresses of a server it connects.
    #[must_use]
    pub const fn has_several_addresses(self) -> bool {
        let by_tcp = matches!(self.carrier(), Carrier::Tcp | Carrier::FastOpen | Carrier::Fop);
        by_tcp
            && !self.has_agent()
            && !self.encrypts_hello()
            && !self.is_clear()
            && !self.is_of_programs()
    }

    /// Whether its clients can make the visits of a case whose later connections may be linked to earlier ones; of two
    /// names or contexts, if `names`.
    #[must_use]
    pub const fn can_cross(self, names: bool) -> bool {
        self.opens_fast() && !self.is_clear() && !(names && self.has_agent())
    }

    /// Whether its clients are programs of others, started for each connection, before edges that speak TLS.
    #[must_use]
    pub const fn is_of_programs(self) -> bool {
        matches!(self, Self::Today | Self::Shared | Self::SharedByServers)
    }

    /// Whether such programs share sessions by an agent.
    #[must_use]
    pub const fn shares_sessions(self) -> bool {
        matches!(self, Self::Shared | Self::SharedByServers)
    }

    /// Whether its ClientHello is encrypted, and only an outer one can be read.
    #[must_use]
    pub const fn encrypts_hello(self) -> bool {
        matches!(self, Self::Tls13Ech | Self::TurboEch)
    }

    pub(crate) const fn carrier(self) -> Carrier {
        match self {
            Self::Http
            | Self::Tls13
            | Self::Tls13Resumed
            | Self::Tls13EarlyData
            | Self::TurboAgent
            | Self::FopAgent
            | Self::Tls13Ech
            | Self::Today
            | Self::Shared
            | Self::SharedByServers => Carrier::Tcp,
            Self::HttpFastOpen
            | Self::FastOpen
            | Self::FastOpenResumed
            | Self::FastOpenEarlyData => Carrier::FastOpen,
            Self::Fop | Self::FopResumed | Self::FopEarlyData => Carrier::Fop,
            Self::Turbo | Self::TurboResumed | Self::TurboEarlyData | Self::TurboEch => {
                Carrier::Turbo
            }
            Self::Quic | Self::QuicEarlyData => Carrier::Quic,
        }
    }
}

/// Key exchange and certificates. The cipher is AES-128-GCM with SHA-256 in all of them; arms of Fast Open have what
/// headstart's engine agrees on (AES-256-GCM with SHA-384).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suite {
    /// P-256 and a self-signed ECDSA certificate of P-256.
    P256,
    /// X25519MLKEM768, what browsers offer, with the same certificate.
    ///
    /// With one group and one cipher its ClientHello has 1,407 bytes: it just fits a SYN (1,420 bytes),
    /// where those of browsers (1.7 kB and more) and of OpenSSL as it comes (1,493) do not.
    X25519MlKem768,
    /// ML-KEM-512 and a self-signed ML-DSA-44 certificate: the sizes of the TurboTLS paper.
    MlKem512MlDsa44,
    /// X25519 and three RSA certificates of 2,048 bits.
    RsaChain,
}

impl Suite {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::P256, Self::X25519MlKem768, Self::MlKem512MlDsa44, Self::RsaChain];

    /// The name in experiments and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::X25519MlKem768 => "x25519mlkem768",
            Self::MlKem512MlDsa44 => "mlkem512-mldsa44",
            Self::RsaChain => "rsa-chain",
        }
    }

    /// The one group that both sides use, as OpenSSL calls it.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::MlKem512MlDsa44 => "MLKEM512",
            Self::RsaChain => "X25519",
        }
    }
}

/// Which openings a client of TurboTLS, or an agent, may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// TurboTLS unless the path is remembered not to bear it.
    #[default]
    Auto,
    /// TurboTLS whatever is remembered.
    Turbo,
    /// Fast Open with private cookies wherever one is there.
    Fop,
    /// TLS over TCP.
    Plain,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Turbo, Self::Fop, Self::Plain];

    /// The name in options and experiments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Turbo => "turbo",
            Self::Fop => "fop",
            Self::Plain => "plain",
        }
    }
}

/// No arm, suite or policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, known } = self;
        write!(f, "there is no {kind} {name:?}; there are {}", known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

fn find<T: Copy>(
    kind: &'static str,
    all: &[T],
    name_of: fn(T) -> &'static str,
    name: &str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|one| name_of(*one) == name).ok_or_else(|| UnknownName {
        kind,
        name: name.to_owned(),
        known: all.iter().copied().map(name_of).collect(),
    })
}

impl FromStr for Arm {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("arm", &Self::ALL, Self::name, name)
    }
}

impl FromStr for Suite {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("suite", &Self::ALL, Self::name, name)
    }
}

impl FromStr for Policy {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("policy", &Self::ALL, Self::name, name)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for arm in Arm::ALL {
            assert_eq!(arm.to_string().parse(), Ok(arm));
        }
        for suite in Suite::ALL {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "tls12".parse::<Arm>().unwrap_err().to_string();
        assert!(
            error.starts_with("there is no arm \"tls12\"; there are http, http-tfo, tls13, "),
            "{error}"
        );
    }

    #[test]
    fn what_arms_have_is_in_their_names() {
        for arm in Arm::ALL {
            let name = arm.name();
            let opens_fast = ["tfo", "fop", "http-tfo"].iter().any(|begin| name.starts_with(begin));
            assert_eq!(arm.opens_fast(), opens_fast, "{arm}");
            assert_eq!(arm.is_clear(), name.starts_with("http"), "{arm}");
            assert_eq!(arm.has_private_cookies(), name.starts_with("fop"), "{arm}");
            assert_eq!(arm.has_agent(), name.ends_with("-agent"), "{arm}");
            assert_eq!(arm.sends_early_data(), name.ends_with("-0rtt"), "{arm}");
            let resumes = ["-0rtt", "-resumed"].iter().any(|end| name.ends_with(end));
            assert_eq!(arm.resumes(), resumes || arm == Arm::FopAgent, "{arm}");
        }
        let several: Vec<_> =
            Arm::ALL.into_iter().filter(|arm| arm.has_several_addresses()).collect();
        assert_eq!(several.len(), 3 * 3, "{several:?}");
    }

    #[test]
    fn programs_choose_their_suites_themselves() {
        for arm in Arm::ALL.into_iter().filter(|arm| arm.is_of_programs()) {
            let suites = Suite::ALL.into_iter().filter(|suite| arm.supports(*suite));
            assert_eq!(suites.collect::<Vec<_>>(), [Suite::P256], "{arm}");
            assert_eq!(arm.shares_sessions(), arm != Arm::Today, "{arm}");
        }
    }

    #[test]
    fn quic_and_encrypted_hellos_have_the_suites_of_rustls() {
        for arm in [Arm::Quic, Arm::Tls13Ech, Arm::TurboEch] {
            let missing: Vec<_> =
                Suite::ALL.into_iter().filter(|suite| !arm.supports(*suite)).collect();
            assert_eq!(missing, [Suite::MlKem512MlDsa44, Suite::RsaChain], "{arm}");
        }
    }
}
