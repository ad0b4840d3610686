//! A scripted name server on loopback: answers late, wrongly or not at all.

use super::super::*;
use hickory_proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{
            A, AAAA, CNAME, HTTPS, SOA,
            svcb::{IpHint, Mandatory, SVCB, SvcParamKey, SvcParamValue, Unknown},
        },
    },
};
use std::{collections::HashMap, sync::Mutex};
use tokio::{net::UdpSocket, sync::Notify, task::JoinSet};

use crate::time::TIMEOUT;

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Answer,
    /// Answers once the test opens the gate.
    Gated,
    Silence,
    /// A message that ends within its record.
    Truncated,
    Code(ResponseCode),
}

/// Data of the server; names without a record do not exist.
#[derive(Default)]
pub(super) struct Zone {
    pub(super) records: Vec<Record>,
    /// Added to every positive answer.
    pub(super) slipped_in: Vec<Record>,
    replies: HashMap<(Name, RecordType), Reply>,
    /// CNAME records returned for only one type of query.
    rotated: HashMap<(Name, RecordType), Name>,
    pub(super) queried: Mutex<Vec<(Name, RecordType)>>,
    pub(super) gate: Notify,
}

pub(super) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

impl Zone {
    pub(super) fn with(mut self, owner: &str, ttl: u32, data: RData) -> Self {
        self.records.push(Record::from_rdata(name(owner), ttl, data));
        self
    }

    pub(super) fn host(self, owner: &str, address: &str) -> Self {
        let data = match ip(address) {
            IpAddr::V4(v4) => RData::A(A(v4)),
            IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
        };
        self.with(owner, 300, data)
    }

    pub(super) fn cname(self, owner: &str, target: &str) -> Self {
        self.with(owner, 300, RData::CNAME(CNAME(name(target))))
    }

    /// Adds a CNAME record that changes between the answers: `kind` gets this one.
    pub(super) fn rotated(mut self, owner: &str, kind: RecordType, target: &str) -> Self {
        self.rotated.insert((name(owner), kind), name(target));
        self
    }

    pub(super) fn https(
        self,
        owner: &str,
        priority: u16,
        target: &str,
        params: Vec<Param>,
    ) -> Self {
        let params = params.into_iter().map(|(key, value)| (SvcParamKey::from(key), value));
        let svcb = SVCB::new(priority, name(target), params.collect());
        self.with(owner, 300, RData::HTTPS(HTTPS(svcb)))
    }

    pub(super) fn edge(self, owner: &str) -> Self {
        self.https(owner, 1, ".", vec![advertised()])
    }

    pub(super) fn reply(mut self, owner: &str, kind: RecordType, reply: Reply) -> Self {
        self.replies.insert((name(owner), kind), reply);
        self
    }

    pub(super) fn count(&self, owner: &str, kind: RecordType) -> usize {
        let queried = self.queried.lock().unwrap();
        queried.iter().filter(|(name, k)| *k == kind && name.to_ascii() == owner).count()
    }

    /// Returns the answer to one query, if any.
    async fn answer(&self, request: &Message) -> Option<Vec<u8>> {
        let query = request.queries.first().unwrap().clone();
        let (owner, kind) = (query.name().to_lowercase(), query.query_type());
        self.queried.lock().unwrap().push((owner.clone(), kind));
        let mut answer = Message::response(request.metadata.id, request.metadata.op_code);
        answer.metadata.recursion_available = true;
        answer.add_query(query);
        let records = self.chain(&owner, kind);
        match self.replies.get(&(owner.clone(), kind)).copied().unwrap_or(Reply::Answer) {
            Reply::Silence => return None,
            Reply::Gated => self.gate.notified().await,
            Reply::Code(code) => {
                answer.metadata.response_code = code;
                return Some(answer.to_vec().unwrap());
            }
            Reply::Answer | Reply::Truncated => {}
        }
        if records.is_empty() {
            answer.metadata.response_code = self.negative_code(&owner);
            answer.add_authority(soa());
        }
        if !records.is_empty() {
            answer.add_answers(self.slipped_in.clone());
        }
        answer.add_answers(records);
        let mut bytes = answer.to_vec().unwrap();
        if matches!(self.replies.get(&(owner, kind)), Some(Reply::Truncated)) {
            bytes.truncate(bytes.len() - 3);
        }
        Some(bytes)
    }

