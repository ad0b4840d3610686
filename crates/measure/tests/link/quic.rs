//! QUIC and TurboTLS on one UDP port: `edge --quic`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;

use headstart_emulation::Node;
use headstart_openers::{Arm, Client, ClientOptions, Server, ServerOptions, Suite, Trial};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::arms::{TURBO, agent};
use crate::curl::{Via, small_by_udp};
use crate::daemon::Daemon;
use crate::net::{Net, ms};
use crate::nginx::Nginx;

const HOST: &str = "www.four.test";
/// nginx has this port on TCP, the QUIC server on UDP.
const ORIGIN: &str = "127.0.0.1:8443";

pub(crate) fn beside() {
    let net = Net::new(ms(40));
    let _nginx = Nginx::behind(&net);
    let directory = net.file("quic");
    let stop = serve(net.server(), &directory);
    let edge = Daemon::edge(&net, 0, &["--origin", ORIGIN, "--quic", ORIGIN]);
    let agent = agent(&net, TURBO, "turbo", &[]);

    for bytes in [1_000, 3_000_000] {
        let trials = open(net.client(), net.edge4(), &directory, bytes);
        assert!(trials.iter().all(|trial| trial.ok), "{trials:?}");
    }
    small_by_udp(&net, &agent, Via::Socks(TURBO), HOST);
    let begun = || edge.count("headstart_quic_flows_total", &["begun"]);
    assert_eq!(begun(), 6, "one flow for each connection");
    assert_eq!(edge.count("headstart_quic_flows", &[]), 6);
    assert!(edge.count("headstart_quic_datagrams_total", &["to_client", "\"sent\""]) > 2_000);
    assert_eq!(edge.count("headstart_udp_datagrams_total", &["malformed"]), 0);

    // Nobody is there: the client's own time is over, and TurboTLS goes on.
    drop(stop);
    let trials = open(net.client(), net.edge4(), &directory, 1_000);
    assert!(trials.iter().all(|trial| !trial.ok), "{trials:?}");
    small_by_udp(&net, &agent, Via::Socks(TURBO), HOST);
}

/// An address has a sixteenth of all flows; what it may have more of is refused, not others'.
pub(crate) fn limits() {
    let net = Net::new(ms(40));
    let _nginx = Nginx::behind(&net);
    let directory = net.file("quic");
    let _serving = serve(net.server(), &directory);
    let more = ["--origin", ORIGIN, "--quic", ORIGIN, "--quic-flows", "32"];
    let edge = Daemon::edge(&net, 0, &more);
    let trials = open(net.client(), net.edge4(), &directory, 1_000);
    let opened = trials.iter().filter(|trial| trial.ok).count();
    assert_eq!((opened, trials.len()), (2, 3), "{trials:?}");
    assert!(edge.count("headstart_quic_flows_total", &["refused"]) > 0);
    assert_eq!(edge.count("headstart_quic_flows", &[]), 2);
}

/// A QUIC server on a node, until what this returns is dropped.
fn serve(node: &Node, directory: &Path) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, started) = mpsc::channel();
    std::fs::create_dir(directory).unwrap();
    let options = ServerOptions::new(Arm::QUIC, Suite::P256, ORIGIN.parse().unwrap(), directory);
    node.spawn_thread(move || {
        runtime().block_on(async {
            let _server = Server::start(options).unwrap();
            ready.send(()).unwrap();
            let _ = stopped.await;
        });
    })
    .unwrap();
    started.recv().unwrap();
    stop
}

/// Three connections, one after another, each from a port of its own.
fn open(node: &Node, to: SocketAddr, directory: &Path, bytes: u64) -> Vec<Trial> {
    let mut options = ClientOptions::new(Arm::QUIC, Suite::P256, to, directory);
    options.timeout = ms(5_000);
    let opened = node.run(|| {
        runtime().block_on(async {
            let client = Client::new(options).unwrap();
            let mut trials = Vec::new();
            for _ in 0..3 {
                trials.push(client.open(bytes).await);
            }
            trials
        })
    });
    opened.unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
