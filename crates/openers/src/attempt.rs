use std::pin::Pin;
use std::time::{Duration, Instant};

use headstart_net::Report;
use openssl::error::ErrorStack;
use openssl::ssl::Error;
use openssl::x509::X509VerifyResult;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_openssl::SslStream;

use crate::content::{self, Response};
use crate::sys;
use crate::tls::Connection;
use crate::transport::{Left, Transport};
use crate::trial::{Marks, Trial};

/// Bytes read at a time: a whole TLS record.
const READ: usize = 16 * 1024;

/// Time that the server's end of the connection is waited for, which brings its tickets: two round
/// trips of a satellite link and one retransmission.
pub(crate) const END: Duration = Duration::from_secs(3);

/// Request and expected response, on any connection.
pub(crate) struct Exchange {
    request: Vec<u8>,
    response: Response,
    /// Time at which the connection was asked for.
    requested: Instant,
    pub(crate) marks: Marks,
}

impl Exchange {
    /// Requests this many bytes of the server of this name, on a connection that starts now.
    pub(crate) fn new(name: &str, bytes: u64, marks: Marks) -> Self {
        let (request, response) = (content::request(name, bytes), Response::new(bytes));
        Self { request, response, requested: Instant::now(), marks }
    }

    /// Returns the request, to pass to TLS.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }

    /// Takes bytes of the response; whether that was all.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.response.take(bytes, &mut self.marks)
    }

    /// Hands the request to TLS; this is the moment of its first byte.
    pub(crate) async fn ask(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), String> {
        self.marks.request();
        let written = stream.write_all(&self.request).await;
        written.map_err(|error| format!("{}: {error}", self.marks.stage()))
    }

    /// Marks when early data left, as far as that is known now: TLS has it before there is a
    /// transport.
    pub(crate) fn note_early(&mut self, sent: SentEarly, transport: &impl Transport) {
        let SentEarly { from, written, end } = sent;
        let moment = match transport.left(end) {
            Left::AsWritten => written,
            Left::After(after) => from.max(self.requested + after),
            Left::NotYet => return,
        };
        self.marks.request_at(moment);
    }

    /// Takes the response, to its last byte.
    pub(crate) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<(), String> {
        let mut buffer = vec![0; READ];
        loop {
            let count = match stream.read(&mut buffer).await {
                Ok(0) => return Err(self.marks.stage().to_owned()),
                Ok(count) => count,
                Err(error) => return Err(format!("{}: {error}", self.marks.stage())),
            };
            if self.take(buffer.get(..count).unwrap_or_default())? {
                return Ok(());
            }
        }
    }
}

/// Waits for the end of a connection whose response is here, since tickets may come until then.
pub(crate) async fn end(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; 1024];
    let rest = async { while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
    // The response has arrived: how the connection ends does not affect the trial.
    let _ = tokio::time::timeout(END, rest).await;
    let _ = tokio::time::timeout(END, stream.shutdown()).await;
}

/// One connection over TLS: request, response, and what is measured of it.
pub(crate) struct Attempt<S> {
    stream: SslStream<S>,
    /// True if a session was offered; then true if the request is early data, and if it was
    /// accepted.
    offered: bool,
    early: bool,
    accepted: bool,
    /// The request that is early data and was not refused so far.
    sent_early: Option<SentEarly>,
    exchange: Exchange,
}

/// When TLS was given early data, when it had written it with the ClientHello, and where it ends in
/// the stream below.
#[derive(Clone, Copy)]
pub(crate) struct SentEarly {
    pub(crate) from: Instant,
    pub(crate) written: Instant,
    pub(crate) end: u64,
}

impl<S: Transport> Attempt<S> {
    /// Over `transport`; the request is early data if `session` allows it and `early` is wanted.
    pub(crate) fn new(
        Connection { ssl, session }: Connection,
        transport: S,
        early: bool,
        exchange: Exchange,
    ) -> Result<Self, ErrorStack> {
        let allowed = session.as_ref().is_some_and(|session| session.max_early_data() > 0);
        let stream = SslStream::new(ssl, transport)?;
        let offered = session.is_some();
        let early = early && allowed;
        Ok(Self { stream, offered, early, accepted: false, sent_early: None, exchange })
    }

    /// Runs the exchange, up to the last response byte.
    ///
    /// # Errors
    /// The trial's error.
    pub(crate) async fn run(&mut self) -> Result<(), String> {
        if self.early {
            self.write_early().await?;
        }
        if let Err(error) = Pin::new(&mut self.stream).connect().await {
            return Err(self.refusal(&error));
        }
        self.accepted = self.early && sys::early_data_accepted(self.stream.ssl());
        if self.accepted {
            self.note_early();
        } else {
            self.sent_early = None;
            self.exchange.ask(&mut self.stream).await?;
        }
        self.exchange.read(&mut self.stream).await
    }

    async fn write_early(&mut self) -> Result<(), String> {
        let from = Instant::now();
        let mut left = self.exchange.request.as_slice();
        while !left.is_empty() {
            let written = Pin::new(&mut self.stream).write_early_data(left).await;
            let count = written.map_err(|error| self.refusal(&error))?;
            left = left.get(count..).unwrap_or_default();
        }
        let (written, end) = (Instant::now(), sys::bytes_written(self.stream.ssl()));
        self.sent_early = Some(SentEarly { from, written, end });
        Ok(())
    }

    fn note_early(&mut self) {
        if let Some(sent) = self.sent_early {
            self.exchange.note_early(sent, self.stream.get_ref());
        }
    }

    /// See [`end`].
    pub(crate) async fn end(self) {
        end(self.stream).await;
    }

    /// The account of it, once `outcome` is known.
    pub(crate) fn trial(&mut self, outcome: Result<(), String>) -> Trial {
        // Acknowledgements may have come since.
        self.note_early();
        let (opening, reason) = self.stream.get_ref().account();
        let resumed = outcome.is_ok() && self.stream.ssl().session_reused();
        let reason = match () {
            () if !reason.is_empty() => reason,
            () if self.offered && outcome.is_ok() && !resumed => "session_refused",
            () if self.early && outcome.is_ok() && !self.accepted => "early_data_refused",
            () => "",
        };
        Trial {
            opening,
            resumed,
            early_data: self.accepted,
            reason: reason.to_owned(),
            ..self.exchange.marks.trial(outcome)
        }
    }

    pub(crate) const fn stage(&self) -> &'static str {
        self.exchange.marks.stage()
    }

    /// Returns the report of the opening, if there is one.
    pub(crate) fn report(&self) -> Option<&Report> {
        self.stream.get_ref().report()
    }

    fn refusal(&self, error: &Error) -> String {
        let verdict = self.stream.ssl().verify_result();
        match error.io_error() {
            Some(error) => format!("the connection broke: {error}"),
            None if verdict != X509VerifyResult::OK => {
                format!("the certificate is not trusted: {}", verdict.error_string())
            }
            None => format!("TLS: {error}"),
        }
    }
}
