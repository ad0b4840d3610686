//! The server of sites: HTTPS under many host names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headstart_net::TlsStream;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers::{Answer, Shared};
use super::authority::Authority;
use super::body::body;
use super::description::{Caching, LANGUAGES, Site, SiteResource};
use super::{http2, tls};
use crate::error::PeerError;
use crate::fast_open::engine::now;

/// Connections at a time: a browser opens six to each of twenty hosts, and ten browsers may be
/// there. With 100 kB each, 200 MB.
const CONNECTIONS: usize = 2048;

/// Longest that a handshake takes: some round trips of a second, with losses.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time that a client of HTTP/1.1 may take for its next request: no load takes as long, and
/// Chromium itself waits no longer.
const IDLE: Duration = Duration::from_secs(300);

/// Probes by which the kernel finds a client that has vanished, whatever is spoken: after nine
/// (tcp(7)), in 5 min.
const ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(120)).with_interval(Duration::from_secs(20));

/// Pause of accepting after it has failed.
const SHORTAGE: Duration = Duration::from_millis(10);

/// Options for serving sites.
#[derive(Clone, Debug, Default)]
pub struct SiteOptions {
    /// Time to think about each request, instead of the sites' own.
    pub think: Option<Duration>,
    /// True if HTTP/2 is not offered.
    pub http1_only: bool,
    /// `Link` fields (RFC 8288) of responses, by their URLs: what a server that knows its pages
    /// says with them.
    pub links: Vec<(String, Vec<String>)>,
    /// True to send these ahead as well, before a document is thought about: with 103 Early Hints
    /// (RFC 8297), over HTTP/2.
    pub early_hints: bool,
}

/// Serves sites on any number of listeners.
#[derive(Clone)]
pub struct SiteOrigin {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for SiteOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteOrigin").field("requests", &self.requests()).finish_non_exhaustive()
    }
}

impl SiteOrigin {
    /// Prepares `sites`, each of whose hosts gets a certificate by `authority`.
    ///
    /// # Errors
    /// Two sites have a URL in common, or OpenSSL gives no keys.
    pub fn new(
        sites: &[Site],
        authority: &Authority,
        options: &SiteOptions,
    ) -> Result<Self, PeerError> {
        let mut answers = HashMap::new();
        for site in sites {
            for (at, resource) in site.resources().iter().enumerate() {
                for (path, answer) in all_answers(site, at, resource, options)? {
                    let host = site.hosts()[resource.host].name.clone();
                    if answers.insert((host, path), answer).is_some() {
                        let url = site.url_of(at);
                        return Err(PeerError::new(format!("{url} is of two sites")));
                    }
                }
            }
        }
        for (url, links) in &options.links {
            add_links(&mut answers, url, links)?;
        }
        let [requests, handshakes, resumed, early] = [const { AtomicU64::new(0) }; 4];
        let shared = Shared {
            tls: tls::context(sites, authority, options.http1_only)?,
            answers,
            early_hints: options.early_hints,
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            idle: IDLE,
            requests,
            handshakes,
            resumed,
            early,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the number of requests answered so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of connections over TLS so far, how many of them resumed a session, and
    /// how many of these had early data that was taken.
    pub fn handshakes(&self) -> [u64; 3] {
        let Shared { handshakes, resumed, early, .. } = &*self.shared;
        [handshakes, resumed, early].map(|count| count.load(Ordering::Relaxed))
    }

    /// Serves those who connect to `listener`, until this is dropped; connections go on until they
    /// end.
    pub async fn serve(&self, listener: TcpListener) {
        self.serve_by(listener, true).await;
    }

    /// Serves without TLS, over HTTP/1.1, for an edge that terminates TLS.
    pub async fn serve_without_tls(&self, listener: TcpListener) {
        self.serve_by(listener, false).await;
    }

    #[cfg(test)]
    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn serve_by(&self, listener: TcpListener, is_tls: bool) {
        loop {
            // The client is already gone, or a resource is short for a while: no reason to end a
            // host.
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(SHORTAGE).await;
                continue;
            };
            // Not earlier: most listeners have no client that needs a permit.
            let place = Arc::clone(&self.shared.connections).acquire_owned().await;
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                settle(&stream);
                let served = match is_tls {
                    true => connection(&shared, stream, peer.ip()).await,
                    false => serve_http1(&shared, stream).await,
                };
                if let Err(reason) = served {
                    tracing::debug!("{reason}");
                }
                drop(place);
            });
        }
    }
}

/// Sets options; the next call finds out a client that is gone already.
fn settle(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&ALIVE);
}

/// Puts `Link` fields into what is answered for a URL.
fn add_links(
    answers: &mut HashMap<(String, String), Answer>,
    url: &str,
    links: &[String],
) -> Result<(), PeerError> {
    let place = url.strip_prefix("https://").and_then(|rest| {
        let (host, path) = rest.split_once('/')?;
        Some((host.to_owned(), format!("/{path}")))
    });
    let answer = place.and_then(|place| answers.get_mut(&place));
    let answer = answer.ok_or_else(|| PeerError::new(format!("{url} is of no site")))?;
    for link in links {
        answer.headers.append(header::LINK, value(link)?);
    }
    Ok(())
}

