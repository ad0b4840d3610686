//! Handshakes of the edge that speaks TLS, beside nginx and HAProxy: how many a second, and
//! processor time of each.
//!
//! Servers have one processor for themselves, and take turns on it; load and origin have another. A
//! connection is: connect, handshake, one request and its answer of 100 bytes, close.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headstart_openers::NAME;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::process;
use super::relay::ratios;
use super::report::Report;
use super::tcp::{self, CONCURRENT, on_thread};
use super::terminators::{self, Kind, Setting, Terminator};
use super::tls13::{Client, Event, Ticket, record_length};
use super::{Failure, Plan};

/// Bytes of an answer's body.
const BODY: usize = 100;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: peer.test\r\n\r\n";

/// Time that one connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two turns: what is left of one is then over, such as connections that are being closed.
const PAUSE: Duration = Duration::from_millis(100);

/// A server whose processor is less busy in a turn waits for the load, and its rate is the load's.
const BUSY: f64 = 0.95;

/// Requests to a server.
#[derive(Clone, Copy)]
struct Load {
    kind: Kind,
    resumes: bool,
}

impl Load {
    const ALL: [Self; 4] = [
        Self { kind: Kind::Http, resumes: false },
        Self { kind: Kind::Http, resumes: true },
        Self { kind: Kind::Tcp, resumes: false },
        Self { kind: Kind::Tcp, resumes: true },
    ];

    const fn name(self) -> &'static str {
        match (self.kind, self.resumes) {
            (Kind::Http, false) => "http full",
            (Kind::Http, true) => "http resumed",
            (Kind::Tcp, false) => "tcp full",
            (Kind::Tcp, true) => "tcp resumed",
        }
    }
}

/// Results of a server's turns.
#[derive(Default)]
struct Series {
    rates: Vec<f64>,
    costs: Vec<f64>,
    busy: Vec<f64>,
    parts: Vec<f64>,
    parts_of_load: Vec<f64>,
}

pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<bool, Failure> {
    let [servers, load] = processors()?;
    let folder = tempfile::tempdir()?;
    // Threads and programs run where whoever starts them does.
    pin(load)?;
    let setting = Setting::new(folder.path(), start_origin()?)?;
    pin(servers)?;
    let started = start(&setting, plan.beside.as_deref());
    pin(load)?;
    let terminators = started?;
    for version in terminators::versions(terminators.iter().map(|one| (one.name, &one.program)))? {
        report.note(&version);
    }
    report.note(&format!(
        "servers on CPU {servers}, one thread each; load and origin on CPU {load}, {CONCURRENT} \
            connections at a time"
    ));
    let mut met = true;
    for load in Load::ALL.into_iter().filter(|load| load.name().contains(&plan.only)) {
        let own: Vec<_> = terminators.iter().filter(|one| one.kind == load.kind).collect();
        if !own.iter().any(|one| one.name == "nginx") {
            report.note(&format!("{}: without nginx: install libnginx-mod-stream", load.name()));
        }
        met &= compare(plan, report, &own, load, servers)?;
    }
    Ok(met)
}

fn start(setting: &Setting, beside: Option<&Path>) -> Result<Vec<Terminator>, Failure> {
    let mut all = Vec::new();
    for (kind, port) in [(Kind::Http, 9200), (Kind::Tcp, 9300)] {
        all.push(setting.edge(kind, "edge", None, port)?);
        all.extend(setting.nginx(kind, port + 1)?);
        all.push(setting.haproxy(kind, port + 2)?);
        if let Some(program) = beside {
            all.push(setting.edge(kind, "other edge", Some(program), port + 3)?);
        }
    }
    Ok(all)
}

