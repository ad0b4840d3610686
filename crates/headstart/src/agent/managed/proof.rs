//! Mutual proof of the token on the loopback port, where the kernel checks no permissions and any
//! user may listen while the agent does not run: docs/managed.md, "The port".
//!
//! Neither side shows the token. Each proves that it knows it for one connection, by a MAC of both
//! nonces and of the connection's two addresses. No other socket of this network namespace has the
//! same two addresses meanwhile, so a proof that a listener relays from the agent is of no use.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, Response};
use openssl::error::ErrorStack;
use openssl::memcmp;
use openssl::rand::rand_bytes;

use super::answer::{Answer, Refusal};
use super::token::Token;
use crate::metrics;

/// Path of the resource that returns the agent's proof.
const PATH: &str = "/proof";

const NONCE: HeaderName = HeaderName::from_static("headstart-nonce");
const PROOF: HeaderName = HeaderName::from_static("headstart-proof");

/// Authentication scheme of the client's proof.
const SCHEME: &str = "headstart";

/// Random bytes of a nonce: enough that none repeats.
const NONCE_BYTES: usize = 32;

/// Hexadecimal digits of a nonce.
const NONCE_LEN: usize = 2 * NONCE_BYTES;

/// Authentication of one connection of the port: one attempt, before any other request.
pub(super) struct Gate {
    token: Arc<Token>,
    client: SocketAddr,
    agent: SocketAddr,
    state: Mutex<State>,
}

enum State {
    /// There was no request yet.
    New,
    /// The agent has sent its proof; the client has to send this one.
    Expecting(String),
    /// The one attempt was used.
    Spent,
}

/// Side of a connection that makes a proof: one side's proof is invalid from the other.
#[derive(Clone, Copy)]
enum Side {
    Agent,
    Client,
}

impl Gate {
    /// Makes the gate of a connection between these addresses.
    pub(super) fn new(token: Arc<Token>, client: SocketAddr, agent: SocketAddr) -> Self {
        Self { token, client, agent, state: Mutex::new(State::New) }
    }

    /// Admits a request with the client's proof; returns the agent's proof to a request for it.
    ///
    /// # Errors
    /// The request is neither, or the proof is wrong.
    pub(super) fn admit<B>(&self, request: &Request<B>) -> Result<Option<Answer>, Refusal> {
        if request.method() == Method::GET && request.uri().path() == PATH {
            return self.prove(request.headers()).map(Some);
        }
        let State::Expecting(expected) = self.replace(State::Spent) else { return Err(refused()) };
        // In constant time: the comparison must not leak how much of the proof is right.
        let is_proved = shown(request.headers()).any(|shown| {
            shown.len() == expected.len() && memcmp::eq(shown.as_bytes(), expected.as_bytes())
        });
        if is_proved { Ok(None) } else { Err(refused()) }
    }

    fn prove(&self, fields: &HeaderMap) -> Result<Answer, Refusal> {
        let mut nonces = fields.get_all(NONCE).iter().map(HeaderValue::to_str);
        let (Some(Ok(client_nonce)), None) = (nonces.next(), nonces.next()) else {
            return Err(Refusal::malformed("/proof needs one Headstart-Nonce"));
        };
        if client_nonce.len() != NONCE_LEN || !client_nonce.bytes().all(is_digit) {
            return Err(Refusal::malformed("Headstart-Nonce has 64 hexadecimal digits, 0 to f"));
        }
        let State::New = self.replace(State::Spent) else {
            return Err(Refusal::malformed("there is one proof for a connection, before all else"));
        };
        let (agent_nonce, proof) = self.expect(client_nonce).map_err(|error| {
            Refusal::internal(format!("no proof of the token can be made: {error}"))
        })?;
        let mut response = Response::new(Full::<Bytes>::default());
        for (name, text) in [(NONCE, agent_nonce), (PROOF, proof)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(name, value);
            }
        }
        Ok(response)
    }

    /// Returns the agent's nonce and proof, and notes the proof that the client has to send.
    fn expect(&self, client_nonce: &str) -> Result<(String, String), ErrorStack> {
        let mut nonce = [0; NONCE_BYTES];
        rand_bytes(&mut nonce)?;
        let agent_nonce = digits(&nonce);
        let proof = self.proof(Side::Agent, client_nonce, &agent_nonce)?;
        let expected = self.proof(Side::Client, client_nonce, &agent_nonce)?;
        self.replace(State::Expecting(expected));
        Ok((agent_nonce, proof))
    }

    /// Returns the proof of `side`: the MAC of this connection and both nonces. Its text has one
    /// line for each, so that no part of it can pass for another.
    fn proof(
        &self,
        side: Side,
        client_nonce: &str,
        agent_nonce: &str,
    ) -> Result<String, ErrorStack> {
        let side = match side {
            Side::Agent => "agent",
            Side::Client => "client",
        };
        let (client, agent) = (canonical(self.client), canonical(self.agent));
        let text =
            format!("headstart-proof {side}\n{client_nonce}\n{agent_nonce}\n{client}\n{agent}\n");
        self.token.mac(text.as_bytes()).map(|mac| digits(&mac))
    }

    /// Replaces the state; a panic cannot leave it half set.
    fn replace(&self, state: State) -> State {
        let mut current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, state)
    }
}

fn refused() -> Refusal {
    metrics::limit_hit("managed_token");
    Refusal::token()
}

