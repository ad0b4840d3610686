//! `headstart lab site`: generated web sites, served until the command is ended.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use headstart_emulation::{Node, Scheduling};
use headstart_openers::site::{Authority, Site, SiteOptions, SiteOrigin};
use serde_json::json;
use tokio::net::TcpListener;

use crate::folder;
use crate::lab::site_options::LabSiteOptions;
use crate::network::failed;
use headstart::base::failure::Failure;
use headstart::base::{output, runtime};

/// Serves.
pub(crate) fn run(options: &LabSiteOptions) -> Result<ExitCode, Failure> {
    let sites = options.sites.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let authority = match &options.certificates {
        Some(folder) => {
            folder::make(folder, "--certificates")?;
            Authority::obtain(folder)
        }
        None => Authority::new(),
    };
    let authority = authority.map_err(|error| failed(&error))?;
    if let Some(folder) = &options.certificates {
        for host in sites.iter().flat_map(Site::hosts) {
            let identity = authority.issue(&host.name).map_err(|error| failed(&error))?;
            identity.store(&authority, folder, &host.name).map_err(|error| failed(&error))?;
        }
    }
    let how =
        SiteOptions { think: options.think, http1_only: options.http1, ..SiteOptions::default() };
    let origin = SiteOrigin::new(&sites, &authority, &how).map_err(|error| failed(&error))?;
    runtime::run(None, serve(options, &sites, &authority, origin))
}

async fn serve(
    options: &LabSiteOptions,
    sites: &[Site],
    authority: &Authority,
    origin: SiteOrigin,
) -> Result<ExitCode, Failure> {
    let (listener, address) = listen(options.listen).await?;
    let without_tls = match options.without_tls {
        Some(wanted) => Some(listen(wanted).await?),
        None => None,
    };
    let clear = without_tls.as_ref().map(|(_, address)| *address);
    let fingerprint = authority.fingerprint().map_err(|error| failed(&error))?;
    let text = if options.json {
        let sites: Vec<_> = sites
            .iter()
            .map(|site: &Site| {
                let hosts: Vec<&str> = site.hosts().iter().map(|host| host.name.as_str()).collect();
                json!({ "name": site.name(), "url": site.url(), "hosts": hosts })
            })
            .collect();
        let ready = json!({
            "address": address, "without_tls": clear, "fingerprint": fingerprint, "sites": sites,
        });
        format!("{ready}\n")
    } else {
        let urls: Vec<String> = sites.iter().map(Site::url).collect();
        let clear = clear.map_or(String::new(), |clear| format!(", without TLS at {clear}"));
        format!(
            "serving {} at {address}{clear}\n\
             chromium --host-resolver-rules='MAP * {address}' \
             --ignore-certificate-errors-spki-list={fingerprint} --user-data-dir=$(mktemp -d) {}\n",
            sites.iter().map(Site::name).collect::<Vec<_>>().join(", "),
            urls.join(" "),
        )
    };
    output::print(text.as_bytes())?;
    match without_tls {
        Some((clear, _)) => {
            tokio::join!(origin.serve(listener), origin.serve_without_tls(clear));
        }
        None => origin.serve(listener).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn listen(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = TcpListener::bind(wanted).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|error| Failure::bind(wanted, &error))?;
    Ok((listener, address))
}

type Started = SyncSender<Result<Vec<SocketAddr>, Failure>>;

/// Serves on a node, or on this machine, until the process ends; returns the addresses with their
/// ports.
pub(crate) fn start(
    origin: SiteOrigin,
    wanted: Vec<SocketAddr>,
    over_tls: bool,
    node: Option<&Node>,
    scheduling: Scheduling,
) -> Result<Vec<SocketAddr>, Failure> {
    let (started, ready) = sync_channel(1);
    let work = move || {
        scheduling.enter();
        let failed = started.clone();
        if let Err(failure) = runtime::run_here(serve_all(origin, wanted, over_tls, started)) {
            // The caller has stopped waiting if this comes after the start.
            let _ = failed.try_send(Err(failure));
        }
    };
    let spawned = match node {
        Some(node) => node.spawn_thread(work).map(drop),
        None => thread::Builder::new().name("sites".into()).spawn(work).map(drop),
    };
    spawned.map_err(|error| Failure::usage(format!("cannot serve sites: {error}")))?;
    ready.recv().unwrap_or_else(|_| Err(Failure::usage("cannot serve sites")))
}

async fn serve_all(
    origin: SiteOrigin,
    wanted: Vec<SocketAddr>,
    over_tls: bool,
    started: Started,
) -> Result<(), Failure> {
    let (mut bound, mut served) = (Vec::new(), Vec::new());
    for address in wanted {
        let (listener, local) = listen(address).await?;
        bound.push(local);
        let origin = origin.clone();
        served.push(tokio::spawn(async move {
            match over_tls {
                true => origin.serve(listener).await,
                false => origin.serve_without_tls(listener).await,
            }
        }));
    }
    let _ = started.try_send(Ok(bound));
    for one in served {
        let _ = one.await;
    }
    Ok(())
}

/// The site of this name, or in this file.
pub(crate) fn find(name: &str) -> Result<Site, Failure> {
    if let Some(site) = Site::built_in(name) {
        return Ok(site);
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(Failure::usage(format!("there is no site '{name}'"))
            .hint(format!("there are {}; or name a file", Site::names().join(", "))));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    Site::parse(&text).map_err(|error| {
        Failure::usage(format!("cannot use {name}: {error}"))
            .hint("lab/sites/README.md has the form of descriptions")
    })
}