/// The answers of a resource, by path: one for each language if there are several.
fn all_answers(
    site: &Site,
    at: usize,
    resource: &SiteResource,
    options: &SiteOptions,
) -> Result<Vec<(String, Answer)>, PeerError> {
    if !resource.path.contains("{lang}") {
        return Ok(vec![(
            resource.path.clone(),
            answer(site, at, resource, LANGUAGES[0], options)?,
        )]);
    }
    LANGUAGES
        .iter()
        .map(|lang: &&'static str| {
            Ok((resource.path.replace("{lang}", lang), answer(site, at, resource, lang, options)?))
        })
        .collect()
}

fn answer(
    site: &Site,
    at: usize,
    resource: &SiteResource,
    lang: &'static str,
    options: &SiteOptions,
) -> Result<Answer, PeerError> {
    let (body, content_type) = body(site, at, lang);
    let tag = value(&format!("\"{}-{lang}\"", resource.id))?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(HeaderName::from_static("timing-allow-origin"), HeaderValue::from_static("*"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching(resource)));
    if resource.caching != Caching::Never && resource.redirect.is_none() {
        headers.insert(header::ETAG, tag.clone());
    }
    let mut by_language = Vec::new();
    let mut status = StatusCode::OK;
    if let (Some(redirect), Some(to)) = (resource.redirect, site.children(at).first()) {
        status = StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::FOUND);
        let to = site.url_of(*to);
        headers.insert(header::LOCATION, value(&to.replace("{lang}", lang))?);
        if redirect.by_language {
            headers.insert(header::VARY, HeaderValue::from_static("accept-language"));
            for lang in LANGUAGES {
                by_language.push((lang, value(&to.replace("{lang}", lang))?));
            }
        }
    }
    let think = options.think.unwrap_or(resource.think);
    Ok(Answer { status, headers, tag, body: body.into(), think, by_language })
}

fn caching(resource: &SiteResource) -> &'static str {
    match resource.caching {
        // Returning visitors see even permanent redirects again.
        _ if resource.redirect.is_some() => "no-store",
        Caching::Long if matches!(resource.kind, super::SiteKind::Document) => "no-cache",
        Caching::Long => "public, max-age=31536000, immutable",
        Caching::Check => "no-cache",
        Caching::Never => "no-store",
    }
}

fn value(text: &str) -> Result<HeaderValue, PeerError> {
    HeaderValue::from_str(text).map_err(|_| PeerError::new(format!("{text:?} cannot be sent")))
}

/// Serves one connection to its end; returns the reason if it broke off.
async fn connection(shared: &Arc<Shared>, stream: TcpStream, peer: IpAddr) -> Result<(), String> {
    let tls = shared.tls.accept(peer, now()).map_err(|error| format!("no memory: {error}"))?;
    let stream = TlsStream::new(tls, stream);
    let handle = stream.handle();
    match timeout(PATIENCE, handle.opened()).await {
        Ok(opened) => opened.map_err(|error| format!("no handshake: {error}"))?,
        Err(_) => return Err("no handshake in time".into()),
    }
    let facts = handle.facts();
    drop(handle);
    shared.count(&facts);
    if facts.alpn.as_deref() != Some(tls::HTTP_2) {
        return serve_http1(shared, stream).await;
    }
    http2::serve(shared, stream).await.map_err(|error| format!("broken off: {error}"))
}

