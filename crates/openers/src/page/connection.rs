//! One connection of a load, as a task.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::browser::Browser;
use super::host_client::{Channel, Opened};
use crate::content::Incoming;
use headstart_proto::Carrier;

#[derive(Debug)]
pub(super) enum Event {
    /// It takes requests.
    Opened { connection: usize, opening: Carrier, resumed: Option<bool>, early: bool },
    /// A request left.
    Sent { id: usize, at: Instant },
    /// This many bytes of a response have arrived.
    Received { id: usize, at: Instant, bytes: u64 },
    /// All of it is here.
    Done { id: usize, at: Instant, connection: usize, bytes: u64 },
    /// Nothing more comes.
    Failed(String),
}

pub(super) struct Connection {
    pub(super) browser: Arc<Browser>,
    pub(super) number: usize,
    pub(super) host: usize,
    /// Resources to ask for, until the load is over.
    pub(super) orders: UnboundedReceiver<usize>,
    pub(super) events: UnboundedSender<Event>,
}

impl Connection {
    /// Opens it, with its first request if that must go with the opening, and asks for what is
    /// ordered.
    pub(super) async fn run(mut self, first: Option<usize>) {
        if let Err(error) = self.serve(first).await {
            self.tell(Event::Failed(error));
        }
    }

    async fn serve(&mut self, first: Option<usize>) -> Result<(), String> {
        let request = first.map(|id| self.browser.request(id));
        let opened = self.browser.open(self.host, request.as_deref()).await?;
        let Opened { mut channel, opening, resumed, mut sent } = opened;
        let early = sent.is_some();
        self.tell(Event::Opened { connection: self.number, opening, resumed, early });
        let quic = match &channel {
            Channel::Quic(_, connection) => Some(connection.clone()),
            _ => None,
        };
        if let Some(connection) = quic {
            self.streams(&connection).await?;
        } else {
            let mut next = first;
            while let Some(id) = self.next(next.take()).await {
                self.exchange(&mut channel, id, sent.take()).await?;
                self.browser.keep(self.host, &mut channel);
            }
        }
        channel.close().await;
        self.browser.keep(self.host, &mut channel);
        Ok(())
    }

    /// Returns the resource it was opened for, or the next order.
    async fn next(&mut self, first: Option<usize>) -> Option<usize> {
        match first {
            Some(id) => Some(id),
            None => self.orders.recv().await,
        }
    }

    /// One request and its response; the request has left already, if `sent` says when.
    async fn exchange(
        &self,
        channel: &mut Channel,
        id: usize,
        sent: Option<Instant>,
    ) -> Result<(), String> {
        let at = sent.unwrap_or_else(Instant::now);
        self.tell(Event::Sent { id, at });
        if sent.is_none() {
            channel.write(&self.browser.request(id)).await?;
        }
        let mut reading = Reading::new(&self.browser, id);
        let mut buffer = Vec::new();
        loop {
            if channel.read(&mut buffer).await? == 0 {
                return Err("the response ended early".into());
            }
            let event = reading.take(&buffer, self.number)?;
            let whole = matches!(event, Event::Done { .. });
            self.tell(event);
            if whole {
                return Ok(());
            }
        }
    }

    /// Requests of a connection of QUIC, each on a stream of its own, as they come.
    async fn streams(&mut self, connection: &quinn::Connection) -> Result<(), String> {
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    None => return Ok(()),
                    Some(id) => {
                        let stream = Stream {
                            connection: connection.clone(),
                            number: self.number,
                            request: self.browser.request(id),
                            reading: Reading::new(&self.browser, id),
                            events: self.events.clone(),
                        };
                        streams.spawn(stream.run(id));
                    }
                },
                Some(ended) = streams.join_next() => {
                    ended.map_err(|error| error.to_string())??;
                }
            }
        }
    }

    /// A load that is over hears nothing more.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// A response that comes in.
struct Reading {
    id: usize,
    incoming: Incoming,
}

impl Reading {
    fn new(browser: &Browser, id: usize) -> Self {
        Self { id, incoming: Incoming::new(browser.recorded(id)) }
    }

    /// Handles these bytes.
    fn take(&mut self, bytes: &[u8], connection: usize) -> Result<Event, String> {
        let (id, at) = (self.id, Instant::now());
        let whole = self.incoming.take(bytes)?;
        let bytes = self.incoming.received();
        Ok(match whole {
            true => Event::Done { id, at, connection, bytes },
            false => Event::Received { id, at, bytes },
        })
    }
}

/// A request of QUIC.
struct Stream {
    connection: quinn::Connection,
    number: usize,
    request: Vec<u8>,
    reading: Reading,
    events: UnboundedSender<Event>,
}

impl Stream {
    async fn run(mut self, id: usize) -> Result<(), String> {
        let (mut send, mut receive) = self.connection.open_bi().await.map_err(broke)?;
        let _ = self.events.send(Event::Sent { id, at: Instant::now() });
        send.write_all(&self.request).await.map_err(broke)?;
        // This fails only if the stream is already closed, which reading reports, too.
        let _ = send.finish();
        let mut buffer = vec![0; READ];
        while let Some(count) = receive.read(&mut buffer).await.map_err(broke)? {
            let bytes = buffer.get(..count).unwrap_or_default();
            let event = self.reading.take(bytes, self.number)?;
            let whole = matches!(event, Event::Done { .. });
            let _ = self.events.send(event);
            if whole {
                return Ok(());
            }
        }
        Err("the response ended early".into())
    }
}

fn broke(error: impl std::fmt::Display) -> String {
    format!("QUIC: {error}")
}

/// Bytes read at a time.
const READ: usize = 16 * 1024;
