//! A name server on the client's own machine, which answers as told: late or not at all, too.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use headstart_emulation::Node;
use hickory_proto::op::Message;
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamKey, SvcParamValue, Unknown};
use hickory_proto::rr::rdata::{A, HTTPS, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The private SvcParamKey of headstart.
const KEY: u16 = 65_480;

/// Life of records unless stated otherwise.
const TTL: u32 = 300;

/// Records of a name; other names exist and have none.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    pub(crate) https: Https,
    pub(crate) ttl: u32,
}

/// Answer to the question for an HTTPS record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Https {
    /// It advertises TurboTLS.
    Advert,
    /// The same, so much later.
    Late(Duration),
    /// There is none.
    None,
    /// No answer.
    Silence,
}

/// The running server; it ends with the process.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    queries: Arc<Mutex<Vec<(String, RecordType)>>>,
}

impl NameServer {
    pub(crate) fn start(node: &Node, hosts: &[(&str, Ipv4Addr, Https)]) -> Self {
        let hosts =
            hosts.iter().map(|&(name, address, https)| (name, Host { address, https, ttl: TTL }));
        Self::with(node, hosts.collect())
    }

    pub(crate) fn with(node: &Node, hosts: Vec<(&str, Host)>) -> Self {
        let hosts: HashMap<_, _> =
            hosts.into_iter().map(|(name, host)| (format!("{name}."), host)).collect();
        let socket = node.run(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        let server = Self { address: socket.local_addr().unwrap(), queries: Arc::default() };
        let queries = Arc::clone(&server.queries);
        thread::spawn(move || serve(&Arc::new(socket), &hosts, &queries));
        server
    }

    /// Returns how often it was asked.
    pub(crate) fn queries(&self, name: &str, kind: RecordType) -> usize {
        let queries = self.queries.lock().unwrap();
        queries
            .iter()
            .filter(|(of, what)| of.strip_suffix('.') == Some(name) && *what == kind)
            .count()
    }
}

fn serve(
    socket: &Arc<UdpSocket>,
    hosts: &HashMap<String, Host>,
    queries: &Mutex<Vec<(String, RecordType)>>,
) {
    let mut buffer = [0; 1500];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        let request = Message::from_vec(&buffer[..length]).unwrap();
        let query = request.queries.first().unwrap();
        let (name, kind) = (query.name().to_lowercase().to_ascii(), query.query_type());
        queries.lock().unwrap().push((name.clone(), kind));
        let host = hosts.get(&name);
        let delay = match host.map(|host| host.https) {
            Some(Https::Silence) if kind == RecordType::HTTPS => continue,
            Some(Https::Late(delay)) if kind == RecordType::HTTPS => delay,
            _ => Duration::ZERO,
        };
        let answer = answer(&request, host);
        let socket = Arc::clone(socket);
        thread::spawn(move || {
            thread::sleep(delay);
            let _ = socket.send_to(&answer, client);
        });
    }
}

fn answer(request: &Message, host: Option<&Host>) -> Vec<u8> {
    let query = request.queries.first().unwrap().clone();
    let mut answer = Message::response(request.metadata.id, request.metadata.op_code);
    answer.metadata.recursion_available = true;
    let data = host.and_then(|host| match query.query_type() {
        RecordType::A => Some(RData::A(A(host.address))),
        RecordType::HTTPS if host.https != Https::None => Some(advert()),
        _ => None,
    });
    match (data, host) {
        (Some(data), Some(host)) => {
            answer.add_answers([Record::from_rdata(query.name().clone(), host.ttl, data)]);
        }
        _ => {
            answer.add_authority(soa());
        }
    }
    answer.add_query(query);
    answer.to_vec().unwrap()
}

fn advert() -> RData {
    let value = SvcParamValue::Unknown(Unknown(b"v=2,slots=6".to_vec()));
    RData::HTTPS(HTTPS(SVCB::new(1, Name::root(), vec![(SvcParamKey::from(KEY), value)])))
}

/// Says how long a negative answer may be kept (RFC 2308).
fn soa() -> Record {
    let [server, mailbox, zone] =
        ["ns.test.", "root.test.", "test."].map(|text| Name::from_ascii(text).unwrap());
    Record::from_rdata(zone, 60, RData::SOA(SOA::new(server, mailbox, 1, 60, 60, 60, 60)))
}
