//! Probes of a server: its name, and one connection to it.

use std::time::{Duration, Instant};

use headstart_net::dns::{EdgeAdvert, Event, HTTPS_PORT, Resolver};
use headstart_net::{Carrier, Connector, ConnectorConfig, NotUsed, OpeningEvent, Report};
use headstart_proto::{ClientEvent, PlainReason};
use headstart_tls::{ClientContext, Facts, Version};
use hyper::Uri;

use super::finding::{Finding, Level};
use crate::base::edge_address::edge_lookup;
use crate::base::failure::Failure;
use crate::base::value::HostPort;
use crate::doctor::options::DoctorOptions;
use crate::get::tls::{self, HelloSize, cipher_name, group_name, version_name};
use crate::get::{self, Visit};

/// Time for all checks together; curl gives up connecting after minutes, which nobody waits for.
const LIMIT: Duration = Duration::from_secs(20);

/// Probes of a server: its DNS records, and the opening of a connection.
///
/// # Errors
/// Options that cannot be used.
pub(super) async fn check(
    host: &HostPort,
    options: &DoctorOptions,
) -> Result<Vec<Finding>, Failure> {
    let edges = options.edges()?;
    let configured = edges.find(Some(&host.host)).filter(|_| host.port == HTTPS_PORT).cloned();
    let resolver = get::resolver(&options.resolver)?;
    let mut findings = Vec::new();
    match &configured {
        Some(edge) => {
            findings.push(Finding::ok("edge", format!("{}, as configured", edge.address)));
        }
        None => findings.extend(names(&resolver, host).await),
    }
    if findings.iter().any(|finding| finding.level == Level::Problem) {
        return Ok(findings);
    }
    let connector = Connector::new(ConnectorConfig {
        edges: edge_lookup(edges),
        connect_timeout: LIMIT,
        ..ConnectorConfig::new(resolver)
    });
    let tls = tls::client_trusting(options.cacert.as_ref(), false, HelloSize::Usual)?;
    findings.extend(connection(&connector, &tls, host).await?);
    Ok(findings)
}

async fn names(resolver: &Resolver, host: &HostPort) -> Vec<Finding> {
    let mut addresses = Vec::new();
    let mut advert = None;
    let mut lookup = match resolver.resolve(&host.host, host.port) {
        Ok(lookup) => lookup,
        Err(error) => return vec![no_address(&error.to_string())],
    };
    while let Some(event) = lookup.next().await {
        match event {
            Event::Addresses(found) => addresses.extend(found),
            Event::Advert(found) => advert = found,
            Event::Failed(error) => return vec![no_address(&error.to_string())],
        }
    }
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let mut findings = vec![Finding::ok("addresses", addresses.join(", "))];
    if host.ip().is_none() {
        findings.push(advertised(host, advert.as_ref()));
    }
    findings
}

fn no_address(error: &str) -> Finding {
    Finding::problem("addresses", error, "check the spelling, and /etc/resolv.conf or --resolver")
}

fn advertised(host: &HostPort, advert: Option<&EdgeAdvert>) -> Finding {
    match advert {
        Some(edge) => {
            let left = edge.valid_until.saturating_duration_since(Instant::now()).as_secs();
            let at: Vec<_> = edge.addresses.iter().map(ToString::to_string).collect();
            let text = format!(
                "the HTTPS record offers TurboTLS ({}) at {}, for another {left} s",
                edge.advert,
                at.join(", ")
            );
            Finding::ok("advert", text)
        }
        None if host.port != HTTPS_PORT => Finding::note(
            "advert",
            "not asked: only port 443 can be advertised",
            "name the edge with --edge NAME=HOST:PORT, and the server without port",
        ),
        None => Finding::note(
            "advert",
            "no HTTPS record that offers TurboTLS came in time",
            format!("`headstart dns-record {}` prints one to publish; or use --edge", host.host),
        ),
    }
}