fn compare(
    plan: &Plan,
    report: &mut Report,
    servers: &[&Terminator],
    load: Load,
    cpu: usize,
) -> Result<bool, Failure> {
    let test = load.name();
    let mut all: Vec<Series> = servers.iter().map(|_| Series::default()).collect();
    for round in 0..plan.rounds {
        // Another order each round: what a turn leaves behind meets each server alike.
        for turn in 0..servers.len() {
            let index = (round + turn) % servers.len();
            let (Some(server), Some(series)) = (servers.get(index), all.get_mut(index)) else {
                continue;
            };
            let turn = measure(plan, server, load, cpu)?;
            for (metric, value, values) in [
                ("handshakes per s", turn.rate, &mut series.rates),
                ("CPU ms per handshake", turn.cost, &mut series.costs),
                ("its processor busy", turn.busy, &mut series.busy),
                ("of that, it", turn.part, &mut series.parts),
                ("the load's processor, by the load", turn.part_of_load, &mut series.parts_of_load),
            ] {
                report.sample(test, round, server.name, metric, value);
                values.push(value);
            }
        }
    }
    let mut met = true;
    for (server, series) in servers.iter().zip(&all) {
        let name = server.name;
        report.median(test, &format!("{name}: handshakes per s"), &series.rates);
        report.median(test, &format!("{name}: CPU ms per handshake"), &series.costs);
        let busy = report.median(test, &format!("{name}: its processor busy"), &series.busy);
        report.median(test, &format!("{name}: by itself"), &series.parts);
        report.median(test, &format!("{name}: load's processor, by it"), &series.parts_of_load);
        met &= report.bar(test, &format!("{name} was what limits the rate"), busy.value >= BUSY);
    }
    let Some((edge, others)) = all.split_first() else { return Ok(met) };
    for (server, other) in servers.iter().skip(1).zip(others) {
        let rates = ratios(&edge.rates, &other.rates);
        let costs = ratios(&edge.costs, &other.costs);
        report.bootstrap(test, &format!("edge / {}, handshakes per s", server.name), &rates);
        report.bootstrap(test, &format!("edge / {}, CPU per handshake", server.name), &costs);
    }
    Ok(met)
}

struct Turn {
    rate: f64,
    /// Milliseconds of processor time for each handshake.
    cost: f64,
    /// The part of the time in which the server's processor was not idle: with what the kernel does
    /// beside the program.
    busy: f64,
    /// Processor time of the server and the load, as parts of the time.
    part: f64,
    part_of_load: f64,
}

fn measure(plan: &Plan, server: &Terminator, load: Load, cpu: usize) -> Result<Turn, Failure> {
    std::thread::sleep(PAUSE);
    let protocol = (load.kind == Kind::Http).then_some("http/1.1");
    let client = Arc::new(Client::new(NAME, protocol)?);
    let address = server.address;
    let ticket = load.resumes.then(|| first_ticket(&client, address)).transpose()?;
    let used = || -> Result<[f64; 3], Failure> {
        Ok([server.program.cpu()?, process::own_cpu()?, process::busy(cpu)?])
    };
    let before = used()?;
    let done = connections(client, address, ticket, plan.turn)?;
    let after = used()?;
    if done.failed > 0 {
        let why = done.why.unwrap_or_default();
        return Err(format!("{}: {} failed: {why}", server.name, done.failed).into());
    }
    let [spent, by_load, busy] = std::array::from_fn(|what| after[what] - before[what]);
    Ok(Turn {
        rate: done.count as f64 / done.seconds,
        cost: spent / done.count as f64 * 1e3,
        busy: busy / done.seconds,
        part: spent / done.seconds,
        part_of_load: by_load / done.seconds,
    })
}

/// Work that clients have done in a time.
struct Done {
    count: u64,
    failed: u64,
    seconds: f64,
    /// First error.
    why: Option<String>,
}

