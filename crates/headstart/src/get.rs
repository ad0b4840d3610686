//! `headstart get`: one URL fetched, and what its connection cost.

mod account;
mod explain;
pub mod options;
pub mod tls;
mod visit;

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use headstart_net::dns::{DnsConfig, Resolver};
use headstart_net::{Connector, ConnectorConfig};
use headstart_tls::{ClientContext, Session};
use hyper::Method;
use hyper::header::LOCATION;
use hyper::http::response;

use crate::base::edge_address::edge_lookup;
use crate::base::failure::Failure;
use crate::base::output;
use crate::base::printable::printable_word;
use crate::base::value::SecondSyn;
use crate::get::options::GetOptions;
use crate::metrics::Outcome;
use crate::qlog::{Directory, Trace, Vantage};
pub use account::{Account, millis, rounded};
use headstart_net::OpeningPolicy;
use tls::HelloSize;
pub use visit::{Visit, request};

/// Fetches the URL.
pub async fn run(options: GetOptions) -> Result<ExitCode, Failure> {
    let connector = connector(&options)?;
    let is_fop = options.opening == OpeningPolicy::Fop && options.url.scheme_str() == Some("https");
    let size = if is_fop { HelloSize::Syn } else { HelloSize::Usual };
    let tls = tls::client_trusting(options.cacert.as_ref(), options.insecure, size)?;
    let mut body = Body::open(&options)?;
    let path = options.qlog.qlog.as_deref();
    let mut qlog = path.map(|path| Directory::open(path, Vantage::Get)).transpose()?;
    let mut visit = Visit::new(&options.url);
    if is_fop {
        visit = visit.resuming(fetch_ticket(&options, &connector, &tls, &mut qlog).await?);
    }
    let request = request(&options);
    let answer = tokio::time::timeout(
        options.max_time,
        visit.fetch(&connector, &tls, request, |head, piece| body.take(head, piece)),
    )
    .await
    .unwrap_or_else(|_| Err(visit.out_of_time(options.max_time)));
    log(&visit, answer.is_ok(), &mut qlog);
    let account = visit.into_account(body.bytes);
    if options.explain {
        eprint!("{}", account.explain());
    }
    let head = answer?;
    print(&options, &head, &account)?;
    conclude(&options, &head, &account)
}

/// A visit for its session: in its ticket the next one finds a cookie.
async fn fetch_ticket(
    options: &GetOptions,
    connector: &Connector,
    tls: &ClientContext,
    qlog: &mut Option<Directory>,
) -> Result<Option<Session>, Failure> {
    let mut request = request(options);
    request.method = Method::HEAD;
    let mut visit = Visit::new(&options.url);
    let fetch = visit.fetch(connector, tls, request, |_, _| Ok(()));
    let answer = tokio::time::timeout(options.max_time, fetch)
        .await
        .unwrap_or_else(|_| Err(visit.out_of_time(options.max_time)));
    log(&visit, answer.is_ok(), qlog);
    answer?;
    let session = visit.take_session();
    if session.is_none() {
        eprintln!("note: the server gives no session tickets, so there is no cookie");
    }
    Ok(session)
}

/// Writes the qlog file of a visit that is over, if there was a connection.
fn log(visit: &Visit, answered: bool, qlog: &mut Option<Directory>) {
    if let (Some(qlog), Some(report)) = (qlog, visit.report()) {
        qlog.write(&Trace::own(&report, Outcome::of_own(&report, answered).label()));
    }
}

/// A connector for one fetch.
fn connector(options: &GetOptions) -> Result<Connector, Failure> {
    Ok(Connector::new(ConnectorConfig {
        edges: edge_lookup(options.edges()?),
        opening: options.opening,
        second_syn: options.second_syn == SecondSyn::Auto,
        connect_timeout: options.max_time,
        ..ConnectorConfig::new(resolver(&options.resolver)?)
    }))
}

/// Asks the name servers given, or else those of the system.
pub fn resolver(servers: &[std::net::SocketAddr]) -> Result<Resolver, Failure> {
    let config = DnsConfig { name_servers: servers.to_vec(), ..DnsConfig::default() };
    Resolver::new(&config).map_err(|error| {
        Failure::usage(format!("cannot look up names: {error}"))
            .hint("/etc/resolv.conf has to name a server, or give one with --resolver ADDR:PORT")
    })
}

/// Destination of the body.
struct Body {
    file: Option<(String, File)>,
    /// Standard output is for something else, or for nothing.
    silent: bool,
    refuse_errors: bool,
    bytes: u64,
}

impl Body {
    fn open(options: &GetOptions) -> Result<Self, Failure> {
        let file = options
            .output
            .as_ref()
            .map(|path: &std::path::PathBuf| match File::create(path) {
                Ok(file) => Ok((path.display().to_string(), file)),
                Err(error) => {
                    Err(Failure::usage(format!("cannot write {}: {error}", path.display())))
                }
            })
            .transpose()?;
        let silent = options.json || options.head;
        Ok(Self { file, silent, refuse_errors: options.fail, bytes: 0 })
    }

    fn take(&mut self, head: &response::Parts, piece: &[u8]) -> io::Result<()> {
        self.bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if self.refuse_errors && is_error(head) {
            return Ok(());
        }
        match &mut self.file {
            Some((name, file)) => {
                file.write_all(piece).map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))
            }
            None if self.silent => Ok(()),
            None => output::print_raw(piece).map_err(|failure| io::Error::other(failure.message())),
        }
    }
}

fn is_error(head: &response::Parts) -> bool {
    head.status.is_client_error() || head.status.is_server_error()
}

fn print(options: &GetOptions, head: &response::Parts, account: &Account) -> Result<(), Failure> {
    if options.json {
        return output::print(format!("{:#}\n", account.json(head.status.as_u16())).as_bytes());
    }
    if options.head {
        output::print(&head_text(head))?;
    }
    Ok(())
}

fn head_text(head: &response::Parts) -> Vec<u8> {
    let mut text = format!("{:?} {}\n", head.version, head.status).into_bytes();
    for (name, value) in &head.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.push(b'\n');
    }
    text
}

fn conclude(
    options: &GetOptions,
    head: &response::Parts,
    account: &Account,
) -> Result<ExitCode, Failure> {
    if options.fail && is_error(head) {
        return Err(Failure::negative(format!("the server answered {}", head.status)));
    }
    if let (OpeningPolicy::Turbo, false, Some(reason)) =
        (options.opening, options.explain, account.not_used())
    {
        eprintln!("note: TurboTLS was not used: {reason}");
    }
    if let (OpeningPolicy::Fop, false, Some(reason)) =
        (options.opening, options.explain, account.fast_open_not_used())
    {
        eprintln!("note: Fast Open was not used: {reason}");
    }
    let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    if let (true, Some(location)) = (head.status.is_redirection(), location) {
        let location = printable_word(location);
        eprintln!("note: the server answered {}; the page is at {location}", head.status);
    }
    Ok(ExitCode::SUCCESS)
}
