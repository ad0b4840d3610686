//! Rules and network of the options.

use headstart_pageload::sim::blast;
use headstart_pageload::sim::profile::{Model, Profile};
use headstart_pageload::sim::tcp::{self, Delivery, Link, Pools, Revisit, Technique};
use serde::Serialize;

use super::show::summary::ms;
use crate::chart::scale::mark;
use crate::pageload::plan::options::{DeliveryName, ProfileName, SimulatorOptions, Visit};
use headstart::base::failure::Failure;

/// The model that is asked for.
pub(super) fn model(options: &SimulatorOptions) -> Result<Model, Failure> {
    let profile = match options.profile {
        ProfileName::Blast => Profile::Blast(published(options)?),
        ProfileName::Tcp => Profile::Tcp(network(options)),
    };
    let &SimulatorOptions { hit_rate, seed, draws, .. } = options;
    Ok(Model { profile, hit_rate, seed, draws })
}

fn published(options: &SimulatorOptions) -> Result<blast::Settings, Failure> {
    let others = [
        ("--up", options.up.is_some()),
        ("--loss", options.loss.is_some()),
        ("--dns", options.dns.is_some()),
        ("--visit", options.visit.is_some()),
        ("--moved", options.moved.is_some()),
        ("--warm", options.warm.is_some()),
        ("--delivery", options.delivery.is_some()),
    ];
    if let Some((name, _)) = others.into_iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("the published rules know nothing of {name}"))
            .hint("leave it out, or choose --profile tcp"));
    }
    let usual = blast::Settings::default();
    let rate = options.down.map_or(usual.rate, |rate| u32::try_from(rate).unwrap_or(u32::MAX));
    Ok(blast::Settings {
        rtt: options.rtt.unwrap_or(usual.rtt),
        rate,
        connections: options.connections.into(),
        depth: options.pipelining.into(),
        ..usual
    })
}

fn network(options: &SimulatorOptions) -> tcp::Settings {
    let usual = Link::default();
    let link = Link {
        rtt: options.rtt.unwrap_or(usual.rtt),
        down: options.down,
        up: options.up,
        loss: options.loss.unwrap_or(usual.loss),
        ..usual
    };
    let revisit = match options.visit.unwrap_or(Visit::Again) {
        Visit::First => Revisit::default(),
        Visit::Again => Revisit::again(),
    };
    let revisit = Revisit {
        moved: options.moved.unwrap_or_default(),
        connections: options.warm.unwrap_or_default(),
        ..revisit
    };
    tcp::Settings {
        link,
        revisit,
        delivery: match options.delivery {
            None | Some(DeliveryName::Start) => Delivery::Start,
            Some(DeliveryName::Document) => Delivery::Document,
        },
        pools: Pools { connections: options.connections.into(), depth: options.pipelining.into() },
        dns: options.dns.unwrap_or_default(),
        ..tcp::Settings::default()
    }
}

/// The delivery that is told in words, too.
const DOCUMENT: &str = "document";

/// The model as it stands in reports.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    profile: &'static str,
    rtt_ms: f64,
    /// Megabits a second; none for no limit.
    down_mbit: Option<f64>,
    up_mbit: Option<f64>,
    loss: f64,
    dns_ms: f64,
    visit: Option<&'static str>,
    /// Shares of the servers.
    moved: f64,
    warm: f64,
    /// Connections of HTTP/1.1 to one server, and requests on each.
    connections: usize,
    pipelining: usize,
    hit_rate: f64,
    /// When databases of servers and of what to prefetch speak.
    delivery: &'static str,
    draws: u64,
    seed: u64,
}

impl Setting {
    pub(super) fn from_model(model: &Model) -> Self {
        let &Model { hit_rate, seed, draws, .. } = model;
        match &model.profile {
            Profile::Blast(settings) => Self {
                profile: "blast",
                rtt_ms: ms(settings.rtt),
                down_mbit: Some(mbit(u64::from(settings.rate))),
                up_mbit: None,
                loss: 0.0,
                dns_ms: 0.0,
                visit: None,
                moved: 0.0,
                warm: 0.0,
                connections: settings.connections,
                pipelining: settings.depth,
                hit_rate,
                delivery: "start",
                draws,
                seed,
            },
            Profile::Tcp(settings) => Self {
                profile: "tcp",
                rtt_ms: ms(settings.link.rtt),
                down_mbit: settings.link.down.map(mbit),
                up_mbit: settings.link.up.map(mbit),
                loss: settings.link.loss,
                dns_ms: ms(settings.dns),
                visit: Some(if settings.revisit.addresses > 0.0 { "again" } else { "first" }),
                moved: settings.revisit.moved,
                warm: settings.revisit.connections,
                connections: settings.pools.connections,
                pipelining: settings.pools.depth,
                hit_rate,
                delivery: match settings.delivery {
                    Delivery::Start => "start",
                    Delivery::Document => DOCUMENT,
                },
                draws,
                seed,
            },
        }
    }

