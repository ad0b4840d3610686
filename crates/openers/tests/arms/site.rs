//! Sites as clients see them over TLS.

use std::net::SocketAddr;
use std::pin::Pin;

use headstart_openers::site::{Authority, Site, SiteOptions, SiteOrigin};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_openssl::SslStream;

struct Serving {
    address: SocketAddr,
    authority: Authority,
    origin: SiteOrigin,
}

async fn serving() -> Serving {
    let sites: Vec<Site> = Site::names().iter().filter_map(|name| Site::built_in(name)).collect();
    let authority = Authority::new().unwrap();
    let origin = SiteOrigin::new(&sites, &authority, &SiteOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = origin.clone();
    tokio::spawn(async move { served.serve(listener).await });
    Serving { address, authority, origin }
}

impl Serving {
    /// A connection to `host`, whose certificate is checked, with this list of protocols in wire
    /// form.
    async fn connect(&self, host: &str, alpn: &[u8]) -> Result<SslStream<TcpStream>, String> {
        let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
        let mut store = X509StoreBuilder::new().unwrap();
        store.add_cert(X509::from_pem(&self.authority.pem().unwrap()).unwrap()).unwrap();
        connector.set_cert_store(store.build());
        connector.set_verify(SslVerifyMode::PEER);
        connector.set_alpn_protos(alpn).unwrap();
        let ssl = connector.build().configure().unwrap().into_ssl(host).unwrap();
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let mut stream = SslStream::new(ssl, tcp).unwrap();
        Pin::new(&mut stream).connect().await.map_err(|error| error.to_string())?;
        Ok(stream)
    }

    /// Head and body of the answer to a GET of HTTP/1.1.
    async fn get(&self, host: &str, path: &str, fields: &str) -> (String, Vec<u8>) {
        let mut stream = self.connect(host, b"\x08http/1.1").await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = answer.split_off(end);
        (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
    }
}

#[tokio::test]
async fn each_host_answers_for_itself() {
    let serving = serving().await;
    let (head, body) = serving.get("static.daily.test", "/app.js", "").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("text/javascript"), "{head}");
    assert_eq!(body.len(), 96_000);
    assert!(head.contains("cache-control: public, max-age=31536000"), "{head}");
    let (head, _) = serving.get("www.daily.test", "/app.js", "").await;
    assert!(head.starts_with("http/1.1 404"), "of another host: {head}");
    assert_eq!(serving.origin.requests(), 1, "what is not there is not counted");
    // A name of others gets the certificate of the first host, which clients refuse.
    assert!(serving.connect("daily.test", b"\x02h2").await.is_err());
}

#[tokio::test]
async fn without_tls_the_host_is_told_by_the_request() {
    let serving = serving().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = serving.origin.clone();
    tokio::spawn(async move { served.serve_without_tls(listener).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /app.js HTTP/1.1\r\nHost: static.daily.test\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > 96_000);
}

#[tokio::test]
async fn protocols_are_agreed_on() {
    let serving = serving().await;
    for (offered, agreed) in
        [(b"\x02h2\x08http/1.1".as_slice(), b"h2".as_slice()), (b"\x08http/1.1", b"http/1.1")]
    {
        let stream = serving.connect("app.board.test", offered).await.unwrap();
        assert_eq!(stream.ssl().selected_alpn_protocol(), Some(agreed));
    }
}

#[tokio::test]
async fn unchanged_resources_are_not_sent_again() {
    let serving = serving().await;
    let (head, body) = serving.get("app.board.test", "/", "").await;
    assert!(head.contains("cache-control: no-cache") && body.len() == 7_200, "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let (head, body) =
        serving.get("app.board.test", "/", &format!("If-None-Match: {tag}\r\n")).await;
    assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    let (head, body) = serving.get("app.board.test", "/", "If-None-Match: \"else\"\r\n").await;
    assert!(head.starts_with("http/1.1 200") && body.len() == 7_200, "{head}");
}

#[tokio::test]
async fn redirects_lead_to_the_language_that_is_asked_for() {
    let serving = serving().await;
    let (head, _) = serving.get("bazaar.test", "/", "").await;
    assert!(
        head.starts_with("http/1.1 301") && head.contains("location: https://www.bazaar.test/\r\n")
    );
    let french = "Accept-Language: fr-CH, fr;q=0.9\r\n";
    let (head, _) = serving.get("www.bazaar.test", "/", french).await;
    assert!(head.contains("location: https://www.bazaar.test/fr/\r\n"), "{head}");
    let (head, body) = serving.get("www.bazaar.test", "/fr/welcome", "").await;
    assert!(
        head.starts_with("http/1.1 200") && String::from_utf8(body).unwrap().contains("Bienvenue")
    );
}
