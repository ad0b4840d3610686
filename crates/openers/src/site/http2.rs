//! HTTP/2 with Early Hints (RFC 8297): hyper's server sends no informational responses.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::answers::Shared;

/// Streams of a connection at a time, as most servers have it (RFC 9113 section 6.5.2 asks for 100
/// at least).
const STREAMS: u32 = 128;

/// Bytes of a request's fields, at most: as hyper has it.
const FIELDS_MAX: u32 = 16 << 10;

/// Serves one connection to its end.
///
/// # Errors
/// It was broken off.
pub(super) async fn serve<S>(shared: &Arc<Shared>, stream: S) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut settings = Builder::new();
    settings.max_concurrent_streams(STREAMS).max_header_list_size(FIELDS_MAX);
    let mut connection = settings.handshake::<_, Bytes>(stream).await?;
    // The tasks end with the connection.
    let mut answers = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let shared = Arc::clone(shared);
        while answers.try_join_next().is_some() {}
        answers.spawn(async move {
            if let Err(error) = answer(&shared, &request, respond).await {
                tracing::debug!(%error, "no response");
            }
        });
    }
    Ok(())
}

async fn answer(
    shared: &Shared,
    request: &Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    // Before the server thinks.
    if let Some(links) = shared.early_hints(request).filter(|_| takes_hints(request)) {
        let mut hints = Response::new(());
        *hints.status_mut() = StatusCode::EARLY_HINTS;
        for link in links {
            hints.headers_mut().append(header::LINK, link.clone());
        }
        respond.send_informational(hints)?;
    }
    let response = tokio::select! {
        response = shared.respond(request) => response,
        // A caller that asked and gave up leaves nothing here.
        _ = poll_fn(|task| respond.poll_reset(task)) => return Ok(()),
    };
    let (mut head, body) = response.into_parts();
    let fields = &mut head.headers;
    if head.status != StatusCode::NOT_MODIFIED {
        fields.insert(header::CONTENT_LENGTH, body.len().into());
    }
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now())) {
        fields.insert(header::DATE, date);
    }
    let body = if *request.method() == Method::HEAD { Bytes::new() } else { body };
    let response = Response::from_parts(head, ());
    let mut stream = respond.send_response(response, body.is_empty())?;
    // h2 keeps it until the client's windows let it go: it is not copied.
    if body.is_empty() { Ok(()) } else { stream.send_data(body, true) }
}

/// Browsers take Early Hints for the page alone, not for frames and what they ask for.
fn takes_hints<B>(request: &Request<B>) -> bool {
    let destination = request.headers().get("sec-fetch-dest");
    *request.method() == Method::GET && destination.is_some_and(|of| of == "document")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2::client::SendRequest;

    use super::super::{Authority, Site, SiteOptions, SiteOrigin};
    use super::*;

    const URL: &str = "https://www.bazaar.test/en/welcome";
    const LINK: &str = "<https://a.test/b.js>; rel=preload; as=script";

    fn origin(early_hints: bool, think: Duration) -> SiteOrigin {
        let site = Site::built_in("shop").unwrap();
        let options = SiteOptions {
            think: Some(think),
            links: vec![(URL.into(), vec![LINK.into(), LINK.into()])],
            early_hints,
            ..SiteOptions::default()
        };
        SiteOrigin::new(&[site], &Authority::new().unwrap(), &options).unwrap()
    }

    async fn connect(origin: SiteOrigin) -> SendRequest<Bytes> {
        let (client, server) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move { serve(origin.shared(), server).await });
        let (send, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        send
    }

    /// Sends a request, and returns informational responses, the response and its body.
    async fn ask(
        early_hints: bool,
        request: Request<()>,
    ) -> (Vec<Response<()>>, Response<()>, Bytes) {
        let mut send = connect(origin(early_hints, Duration::ZERO)).await;
        let (mut response, _) = send.send_request(request, true).unwrap();
        let mut early = Vec::new();
        while let Some(hints) = poll_fn(|task| response.poll_informational(task)).await {
            early.push(hints.unwrap());
        }
        let (head, mut body) = response.await.unwrap().into_parts();
        let mut all = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            all.extend_from_slice(&piece);
        }
        (early, Response::from_parts(head, ()), all.into())
    }

    fn request(url: &str, destination: &str) -> Request<()> {
        Request::builder().uri(url).header("sec-fetch-dest", destination).body(()).unwrap()
    }

    fn links<B>(response: &Response<B>) -> usize {
        response.headers().get_all(header::LINK).iter().filter(|link| **link == LINK).count()
    }

    #[tokio::test]
    async fn pages_get_early_hints_where_they_are_switched_on() {
        let (early, response, body) = ask(true, request(URL, "document")).await;
        let [early] = &early[..] else { panic!("{early:?}") };
        assert_eq!((early.status(), links(early)), (StatusCode::EARLY_HINTS, 2));
        // The response says it again: RFC 8297 section 2.
        assert_eq!((response.status(), links(&response)), (StatusCode::OK, 2));
        let length = response.headers()[header::CONTENT_LENGTH].to_str().unwrap();
        assert_eq!(length.parse(), Ok(body.len()));
        assert!(!body.is_empty() && response.headers().contains_key(header::DATE));
        let (early, response, _) = ask(false, request(URL, "document")).await;
        assert_eq!((early.len(), links(&response)), (0, 2));
        let (early, ..) = ask(true, request(URL, "iframe")).await;
        assert!(early.is_empty());
    }

    #[tokio::test]
    async fn large_bodies_are_complete_and_head_has_none() {
        let script = "https://assets.bazaar.test/shop.js";
        let (early, _, body) = ask(true, request(script, "document")).await;
        assert_eq!((early.len(), body.len()), (0, 198_000));
        let mut head = request(script, "script");
        *head.method_mut() = Method::HEAD;
        let (_, response, body) = ask(true, head).await;
        assert_eq!(
            (&response.headers()[header::CONTENT_LENGTH], body.len()),
            (&HeaderValue::from(198_000), 0)
        );
        let (_, response, _) =
            ask(true, request("https://www.bazaar.test/nothing", "document")).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn who_takes_a_request_back_leaves_nothing_behind() {
        let origin = origin(true, Duration::from_secs(3600));
        let mut send = connect(origin.clone()).await;
        let (mut response, mut stream) = send.send_request(request(URL, "document"), true).unwrap();
        // The server is thinking.
        let hints = poll_fn(|task| response.poll_informational(task)).await;
        assert!(hints.is_some_and(|hints| hints.is_ok()));
        let held = Arc::strong_count(origin.shared());
        assert_eq!(held, 3, "this one's, the connection's and the request's");
        stream.send_reset(h2::Reason::CANCEL);
        let gone = async {
            while Arc::strong_count(origin.shared()) > 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("still thinking");
    }
}