/// Opens, uses and closes connections for `time`, [`CONCURRENT`] at once. Each offers the ticket,
/// if there is one.
fn connections(
    client: Arc<Client>,
    address: SocketAddr,
    ticket: Option<Ticket>,
    time: Duration,
) -> Result<Done, Failure> {
    let work = async move {
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let ticket = Arc::new(ticket);
        let begun = Instant::now();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONCURRENT {
            let (client, ticket) = (Arc::clone(&client), Arc::clone(&ticket));
            let counts = Arc::clone(&counts);
            clients.spawn(async move {
                let [good, bad] = &*counts;
                let mut why = None;
                while begun.elapsed() < time {
                    let exchange = exchange(&client, address, ticket.as_ref().as_ref());
                    let failed = match tokio::time::timeout(PATIENCE, exchange).await {
                        Ok(Ok(answer)) if answer.resumed == ticket.is_some() => None,
                        Ok(Ok(_)) => Some("not resumed".to_owned()),
                        Ok(Err(failure)) => Some(failure.to_string()),
                        Err(_) => Some("too late".to_owned()),
                    };
                    let count = if failed.is_none() { good } else { bad };
                    count.fetch_add(1, Ordering::Relaxed);
                    why = why.or(failed);
                }
                why
            });
        }
        let mut why = None;
        while let Some(ended) = clients.join_next().await {
            why = why.or(ended.unwrap_or_else(|_| Some("a client panicked".to_owned())));
        }
        let seconds = begun.elapsed().as_secs_f64();
        let [good, bad] = &*counts;
        let (count, failed) = (good.load(Ordering::Relaxed), bad.load(Ordering::Relaxed));
        Done { count, failed, seconds, why }
    };
    on_thread(work).join().map_err(|_| "the clients panicked")?
}

/// The ticket of a whole handshake.
fn first_ticket(client: &Arc<Client>, address: SocketAddr) -> Result<Ticket, Failure> {
    let client = Arc::clone(client);
    let work = async move {
        let answer = tokio::time::timeout(PATIENCE, exchange(&client, address, None)).await??;
        answer.ticket.ok_or_else(|| Failure::from("the server gives no tickets"))
    };
    on_thread(work).join().map_err(|_| "the client panicked")??
}

/// Result of one connection.
struct Answer {
    resumed: bool,
    /// The last of them.
    ticket: Option<Ticket>,
}

async fn exchange(
    client: &Client,
    address: SocketAddr,
    ticket: Option<&Ticket>,
) -> Result<Answer, Failure> {
    let mut tcp = TcpSocket::new_v4()?.connect(address).await?;
    tcp.set_nodelay(true)?;
    let (mut connection, hello) = client.connect(ticket);
    tcp.write_all(&hello).await?;
    let mut records = Records::default();
    let (mut body, mut given) = (Vec::new(), None);
    while !is_whole(&body) {
        match connection.receive(records.next(&mut tcp).await?)? {
            Event::Nothing => {}
            Event::Finished(flight) => {
                let request = connection.send(REQUEST)?;
                tcp.write_all(&[flight, request].concat()).await?;
            }
            Event::Bytes(bytes) => body.extend(bytes),
            Event::Ticket(ticket) => given = Some(ticket),
            Event::End => return Err("the server ends before its answer".into()),
        }
    }
    tcp.write_all(&connection.close()?).await?;
    tcp.shutdown().await?;
    Ok(Answer { resumed: connection.resumed(), ticket: given })
}

/// Returns true if head and body are there.
fn is_whole(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
    answer.starts_with(b"HTTP/1.1 200") && head.is_some_and(|head| answer.len() >= head + 4 + BODY)
}

/// The server's bytes, record by record.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Bytes of records that were given out.
    used: usize,
}

impl Records {
    async fn next(&mut self, tcp: &mut TcpStream) -> Result<&[u8], Failure> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            if let Some(length) = record_length(rest)?.filter(|length| rest.len() >= *length) {
                let from = self.used;
                self.used += length;
                return Ok(self.bytes.get(from..self.used).unwrap_or_default());
            }
            self.bytes.drain(..self.used);
            self.used = 0;
            if tcp.read_buf(&mut self.bytes).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

/// An origin that answers requests without a body, as many as come on a connection.
fn start_origin() -> Result<SocketAddr, Failure> {
    tcp::serve(answer)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n");
    let answer = [head.as_bytes(), &[b'x'; BODY]].concat();
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await? > 0 {
        while let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") {
            request.drain(..end + 4);
            stream.write_all(&answer).await?;
        }
    }
    Ok(())
}

/// Two processors: of servers and of the load.
pub(crate) fn processors() -> Result<[usize; 2], Failure> {
    let set = sched_getaffinity(None)?;
    let mut all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    match (all.next(), all.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err("servers and load need a processor each, and there is one".into()),
    }
}

/// Puts this thread, and what it starts from now on, on one processor.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
