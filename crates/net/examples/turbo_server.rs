//! A TLS server that opens in one round trip, and accepts plain TLS on the same port.
//!
//! `cargo run -p headstart-net --example turbo_server -- 127.0.0.1:4433 cert.pem key.pem`

use std::pin::Pin;

use headstart_net::{Acceptor, AcceptorConfig, Arrival};
use openssl::ssl::{Ssl, SslAcceptor, SslFiletype, SslMethod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, cert, key] = arguments.as_slice() else {
        return Err("usage: turbo_server ADDR:PORT CERT.pem KEY.pem".into());
    };
    let mut tls = SslAcceptor::mozilla_modern_v5(SslMethod::tls_server())?;
    tls.set_certificate_chain_file(cert)?;
    tls.set_private_key_file(key, SslFiletype::PEM)?;
    let tls = tls.build();

    let mut acceptor = Acceptor::bind(address.parse()?, AcceptorConfig::default())?;
    println!("listening on {}", acceptor.local_addr());
    loop {
        let (arrival, ssl) = (acceptor.accept().await?, Ssl::new(tls.context())?);
        tokio::spawn(async move {
            if let Err(error) = serve(arrival, ssl).await {
                eprintln!("connection: {error}");
            }
        });
    }
}

async fn serve(arrival: Arrival, ssl: Ssl) -> Result<(), Failure> {
    // `None`: the TCP part of a connection that another task serves already.
    let Some(stream) = arrival.establish().await? else { return Ok(()) };
    println!("{:?} from {}", stream.opened_by(), stream.peer_addr());
    let mut stream = tokio_openssl::SslStream::new(ssl, stream)?;
    Pin::new(&mut stream).accept().await?;
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    stream.write_all(request.get(..length).unwrap_or_default()).await?;
    Ok(stream.shutdown().await?)
}
