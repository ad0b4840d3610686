//! Proof of the token on the agent's port, in both directions: docs/managed.md, "The port".

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::Error;
use crate::head::Head;

/// Random bytes of a nonce.
const NONCE_BYTES: usize = 32;

/// Hexadecimal digits of a nonce.
const NONCE_LEN: usize = 2 * NONCE_BYTES;

/// Characters of a token, as the agent takes them: anyone can guess a shorter one.
const TOKEN_LEN: RangeInclusive<usize> = 32..=256;

/// Returns true if an agent could have this token.
pub(crate) fn is_token(text: &str) -> bool {
    TOKEN_LEN.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The client's end of one connection to the port.
pub(crate) struct Challenge<'a> {
    token: &'a str,
    client: SocketAddr,
    agent: SocketAddr,
    nonce: String,
}

impl<'a> Challenge<'a> {
    /// Makes a challenge for the connection between these addresses.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn new(token: &'a str, client: SocketAddr, agent: SocketAddr) -> io::Result<Self> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        Ok(Self { token, client, agent, nonce: digits(&nonce) })
    }

    /// Returns the request for the agent's proof. It tells the listener nothing.
    pub(crate) fn request(&self) -> String {
        let nonce = &self.nonce;
        format!("GET /proof HTTP/1.1\r\nHost: agent\r\nHeadstart-Nonce: {nonce}\r\n\r\n")
    }

    /// Checks the agent's proof, and returns the client's.
    ///
    /// # Errors
    /// [`Error::Untrusted`] if the listener does not have the token, or relays the proof of an
    /// agent that has.
    pub(crate) fn answer(&self, head: &Head) -> Result<String, Error> {
        let is_proof = head.status == 200;
        let nonce = head.field("Headstart-Nonce").unwrap_or_default();
        let proof = head.field("Headstart-Proof").and_then(bytes);
        let is_nonce = is_proof && nonce.len() == NONCE_LEN && bytes(nonce).is_some();
        let proved = is_nonce
            && proof.is_some_and(|proof| {
                // In a time that does not tell how much of it was right.
                self.mac("agent", nonce).is_some_and(|mac| mac.verify_slice(&proof).is_ok())
            });
        let answer = proved.then(|| self.mac("client", nonce)).flatten();
        let answer = answer.ok_or_else(|| Error::Untrusted {
            agent: self.agent.to_string(),
            why: "it does not prove that it has the token".into(),
            hint: "is this its token? a port that is forwarded, or of another network namespace, \
                   proves nothing: use the Unix socket"
                .into(),
        })?;
        Ok(digits(&answer.finalize().into_bytes()))
    }

    /// Returns the MAC of this connection and both nonces, as `side` shows it.
    fn mac(&self, side: &str, theirs: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::new_from_slice(self.token.as_bytes()).ok()?;
        let (client, agent) = (canonical(self.client), canonical(self.agent));
        let ours = &self.nonce;
        mac.update(
            format!("headstart-proof {side}\n{ours}\n{theirs}\n{client}\n{agent}\n").as_bytes(),
        );
        Some(mac)
    }
}

/// Returns the address as both ends write it: an IPv4 address of an IPv6 socket as IPv4.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads lower-case hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut pairs = text.as_bytes().chunks_exact(2);
    let bytes = pairs.by_ref().map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
    if pairs.remainder().is_empty() { bytes } else { None }
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors that the agent's tests read, too.
    const VECTORS: &str = include_str!("../../../docs/vectors/port_proofs.txt");

    /// Returns a value of a block of the vectors.
    fn value<'a>(block: &'a str, name: &str) -> &'a str {
        let mut lines = block.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(found, _)| *found == name).unwrap().1
    }

    fn challenge(block: &str) -> Challenge<'_> {
        Challenge {
            token: value(block, "token"),
            client: value(block, "client").parse().unwrap(),
            agent: value(block, "agent").parse().unwrap(),
            nonce: value(block, "client_nonce").into(),
        }
    }

    fn head(nonce: &str, proof: &str) -> Head {
        let text = format!(
            "HTTP/1.1 200 OK\r\nheadstart-nonce: {nonce}\r\nheadstart-proof: {proof}\r\n\r\n"
        );
        Head::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn proofs_are_those_of_the_vectors() {
        let blocks: Vec<_> = VECTORS.split("\n\n").skip(1).collect();
        assert!(blocks.len() >= 3);
        for block in blocks {
            let good = head(value(block, "agent_nonce"), value(block, "agent_proof"));
            assert_eq!(challenge(block).answer(&good).unwrap(), value(block, "client_proof"));
        }
    }

    #[test]
    fn no_other_proof_is_answered() {
        let block = VECTORS.split("\n\n").nth(1).unwrap();
        let (nonce, proof) = (value(block, "agent_nonce"), value(block, "agent_proof"));
        let upper = proof.to_uppercase();
        for (nonce, proof) in [
            (nonce, value(block, "client_proof")),
            (nonce, &proof[2..]),
            (nonce, &format!("{proof}00")),
            (nonce, upper.as_str()),
            (nonce, ""),
            (value(block, "client_nonce"), proof),
            (&nonce[2..], proof),
            ("", proof),
        ] {
            let refused = challenge(block).answer(&head(nonce, proof));
            assert!(matches!(refused, Err(Error::Untrusted { .. })), "{nonce} {proof}");
        }
        let good = head(nonce, proof);
        let elsewhere = "127.0.0.1:1082".parse().unwrap();
        let relayed = Challenge { agent: elsewhere, ..challenge(block) };
        assert!(relayed.answer(&good).is_err(), "the agent's, from another port");
        let another = Challenge { client: elsewhere, ..challenge(block) };
        assert!(another.answer(&good).is_err(), "the agent's, to another client");
        let later = Challenge { nonce: "0".repeat(NONCE_LEN), ..challenge(block) };
        assert!(later.answer(&good).is_err(), "the agent's, of before");
        let stranger = Challenge { token: "0123456789abcdef0123456789abcdee", ..challenge(block) };
        assert!(stranger.answer(&good).is_err(), "another token");
    }

    #[test]
    fn tokens_at_the_limit_and_one_over() {
        for (length, good) in [(0, false), (31, false), (32, true), (256, true), (257, false)] {
            assert_eq!(is_token(&"x".repeat(length)), good, "{length}");
        }
        assert!(!is_token(&"\0".repeat(64)), "a file that was never written");
    }

    #[test]
    fn nonces_do_not_come_twice() {
        let at = "127.0.0.1:1".parse().unwrap();
        let nonces = [(); 2].map(|()| Challenge::new("", at, at).unwrap().nonce);
        assert_ne!(nonces[0], nonces[1]);
        assert!(nonces.iter().all(|nonce| nonce.len() == NONCE_LEN));
    }
}
