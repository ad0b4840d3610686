use std::fmt;
use std::str::FromStr;

use headstart_proto::{Carrier, Opening, Session};

/// An arm of an experiment: a way to open a connection, and who opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arm {
    opening: Opening,
    via: Via,
    ech: bool,
    psk: bool,
}

/// Party that opens an arm's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Via {
    /// The measuring program itself.
    Program,
    /// An agent (SOCKS5) for a plain client, towards an edge before a plain server.
    Agent,
    /// The same, and the edge begins with windows of earlier connections (RFC 9959).
    CarefulAgent,
    /// Two HAProxy, which pass bytes: where an agent and an edge would be.
    Haproxy,
    /// Programs of others, started for each connection, towards edges that speak TLS.
    Unmodified(Sharing),
}

/// Degree to which programs of others share sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sharing {
    /// Programs as they come, and edges each with keys of its own.
    None,
    /// An agent keeps the programs' sessions.
    Client,
    /// The same, and edges share one ring of keys.
    ClientAndServers,
}

const fn arm(carrier: Carrier, session: Session, via: Via, ech: bool) -> Arm {
    Arm { opening: Opening::new(carrier, session), via, ech, psk: false }
}

const fn direct(carrier: Carrier, session: Session) -> Arm {
    arm(carrier, session, Via::Program, false)
}

const fn unmodified(carrier: Carrier, session: Session, sharing: Sharing) -> Arm {
    arm(carrier, session, Via::Unmodified(sharing), false)
}

/// The names that experiments and results use.
const NAMES: [(&str, Arm); 31] = [
    ("http", Arm::HTTP),
    ("http-tfo", Arm::HTTP_FAST_OPEN),
    ("tls13", Arm::TLS13),
    ("tls13-resumed", Arm::TLS13_RESUMED),
    ("tls13-0rtt", Arm::TLS13_EARLY_DATA),
    ("tls13-agent", Arm::TLS13_AGENT),
    ("tls13-haproxy", Arm::TLS13_HAPROXY),
    ("tfo", Arm::FAST_OPEN),
    ("tfo-resumed", Arm::FAST_OPEN_RESUMED),
    ("tfo-0rtt", Arm::FAST_OPEN_EARLY_DATA),
    ("fop", Arm::FOP),
    ("fop-resumed", Arm::FOP_RESUMED),
    ("fop-0rtt", Arm::FOP_EARLY_DATA),
    ("fop-agent", Arm::FOP_AGENT),
    ("turbo", Arm::TURBO),
    ("turbo-resumed", Arm::TURBO_RESUMED),
    ("turbo-0rtt", Arm::TURBO_EARLY_DATA),
    ("turbo-psk", Arm::TURBO_PSK),
    ("turbo-agent", Arm::TURBO_AGENT),
    ("turbo-careful-agent", Arm::TURBO_CAREFUL_AGENT),
    ("tls13-ech", Arm::TLS13_ECH),
    ("turbo-ech", Arm::TURBO_ECH),
    ("tls13-ech-0rtt", Arm::TLS13_ECH_EARLY_DATA),
    ("turbo-ech-0rtt", Arm::TURBO_ECH_EARLY_DATA),
    ("quic", Arm::QUIC),
    ("quic-0rtt", Arm::QUIC_EARLY_DATA),
    ("today", Arm::TODAY),
    ("client", Arm::SHARED),
    ("client-server", Arm::SHARED_BY_SERVERS),
    ("client-server-turbo", Arm::SHARED_TURBO),
    ("client-server-turbo-0rtt", Arm::SHARED_TURBO_EARLY_DATA),
];

