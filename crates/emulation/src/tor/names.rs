//! The names that the exit can look up (RFC 1035, as far as one question in one datagram goes).

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::EXIT_NAME;
use crate::Node;
use crate::error::LabError;

/// Where the exit asks, in its own namespace.
pub(super) const AT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);

const HEADER: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];

/// Seconds that an answer holds.
const LIFE: [u8; 4] = [0, 0, 0, 60];

/// Interval at which the thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// A name server on one node; it has ended, and its address is free, when this is dropped.
#[derive(Debug)]
pub(super) struct Names {
    wanted: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Names {
    /// Knows these names, and that of the exit itself.
    pub(super) fn serve(node: &Node, names: &[(String, Ipv4Addr)]) -> Result<Self, LabError> {
        let cannot = || LabError::system("serving names to the exit");
        let socket = node.run(|| UdpSocket::bind(AT)).flatten().map_err(cannot())?;
        socket.set_read_timeout(Some(LOOK)).map_err(cannot())?;
        let own = (EXIT_NAME.to_owned(), node.ipv4().unwrap_or(Ipv4Addr::LOCALHOST));
        let known: HashMap<_, _> = names
            .iter()
            .cloned()
            .chain([own])
            .map(|(name, at)| (name.to_ascii_lowercase(), at))
            .collect();
        let wanted = Arc::new(AtomicBool::new(true));
        let held = Arc::clone(&wanted);
        let serving = thread::spawn(move || {
            let mut room = [0; 512];
            while held.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut room) else { continue };
                let question = room.get(..length).unwrap_or_default();
                if let Some(answer) = answer(question, &known) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Ok(Self { wanted, serving: Some(serving) })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
        let _ = self.serving.take().map(JoinHandle::join);
    }
}

/// Answers a question; `None` for other bytes.
fn answer(question: &[u8], known: &HashMap<String, Ipv4Addr>) -> Option<Vec<u8>> {
    let id = question.get(..2)?;
    let (name, end) = name(question)?;
    let asked = question.get(HEADER..end + 4)?;
    let address = known.get(&name.to_ascii_lowercase());
    let found =
        address.filter(|_| asked.get(asked.len() - 4..asked.len() - 2) == Some(TYPE_A.as_slice()));
    // A response that is authoritative; no such name is code 3.
    let code = if address.is_some() { 0 } else { 3 };
    let count = u8::from(found.is_some());
    let mut answer = [id, &[0x85, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], asked].concat();
    if let Some(address) = found {
        // The name is that of the question.
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(LIFE);
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// The name that is asked for, and where it ends.
fn name(question: &[u8]) -> Option<(String, usize)> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels.join("."), at)),
            64.. => return None,
            _ => labels.push(String::from_utf8_lossy(question.get(at..at + length)?).into_owned()),
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x06oRiGin\x04test\0");
        bytes.extend([0, kind, 0, 1]);
        bytes
    }

    #[test]
    fn a_name_is_found_in_any_case_and_the_question_repeated() {
        let known = HashMap::from([("origin.test".to_owned(), Ipv4Addr::new(10, 77, 2, 1))]);
        let asked = question(1);
        let found = answer(&asked, &known).unwrap();
        assert_eq!(found[..12], [7, 9, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(found[12..asked.len()], asked[12..]);
        assert_eq!(found[found.len() - 4..], [10, 77, 2, 1]);
        let six = answer(&question(28), &known).unwrap();
        assert_eq!((six[3], six[7]), (0x80, 0), "there is the name, and no such address");
        let none = answer(&asked, &HashMap::new()).unwrap();
        assert_eq!((none[3], none[7]), (0x83, 0));
        assert_eq!(answer(&asked[..20], &known), None);
        assert_eq!(answer(b"", &known), None);
    }
}