    /// In a line.
    pub(super) fn words(&self) -> String {
        let [down, up] = [self.down_mbit, self.up_mbit].map(|rate| match rate {
            None => "no limit".to_owned(),
            Some(mbit) => format!("{} Mbit/s", mark(mbit)),
        });
        let mut words = vec![format!("round trip {} ms", mark(self.rtt_ms))];
        match self.visit {
            None => words.push(format!("{down} for each resource")),
            Some(visit) => {
                words.push(format!("{down} down, {up} up"));
                words.push(format!("{} % lost", mark(self.loss * 100.0)));
                words.push(match visit {
                    "first" => format!("a first visit, {} ms for a name", mark(self.dns_ms)),
                    _ => "a client that was there before".into(),
                });
            }
        }
        if self.moved > 0.0 {
            words.push(format!("{} % of the servers at another address", mark(self.moved * 100.0)));
        }
        if self.warm > 0.0 {
            words.push(format!("connections to {} % of the servers open", mark(self.warm * 100.0)));
        }
        if (self.connections, self.pipelining) != (6, 1) {
            let pool = format!("{} connections of HTTP/1.1 to a server", self.connections);
            words.push(format!("{pool}, {} requests on each", self.pipelining));
        }
        if self.hit_rate < 1.0 {
            words.push(format!("databases know {} % of the pages", mark(self.hit_rate * 100.0)));
        }
        if self.delivery == DOCUMENT {
            words.push("databases speak with the head of the document's answer".into());
        }
        if self.draws > 1 {
            words.push(format!("means of {} loads", self.draws));
        }
        format!("Profile {}: {}", self.profile, words.join("; "))
    }
}

fn mbit(rate: u64) -> f64 {
    rate as f64 * 8.0 / 1e6
}

/// Refuses techniques that the profile does not have.
pub(super) fn check(
    profile: &Profile,
    techniques: impl IntoIterator<Item = Technique>,
) -> Result<(), Failure> {
    match techniques.into_iter().find(|&technique| !profile.knows(technique)) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<&str> = profile.techniques().map(Technique::name).collect();
            Err(Failure::usage(format!("the published rules know nothing of {unknown}"))
                .hint(format!("they know {}", known.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_described() {
        let link = Link { down: Some(1_000_000), loss: 0.005, ..Link::default() };
        let settings = tcp::Settings { link, ..tcp::Settings::default() };
        let mut model = Model { profile: Profile::Tcp(settings), hit_rate: 1.0, seed: 0, draws: 5 };
        let words = Setting::from_model(&model).words();
        assert_eq!(
            words,
            "Profile tcp: round trip 50 ms; 8 Mbit/s down, no limit up; 0.5 % lost; a first visit, \
             0 ms for a name; means of 5 loads"
        );
        let Profile::Tcp(mut settings) = model.profile else { panic!() };
        settings.revisit = Revisit { moved: 0.247, connections: 0.5, ..Revisit::again() };
        settings.pools = Pools { connections: 20, depth: 6 };
        settings.delivery = Delivery::Document;
        model = Model { profile: Profile::Tcp(settings), draws: 1, ..model };
        let words = Setting::from_model(&model).words();
        assert_eq!(
            words,
            "Profile tcp: round trip 50 ms; 8 Mbit/s down, no limit up; 0.5 % lost; a client that \
                was there before; 24.7 % of the servers at another address; connections to 50 % of \
                the servers open; 20 connections of HTTP/1.1 to a server, 6 requests on each; \
                databases speak with the head of the document's answer"
        );
        model.draws = 5;
        model =
            Model { profile: Profile::Blast(blast::Settings::default()), hit_rate: 0.6, ..model };
        let words = Setting::from_model(&model).words();
        assert_eq!(
            words,
            "Profile blast: round trip 800 ms; 1.312 Mbit/s for each resource; databases know 60 % \
             of the pages; means of 5 loads"
        );
    }
}
