//! Fetches pages through the agent of this machine, one after the other:
//!
//! ```sh
//! headstart agent --socket $XDG_RUNTIME_DIR/headstart.sock &
//! cargo run -p headstart-client --example get -- https://www.example.com/ https://www.example.com/
//! ```

use std::env;
use std::error::Error;

use headstart_client::{Agent, Connector, Facts};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let connector = Connector::new(Agent::from_env()?).http2();
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    for url in env::args().skip(1) {
        let response = client.get(url.parse()?).await.map_err(explained)?;
        let (status, version) = (response.status(), response.version());
        let facts = response.extensions().get::<Facts>().cloned();
        let length = response.into_body().collect().await?.to_bytes().len();
        println!("{url}: {status} {version:?}, {length} bytes");
        if let Some(Facts { opening, resumed, ledger, .. }) = facts {
            println!("  opening {opening}, resumed {resumed}, {ledger:?}");
        }
    }
    Ok(())
}

/// Returns the agent's own message and hint.
fn explained(error: hyper_util::client::legacy::Error) -> Box<dyn Error + Send + Sync> {
    let source = error.source().and_then(|source| source.downcast_ref::<headstart_client::Error>());
    match source.map(|error| (error.to_string(), error.hint().unwrap_or("none").to_owned())) {
        Some((words, hint)) => format!("{words} (hint: {hint})").into(),
        None => error.into(),
    }
}