async fn serve_http1<S>(shared: &Arc<Shared>, stream: S) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let serve = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(shared.respond(&request).await.map(Full::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(shared.idle);
    let served = builder.serve_connection(TokioIo::new(stream), serve).await;
    served.map_err(|error| format!("broken off: {error}"))
}

#[cfg(test)]
mod tests {
    use headstart_tls::{ClientConfig, ClientContext, Session, Trust};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn shop() -> (Site, SiteOrigin) {
        let site = Site::built_in("shop").unwrap();
        let authority = Authority::new().unwrap();
        let options = SiteOptions { think: Some(Duration::ZERO), ..SiteOptions::default() };
        let origin = SiteOrigin::new(std::slice::from_ref(&site), &authority, &options).unwrap();
        (site, origin)
    }

    fn answer<'a>(origin: &'a SiteOrigin, host: &str, path: &str) -> &'a Answer {
        &origin.shared.answers[&(host.to_owned(), path.to_owned())]
    }

    #[test]
    fn redirects_go_by_the_language_that_is_accepted() {
        let (_, origin) = shop();
        let name = answer(&origin, "www.bazaar.test", "/");
        assert_eq!(name.status, StatusCode::FOUND);
        for (accepted, lang) in
            [("de-CH,de;q=0.9,en;q=0.8", "de"), ("fr", "fr"), ("ja, en-US;q=0.5", "en")]
        {
            let to = format!("https://www.bazaar.test/{lang}/");
            assert_eq!(name.location(accepted).unwrap(), &to, "{accepted}");
        }
        assert_eq!(name.location("ja"), None, "the first one then");
        assert_eq!(name.headers[header::LOCATION], "https://www.bazaar.test/en/");
        let language = answer(&origin, "www.bazaar.test", "/de/");
        assert_eq!(language.headers[header::LOCATION], "https://www.bazaar.test/de/welcome");
        assert_eq!(language.location("fr"), None, "its path has decided");
    }

    #[test]
    fn every_resource_is_served_and_none_twice() {
        let (site, origin) = shop();
        let localised = site.resources().iter().filter(|one| one.path.contains("{lang}")).count();
        let all = site.resources().len() + localised * (LANGUAGES.len() - 1);
        assert_eq!(origin.shared.answers.len(), all);
        let authority = Authority::new().unwrap();
        let twice = SiteOrigin::new(&[site.clone(), site], &authority, &SiteOptions::default());
        assert!(twice.unwrap_err().to_string().contains("of two sites"));
    }

    #[test]
    fn documents_carry_the_known_links_of_their_page() {
        let site = Site::built_in("shop").unwrap();
        let authority = Authority::new().unwrap();
        let url = "https://www.bazaar.test/de/welcome".to_owned();
        let link = "<https://a.test/b.js>; rel=preload; as=script".to_owned();
        let links = vec![(url, vec![link.clone(), link.clone()])];
        let options = SiteOptions { links, ..SiteOptions::default() };
        let origin = SiteOrigin::new(std::slice::from_ref(&site), &authority, &options).unwrap();
        for (path, times) in [("/de/welcome", 2), ("/fr/welcome", 0)] {
            let headers = &answer(&origin, "www.bazaar.test", path).headers;
            let links = headers.get_all(header::LINK).iter();
            assert_eq!(links.filter(|named| **named == link).count(), times, "{path}");
        }
        let links = vec![("https://other.test/".to_owned(), vec![link])];
        let options = SiteOptions { links, ..SiteOptions::default() };
        let refused = SiteOrigin::new(&[site], &authority, &options).unwrap_err();
        assert!(refused.to_string().contains("other.test/ is of no site"), "{refused}");
    }

    #[tokio::test]
    async fn who_asks_for_nothing_more_is_let_go() {
        let (_, mut origin) = shop();
        Arc::get_mut(&mut origin.shared).unwrap().idle = Duration::from_millis(100);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = origin.clone();
        tokio::spawn(async move { served.serve_without_tls(listener).await });
        let whole = b"GET /de/welcome HTTP/1.1\r\nHost: www.bazaar.test\r\n\r\n".as_slice();
        for request in [b"".as_slice(), b"GET / HT", whole] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            settle(&stream);
            assert!(SockRef::from(&stream).keepalive().unwrap());
            stream.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            let ended = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
            let ended = ended.expect("a connection without an end");
            assert_eq!(request == whole, ended.is_ok() && !answer.is_empty());
        }
        assert_eq!(origin.requests(), 1);
    }

    /// Asks with the ClientHello where there is a session; returns the answer and a session.
    async fn ask(
        client: &ClientContext,
        to: std::net::SocketAddr,
        session: Option<Session>,
    ) -> (Vec<u8>, Option<Session>) {
        const HOST: &str = "assets.bazaar.test";
        let request = format!("GET /boot.js HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let has_session = session.is_some();
        let tls = client.connect(HOST, session, false).unwrap();
        let mut stream = TlsStream::new(tls, TcpStream::connect(to).await.unwrap());
        match has_session {
            true => {
                let early = stream.write_early(request.as_bytes()).await.unwrap();
                assert_eq!(early, request.len());
            }
            false => stream.write_all(request.as_bytes()).await.unwrap(),
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        (answer, stream.handle().take_session().map(|new| new.session))
    }

    #[tokio::test]
    async fn early_data_is_taken_of_who_comes_back() {
        let (_, origin) = shop();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = origin.clone();
        tokio::spawn(async move { served.serve(listener).await });
        let client = ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap();
        let (first, session) = ask(&client, address, None).await;
        assert_eq!(origin.handshakes(), [1, 0, 0]);
        let (again, _) = ask(&client, address, Some(session.unwrap())).await;
        assert_eq!(origin.handshakes(), [2, 1, 1]);
        for answer in [first, again] {
            assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > 22_000);
        }
    }

    #[test]
    fn cacheable_responses_have_an_etag() {
        let (_, origin) = shop();
        let script = answer(&origin, "assets.bazaar.test", "/shop.js");
        assert!(script.headers.contains_key(header::ETAG));
        assert_eq!(script.body.len(), 198_000);
        let cart = answer(&origin, "api.bazaar.test", "/cart.json");
        assert_eq!(cart.headers[header::CACHE_CONTROL], "no-store");
        assert!(!cart.headers.contains_key(header::ETAG));
    }
}
