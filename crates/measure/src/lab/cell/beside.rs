//! A connection beside a download that shares its path: whether it takes from others.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::Node;
use headstart_openers::Trial;

use super::case::{let_last_packets_pass, wait};
use super::{Cell, Context, Timed, no_client};
use crate::lab::process::Broken;
use crate::lab::topology::Site;

/// Bytes written and read at a time.
const PIECE: usize = 64 * 1024;

/// Bytes of a download that the time in a row is of.
const UNIT: f64 = 1e6;

impl Cell {
    /// Makes a connection beside a download that has begun before. Its row is the first; the
    /// others are of the download, from the connection's start on.
    pub(super) fn beside(
        &mut self,
        context: Context<'_>,
        round: u32,
        rows: &mut Vec<Timed>,
    ) -> Result<(), Broken> {
        let Some(work) = context.stage.variant.work.beside() else { return Ok(()) };
        if let Some(before) = &context.stage.link.before {
            self.open_before(context, before)?;
        }
        let download = self.download(context)?;
        wait(context.interrupt, work.ahead)?;
        let (trial, from, to) = self.open(context, context.stage.response, "")?;
        rows.push(Timed { row: self.row(context, 1, round, trial), from, to });
        wait(context.interrupt, work.last().saturating_sub(from.elapsed()))?;
        for (number, time) in (2..).zip(&work.times) {
            let to = from + *time;
            let trial = of_download(download.bytes(from, to), *time);
            rows.push(Timed { row: self.row(context, number, round, trial), from, to });
        }
        drop(download);
        let_last_packets_pass(context);
        Ok(())
    }

    /// Starts a download from the cell's server to the client whose turn it is.
    fn download(&self, context: Context<'_>) -> Result<Download, Broken> {
        let client = context.topology.clients().nth(self.turn).ok_or_else(no_client)?;
        let mut servers = context.topology.servers(self.setting.number);
        let server = servers.next().ok_or_else(|| Broken::Program("there is no server".into()))?;
        Download::start(server, client)
            .map_err(|error| Broken::Program(format!("no download beside it: {error}")))
    }
}

/// Returns what a row says of a download: the time that a megabyte took on average, so that ratios
/// of rates are inverse ratios of times.
fn of_download(bytes: u64, time: Duration) -> Trial {
    let ms = time.as_secs_f64() * 1e3 * UNIT / bytes as f64;
    let ok = bytes > 0;
    Trial {
        ok,
        ms_to_last_response_byte: ok.then_some(ms),
        bytes,
        error: if ok { String::new() } else { "nothing came of the download".into() },
        ..Trial::default()
    }
}

/// A plain TCP connection on which bytes come to a client for as long as this lives.
struct Download {
    client: TcpStream,
    arrivals: Arrivals,
}

/// Bytes and when they came.
type Arrivals = Arc<Mutex<Vec<(Instant, usize)>>>;

impl Download {
    fn start(server: Site<'_>, client: &Node) -> io::Result<Self> {
        let listener = server.node.run(|| TcpListener::bind((server.own, 0))).flatten()?;
        let address = listener.local_addr()?;
        let client = client.run(|| TcpStream::connect(address)).flatten()?;
        let (sender, _) = listener.accept()?;
        let (reader, arrivals) = (client.try_clone()?, Arrivals::default());
        let log = Arc::clone(&arrivals);
        thread::spawn(move || send(sender));
        thread::spawn(move || take(reader, &log));
        Ok(Self { client, arrivals })
    }

    /// Returns the bytes that came in this time.
    fn bytes(&self, from: Instant, to: Instant) -> u64 {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let within = arrivals.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, bytes)| *bytes as u64).sum()
    }
}

/// Both threads end with the connection.
impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.client.shutdown(Shutdown::Both);
    }
}

/// Sends until the client has gone.
fn send(mut stream: TcpStream) {
    let piece = vec![0x17; PIECE];
    while stream.write_all(&piece).is_ok() {}
}

fn take(mut stream: TcpStream, arrivals: &Arrivals) {
    let mut piece = vec![0; PIECE];
    while let Ok(bytes @ 1..) = stream.read(&mut piece) {
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), bytes));
    }
}
