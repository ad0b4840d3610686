//! Managed TLS without its listeners, for fuzz targets.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::UnixStream;

use super::caller::Caller;
use super::exchange;
use super::program_stream::ProgramStream;
use super::proof::Gate;
use super::token::Token;
use crate::agent::options::AgentOptions;
use crate::agent::serve::Settings;
use crate::base::failure::Failure;
use crate::metrics::{Connection, Role};

/// An agent as programs of its machine see it.
pub struct ManagedAgent(Arc<Settings>);

impl ManagedAgent {
    /// Makes one that knows nothing yet.
    ///
    /// # Errors
    /// Options that contradict each other.
    pub fn new(options: AgentOptions) -> Result<Self, Failure> {
        Settings::new(options, None).map(|settings| Self(Arc::new(settings)))
    }

    /// Serves the connection of a program of `user`, until it is over: on the socket, or on a port
    /// with this token.
    pub async fn serve(&self, program: UnixStream, user: u32, token: Option<&str>) {
        let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let gate = token.and_then(Token::new);
        let gate = gate.map(|token| Arc::new(Gate::new(Arc::new(token), place, place)));
        let process = i32::try_from(std::process::id()).ok();
        let caller = Caller { user: Some(user), process, gate };
        let local = ProgramStream::Unix(program);
        let counted = Connection::accepted(Role::Agent);
        exchange::serve(local, caller, Arc::clone(&self.0), counted, pending()).await;
    }
}
