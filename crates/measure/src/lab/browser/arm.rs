//! Arms of the comparison.

use std::fmt;

use headstart_pageload::sim::tcp::Technique;
use serde::Deserialize;

use super::servers::Front;

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
        }
    }

    /// Returns its techniques in the simulator's terms. Those who come back resume their sessions
    /// in any case; `classical` ClientHellos fit a SYN.
    pub(super) fn techniques(self, again: bool, classical: bool) -> Vec<Technique> {
        let own: &[Technique] = match self {
            Self::Plain => &[],
            Self::TurboTls => &[Technique::TurboTls],
            Self::ZeroRtt if classical => &[Technique::FastOpenPrivacy, Technique::ZeroRtt],
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
        };
        let resumed = again.then_some(Technique::Resumption);
        own.iter().copied().chain(resumed).collect()
    }

    /// Returns true if there is an agent beside Chromium, over a link without Tor.
    pub(super) const fn has_agent(self) -> bool {
        matches!(self, Self::TurboTls | Self::ZeroRtt)
    }

    /// Returns true if it can be loaded through Tor, or without.
    pub(super) const fn goes(self, through_tor: bool) -> bool {
        match self {
            Self::Plain => true,
            Self::Optimistic => through_tor,
            _ => !through_tor,
        }
    }

    /// Returns true if Chromium has the extension, with a database of its own for each arm.
    pub(super) const fn has_extension(self) -> bool {
        matches!(self, Self::RedirectDb | Self::ServerDb | Self::Databases)
    }

    /// Where the document's server says what the page needs, if it does.
    pub(super) const fn hinting(self) -> Option<Front> {
        match self {
            Self::PrefetchDb | Self::Databases => Some(Front::Hinting),
            Self::EarlyHints => Some(Front::EarlyHinting),
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
