//! The names that the exit can look up: one question in one datagram.
//!
//! hickory-proto reads and writes the messages. hickory-server would answer them, too, but bring 26
//! further packages, tokio among them, into a crate that has threads and no runtime (`cargo tree`).

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::EXIT_NAME;
use crate::Node;
use crate::error::LabError;

/// Address of the exit's resolver, in its own namespace.
pub(super) const AT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);

/// Seconds that an answer holds.
const LIFE: u32 = 60;

/// Names the step in errors.
const SERVING: &str = "serving names to the exit";

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
        let socket = node.run(|| UdpSocket::bind(AT)).flatten();
        let socket = socket.map_err(LabError::system(SERVING))?;
        socket.set_read_timeout(Some(LOOK)).map_err(LabError::system(SERVING))?;
        let own = (EXIT_NAME, node.ipv4().unwrap_or(Ipv4Addr::LOCALHOST));
        let names = names.iter().map(|(name, at)| (name.as_str(), *at)).chain([own]);
        let known = names.map(|(text, at)| Ok((name(text)?, at))).collect::<io::Result<_>>();
        let known: HashMap<_, _> = known.map_err(LabError::system(SERVING))?;
        let wanted = Arc::new(AtomicBool::new(true));
        let held = Arc::clone(&wanted);
        let serving = thread::spawn(move || {
            let mut buffer = [0; 512];
            while held.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                let question = buffer.get(..length).unwrap_or_default();
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
fn answer(question: &[u8], known: &HashMap<Name, Ipv4Addr>) -> Option<Vec<u8>> {
    let message = Message::from_vec(question).ok()?;
    let query = message.queries.first()?;
    let mut answer = Message::response(message.metadata.id, message.metadata.op_code);
    answer.metadata.authoritative = true;
    answer.metadata.recursion_desired = message.metadata.recursion_desired;
    answer.metadata.recursion_available = true;
    match known.get(query.name()) {
        None => answer.metadata.response_code = ResponseCode::NXDomain,
        Some(address) if query.query_type() == RecordType::A => {
            let data = RData::A(A(*address));
            answer.add_answer(Record::from_rdata(query.name().clone(), LIFE, data));
        }
        Some(_) => {}
    }
    answer.add_query(query.clone());
    answer.to_vec().ok()
}

/// Reads a name without the final dot.
fn name(text: &str) -> io::Result<Name> {
    Name::from_ascii(format!("{text}.")).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query_of(kind: u8) -> Vec<u8> {
        let mut bytes = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x06oRiGin\x04test\0");
        bytes.extend([0, kind, 0, 1]);
        bytes
    }

    #[test]
    fn a_name_is_found_in_any_case_and_the_question_repeated() {
        let known = HashMap::from([(name("origin.test").unwrap(), Ipv4Addr::new(10, 77, 2, 1))]);
        let question = query_of(1);
        let found = answer(&question, &known).unwrap();
        assert_eq!(found[..12], [7, 9, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(found[12..question.len()], question[12..]);
        assert_eq!(found[found.len() - 4..], [10, 77, 2, 1]);
        let six = answer(&query_of(28), &known).unwrap();
        assert_eq!((six[3], six[7]), (0x80, 0), "there is the name, and no such address");
        let none = answer(&question, &HashMap::new()).unwrap();
        assert_eq!((none[3], none[7]), (0x83, 0));
        assert_eq!(answer(&question[..20], &known), None);
        assert_eq!(answer(b"", &known), None);
    }
}
