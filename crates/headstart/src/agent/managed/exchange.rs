//! One request of a program, its answer, and the bytes behind it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use headstart_net::{Carrier, Context, Report};
use headstart_tls::Facts;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use openssl::base64::encode_block;
use tokio::time::timeout;

use super::answer::{Answer, Refusal};
use super::caller::Caller;
use super::limits::{ANSWER_TIME, FIELDS_MAX, HEAD_MAX, REQUEST_TIME};
use super::open::{Opened, Outcome as Public, open};
use super::program_stream::ProgramStream;
use super::request::{ALPN, Ask, EARLY_DATA};
use super::{audit, control, tunnel};
use crate::agent::serve::Settings;
use crate::metrics::{self, Connection, Outcome};

const OPENING: HeaderName = HeaderName::from_static("headstart-opening");
const VERSION: HeaderName = HeaderName::from_static("headstart-version");
const CIPHER: HeaderName = HeaderName::from_static("headstart-cipher");
const GROUP: HeaderName = HeaderName::from_static("headstart-group");
const RESUMED: HeaderName = HeaderName::from_static("headstart-resumed");
const CERTIFICATE: HeaderName = HeaderName::from_static("headstart-certificate");
const LEDGER: HeaderName = HeaderName::from_static("headstart-ledger");

/// Work that an answer leaves to be done.
#[derive(Default)]
struct Left(Mutex<Option<Next>>);

enum Next {
    /// CONNECT was answered with yes.
    Pass(Box<Opened>, OnUpgrade),
    /// CONNECT was answered with no.
    Refused,
}

impl Left {
    fn put(&self, next: Next) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    fn take(&self) -> Option<Next> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Serves one connection of a program until it is through; a request that has not come when `stop`
/// ends does not come any more.
pub(super) async fn serve(
    local: ProgramStream,
    caller: Caller,
    settings: Arc<Settings>,
    mut counted: Connection,
    stop: impl Future<Output = ()>,
) {
    let left = Arc::<Left>::default();
    if !converse(local, caller, &settings, &left, stop).await {
        metrics::limit_hit("managed_slow");
        return;
    }
    match left.take() {
        Some(Next::Pass(opened, upgrade)) => {
            let report = report_of(&opened);
            let opening = report.map_or(Carrier::Tcp, |report| report.opened_by);
            if let Some(report) = report {
                counted.note_report(report);
            }
            counted.finish(opening.name(), pass(*opened, upgrade, &settings).await);
        }
        Some(Next::Refused) => counted.finish(Carrier::Tcp.name(), Outcome::Refused),
        // Not about a connection.
        None => {}
    }
}

/// The HTTP part; whether it was over in time.
async fn converse(
    local: ProgramStream,
    caller: Caller,
    settings: &Arc<Settings>,
    left: &Arc<Left>,
    stop: impl Future<Output = ()>,
) -> bool {
    let service = service_fn(|request| {
        let (caller, settings, left) = (caller.clone(), Arc::clone(settings), Arc::clone(left));
        async move {
            let answered = answer(request, &caller, &settings, &left).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|refusal| refusal.answer()))
        }
    });
    let connection = http1::Builder::new()
        .half_close(true) // a program may end its stream behind the request
        .max_buf_size(HEAD_MAX)
        .max_header_size(HEAD_MAX) // the buffer alone is no exact bound
        .max_headers(FIELDS_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .serve_connection(TokioIo::new(local), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let conversing = async {
        tokio::select! {
            // A client that has disconnected wants no answer.
            _ = connection.as_mut() => return,
            () = stop => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    };
    // The request, its body, the resource, its response.
    let all = settings.opening_time().saturating_add(REQUEST_TIME * 2 + ANSWER_TIME);
    timeout(all, conversing).await.is_ok()
}

async fn answer(
    mut request: Request<Incoming>,
    caller: &Caller,
    settings: &Arc<Settings>,
    left: &Left,
) -> Result<Answer, Refusal> {
    if let Some(gate) = &caller.gate
        && let Some(proof) = gate.admit(&request)?
    {
        return Ok(proof);
    }
    if request.method() != Method::CONNECT {
        let response = timeout(REQUEST_TIME, control::answer(request, caller, settings)).await;
        return response
            .unwrap_or_else(|_| Err(Refusal::malformed("the body did not come in time")));
    }
    let opened = match read(&request) {
        Ok(ask) => connect(&ask, caller, settings).await,
        Err(refusal) => Err(refusal),
    };
    match opened {
        Ok(opened) => {
            let answer = granted(&opened);
            left.put(Next::Pass(Box::new(opened), hyper::upgrade::on(&mut request)));
            Ok(answer)
        }
        Err(refusal) => {
            left.put(Next::Refused);
            Err(refusal)
        }
    }
}

fn read(request: &Request<Incoming>) -> Result<Ask, Refusal> {
    // A body would have to be read before the tunnel begins; CONNECT has none (RFC 9110 9.3.6).
    if request.body().is_end_stream() {
        Ask::read(request)
    } else {
        Err(Refusal::malformed("CONNECT has no body"))
    }
}

async fn connect(ask: &Ask, caller: &Caller, settings: &Arc<Settings>) -> Result<Opened, Refusal> {
    let context = Context { uid: caller.user, label: ask.label.clone() };
    let opened = open(ask, &context, settings).await;
    audit::connection(ask, &context, &opened);
    opened
}

/// Yes, and what is public of the connection.
fn granted(opened: &Opened) -> Answer {
    let mut answer = Response::new(Full::<Bytes>::default());
    if let Opened::Managed(_, public) = opened {
        describe(public, answer.headers_mut());
    }
    answer
}

fn describe(public: &Public, fields: &mut HeaderMap) {
    let Facts { version, cipher, group, alpn, resumed, peer_certificate, .. } = &public.facts;
    let certificate = peer_certificate.as_ref().map(|der| encode_block(der));
    let texts = [
        (OPENING, Some(public.opened_by().name().to_owned())),
        (VERSION, version.map(|version| version.to_string())),
        (CIPHER, cipher.map(str::to_owned)),
        (GROUP, group.clone()),
        (RESUMED, Some(if *resumed { "1" } else { "0" }.to_owned())),
        (EARLY_DATA, Some(audit::early_data(public.early_data).to_owned())),
        (CERTIFICATE, certificate),
        (LEDGER, Some(public.ledger.to_string())),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            fields.insert(name, value);
        }
    }
    // One of the offered protocols, so it fits into a field.
    if let Some(value) = alpn.as_ref().and_then(|alpn| HeaderValue::from_bytes(alpn).ok()) {
        fields.insert(ALPN, value);
    }
}

/// Returns the report of the opening, if it is known yet.
fn report_of(opened: &Opened) -> Option<&Report> {
    match opened {
        Opened::Managed(_, public) => public.report.as_ref(),
        Opened::Bare(stream) => stream.report(),
    }
}

async fn pass(opened: Opened, upgrade: OnUpgrade, settings: &Settings) -> Outcome {
    // The connection of a client that has gone is dropped.
    let Some((local, head)) = upgrade.await.ok().and_then(bare) else { return Outcome::Reset };
    match opened {
        Opened::Managed(keeper, _) => tunnel::pass(*keeper, local, head, settings.limits).await,
        Opened::Bare(stream) => tunnel::pass(*stream, local, head, settings.limits).await,
    }
}

/// The program's connection, and the bytes that were read behind its request.
fn bare(upgraded: Upgraded) -> Option<(ProgramStream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<ProgramStream>>().ok()?;
    Some((parts.io.into_inner(), parts.read_buf))
}
