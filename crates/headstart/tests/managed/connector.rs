//! headstart-client on the real agent: hyper, and plain streams.

use std::error::Error as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use headstart_client::{Connector, Error, Facts, Kind, Options, Policy, Stream, Verify};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Response, StatusCode, Version};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use crate::agent::Agent;
use crate::edge::{Edge, closed, until};
use crate::files::Files;
use crate::origin::Origin;
use crate::server::{NAME, files};
use crate::users::OTHER;

/// The site of [`NAME`] behind an edge that speaks HTTP/1.1 and HTTP/2, and an agent.
struct Site {
    files: Files,
    origin: Origin,
    agent: Agent,
    _edge: Edge,
}

impl Site {
    fn start() -> Self {
        let (files, origin) = (files(), Origin::start());
        let edge = Edge::start(&files, &[NAME], &[&format!("--origin={}", origin.http())]);
        let agent = Agent::start(&["--edge", &format!("{NAME}={}", edge.address)]);
        Self { files, origin, agent, _edge: edge }
    }

    fn client(&self) -> headstart_client::Agent {
        headstart_client::Agent::socket(self.agent.socket())
    }

    fn options(&self) -> Options {
        let roots = self.files.path(&format!("{NAME}.pem"));
        Options { verify: Verify::Roots(roots.into()), ..Options::default() }
    }

    fn connector(&self) -> Connector {
        Connector::new(self.client()).options(self.options())
    }
}

type Hyper = Client<Connector, Empty<Bytes>>;

fn hyper(connector: Connector) -> Hyper {
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn get(client: &Hyper, url: &str) -> Response<Incoming> {
    client.get(url.parse().unwrap()).await.unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The site and the agent are started by whoever waits: they have runtimes of their own.
fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::new().unwrap().block_on(future)
}

/// The agent's words, out of those of hyper.
fn refused(error: &hyper_util::client::legacy::Error) -> &Error {
    error.source().unwrap().downcast_ref().unwrap()
}

#[test]
fn hyper_speaks_what_was_agreed_on() {
    let site = Site::start();
    run(async {
        for (connector, version, alpn) in [
            (site.connector(), Version::HTTP_11, "http/1.1"),
            (site.connector().http2(), Version::HTTP_2, "h2"),
        ] {
            for resumed in [false, true] {
                let client = hyper(connector.clone());
                for _ in 0..2 {
                    let response = get(&client, &format!("https://{NAME}/head")).await;
                    assert_eq!((response.status(), response.version()), (StatusCode::OK, version));
                    let facts = response.extensions().get::<Facts>().unwrap();
                    assert_eq!((facts.alpn.as_deref(), facts.resumed), (Some(alpn), resumed));
                    assert_eq!(facts.version.as_deref(), Some("TLS 1.3"));
                    assert!(facts.certificate.is_some() && facts.ledger.tls.is_some());
                    assert!(text(response).await.starts_with("GET /head\n"));
                }
            }
        }
    });
    assert_eq!(site.origin.requests("GET /head"), 8);
    // Clients reused connections. On a busy machine one is not back when the next request
    // looks for it.
    let words = ["managed connection"];
    until("four clients have connected", || site.agent.audited(&words) >= 4);
    assert!(site.agent.audited(&words) < 8);
}

#[test]
fn large_answers_come_whole() {
    let site = Site::start();
    run(async {
        for connector in [site.connector(), site.connector().http2()] {
            let client = hyper(connector);
            let response = get(&client, &format!("https://{NAME}/bytes/3000000")).await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, crate::origin::pattern(3_000_000));
        }
    });
}

#[test]
fn http_passes_unchanged() {
    let site = Site::start();
    run(async {
        let client = hyper(site.connector());
        let response = get(&client, &format!("{}/head", site.origin.http())).await;
        assert!(response.extensions().get::<Facts>().is_none());
        assert!(text(response).await.starts_with("GET /head\n"));
    });
}

#[test]
fn refusals_are_told_apart() {
    let site = Site::start();
    run(async {
        let url = format!("https://{NAME}/head").parse().unwrap();
        let error = hyper(Connector::new(site.client())).get(url).await.unwrap_err();
        let Error::Refused(refusal) = refused(&error) else { panic!("{error:?}") };
        assert_eq!(refusal.name, "certificate_untrusted");
        assert!(refusal.kind() == Kind::Certificate && refusal.hint.is_some());
        let url = format!("https://{}/", closed()).parse().unwrap();
        let error = hyper(site.connector()).get(url).await.unwrap_err();
        let Error::Refused(refusal) = refused(&error) else { panic!("{error:?}") };
        assert_eq!((refusal.status, refusal.kind()), (502, Kind::Connect));
    });
}

#[test]
fn contexts_and_policies_are_heeded() {
    let site = Site::start();
    let work = Options { context: Some("work".into()), ..site.options() };
    let home = Options { context: Some("home".into()), ..work.clone() };
    let isolated = Options { policy: Some(Policy::Isolate), ..work.clone() };
    for (options, resumed) in [(&work, false), (&home, false), (&isolated, false), (&work, true)] {
        let stream = run(async {
            let client = site.client();
            let stream = client.connect(NAME, 443, options, b"").await.unwrap();
            assert_eq!(stream.facts().unwrap().resumed, resumed, "{options:?}");
            page(stream).await
        });
        assert!(stream.starts_with("HTTP/1.1 200"), "{stream}");
    }
}

/// All that a server answers, which closes then.
async fn page(mut stream: Stream) -> String {
    let request = format!("GET /head HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A listener there would read all that the program sends.
#[test]
fn a_socket_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("agent");
    let listen = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.bind(sys.argv[1]); s.listen()\n\
        print('listening', flush=True)\n\
        s.accept()[0].recv(100)";
    let mut python = Command::new("python3");
    python.args(["-c", listen]).arg(&path).uid(OTHER).gid(OTHER).stdout(Stdio::piped());
    let mut other = python.spawn().unwrap();
    // With the end of the line: Python fails where that has nobody to read it.
    other.stdout.take().unwrap().read_exact(&mut [0; "listening\n".len()]).unwrap();
    run(async {
        let client = hyper(Connector::new(headstart_client::Agent::socket(&path)));
        let error = client.get("http://127.0.0.1/".parse().unwrap()).await.unwrap_err();
        assert!(matches!(refused(&error), Error::Untrusted { .. }), "{error:?}");
    });
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A token of nobody's.
const WRONG: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn the_port_wants_a_proof_of_its_token() {
    let (files, origin) = (files(), Origin::start());
    let token = files.path("token");
    let agent = Agent::start(&["--managed-listen", "127.0.0.1:0", "--managed-token", &token]);
    let port = agent.port();
    let url = format!("{}/head", origin.http());
    let shown = fs::read_to_string(&token).unwrap();
    let client =
        |port, token: &str| hyper(Connector::new(headstart_client::Agent::port(port, token)));
    run(async {
        let answer = text(get(&client(port, shown.trim()), &url).await).await;
        assert!(answer.starts_with("GET /head\n"), "{answer}");
        let wrong = client(port, WRONG).get(url.parse().unwrap()).await;
        let error = wrong.unwrap_err();
        assert!(matches!(refused(&error), Error::Untrusted { .. }), "{error:?}");
        let nobody = client(closed(), WRONG).get(url.parse().unwrap()).await;
        let error = nobody.unwrap_err();
        assert!(matches!(refused(&error), Error::Unavailable { .. }), "{error:?}");
    });
}
