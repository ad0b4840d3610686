//! A TLS client that opens in one round trip where the server supports it, and plain elsewhere.
//!
//! `cargo run -p headstart-net --example turbo_client -- localhost 127.0.0.1:4433 cert.pem`

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use headstart_net::advert::Advert;
use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{Connector, ConnectorConfig, Edge, Target};
use openssl::ssl::{SslConnector, SslMethod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, edge, ca] = arguments.as_slice() else {
        return Err("usage: turbo_client NAME EDGE_ADDR:PORT CA.pem".into());
    };
    let edge: SocketAddr = edge.parse()?;
    let mut config = ConnectorConfig::new(Resolver::new(&DnsConfig::default())?);
    // Without this, the client would query the name's HTTPS record for an advertisement.
    let edge = Edge { host: edge.ip().to_string(), port: edge.port(), advert: Advert::default() };
    config.edges = Arc::new(move |_name| Some(edge.clone()));
    let stream = Connector::new(config).connect(&Target::new(name.as_str(), 443))?;

    let mut tls = SslConnector::builder(SslMethod::tls_client())?;
    tls.set_ca_file(ca)?;
    let ssl = tls.build().configure()?.into_ssl(name)?;
    let mut stream = tokio_openssl::SslStream::new(ssl, stream)?;
    Pin::new(&mut stream).connect().await?;
    stream.write_all(b"hello over TurboTLS").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    println!("{}", String::from_utf8_lossy(&answer));
    if let Some(report) = stream.get_ref().report() {
        println!("opened by {} in {:?}", report.opened_by.name(), report.rtt);
    }
    Ok(())
}
