//! The near end: connections of both kinds in turn.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use headstart_net::advert::Advert;
use headstart_net::{Carrier, Connector, ConnectorConfig, Edge};
use hyper::header::HOST;
use hyper::{Request, Uri};
use openssl::x509::X509;

use super::NAME;
use super::figures::{Sample, Samples};
use crate::demo::options::DemoOptions;
use headstart::base::failure::Failure;
use headstart::base::output;
use headstart::get::tls::{self, HelloSize, group_name};
use headstart::get::{self, Visit};
use headstart_net::OpeningPolicy;
use headstart_tls::{ClientContext, Trust};

/// Opens the connections; the first of each kind is not counted, since it finds nothing warm.
pub(super) async fn measure(
    edge: SocketAddr,
    certificate: X509,
    options: &DemoOptions,
) -> Result<Samples, Failure> {
    let roots = certificate
        .to_pem()
        .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))?;
    let tls = tls::client(Trust::Roots(roots), HelloSize::Usual)
        .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))?;
    let mut samples = Samples::default();
    let plain = connector(edge, OpeningPolicy::Plain)?;
    let turbo = connector(edge, OpeningPolicy::Turbo)?;
    for round in 0..=options.connections {
        output::progress(&format!("round {round} of {}", options.connections));
        let one = visit(&plain, &tls).await?;
        let other = visit(&turbo, &tls).await?;
        if round > 0 {
            samples.plain.push(one);
            samples.turbo.push(other);
        }
    }
    output::progress("");
    Ok(samples)
}

fn connector(edge: SocketAddr, opening: OpeningPolicy) -> Result<Connector, Failure> {
    // Never used: the edge is known by its address, and the system may have no resolver.
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 53));
    let edge = Edge { host: edge.ip().to_string(), port: edge.port(), advert: Advert::default() };
    let mut config = ConnectorConfig::new(get::resolver(&[nobody])?);
    config.edges = Arc::new(move |_| Some(edge.clone()));
    config.opening = opening;
    Ok(Connector::new(config))
}

async fn visit(connector: &Connector, tls: &ClientContext) -> Result<Sample, Failure> {
    let url: Uri = format!("https://{NAME}/")
        .parse()
        .map_err(|error| Failure::usage(format!("{NAME}: {error}")))?;
    let request = Request::get("/").header(HOST, NAME).body(());
    let request = request.map_err(|error| Failure::usage(error.to_string()))?.into_parts().0;
    // A plain connection goes through the edge, too, so that only the opening differs.
    let mut visit = Visit::new(&url);
    visit.fetch(connector, tls, request, |_, _| Ok(())).await?;
    let account = visit.into_account(0);
    let whole = account.to_request().zip(account.to_response()).zip(account.rtt());
    let ((request, response), rtt) =
        whole.ok_or_else(|| Failure::negative("a connection ended without being measured"))?;
    let turbo = account.opened_by() == Carrier::TurboTls;
    let group = account.facts.as_ref().and_then(group_name).map(str::to_owned);
    Ok(Sample { request, response, rtt, turbo, group })
}
