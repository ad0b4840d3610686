//! `headstart demo`: plain TLS and TurboTLS side by side over an emulated link.

mod client;
mod figures;
pub(crate) mod options;
mod picture;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;

use headstart_emulation::{Host, Lab, Node};

use crate::demo::options::DemoOptions;
use crate::network::{become_privileged, not_built, not_started};
use figures::Figures;
use headstart::base::failure::Failure;
use headstart::base::{output, runtime};
pub(crate) use server::Identity;

/// The server's name; `.test` is nobody's (RFC 6761).
const NAME: &str = "demo.headstart.test";

/// Port of the edge: the one that every client takes for https.
const EDGE_PORT: u16 = 443;

/// Builds the lab, measures and prints. Call it while the process has one thread.
pub(crate) fn run(options: &DemoOptions) -> Result<ExitCode, Failure> {
    become_privileged()?;
    let client = Host::new("client").delay(options.rtt / 2);
    let lab = Lab::build(vec![client, Host::new("server")]).map_err(|error| not_built(&error))?;
    let [client, server] = lab.nodes() else { return Err(Failure::usage("the lab has no nodes")) };
    let identity = Identity::new(NAME)?;
    let edge = start_server(server, identity.clone())?;
    let measure = client::measure(edge, identity.certificate, options);
    let samples =
        client.run(|| runtime::run_here(measure)).map_err(|error| not_started(&error))??;
    let figures = Figures::new(options.rtt, samples);
    if options.json {
        output::print(format!("{:#}\n", figures.json()).as_bytes())?;
    } else {
        output::print_raw(picture::draw(&figures).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts origin and edge on `node`, where they run until the process ends; the edge's address.
fn start_server(node: &Node, identity: Identity) -> Result<SocketAddr, Failure> {
    let ip = node.ipv4().ok_or_else(|| Failure::usage("the emulated server has no address"))?;
    let edge = SocketAddr::from((ip, EDGE_PORT));
    let (started, ready) = mpsc::sync_channel(1);
    node.spawn_thread(move || {
        let failed = started.clone();
        let served =
            runtime::run_here(server::serve(edge, identity, move || drop(started.send(Ok(())))));
        // The caller has stopped waiting if this comes after the start.
        drop(failed.send(served));
    })
    .map_err(|error| not_started(&error))?;
    ready.recv().unwrap_or_else(|_| Err(Failure::usage("the emulated server did not start")))?;
    Ok(edge)
}
