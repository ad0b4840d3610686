//! `db fetch`: a newer database in the place of the one in use.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use headstart_net::{Connector, ConnectorConfig};
use headstart_pageload::db::update::{
    InUse, Schedule, Update, UpdateError, Wanted, judge, judge_header,
};
use headstart_pageload::db::{FileError, HEADER_BYTES, PublicKey, limits::FILE_BYTES};
use headstart_proto::UnixSeconds;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::{request, response};
use hyper::{Request, StatusCode, Uri};

use super::super::text::counted;
use super::{file, keys, show};
use crate::pageload::db::options::DbFetchOptions;
use headstart::base::clock::wall_clock;
use headstart::base::failure::Failure;
use headstart::base::runtime;
use headstart::get::tls::{self, HelloSize};
use headstart::get::{self, Visit};

/// The longest time to sleep without a look at the clock: it may be set, or the machine may have
/// slept.
const NAP: Duration = Duration::from_secs(600);

/// Fetches once, or on and on.
///
/// # Errors
/// A key cannot be read; or, when it fetches once, what came is not taken.
pub(super) fn run(options: &DbFetchOptions) -> Result<ExitCode, Failure> {
    let keys = keys::public(&options.key)?;
    runtime::run_here(async {
        match options.every {
            None => once(options, &keys).await?,
            Some(period) => on_and_on(options, &keys, period).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn on_and_on(
    options: &DbFetchOptions,
    keys: &[PublicKey],
    period: Duration,
) -> Result<(), Failure> {
    let schedule = Schedule::new(period, seed(&file::beside(&options.file, ".schedule"))?);
    let mut fetched: Option<UnixSeconds> = None;
    loop {
        let at = schedule.next(wall_clock(), fetched);
        loop {
            let left = at.since(wall_clock());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(NAP)).await;
        }
        if Schedule::is_missed(at, wall_clock()) {
            continue;
        }
        match once(options, keys).await {
            Ok(()) => fetched = Some(wall_clock()),
            Err(failure) => failure.report(),
        }
    }
}

/// Random bytes that are made once, so that a restart does not move the moments of fetching.
fn seed(path: &Path) -> Result<[u8; 32], Failure> {
    read_or_make_seed(path).map_err(|error| {
        Failure::usage(format!("cannot use {}: {error}", path.display()))
            .hint("its folder has to let you write; delete the file if it is damaged")
    })
}

fn read_or_make_seed(path: &Path) -> io::Result<[u8; 32]> {
    match fs::read(path) {
        Ok(bytes) => {
            bytes.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not 32 bytes"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let seed: [u8; 32] = rand::random();
            let mut file = OpenOptions::new();
            file.write(true).create_new(true).mode(0o600).open(path)?.write_all(&seed)?;
            Ok(seed)
        }
        Err(error) => Err(error),
    }
}

async fn once(options: &DbFetchOptions, keys: &[PublicKey]) -> Result<(), Failure> {
    let in_use = in_use(&options.file, keys)?;
    let mut download = Download { in_use, keys, bytes: Vec::new(), end: None };
    let fetched = fetch(options, &mut download).await;
    match (download.end.take(), fetched) {
        (Some(End::Same), _) => {
            newest(options, in_use);
            return Ok(());
        }
        (Some(End::Refused(error)), _) => return Err(refused(options, &error)),
        (None, fetched) => status(options, fetched?)?,
    }
    match judge(&download.bytes, in_use, keys, wall_clock()) {
        Ok(Update::Same) => newest(options, in_use),
        Ok(Update::Take(database)) => {
            file::replace(&options.file, &download.bytes)?;
            let pages = counted(database.pages().len() as u64, "page", "pages");
            let made = show::date(database.created());
            eprintln!("{} is new: {pages}, made {made}", options.file.display());
        }
        Err(error) => return Err(refused(options, &error)),
    }
    Ok(())
}

/// Prints the date of the newest database: whoever keeps newer ones back is found out by it.
fn newest(options: &DbFetchOptions, in_use: Option<InUse>) {
    let made = in_use.map_or_else(String::new, |of| format!(", made {}", show::date(of.created)));
    eprintln!("{} is the newest{made}", options.file.display());
}

/// Reads the file in use; `None` if there is none yet, or none that one of the keys signed.
fn in_use(path: &Path, keys: &[PublicKey]) -> Result<Option<InUse>, Failure> {
    match file::bytes(path) {
        Ok(bytes) => Ok(InUse::from_file(&bytes, keys)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("cannot read {}: {error}", path.display()))
            .hint("it is to be replaced; let it be read and written")),
    }
}

async fn fetch(
    options: &DbFetchOptions,
    download: &mut Download<'_>,
) -> Result<response::Parts, Failure> {
    let connector = Connector::new(ConnectorConfig {
        connect_timeout: options.max_time,
        ..ConnectorConfig::new(get::resolver(&[])?)
    });
    let tls = tls::client_trusting(options.cacert.as_ref(), false, HelloSize::Usual)?;
    let mut visit = Visit::new(&options.url);
    let fetched = visit.fetch(
        &connector,
        &tls,
        request(&options.url),
        |head: &response::Parts, piece: &[u8]| download.take(head, piece),
    );
    let fetched = tokio::time::timeout(options.max_time, fetched).await;
    fetched.unwrap_or_else(|_| Err(visit.out_of_time(options.max_time)))
}

/// The same for all users: no cookie, no language, no program, and no tag or date of what is there,
/// which servers can tell clients by.
fn request(url: &Uri) -> request::Parts {
    let mut parts = Request::new(()).into_parts().0;
    parts.uri = url.path_and_query().map_or(Uri::from_static("/"), |path| path.clone().into());
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
    parts.headers.insert(HOST, host);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    parts
}

/// The bytes that have come. It ends as soon as the header says that the rest is not wanted.
struct Download<'a> {
    in_use: Option<InUse>,
    keys: &'a [PublicKey],
    bytes: Vec<u8>,
    end: Option<End>,
}

enum End {
    Same,
    Refused(UpdateError),
}

impl Download<'_> {
    fn take(&mut self, head: &response::Parts, piece: &[u8]) -> io::Result<()> {
        if head.status != StatusCode::OK {
            return Ok(());
        }
        let had_header = self.bytes.len() >= HEADER_BYTES;
        if self.bytes.len() + piece.len() > FILE_BYTES {
            return self.stop(End::Refused(UpdateError::File(FileError::TooLarge)));
        }
        self.bytes.extend_from_slice(piece);
        if had_header || self.bytes.len() < HEADER_BYTES {
            return Ok(());
        }
        match judge_header(&self.bytes, self.in_use, self.keys, wall_clock()) {
            Ok(Wanted::Bytes(_)) => Ok(()),
            Ok(Wanted::Nothing) => self.stop(End::Same),
            Err(error) => self.stop(End::Refused(error)),
        }
    }

    fn stop(&mut self, end: End) -> io::Result<()> {
        self.end = Some(end);
        Err(io::Error::other("no more is wanted"))
    }
}

fn status(options: &DbFetchOptions, head: response::Parts) -> Result<(), Failure> {
    match head.status {
        StatusCode::OK => Ok(()),
        status if status.is_redirection() => {
            Err(Failure::negative(format!("{} leads elsewhere: {status}", options.url))
                .hint("name the URL that it leads to: redirects are not followed"))
        }
        status => Err(Failure::negative(format!("{} answers {status}", options.url))
            .hint("ask whoever publishes the database for its URL")),
    }
}

fn refused(options: &DbFetchOptions, error: &UpdateError) -> Failure {
    Failure::negative(format!("what {} offers is not taken: {error}", options.url))
        .hint(error.hint())
}