impl Arm {
    /// TCP without TLS: what pages were loaded over once. Only for whole pages.
    pub const HTTP: Self = direct(Carrier::Tcp, Session::Clear);
    /// The same with the request in the SYN (RFC 7413).
    pub const HTTP_FAST_OPEN: Self = direct(Carrier::FastOpen, Session::Clear);
    /// TCP, then TLS 1.3.
    pub const TLS13: Self = direct(Carrier::Tcp, Session::Fresh);
    /// The same with a session of an earlier connection.
    pub const TLS13_RESUMED: Self = direct(Carrier::Tcp, Session::Resumed);
    /// The same, and the request is early data.
    pub const TLS13_EARLY_DATA: Self = direct(Carrier::Tcp, Session::EarlyData);
    /// A plain client of an agent, and a plain server behind an edge, which do nothing more than
    /// pass bytes: what the two programs cost.
    pub const TLS13_AGENT: Self = arm(Carrier::Tcp, Session::Fresh, Via::Agent, false);
    /// The same with HAProxy in the place of both: what any two proxies cost.
    pub const TLS13_HAPROXY: Self = arm(Carrier::Tcp, Session::Fresh, Via::Haproxy, false);
    /// TLS 1.3 whose ClientHello is in the SYN (RFC 7413). A baseline: its cookies can be linked.
    pub const FAST_OPEN: Self = direct(Carrier::FastOpen, Session::Fresh);
    /// The same with a session of an earlier connection.
    pub const FAST_OPEN_RESUMED: Self = direct(Carrier::FastOpen, Session::Resumed);
    /// The same, and the request is early data in the SYN.
    pub const FAST_OPEN_EARLY_DATA: Self = direct(Carrier::FastOpen, Session::EarlyData);
    /// The same with the cookies of Fast Open Privacy, handed out by the extension of TLS.
    pub const FOP: Self = direct(Carrier::Fop, Session::Fresh);
    /// The same with a session of an earlier connection.
    pub const FOP_RESUMED: Self = direct(Carrier::Fop, Session::Resumed);
    /// The same, and the request is early data in the SYN.
    pub const FOP_EARLY_DATA: Self = direct(Carrier::Fop, Session::EarlyData);
    /// A plain client with sessions, of an agent that reads cookies out of its tickets, and a plain
    /// server of HTTP behind an edge that speaks TLS.
    pub const FOP_AGENT: Self = arm(Carrier::Fop, Session::Resumed, Via::Agent, false);
    /// TurboTLS in the program itself.
    pub const TURBO: Self = direct(Carrier::TurboTls, Session::Fresh);
    /// The same with a session of an earlier connection.
    pub const TURBO_RESUMED: Self = direct(Carrier::TurboTls, Session::Resumed);
    /// The same, and the request is early data over UDP.
    pub const TURBO_EARLY_DATA: Self = direct(Carrier::TurboTls, Session::EarlyData);
    /// The variant that ends its handshake over UDP: what both ends export from it is the key with
    /// which a handshake of its own begins on TCP, the request as early data behind it.
    pub const TURBO_PSK: Self = Self { psk: true, ..Self::TURBO };
    /// A plain client of an agent, and a plain server behind an edge.
    pub const TURBO_AGENT: Self = arm(Carrier::TurboTls, Session::Fresh, Via::Agent, false);
    /// The same with Careful Resume at the edge (docs/careful-resume.md).
    pub const TURBO_CAREFUL_AGENT: Self =
        arm(Carrier::TurboTls, Session::Fresh, Via::CarefulAgent, false);
    /// TCP, then TLS 1.3 with Encrypted ClientHello (RFC 9849). Its server is a program of its own.
    pub const TLS13_ECH: Self = arm(Carrier::Tcp, Session::Fresh, Via::Program, true);
    /// The same over TurboTLS, through an edge that sees the outer name only.
    pub const TURBO_ECH: Self = arm(Carrier::TurboTls, Session::Fresh, Via::Program, true);
    /// TLS 1.3 with Encrypted ClientHello, a session of an earlier connection, and the request as
    /// early data.
    pub const TLS13_ECH_EARLY_DATA: Self =
        arm(Carrier::Tcp, Session::EarlyData, Via::Program, true);
    /// The same over UDP, through an edge that sees the outer name only.
    pub const TURBO_ECH_EARLY_DATA: Self =
        arm(Carrier::TurboTls, Session::EarlyData, Via::Program, true);
    /// QUIC.
    pub const QUIC: Self = direct(Carrier::Quic, Session::Fresh);
    /// QUIC with a session of an earlier connection, and the request is early data.
    pub const QUIC_EARLY_DATA: Self = direct(Carrier::Quic, Session::EarlyData);
    /// Programs of others as they come, and terminating edges each with keys of its own.
    pub const TODAY: Self = unmodified(Carrier::Tcp, Session::Fresh, Sharing::None);
    /// The same programs with an agent that keeps their sessions.
    pub const SHARED: Self = unmodified(Carrier::Tcp, Session::Fresh, Sharing::Client);
    /// The same, and edges that share one ring of keys.
    pub const SHARED_BY_SERVERS: Self =
        unmodified(Carrier::Tcp, Session::Fresh, Sharing::ClientAndServers);
    /// The same, and the agent opens connections by TurboTLS.
    pub const SHARED_TURBO: Self =
        unmodified(Carrier::TurboTls, Session::Fresh, Sharing::ClientAndServers);
    /// The same, and programs that have the agent speak TLS hand it their requests to be sent
    /// early.
    pub const SHARED_TURBO_EARLY_DATA: Self =
        unmodified(Carrier::TurboTls, Session::EarlyData, Sharing::ClientAndServers);

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(_, arm)| arm)
    }

    /// The name in experiments and results.
    pub fn name(self) -> &'static str {
        NAMES.into_iter().find(|(_, arm)| *arm == self).map_or("", |(name, _)| name)
    }

    /// The way its connections are opened.
    pub const fn opening(self) -> Opening {
        self.opening
    }

    /// Returns true if there is such an arm with `suite`.
    ///
    /// rustls, below QUIC and with Encrypted ClientHello, lacks ML-KEM-512, and the chain of RSA
    /// certificates would compare nothing that the others do not. Programs of others choose by
    /// themselves what they agree on with a certificate of P-256.
    pub fn supports(self, suite: Suite) -> bool {
        if self.is_of_programs() {
            return suite == Suite::P256;
        }
        let by_rustls = self.opening.carrier == Carrier::Quic || self.ech;
        !by_rustls || matches!(suite, Suite::P256 | Suite::X25519MlKem768)
    }

    /// Returns true if it has no TLS.
    pub fn is_clear(self) -> bool {
        self.opening.session == Session::Clear
    }

    /// Returns true if whole pages can be loaded by it.
    ///
    /// Its client opens all connections itself, and its server can be at the addresses of all
    /// hosts.
    pub fn loads_pages(self) -> bool {
        self.via == Via::Program && !self.ech && !self.psk
    }

    /// Returns true if its client resumes, so that the first connection only makes a session.
    pub const fn resumes(self) -> bool {
        self.opening.session.is_resumed()
    }

    /// Returns true if its request is early data.
    pub fn sends_early_data(self) -> bool {
        self.opening.session == Session::EarlyData
    }

    /// Returns true if its connections may begin with data in the SYN, by either kind of cookie.
    pub const fn opens_fast(self) -> bool {
        self.opening.carrier.is_in_syn()
    }

    /// Returns true if it has cookies of Fast Open Privacy, for which programs must be attached to
    /// the kernel.
    pub fn has_private_cookies(self) -> bool {
        self.opening.carrier == Carrier::Fop
    }

    /// Returns true if an agent opens its connections.
    pub fn has_agent(self) -> bool {
        matches!(self.via, Via::Agent | Via::CarefulAgent)
    }

    /// Returns true if its edge uses Careful Resume, for which a program must be attached to the
    /// kernel.
    pub fn resumes_carefully(self) -> bool {
        self.via == Via::CarefulAgent
    }

    /// Returns true if HAProxy is before its clients and its servers.
    pub fn has_haproxy(self) -> bool {
        self.via == Via::Haproxy
    }

    /// Returns true if its client can be told at which of several addresses of a server it
    /// connects.
    pub fn has_several_addresses(self) -> bool {
        let by_tcp =
            matches!(self.opening.carrier, Carrier::Tcp | Carrier::FastOpen | Carrier::Fop);
        by_tcp && self.via == Via::Program && !self.ech && !self.is_clear()
    }

    /// Returns true if its clients can make the visits of a case whose later connections may be
    /// linked to earlier ones.
    pub fn can_cross(self) -> bool {
        self.opens_fast() && !self.is_clear()
    }

    /// Returns true if its clients are programs of others, before edges that speak TLS.
    pub const fn is_of_programs(self) -> bool {
        matches!(self.via, Via::Unmodified(_))
    }

    /// Returns true if such programs share sessions by an agent.
    pub const fn shares_sessions(self) -> bool {
        matches!(self.via, Via::Unmodified(Sharing::Client | Sharing::ClientAndServers))
    }

    /// Returns true if the edges before which they are share one ring of keys.
    pub const fn shares_keys(self) -> bool {
        matches!(self.via, Via::Unmodified(Sharing::ClientAndServers))
    }

    /// Returns true if its ClientHello is encrypted, and only an outer one can be read.
    pub const fn encrypts_hello(self) -> bool {
        self.ech
    }

    /// Returns true if its handshake over UDP makes the key of another one on TCP.
    pub const fn exports_key(self) -> bool {
        self.psk
    }

    /// Returns what the measuring program itself uses: plain TCP where others open its connections.
    pub(crate) fn carrier(self) -> Carrier {
        if self.via == Via::Program { self.opening.carrier } else { Carrier::Tcp }
    }
}

