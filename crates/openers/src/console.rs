//! Clients and servers as programs: lines in, lines of JSON out.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder as Thread, scope};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::content::BYTES_MAX;
use crate::error::PeerError;
use crate::load::{Load, OUTSTANDING_MAX, Tally, cpu_time};
use crate::options::{ClientOptions, ServerOptions};
use crate::page::{PageClient, PageClientOptions};
use crate::server::Server;
use crate::trial::Trial;
use crate::visit::Visit;

/// Lines read ahead of the one that is worked on.
const LINES_AHEAD: usize = 16;

/// Answers that wait to be written, 200 bytes each: those of a load of 1,000 connections a second
/// for 16 seconds. Only beyond them does a client wait for its reader.
const ANSWERS_AHEAD: usize = 1 << 14;

/// Bytes in a line at most: the longest order takes 40.
const LINE_MAX: u64 = 256;

/// Longest load: a day.
const LASTING_MAX_MS: u64 = 24 * 3600 * 1000;

/// Runs a client that obeys the lines of `input` until it ends:
///
/// * `open BYTES [at NUMBER] [name NAME] [context NAME]`: one connection, a [`Visit`]; its
///   [`Trial`](crate::Trial).
/// * `load BYTES INFLIGHT MILLIS`, `rate BYTES PER_SECOND MILLIS`: a line for each connection, then
///   a [`Tally`](crate::Tally).
/// * `forget`: see [`Client::forget`]; `{"forgot":true}`.
///
/// What cannot be obeyed is answered with `{"error":...}`. Lines are written by a thread of their
/// own, as soon as there is something to say: those that open connections do not wait for it.
///
/// # Errors
/// The client cannot run, or nobody reads its answers.
pub fn run_client(
    options: ClientOptions,
    input: impl Read + Send + 'static,
    output: impl Write + Send,
) -> Result<(), PeerError> {
    raise_file_limit();
    let runtime = runtime(options.threads)?;
    let mut orders = lines(input)?;
    scope(|scope| {
        let (answers, to_write) = sync_channel(ANSWERS_AHEAD);
        let writer = Thread::new().name("answers".into());
        let writer = writer.spawn_scoped(scope, move || write_answers(&to_write, output));
        let writer = writer.map_err(no_thread)?;
        let obeyed = runtime.block_on(async {
            let client = Arc::new(Client::new(options)?);
            while let Some(line) = orders.recv().await {
                match Order::parse(&line) {
                    Ok(order) => obey(&client, order, &answers).await?,
                    Err(error) => answer(&answers, Answer::Other(json!({ "error": error })))?,
                }
            }
            Ok(())
        });
        drop(answers);
        // Why answers could not be written is more useful than the fact.
        writer.join().unwrap_or_else(|_| Err(unread("its thread ended")))?;
        obeyed
    })
}

/// Runs a client of pages that obeys the lines of `input` until it ends:
///
/// * `load`: one load; its [`PageLoad`](crate::PageLoad).
/// * `forget`: see [`PageClient::forget`]; `{"forgot":true}`.
///
/// What cannot be obeyed is answered with `{"error":...}`.
///
/// # Errors
/// The client cannot run, or nobody reads its answers.
pub fn run_page_client(
    options: PageClientOptions,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), PeerError> {
    raise_file_limit();
    let runtime = runtime(1)?;
    let mut orders = lines(input)?;
    runtime.block_on(async {
        let client = PageClient::new(options)?;
        while let Some(line) = orders.recv().await {
            match line.trim() {
                "load" => say(&mut output, &client.load().await)?,
                "forget" => {
                    client.forget()?;
                    say(&mut output, &json!({ "forgot": true }))?;
                }
                other => say(&mut output, &json!({ "error": no_page_order(other) }))?,
            }
        }
        Ok(())
    })
}

fn no_page_order(order: &str) -> String {
    format!("no such order: {order}; there are load and forget")
}

/// Message of a client, a line each.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Trial(Trial),
    Tally(Tally),
    Other(serde_json::Value),
}

