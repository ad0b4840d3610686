//! Arms of the comparison.

use std::fmt;

use headstart_pageload::db::Parts;
use headstart_pageload::sim::tcp::Technique;
use serde::Deserialize;

use super::servers::Front;
use super::visit::Visit;

/// Way in which pages are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arm {
    /// Chromium and the sites, with nothing between them but the link.
    Plain,
    /// Through an agent to an edge that passes TLS on.
    #[serde(rename = "turbotls")]
    TurboTls,
    /// Through an agent to an edge that speaks TLS itself and takes early data, and Fast Open where
    /// a ClientHello fits into a SYN.
    #[serde(rename = "0rtt")]
    ZeroRtt,
    /// The extension with a redirect database.
    RedirectDb,
    /// The extension with a server database.
    ServerDb,
    /// The document's server says what the page needs, from a prefetch database.
    PrefetchDb,
    /// The same, announced before the document is ready: by 103 Early Hints.
    EarlyHints,
    /// All three databases.
    Databases,
    /// Over a link with Tor: through an agent that does not wait for Tor's word. `plain` is through
    /// one that does.
    Optimistic,
    /// TurboTLS, through Tor optimistic data; early data; all three databases; and Early Hints.
    Everything,
    /// The same with databases of which many entries are out of date.
    EverythingStale,
}

impl Arm {
    /// Name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TurboTls => "turbotls",
            Self::ZeroRtt => "0rtt",
            Self::RedirectDb => "redirect-db",
            Self::ServerDb => "server-db",
            Self::PrefetchDb => "prefetch-db",
            Self::EarlyHints => "early-hints",
            Self::Databases => "databases",
            Self::Optimistic => "optimistic",
            Self::Everything => "everything",
            Self::EverythingStale => "everything-stale",
        }
    }

    /// Returns its techniques in the simulator's terms. Those who come back resume their sessions
    /// in any case; `classical` ClientHellos fit a SYN.
    pub(super) fn techniques(self, visit: Visit, through_tor: bool) -> Vec<Technique> {
        let own: &[Technique] = match self {
            Self::Plain => &[],
            Self::TurboTls => &[Technique::TurboTls],
            Self::ZeroRtt if through_tor => &[Technique::ZeroRtt],
            Self::ZeroRtt if visit.classical => &[Technique::FastOpenPrivacy, Technique::ZeroRtt],
            Self::ZeroRtt => &[Technique::TurboTls, Technique::ZeroRtt],
            Self::RedirectDb => &[Technique::RedirectDatabase],
            Self::ServerDb => &[Technique::ServerDatabase],
            Self::PrefetchDb => &[Technique::PrefetchDatabase],
            Self::EarlyHints => &[Technique::PrefetchDatabase, Technique::EarlyHints],
            Self::Databases => &[
                Technique::RedirectDatabase,
                Technique::ServerDatabase,
                Technique::PrefetchDatabase,
            ],
            Self::Optimistic => &[Technique::OptimisticData],
            Self::Everything | Self::EverythingStale => {
                return Self::everything(visit, through_tor);
            }
        };
        let resumed = visit.again.then_some(Technique::Resumption);
        own.iter().copied().chain(resumed).collect()
    }

    fn everything(visit: Visit, through_tor: bool) -> Vec<Technique> {
        let opening = if through_tor { Self::Optimistic } else { Self::TurboTls };
        let parts = [opening, Self::Databases, Self::EarlyHints].into_iter();
        let all = parts.flat_map(|part: Self| part.techniques(visit, through_tor));
        // A first visit has no sessions to begin with.
        all.chain(visit.again.then_some(Technique::ZeroRtt)).collect()
    }

    /// Returns true if it is all that there is, with databases that are up to date or not.
    pub(super) const fn is_everything(self) -> bool {
        matches!(self, Self::Everything | Self::EverythingStale)
    }

    /// Returns true if many entries of its databases are out of date.
    pub(super) const fn is_stale(self) -> bool {
        matches!(self, Self::EverythingStale)
    }

    /// Returns true if there is an agent beside Chromium, over a link without Tor.
    pub(super) const fn has_agent(self) -> bool {
        matches!(self, Self::TurboTls | Self::ZeroRtt) || self.is_everything()
    }

    /// Returns true if the agent does not wait for Tor's word, over a link with Tor.
    pub(super) const fn is_optimistic(self) -> bool {
        matches!(self, Self::Optimistic) || self.is_everything()
    }

    /// Returns true if Chromium sends early data where it has a session.
    pub(super) const fn sends_early_data(self) -> bool {
        matches!(self, Self::ZeroRtt) || self.is_everything()
    }

    /// Returns true if it can be loaded through Tor, or without.
    pub(super) const fn goes(self, through_tor: bool) -> bool {
        match self {
            Self::TurboTls => !through_tor,
            Self::Optimistic => through_tor,
            _ => true,
        }
    }

    /// Returns the databases that Chromium's extension has.
    pub(super) const fn extension(self) -> Parts {
        let redirect = matches!(self, Self::RedirectDb | Self::Databases) || self.is_everything();
        let server = matches!(self, Self::ServerDb | Self::Databases) || self.is_everything();
        Parts { redirect, server, ..Parts::NONE }
    }

    /// Returns true if Chromium has the extension, with a database of its own for each arm.
    pub(super) fn has_extension(self) -> bool {
        self.extension() != Parts::NONE
    }

    /// Where the document's server says what the page needs, if it does.
    pub(super) const fn hinting(self) -> Option<Front> {
        match self {
            Self::PrefetchDb | Self::Databases => Some(Front::Hinting),
            Self::EarlyHints | Self::Everything => Some(Front::EarlyHinting),
            Self::EverythingStale => Some(Front::StaleHinting),
            _ => None,
        }
    }

    /// Returns the change of the page load time that BLAST found for it over Tor.
    pub(super) const fn published(self) -> Option<f64> {
        match self {
            // Chapter 5: with real add-ons, then by the simulator.
            Self::RedirectDb => Some(-0.147),
            Self::ServerDb => Some(-0.094),
            Self::PrefetchDb => Some(-0.35),
            _ => None,
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
