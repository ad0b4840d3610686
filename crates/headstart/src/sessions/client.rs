//! One request to the agent over its socket.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use headstart_net::is_anyone;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::base::failure::Failure;
use crate::base::trust::{AGENT_UID, is_trusted};
use crate::sessions::options::AgentSocket;

/// The agent is on this machine, and looks at memory only.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer: a store that is full has some 2,000 rows of 300 bytes.
const ANSWER_MAX: usize = 8 << 20;

/// The socket in `XDG_RUNTIME_DIR`, if none is named.
const NAME: &str = "headstart.sock";

/// A call of the agent.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    /// JSON, or empty.
    pub(super) body: String,
}

impl Call {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: String::new() }
    }
}

/// Asks the agent.
///
/// # Errors
/// There is no agent, or another user's (2), or it refuses (1).
pub(super) async fn ask(agent: &AgentSocket, call: &Call) -> Result<Value, Failure> {
    let path = path_of(agent)?;
    let reply = timeout(PATIENCE, exchange(&path, call)).await;
    reply.unwrap_or_else(|_| Err(broken(&path, "it does not answer")))
}

fn path_of(agent: &AgentSocket) -> Result<PathBuf, Failure> {
    if let Some(path) = &agent.socket {
        return Ok(path.clone());
    }
    let dir = env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    dir.map(|dir| Path::new(&dir).join(NAME)).ok_or_else(|| {
        Failure::usage("no socket of an agent is named, and XDG_RUNTIME_DIR is not set")
            .hint("name it with --socket PATH, or in HEADSTART_SOCKET")
    })
}

async fn exchange(path: &Path, call: &Call) -> Result<Value, Failure> {
    let socket = UnixStream::connect(path).await.map_err(|error| no_agent(path, &error))?;
    check(path, &socket)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|error| broken(path, &error.to_string()))?;
    tokio::spawn(connection);
    let request = Request::builder().method(&call.method).uri(&call.path).header(HOST, "agent");
    let request = request.body(Full::<Bytes>::from(call.body.clone()));
    let request = request.map_err(|error| Failure::usage(format!("no such request: {error}")))?;
    let answer = sender.send_request(request).await;
    read(path, answer.map_err(|error| broken(path, &error.to_string()))?).await
}

/// Checks who listens: another user could answer anything, also that sessions are forgotten.
fn check(path: &Path, socket: &UnixStream) -> Result<(), Failure> {
    let user = socket.peer_cred().map_err(|error| no_agent(path, &error))?.uid();
    let named = env::var(AGENT_UID).ok().and_then(|uid| uid.parse().ok());
    if is_trusted(user, named) {
        return Ok(());
    }
    let hint = if is_anyone(user) {
        "run the agent as this user or root, in this user namespace".to_owned()
    } else {
        format!("if the agent runs as that user, say so: {AGENT_UID}={user}")
    };
    Err(Failure::usage(format!(
        "the listener at {} is not trusted: it is user {user}, neither this user nor root",
        path.display()
    ))
    .hint(hint))
}

async fn read(path: &Path, answer: Response<Incoming>) -> Result<Value, Failure> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await;
    let body = body.map_err(|error| broken(path, &error.to_string()))?.to_bytes();
    if !head.status.is_success() {
        return Err(refused(&String::from_utf8_lossy(&body)));
    }
    serde_json::from_slice(&body).map_err(|_| {
        broken(path, "its answer is no JSON").hint("is that the socket of headstart agent?")
    })
}

/// The agent's own words, with its own hint.
fn refused(text: &str) -> Failure {
    let (words, hint) = text.trim_end().split_once("\nhint: ").unwrap_or((text.trim_end(), ""));
    let failure = Failure::negative(words);
    if hint.is_empty() { failure } else { failure.hint(hint) }
}

fn no_agent(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::usage(format!("cannot reach an agent at {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            failure.hint("its --socket-mode and --socket-group say who may use it")
        }
        _ => failure.hint(format!("start one: headstart agent --socket {}", path.display())),
    }
}

fn broken(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("the agent at {} cannot be asked: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_words_and_hint_are_passed_on() {
        let failure = refused("that is another user's\nhint: only root may name another user\n");
        assert_eq!(
            failure.to_string(),
            "error: that is another user's\nhint: only root may name another user"
        );
        assert!(!failure.is_usage());
        assert_eq!(refused("no\n").to_string(), "error: no");
    }
}
