//! Techniques that save time, and their names.

use std::fmt;

/// Techniques that save time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Techniques {
    /// TCP Fast Open with cookies by address (RFC 7413).
    pub fast_open: bool,
    /// TCP Fast Open with private cookies by name, handed over inside TLS (Sy et al. 2019).
    pub fast_open_privacy: bool,
    /// The first flights of TLS over UDP while TCP connects (Aguilar-Melchor et al. 2023).
    pub turbo_tls: bool,
    /// A client that has learnt which hosts follow holds a spare TCP connection to each of them.
    pub spares: bool,
    /// The client resumes TLS sessions, where it has one.
    pub resumption: bool,
    /// Resumption, with the first request sent as early data (RFC 8446 section 2.3).
    pub zero_rtt: bool,
    /// A proxy gets data before it reports that it is connected: no round trip of TCP is waited for
    /// (BLAST, chapter 4).
    pub optimistic_data: bool,
    /// The targets of the page's own redirects are known.
    pub redirect_database: bool,
    /// The servers that speak HTTP/2 are known: one connection to each is enough from the start.
    pub http2_database: bool,
    /// The resources that the page needs are known, and requested at the start.
    pub prefetch_database: bool,
    /// The servers that the page needs are known, and connected to at the start.
    pub server_database: bool,
    /// The machine's applications share their TLS sessions (Hiller et al. 2019).
    pub session_sharing: bool,
    /// The document's server names what the document will need before it has generated it (RFC
    /// 8297).
    pub early_hints: bool,
    /// Connections to servers that speak TLS use QUIC, as a baseline.
    pub http3: bool,
}

/// One of [`Techniques`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Technique {
    /// [`Techniques::fast_open`].
    FastOpen,
    /// [`Techniques::fast_open_privacy`].
    FastOpenPrivacy,
    /// [`Techniques::turbo_tls`].
    TurboTls,
    /// [`Techniques::spares`].
    Spares,
    /// [`Techniques::resumption`].
    Resumption,
    /// [`Techniques::zero_rtt`].
    ZeroRtt,
    /// [`Techniques::optimistic_data`].
    OptimisticData,
    /// [`Techniques::redirect_database`].
    RedirectDatabase,
    /// [`Techniques::http2_database`].
    Http2Database,
    /// [`Techniques::prefetch_database`].
    PrefetchDatabase,
    /// [`Techniques::server_database`].
    ServerDatabase,
    /// [`Techniques::session_sharing`].
    SessionSharing,
    /// [`Techniques::early_hints`].
    EarlyHints,
    /// [`Techniques::http3`].
    Http3,
}

impl Technique {
    /// All techniques, those that shorten openings first.
    pub const ALL: [Self; 14] = [
        Self::FastOpen,
        Self::FastOpenPrivacy,
        Self::TurboTls,
        Self::Spares,
        Self::Resumption,
        Self::ZeroRtt,
        Self::SessionSharing,
        Self::OptimisticData,
        Self::RedirectDatabase,
        Self::Http2Database,
        Self::PrefetchDatabase,
        Self::ServerDatabase,
        Self::EarlyHints,
        Self::Http3,
    ];

    /// Returns the name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::FastOpen => "tfo",
            Self::FastOpenPrivacy => "fop",
            Self::TurboTls => "turbotls",
            Self::Spares => "spares",
            Self::Resumption => "resumption",
            Self::ZeroRtt => "0rtt",
            Self::OptimisticData => "optimistic-data",
            Self::RedirectDatabase => "redirect-db",
            Self::Http2Database => "http2-db",
            Self::PrefetchDatabase => "prefetch-db",
            Self::ServerDatabase => "server-db",
            Self::SessionSharing => "session-sharing",
            Self::EarlyHints => "early-hints",
            Self::Http3 => "http3",
        }
    }

    /// Returns the technique with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|technique| technique.name() == name)
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Techniques {
    /// Collects the techniques of a list.
    pub fn from_list(list: &[Technique]) -> Self {
        list.iter().fold(Self::default(), |techniques, &technique| techniques.with(technique))
    }

    /// Adds a technique.
    #[must_use]
    pub fn with(mut self, technique: Technique) -> Self {
        *self.place(technique) = true;
        self
    }

    /// Returns true if a technique is among them.
    pub fn has(mut self, technique: Technique) -> bool {
        *self.place(technique)
    }

    /// Returns the techniques that remain on a page that no database knows.
    #[must_use]
    pub fn without_databases(self) -> Self {
        Self {
            redirect_database: false,
            http2_database: false,
            prefetch_database: false,
            server_database: false,
            ..self
        }
    }

    fn place(&mut self, technique: Technique) -> &mut bool {
        match technique {
            Technique::FastOpen => &mut self.fast_open,
            Technique::FastOpenPrivacy => &mut self.fast_open_privacy,
            Technique::TurboTls => &mut self.turbo_tls,
            Technique::Spares => &mut self.spares,
            Technique::Resumption => &mut self.resumption,
            Technique::ZeroRtt => &mut self.zero_rtt,
            Technique::OptimisticData => &mut self.optimistic_data,
            Technique::RedirectDatabase => &mut self.redirect_database,
            Technique::Http2Database => &mut self.http2_database,
            Technique::PrefetchDatabase => &mut self.prefetch_database,
            Technique::ServerDatabase => &mut self.server_database,
            Technique::SessionSharing => &mut self.session_sharing,
            Technique::EarlyHints => &mut self.early_hints,
            Technique::Http3 => &mut self.http3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_and_a_place_of_its_own() {
        for technique in Technique::ALL {
            assert_eq!(Technique::named(technique.name()), Some(technique));
            let alone = Techniques::default().with(technique);
            let has: Vec<_> = Technique::ALL.into_iter().filter(|&one| alone.has(one)).collect();
            assert_eq!(has, [technique]);
        }
        assert_eq!(Technique::named("none"), None);
    }
}
