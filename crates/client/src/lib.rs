//! Connections through the agent of this machine: `headstart agent --socket PATH`.
//!
//! The agent speaks TLS for programs. It opens connections as fast as it can, resumes sessions that
//! other programs left, verifies certificates, and passes on plain bytes and the public [`Facts`].
//! No secret enters the program, and it needs no TLS library. docs/managed.md describes the
//! protocol on the socket.
//!
//! The agent sees every plain byte, so the program has to know it. On a Unix socket the listener's
//! user has to be this user, root, or the one whose number is in `HEADSTART_AGENT_UID`; on a port
//! the listener has to prove that it has the token. Nothing is sent to any other.
//!
//! * [`Connector`] is for hyper's client, or anything else that takes a
//!   `tower_service::Service<Uri>`.
//! * [`Agent::connect`] returns a [`Stream`] for any protocol.
//!
//! ```no_run
//! use http_body_util::{BodyExt, Empty};
//! use hyper::body::Bytes;
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use headstart_client::{Agent, Connector, Facts};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let connector = Connector::new(Agent::from_env()?).http2();
//! let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
//! let response = client.get("https://www.example.com/".parse()?).await?;
//! if let Some(facts) = response.extensions().get::<Facts>() {
//!     println!("{}, resumed: {}", facts.opening, facts.resumed);
//! }
//! let body = response.into_body().collect().await?.to_bytes();
//! println!("{} bytes", body.len());
//! # Ok(())
//! # }
//! ```
//!
//! The example needs hyper-util's feature `http2`; without it, leave [`Connector::http2`] out.
#![forbid(unsafe_code)]

mod agent;
mod connector;
mod error;
mod facts;
mod head;
mod options;
mod proof;
mod request;
mod stream;
mod trust;

pub use agent::Agent;
pub use connector::Connector;
pub use error::{Error, Kind, Refusal};
pub use facts::{EarlyData, Facts, Ledger};
pub use options::{Options, Policy, Verify};
pub use stream::Stream;