    fn negative_code(&self, owner: &Name) -> ResponseCode {
        match self.records.iter().any(|record| record.name == *owner) {
            true => ResponseCode::NoError,
            false => ResponseCode::NXDomain,
        }
    }

    /// Returns the records of `kind`, behind the CNAME records that lead to them.
    pub(super) fn chain(&self, owner: &Name, kind: RecordType) -> Vec<Record> {
        let mut answers = Vec::new();
        let mut owner = owner.clone();
        if let Some(target) = self.rotated.get(&(owner.clone(), kind)) {
            let alias = RData::CNAME(CNAME(target.clone()));
            answers.push(Record::from_rdata(
                std::mem::replace(&mut owner, target.clone()),
                300,
                alias,
            ));
        }
        for _ in 0..3 {
            let alias = self.records_at(&owner, RecordType::CNAME);
            let Some(RData::CNAME(target)) = alias.first().map(|record| &record.data) else {
                break;
            };
            owner = target.0.clone();
            answers.extend(alias);
        }
        answers.extend(self.records_at(&owner, kind));
        answers
    }

    fn records_at(&self, owner: &Name, kind: RecordType) -> Vec<Record> {
        let records = self.records.iter();
        records
            .filter(|record| record.name == *owner && record.record_type() == kind)
            .cloned()
            .collect()
    }

    pub(super) fn expiring_at_once(mut self) -> Self {
        self.records.iter_mut().for_each(|record| record.ttl = 0);
        self
    }

    /// Starts to serve; the server ends with the runtime. No query of the resolver times out.
    pub(super) async fn serve(self) -> (Arc<Self>, Resolver) {
        self.serve_with_timeout(2 * TIMEOUT).await
    }

    /// Does the same for a resolver whose attempts time out.
    pub(super) async fn serve_with_timeout(self, timeout: Duration) -> (Arc<Self>, Resolver) {
        let zone = Arc::new(self);
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let config = DnsConfig { name_servers: vec![socket.local_addr().unwrap()], timeout };
        tokio::spawn(respond(zone.clone(), socket));
        (zone, Resolver::new(&config).unwrap())
    }
}

async fn respond(zone: Arc<Zone>, socket: Arc<UdpSocket>) {
    let mut tasks = JoinSet::new();
    let mut buffer = [0; 1500];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let request = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(request.metadata.message_type, MessageType::Query);
        let (zone, socket) = (zone.clone(), socket.clone());
        tasks.spawn(async move {
            if let Some(answer) = zone.answer(&request).await {
                socket.send_to(&answer, client).await.unwrap();
            }
        });
    }
}

fn soa() -> Record {
    let data = SOA::new(name("ns.example."), name("root.example."), 1, 60, 60, 60, 60);
    Record::from_rdata(name("example."), 60, RData::SOA(data))
}

pub(super) type Param = (u16, SvcParamValue);

pub(super) fn advertised() -> Param {
    (crate::advert::KEY, SvcParamValue::Unknown(Unknown(b"v=2,slots=6".to_vec())))
}

pub(super) fn port(port: u16) -> Param {
    (3, SvcParamValue::Port(port))
}

pub(super) fn mandatory(keys: &[u16]) -> Param {
    let keys = keys.iter().map(|key| SvcParamKey::from(*key)).collect();
    (0, SvcParamValue::Mandatory(Mandatory(keys)))
}

pub(super) fn hint(address: &str) -> Param {
    (4, SvcParamValue::Ipv4Hint(IpHint(vec![A(address.parse().unwrap())])))
}