fn answer(answers: &SyncSender<Answer>, answer: Answer) -> Result<(), PeerError> {
    answers.send(answer).map_err(|_| unread("nobody takes it"))
}

/// Writes what is said until nobody says more, and never lets a line wait for the next.
fn write_answers(to_write: &Receiver<Answer>, mut output: impl Write) -> Result<(), PeerError> {
    loop {
        let next = match to_write.try_recv() {
            Err(TryRecvError::Empty) => {
                output.flush().map_err(unread)?;
                to_write.recv().ok()
            }
            next => next.ok(),
        };
        match next {
            Some(answer) => write_line(&mut output, &answer)?,
            None => return output.flush().map_err(unread),
        }
    }
}

/// Runs a server until `input` ends. It says `{"ready":true,"listen":"IP:PORT","flight_bytes":N}`
/// as soon as connections are accepted; a line `cpu` is answered with `{"cpu_ms":...}`, the
/// process's CPU time.
///
/// # Errors
/// The server cannot run, or nobody reads its answers.
pub fn run_server(
    options: ServerOptions,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), PeerError> {
    raise_file_limit();
    let runtime = runtime(options.threads)?;
    let mut orders = lines(input)?;
    runtime.block_on(async {
        let server = Server::start(options)?;
        let (listen, flight) = (server.local_addr(), server.flight_bytes());
        say(&mut output, &json!({ "ready": true, "listen": listen, "flight_bytes": flight }))?;
        while let Some(line) = orders.recv().await {
            match line.trim() {
                "cpu" => {
                    let cpu_ms = cpu_time().as_secs_f64() * 1000.0;
                    say(&mut output, &json!({ "cpu_ms": cpu_ms }))?;
                }
                other => say(&mut output, &json!({ "error": format!("no such order: {other}") }))?,
            }
        }
        Ok(())
    })
}

async fn obey(
    client: &Arc<Client>,
    order: Order,
    answers: &SyncSender<Answer>,
) -> Result<(), PeerError> {
    match order {
        Order::Open(visit) => answer(answers, Answer::Trial(client.visit(&visit).await)),
        Order::Forget => {
            client.forget()?;
            answer(answers, Answer::Other(json!({ "forgot": true })))
        }
        Order::Load { bytes, load, lasting } => {
            let mut result = Ok(());
            let tally = client
                .load(bytes, load, lasting, &mut |trial| {
                    if result.is_ok() {
                        result = answer(answers, Answer::Trial(trial));
                    }
                })
                .await;
            result?;
            answer(answers, Answer::Tally(tally))
        }
    }
}

/// A line of a client's input.
#[derive(Clone, Debug, PartialEq)]
enum Order {
    Open(Visit),
    Load { bytes: u64, load: Load, lasting: Duration },
    Forget,
}

impl Order {
    fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["open", bytes, how @ ..] => {
                let bytes = number(bytes, BYTES_MAX)?;
                visit(bytes, how).map(Self::Open).ok_or_else(|| no_order(line))
            }
            ["load", bytes, in_flight, lasting] => {
                let most = u64::try_from(OUTSTANDING_MAX).unwrap_or(u64::MAX);
                let in_flight = usize::try_from(number(in_flight, most)?).unwrap_or(1);
                Self::load(bytes, Load::InFlight(in_flight), lasting)
            }
            ["rate", bytes, rate, lasting] => {
                let per_second = rate.parse().ok().filter(|rate: &f64| rate.is_finite());
                let per_second = per_second.filter(|rate| *rate > 0.0);
                let per_second = per_second.ok_or_else(|| format!("not a rate: {rate}"))?;
                Self::load(bytes, Load::PerSecond(per_second), lasting)
            }
            ["forget"] => Ok(Self::Forget),
            _ => Err(no_order(line)),
        }
    }

    fn load(bytes: &str, load: Load, lasting: &str) -> Result<Self, String> {
        let lasting = Duration::from_millis(number(lasting, LASTING_MAX_MS)?);
        Ok(Self::Load { bytes: number(bytes, BYTES_MAX)?, load, lasting })
    }
}