/// Yields the proofs that a request carries.
fn shown(fields: &HeaderMap) -> impl Iterator<Item = &str> {
    let names = [PROXY_AUTHORIZATION, AUTHORIZATION].into_iter();
    names.flat_map(|name| fields.get_all(name)).filter_map(|value| {
        let (scheme, proof) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case(SCHEME).then_some(proof.trim())
    })
}

/// Returns the address as both ends write it: an IPv4 address of an IPv6 socket as IPv4.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    const CLIENT: &str = "127.0.0.1:50000";
    const AGENT: &str = "127.0.0.1:1081";

    fn gate(client: &str, agent: &str) -> Gate {
        let token = Arc::new(Token::new(TOKEN).unwrap());
        Gate::new(token, client.parse().unwrap(), agent.parse().unwrap())
    }

    fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn ask(gate: &Gate, nonce: &str) -> Result<Answer, Refusal> {
        gate.admit(&request("GET", PATH, &[("Headstart-Nonce", nonce)])).map(Option::unwrap)
    }

    /// Requests the agent's proof, and returns the client's.
    fn begin(gate: &Gate) -> String {
        let nonce = "c".repeat(NONCE_LEN);
        let response = ask(gate, &nonce).unwrap();
        let agent_nonce = response.headers()[NONCE].to_str().unwrap();
        gate.proof(Side::Client, &nonce, agent_nonce).unwrap()
    }

    fn show(gate: &Gate, proof: &str) -> Result<(), Refusal> {
        let shown = format!("Headstart {proof}");
        let request = request("CONNECT", "a.example:443", &[("Proxy-Authorization", &shown)]);
        gate.admit(&request).map(|response| assert!(response.is_none()))
    }

    /// Vectors that the tests of other implementations read, too.
    const VECTORS: &str = include_str!("../../../../../docs/vectors/port_proofs.txt");

    /// Returns a value of a block of the vectors.
    fn value<'a>(block: &'a str, name: &str) -> &'a str {
        let mut lines = block.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(found, _)| *found == name).unwrap().1
    }

    #[test]
    fn proofs_are_those_of_the_vectors() {
        let blocks: Vec<_> = VECTORS.split("\n\n").skip(1).collect();
        assert!(blocks.len() >= 3);
        for block in blocks {
            let token = Arc::new(Token::new(value(block, "token")).unwrap());
            let (client, agent) = (value(block, "client"), value(block, "agent"));
            let gate = Gate::new(token, client.parse().unwrap(), agent.parse().unwrap());
            let nonces = ["client_nonce", "agent_nonce"].map(|name| value(block, name));
            for (side, name) in [(Side::Agent, "agent_proof"), (Side::Client, "client_proof")] {
                assert_eq!(
                    gate.proof(side, nonces[0], nonces[1]).unwrap(),
                    value(block, name),
                    "{client}"
                );
            }
        }
    }

    #[test]
    fn a_proof_is_good_on_its_own_connection_alone() {
        let (here, there) = (gate(CLIENT, AGENT), gate(CLIENT, AGENT));
        let (proof, other) = (begin(&here), begin(&there));
        assert_ne!(proof, other);
        assert_eq!(show(&there, &proof).unwrap_err().name, "token");
        assert!(show(&here, &proof).is_ok());
    }

    #[test]
    fn a_connection_has_one_attempt() {
        let gate = gate(CLIENT, AGENT);
        let proof = begin(&gate);
        assert!(ask(&gate, &"c".repeat(NONCE_LEN)).is_err(), "a second challenge");
        assert!(show(&gate, &proof).is_err(), "the first is no longer expected");
        let gate = self::gate(CLIENT, AGENT);
        let proof = begin(&gate);
        assert!(show(&gate, &"0".repeat(NONCE_LEN)).is_err());
        assert!(show(&gate, &proof).is_err());
    }

    #[test]
    fn nothing_passes_without_a_proof() {
        let bearer = format!("Bearer {TOKEN}");
        for fields in [&[][..], &[("Proxy-Authorization", bearer.as_str())]] {
            let gate = gate(CLIENT, AGENT);
            let refused = gate.admit(&request("GET", "/sessions", fields));
            assert_eq!(refused.unwrap_err().name, "token");
        }
        let gate = gate(CLIENT, AGENT);
        begin(&gate);
        let refused =
            gate.admit(&request("GET", "/sessions", &[("Authorization", bearer.as_str())]));
        assert_eq!(refused.unwrap_err().name, "token");
    }

    /// A client that believes the agent's own proof, or shows it, has proved nothing.
    #[test]
    fn a_proof_cannot_be_reflected() {
        let gate = gate(CLIENT, AGENT);
        let response = ask(&gate, &"c".repeat(NONCE_LEN)).unwrap();
        let reflected = response.headers()[PROOF].to_str().unwrap();
        assert_eq!(show(&gate, reflected).unwrap_err().name, "token");
    }

    #[test]
    fn nonces_at_the_limit_and_beside_it() {
        let good = "0123456789abcdef".repeat(4);
        assert!(ask(&gate(CLIENT, AGENT), &good).is_ok());
        for wrong in [&good[1..], &format!("{good}0"), &good.to_uppercase(), &"g".repeat(64), ""] {
            let refused = ask(&gate(CLIENT, AGENT), wrong);
            assert_eq!(refused.unwrap_err().name, "bad_request", "{wrong}");
        }
        let twice = [("Headstart-Nonce", good.as_str()), ("Headstart-Nonce", good.as_str())];
        assert!(gate(CLIENT, AGENT).admit(&request("GET", PATH, &twice)).is_err());
    }
}