async fn connection(
    connector: &Connector,
    tls: &ClientContext,
    host: &HostPort,
) -> Result<Vec<Finding>, Failure> {
    let url: Uri = format!("https://{host}/")
        .parse()
        .map_err(|error| Failure::usage(format!("'{host}' cannot be in a URL: {error}")))?;
    let mut visit = Visit::new(&url);
    let opened = tokio::time::timeout(LIMIT, visit.open(connector, tls)).await;
    let opened = opened.unwrap_or_else(|_| Err(visit.out_of_time(LIMIT)));
    if let Err(failure) = &opened
        && failure.is_usage()
    {
        return Err(failure.clone());
    }
    let mut findings = Vec::new();
    let report = visit.report();
    if let Some(report) = &report {
        findings.extend(tcp(report));
        findings.extend(udp(report));
    }
    findings.push(match (&opened, visit.facts()) {
        (Ok(()), Some(facts)) => agreed(&facts),
        (Err(failure), _) => {
            let hint =
                failure.advice().unwrap_or("`headstart get --explain` shows how far it came");
            Finding::problem("tls", failure.message(), hint)
        }
        (Ok(()), None) => {
            Finding::problem("tls", "nothing was agreed on", "this should not happen")
        }
    });
    if opened.is_ok() {
        findings.extend(report.as_ref().map(opening));
    }
    Ok(findings)
}

fn tcp(report: &Report) -> Option<Finding> {
    let (address, rtt) = (report.address?, report.rtt?);
    Some(Finding::ok("tcp", format!("{address} connected in {:.1} ms", ms(rtt))))
}

/// Returns a finding about UDP, if a datagram was sent.
fn udp(report: &Report) -> Option<Finding> {
    let sent = first(report, |event| matches!(event, ClientEvent::FlightSent { .. }))?;
    let came = first(report, |event| matches!(event, ClientEvent::DatagramReceived { .. }));
    if let Some(came) = came {
        let text = match ms(came.saturating_sub(sent)) {
            late if late < 0.05 => "the edge answered in less than 0.1 ms".into(),
            late => format!("the edge answered in {late:.1} ms"),
        };
        return Some(Finding::ok("udp", text));
    }
    Some(match report.not_used {
        Some(NotUsed::Fallback(PlainReason::Unreachable)) => Finding::problem(
            "udp",
            "nobody listens there (ICMP unreachable)",
            "is the edge running, and is its UDP port that of TCP, or the one that it advertises?",
        ),
        _ => Finding::problem(
            "udp",
            "no answer within the grace",
            "a firewall may drop UDP to this port; connections fall back to plain TLS",
        ),
    })
}

/// Returns when the first event of the wanted kind happened.
fn first(report: &Report, wanted: fn(&ClientEvent) -> bool) -> Option<Duration> {
    let found = report.timeline.iter().find(|entry| match &entry.event {
        OpeningEvent::Transport(event) => wanted(event),
        _ => false,
    });
    found.map(|entry| entry.at)
}

fn agreed(facts: &Facts) -> Finding {
    let group = group_name(facts).map(|group| format!(", {group}")).unwrap_or_default();
    let (version, cipher) = (version_name(facts), cipher_name(facts));
    let text = format!("{version}{group}, {cipher}; the certificate is trusted");
    if facts.version == Some(Version::Tls13) {
        return Finding::ok("tls", text);
    }
    Finding::note("tls", text, "TLS 1.3 saves a round trip by itself")
}

fn opening(report: &Report) -> Finding {
    match (report.opened_by, report.not_used) {
        (Carrier::TurboTls, _) => {
            Finding::ok("opening", "TurboTLS: one round trip before the request")
        }
        (Carrier::Fop, _) => {
            Finding::ok("opening", "Fast Open: the first flight left with the SYN")
        }
        (_, Some(reason)) => Finding::note(
            "opening",
            format!("plain TLS; TurboTLS not used: {reason}"),
            "`headstart get --explain` shows the timeline",
        ),
        (_, None) => {
            Finding::note("opening", "plain TLS", "`headstart get --explain` shows the timeline")
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
