//! An HTTP origin that records its requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Serves until it is dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Seen,
    /// A permit for each response that a test has released.
    released: Arc<Semaphore>,
    runtime: Option<Runtime>,
}

/// Each request, as `METHOD PATH`, and its connection's number.
type Seen = Arc<Mutex<Vec<(String, usize)>>>;

impl Origin {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, released) = (Seen::default(), Arc::new(Semaphore::new(0)));
        runtime.spawn(serve(listener, Arc::clone(&seen), Arc::clone(&released)));
        Self { address, seen, released, runtime: Some(runtime) }
    }

    /// As `--origin` takes it.
    pub(crate) fn http(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets one response to `/held/N` leave.
    pub(crate) fn release(&self) {
        self.released.add_permits(1);
    }

    /// Returns the number of requests for `METHOD PATH`.
    pub(crate) fn requests(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|(seen, _)| seen == what).count()
    }

    /// Returns the number of connections with a request.
    pub(crate) fn connections(&self) -> usize {
        let mut numbers: Vec<_> = self.seen.lock().unwrap().iter().map(|(_, at)| *at).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, seen: Seen, released: Arc<Semaphore>) {
    let mut number = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        number += 1;
        let (seen, released) = (Arc::clone(&seen), Arc::clone(&released));
        let service = service_fn(move |request: Request<Incoming>| {
            let what = format!("{} {}", request.method(), request.uri().path());
            seen.lock().unwrap().push((what, number));
            let released = Arc::clone(&released);
            async move { Ok::<_, Infallible>(answer(request, &released).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
        tokio::spawn(connection.with_upgrades());
    }
}

/// * `/head` shows the head of the request
/// * `/bytes/N` gives N bytes, `/late/N` after a second and a half, `/held/N` when released
/// * `/upload` says the number of bytes and their sum
/// * `/never` does not answer
/// * `/early` refuses early data
/// * `/upgrade` changes to a protocol that gives all bytes back
async fn answer(request: Request<Incoming>, released: &Semaphore) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    match path.split('/').nth(1).unwrap_or_default() {
        "head" => text(head(&request)),
        "bytes" => bytes(&path),
        "late" => {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            bytes(&path)
        }
        "held" => {
            released.acquire().await.unwrap().forget();
            bytes(&path)
        }
        "upload" => upload(request).await,
        "never" => std::future::pending().await,
        "early" if request.headers().contains_key("early-data") => status(StatusCode::TOO_EARLY),
        "early" => text("proven\n".into()),
        "upgrade" => upgrade(request),
        _ => status(StatusCode::NOT_FOUND),
    }
}

fn head(request: &Request<Incoming>) -> String {
    let headers = request.headers().iter();
    let lines = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
    format!("{} {}\n{}", request.method(), request.uri(), lines.collect::<String>())
}

fn bytes(path: &str) -> Response<Full<Bytes>> {
    let count = path.rsplit('/').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    Response::new(Full::new(pattern(count).into()))
}

/// Some bytes that are not all the same.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Returns the sum of the bytes of an upload, as the origin says it.
pub(crate) fn sum(bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    format!("{} {sum}\n", bytes.len())
}

async fn upload(request: Request<Incoming>) -> Response<Full<Bytes>> {
    match request.into_body().collect().await {
        Ok(body) => text(sum(&body.to_bytes())),
        Err(_) => status(StatusCode::BAD_REQUEST),
    }
}

fn upgrade(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
        }
    });
    let mut response = status(StatusCode::SWITCHING_PROTOCOLS);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = request.headers().get(UPGRADE) {
        response.headers_mut().insert(UPGRADE, protocol.clone());
    }
    response
}

fn text(text: String) -> Response<Full<Bytes>> {
    Response::new(Full::new(text.into()))
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
