//! `headstart edge --check`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use headstart_net::careful;
use socket2::Type;
use std::net::SocketAddr;

use super::dial::Dial;
use super::fleet_links::FleetLinks;
use super::keys;
use super::options::EdgeOptions;
use super::serve::{ATTACH_CAREFUL, check_udp_port, files_allow, quic_server};
use super::terminate::{Examined, authorities, examine};
use crate::base::failure::Failure;
use crate::base::own_address::leave_out_ipv6;
use crate::base::settings::Invocation;
use crate::check::{self, finding};
use crate::daemon;
use crate::doctor::{self, Finding};
use crate::fleet::{self, storage::KeySource};

/// Checks all that a start needs, and prints a line for each.
///
/// # Errors
/// The output cannot be written.
pub async fn check(options: &EdgeOptions, invocation: &Invocation) -> Result<ExitCode, Failure> {
    daemon::raise_file_limit();
    let mut all = check::common(options.config.as_deref(), &options.log, invocation);
    all.push(finding("names", &options.origins(), "each name has one origin"));
    all.extend(certificates(options));
    all.extend(keys(options));
    all.extend(origins(options).await);
    if options.quic.is_some() {
        all.push(finding(
            "quic",
            &quic_server(options).await,
            "the server for QUIC has an address",
        ));
    }
    all.extend(ports(options));
    all.push(check::connections(options.max_connections, files_allow(options)));
    all.extend(options.careful_resume.then(careful_resume));
    let path = options.takeover.takeover.as_deref();
    all.extend(path.map(|path| check::new_file("takeover", path)));
    all.extend(check::qlog(&options.qlog));
    doctor::print(&[("this edge".to_owned(), all)], options.check.json)
}

/// Careful Resume on listeners of this process: those of another are not at hand.
fn careful_resume() -> Finding {
    match careful::probe() {
        Ok(()) => Finding::ok("careful_resume", "the window of a connection can be set"),
        Err(error) => {
            let what = format!("no window can be set: {error}");
            Finding::note("careful_resume", what, ATTACH_CAREFUL)
        }
    }
}

/// Each certificate, and each name that has none.
fn certificates(options: &EdgeOptions) -> Vec<Finding> {
    let files = match options.certificates() {
        Ok(files) => files,
        Err(failure) => return vec![Finding::failed("certificate", &failure)],
    };
    let mut findings = Vec::new();
    let mut good = Vec::new();
    for files in &files {
        let file = files.chain.display();
        match examine(files) {
            Err(failure) => findings.push(Finding::failed("certificate", &failure)),
            Ok(examined) => {
                findings.push(certificate(&file.to_string(), &examined));
                good.push(examined.certificates);
            }
        }
    }
    if let Some(path) = &options.client_ca {
        let known = authorities(path);
        findings.push(finding("client_ca", &known, path.display().to_string()));
    }
    if good.len() == files.len() && !good.is_empty() {
        let uncovered = options
            .terminated_names()
            .filter(|name| !good.iter().any(|certificates| certificates.cover(name)));
        findings.extend(uncovered.map(|name| {
            Finding::problem(
                "certificate",
                format!("no certificate is for {name}: clients will refuse the connection"),
                "give one with that name in its subjectAltName, by another --cert and --key",
            )
        }));
    }
    findings
}

fn certificate(file: &str, examined: &Examined) -> Finding {
    let Examined { fault, missing, until, .. } = examined;
    if let Some(fault) = fault {
        return Finding::problem("certificate", format!("{file}: {fault}"), "get a new one");
    }
    match missing {
        Some(issuer) => Finding::note(
            "certificate",
            format!("{file}: its issuer, {issuer}, is not in the chain"),
            "clients that do not know that issuer refuse the certificate; give the full chain \
             (fullchain.pem)",
        ),
        None => Finding::ok("certificate", format!("{file}, until {until}")),
    }
}

fn keys(options: &EdgeOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &options.keys {
        Some(KeySource::File(path)) => {
            findings.push(finding("keys", &keys::load(path), format!("{}", path.display())));
        }
        Some(KeySource::Redis(_)) => findings.push(Finding::note(
            "keys",
            "those in Redis were not asked for",
            "an edge starts without them, and takes them once Redis answers",
        )),
        None => {}
    }
    if let Some(path) = &options.fleet {
        let fleet = fleet::load(path);
        findings.push(finding("fleet", &fleet, format!("{}", path.display())));
        if let Ok(fleet) = fleet {
            let own = FleetLinks::own(options, &fleet).transpose();
            findings.extend(own.map(|own| match own {
                Ok((_, address)) => check::port(Type::STREAM, address),
                Err(failure) => Finding::failed("fleet", &failure),
            }));
        }
    }
    findings.extend(options.check_fleet().err().map(|failure| Finding::failed("fleet", &failure)));
    findings
}

/// Connects to each origin, to all at one time.
async fn origins(options: &EdgeOptions) -> Vec<Finding> {
    let dial = match Dial::new(options, Arc::default()) {
        Ok(dial) => Arc::new(dial),
        Err(failure) => return vec![Finding::failed("origin", &failure)],
    };
    let attempts: Vec<_> = options
        .origin
        .iter()
        .map(|origin| {
            let (dial, origin) = (Arc::clone(&dial), origin.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let connected = dial.try_connect(&origin.server.address).await;
                (origin, connected.map(|_| begun.elapsed()))
            })
        })
        .collect();
    let mut findings = Vec::new();
    for attempt in attempts {
        let Ok((origin, connected)) = attempt.await else { continue };
        findings.push(match connected {
            Ok(time) => {
                let millis = time.as_secs_f64() * 1000.0;
                Finding::ok("origin", format!("{origin}: connected in {millis:.1} ms"))
            }
            Err(error) => Finding::problem(
                "origin",
                format!("{origin}: cannot connect: {error}"),
                "is it up, and reachable from here?",
            ),
        });
    }
    findings
}

fn ports(options: &EdgeOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings
        .extend(check_udp_port(options).err().map(|failure| Finding::failed("listen", &failure)));
    let mut listen = options.listen.clone();
    leave_out_ipv6(&mut listen);
    for address in &listen {
        let port = options.udp_port.map_or(address.port(), std::num::NonZeroU16::get);
        findings.push(check::port(Type::STREAM, *address));
        findings.push(check::port(Type::DGRAM, SocketAddr::new(address.ip(), port)));
    }
    findings.extend(check::metrics(&options.metrics));
    findings
}