/// Parses pairs of words behind the number of bytes.
fn visit(bytes: u64, how: &[&str]) -> Option<Visit> {
    let mut visit = Visit::new(bytes);
    let (pairs, rest) = how.as_chunks::<2>();
    for pair in pairs {
        match pair {
            ["at", at] => visit.at = at.parse().ok()?,
            ["name", name] => visit.name = Some((*name).to_owned()),
            ["context", context] => visit.context = Some((*context).to_owned()),
            _ => return None,
        }
    }
    rest.is_empty().then_some(visit)
}

fn no_order(line: &str) -> String {
    format!(
        "no such order: {}; there are open BYTES [at NUMBER] [name NAME] [context NAME], \
         load BYTES INFLIGHT MILLIS, rate BYTES PER_SECOND MILLIS, forget",
        line.trim()
    )
}

fn number(word: &str, most: u64) -> Result<u64, String> {
    let number = word.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("not a number up to {most}: {word}"))
}

fn say(output: &mut impl Write, value: &impl Serialize) -> Result<(), PeerError> {
    write_line(output, value)?;
    output.flush().map_err(unread)
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> Result<(), PeerError> {
    let line = serde_json::to_string(value).map_err(unread)?;
    writeln!(output, "{line}").map_err(unread)
}

fn unread(why: impl fmt::Display) -> PeerError {
    PeerError::new(format!("cannot write an answer: {why}"))
}

fn no_thread(error: io::Error) -> PeerError {
    PeerError::new(format!("cannot start a thread: {error}"))
}

/// Reads lines in a thread of its own, since a read of standard input cannot be abandoned.
fn lines(input: impl Read + Send + 'static) -> Result<mpsc::Receiver<String>, PeerError> {
    let (lines, received) = mpsc::channel(LINES_AHEAD);
    Thread::new()
        .name("orders".into())
        .spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let mut line = String::new();
                let read = input.by_ref().take(LINE_MAX).read_line(&mut line);
                if !read.is_ok_and(|count| count > 0) || lines.blocking_send(line).is_err() {
                    return;
                }
            }
        })
        .map_err(no_thread)?;
    Ok(received)
}

fn runtime(threads: usize) -> Result<Runtime, PeerError> {
    let built = match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        more => Builder::new_multi_thread().worker_threads(more).enable_all().build(),
    };
    built.map_err(|error| PeerError::new(format!("cannot start the runtime: {error}")))
}

/// Raises the limit of open files to the system's maximum: connections take two each.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, connections beyond it fail with an error.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        assert_eq!(Order::parse("open 100\n"), Ok(Order::Open(Visit::new(100))));
        let visit = Visit {
            bytes: 5,
            at: 2,
            name: Some("other.test".into()),
            context: Some("private".into()),
        };
        let order = "open 5 context private at 2 name other.test";
        assert_eq!(Order::parse(order), Ok(Order::Open(visit)));
        assert_eq!(Order::parse("forget"), Ok(Order::Forget));
        let second = Duration::from_secs(1);
        assert_eq!(
            Order::parse("load 10 4 1000"),
            Ok(Order::Load { bytes: 10, load: Load::InFlight(4), lasting: second })
        );
        assert_eq!(
            Order::parse("rate 10 2.5 1000"),
            Ok(Order::Load { bytes: 10, load: Load::PerSecond(2.5), lasting: second })
        );
    }

    #[test]
    fn unknown_commands_are_reported() {
        let wrong = [
            "",
            "open",
            "open -1",
            "open 1 2",
            "open 1 at",
            "open 1 at -1",
            "open 1 as nobody",
            "load 1 2",
            "load 1 99999 3",
            "rate 1 0 3",
            "rate 1 inf 3",
            "open 99999999999",
        ];
        for line in wrong {
            assert!(Order::parse(line).is_err(), "{line}");
        }
    }
}