/// Key exchange and certificates. The cipher is AES-128-GCM with SHA-256 in all of them; arms of
/// Fast Open have what headstart's engine agrees on (AES-256-GCM with SHA-384).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suite {
    /// P-256 and a self-signed ECDSA certificate of P-256.
    P256,
    /// X25519MLKEM768, what browsers offer, with the same certificate.
    ///
    /// With one group and one cipher its ClientHello has 1,407 bytes: it just fits a SYN (1,420
    /// bytes), where those of browsers (1.7 kB and more) and of OpenSSL as it comes (1,493) do not.
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::X25519MlKem768 => "x25519mlkem768",
            Self::MlKem512MlDsa44 => "mlkem512-mldsa44",
            Self::RsaChain => "rsa-chain",
        }
    }

    /// The one group that both sides use, as OpenSSL calls it.
    pub const fn group(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::MlKem512MlDsa44 => "MLKEM512",
            Self::RsaChain => "X25519",
        }
    }
}

/// No arm or suite has this name.
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
        find("arm", &Self::all().collect::<Vec<_>>(), Self::name, name)
    }
}

impl FromStr for Suite {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        find("suite", &Self::ALL, Self::name, name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for arm in Arm::all() {
            assert_eq!(arm.to_string().parse(), Ok(arm));
        }
        for suite in Suite::ALL {
            assert_eq!(suite.to_string().parse(), Ok(suite));
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
    fn names_of_arms_list_their_features() {
        for arm in Arm::all() {
            let name = arm.name();
            let opens_fast = ["tfo", "fop", "http-tfo"].iter().any(|begin| name.starts_with(begin));
            assert_eq!(arm.opens_fast(), opens_fast, "{arm}");
            assert_eq!(arm.is_clear(), name.starts_with("http"), "{arm}");
            assert_eq!(arm.has_private_cookies(), name.starts_with("fop"), "{arm}");
            assert_eq!(arm.has_agent(), name.ends_with("-agent"), "{arm}");
            assert_eq!(arm.sends_early_data(), name.ends_with("-0rtt"), "{arm}");
            assert_eq!(arm.encrypts_hello(), name.contains("-ech"), "{arm}");
            assert_eq!(arm.exports_key(), name.ends_with("-psk"), "{arm}");
            let resumes = ["-0rtt", "-resumed"].iter().any(|end| name.ends_with(end));
            assert_eq!(arm.resumes(), resumes || arm == Arm::FOP_AGENT, "{arm}");
        }
        let several: Vec<_> = Arm::all().filter(|arm| arm.has_several_addresses()).collect();
        assert_eq!(several.len(), 3 * 3, "{several:?}");
    }

    #[test]
    fn programs_choose_their_suites_themselves() {
        for arm in Arm::all().filter(|arm| arm.is_of_programs()) {
            let suites = Suite::ALL.into_iter().filter(|suite| arm.supports(*suite));
            assert_eq!(suites.collect::<Vec<_>>(), [Suite::P256], "{arm}");
            assert_eq!(arm.shares_sessions(), arm != Arm::TODAY, "{arm}");
            assert_eq!(arm.shares_keys(), arm.name().starts_with("client-server"), "{arm}");
            let turbo = arm.opening().carrier == Carrier::TurboTls;
            assert_eq!(turbo, arm.name().contains("-turbo"), "{arm}");
        }
    }

    #[test]
    fn quic_and_encrypted_hellos_have_the_suites_of_rustls() {
        for arm in Arm::all().filter(|arm| *arm == Arm::QUIC || arm.encrypts_hello()) {
            let missing: Vec<_> =
                Suite::ALL.into_iter().filter(|suite| !arm.supports(*suite)).collect();
            assert_eq!(missing, [Suite::MlKem512MlDsa44, Suite::RsaChain], "{arm}");
        }
    }
}
