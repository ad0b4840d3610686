//! Costs of each arm in round trips, on a link of 100 ms. Needs HEADSTART_TEST_NET=1 and root.
#![allow(clippy::unwrap_used)]

mod bytes;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use headstart_emulation::{Host, Lab, Node};
use headstart_openers::{
    Arm, Carrier, Client, ClientOptions, OpeningPolicy, Server, ServerOptions, Suite, Trial,
};
use headstart_testkit::has_net;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Round trip of the link: long beside the handshakes' cost on this machine.
const RTT: Duration = Duration::from_millis(100);

/// Distance of a count from a whole number: less than half, or nothing would be told apart.
const TOLERANCE: f64 = 0.35;

/// Connections that count, after one that makes sessions and cookies.
const CONNECTIONS: usize = 5;

/// Checks that measure must not run beside each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lab() -> Lab {
    lab_with(Host::new("client").delay(RTT / 2))
}

fn lab_with(client: Host) -> Lab {
    let lab = Lab::build(vec![client, Host::new("server")]).unwrap();
    for node in lab.nodes() {
        // Both roles: the default is that of clients alone (ip-sysctl).
        node.run(|| fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3")).unwrap().unwrap();
    }
    lab
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server on a node, which ends with this value.
struct Serving {
    to: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The next one listens on the same port.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(node: &Node, options: ServerOptions) -> Serving {
    let (ready, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = Some(
        node.spawn_thread(move || {
            runtime().block_on(async {
                let server = Server::start(options).unwrap();
                ready.send(server.local_addr()).unwrap();
                let _ = stopped.await;
            });
        })
        .unwrap(),
    );
    Serving { to: started.recv().unwrap(), stop: Some(stop), thread }
}

/// The connections of one arm after the first.
fn trials(lab: &Lab, arm: Arm, suite: Suite, directory: &Path) -> Vec<Trial> {
    // A late datagram on a busy machine must not turn the next connections plain.
    trials_under(lab, arm, suite, directory, OpeningPolicy::Turbo)
}

fn trials_under(
    lab: &Lab,
    arm: Arm,
    suite: Suite,
    directory: &Path,
    policy: OpeningPolicy,
) -> Vec<Trial> {
    let [client, server] = lab.nodes() else { panic!("two nodes") };
    let listen = (server.ipv4().unwrap(), 443).into();
    let options = ServerOptions::new(arm, suite, listen, directory);
    let serving = serve(server, options);
    let mut options = ClientOptions::new(arm, suite, serving.to, directory);
    options.policy = policy;
    let mut trials = client
        .run(|| {
            runtime().block_on(async {
                let client = Client::new(options).unwrap();
                let mut trials = Vec::new();
                for _ in 0..=CONNECTIONS {
                    trials.push(client.open(1000).await);
                }
                trials
            })
        })
        .unwrap();
    for trial in &trials {
        assert!(trial.ok, "{arm} {suite}: {trial:?}");
    }
    trials.split_off(1)
}

/// Returns the fastest in round trips: none takes fewer than there are, and where others have the
/// processor, it waited least.
fn round_trips(trials: &[Trial], time: impl Fn(&Trial) -> Option<f64>) -> f64 {
    let times = trials.iter().map(|trial| time(trial).unwrap());
    times.min_by(f64::total_cmp).unwrap() / (RTT.as_secs_f64() * 1000.0)
}

struct Claim {
    arm: Arm,
    opening: Carrier,
    request: f64,
    response: f64,
}

const fn claim(arm: Arm, opening: Carrier, request: f64, response: f64) -> Claim {
    Claim { arm, opening, request, response }
}

/// The ledger of round trips before the first request and response byte.
const LEDGER: [Claim; 12] = [
    claim(Arm::TLS13, Carrier::Tcp, 2.0, 3.0),
    claim(Arm::TLS13_RESUMED, Carrier::Tcp, 2.0, 3.0),
    claim(Arm::TLS13_EARLY_DATA, Carrier::Tcp, 1.0, 2.0),
    claim(Arm::FAST_OPEN, Carrier::FastOpen, 1.0, 2.0),
    claim(Arm::FAST_OPEN_RESUMED, Carrier::FastOpen, 1.0, 2.0),
    claim(Arm::FAST_OPEN_EARLY_DATA, Carrier::FastOpen, 0.0, 1.0),
    claim(Arm::TURBO, Carrier::TurboTls, 1.0, 2.0),
    claim(Arm::TURBO_RESUMED, Carrier::TurboTls, 1.0, 2.0),
    claim(Arm::TURBO_EARLY_DATA, Carrier::TurboTls, 0.0, 1.0),
    claim(Arm::TURBO_PSK, Carrier::TurboTls, 1.0, 2.0),
    claim(Arm::QUIC, Carrier::Quic, 1.0, 2.0),
    claim(Arm::QUIC_EARLY_DATA, Carrier::Quic, 0.0, 1.0),
];

#[test]
fn every_arm_takes_the_round_trips_it_claims() {
    if !has_net() {
        return;
    }
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let lab = lab();
    let mut wrong = Vec::new();
    for Claim { arm, opening, request, response } in LEDGER {
        let trials = trials(&lab, arm, Suite::P256, directory.path());
        let to_request = round_trips(&trials, |trial| trial.ms_to_first_request_byte);
        let to_response = round_trips(&trials, |trial| trial.ms_to_first_response_byte);
        println!("{arm:14} request {to_request:.2}, response {to_response:.2} round trips");
        let as_claimed = trials.iter().filter(|trial| {
            trial.opening == opening
                && trial.resumed == arm.resumes()
                && trial.early_data == arm.sends_early_data()
        });
        // One datagram too late is no broken claim.
        if as_claimed.count() < CONNECTIONS - 1
            || (to_request - request).abs() > TOLERANCE
            || (to_response - response).abs() > TOLERANCE
        {
            wrong.push(format!("{arm}: {to_request:.2}, {to_response:.2}, {trials:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn post_quantum_flights_cost_turbotls_no_more() {
    if !has_net() {
        return;
    }
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let lab = lab();
    for suite in [Suite::X25519MlKem768, Suite::MlKem512MlDsa44, Suite::RsaChain] {
        let trials = trials(&lab, Arm::TURBO, suite, directory.path());
        let to_request = round_trips(&trials, |trial| trial.ms_to_first_request_byte);
        println!("{suite:18} request {to_request:.2} round trips");
        let turbo = trials.iter().filter(|trial| trial.opening == Carrier::TurboTls).count();
        assert!(turbo >= CONNECTIONS - 1, "{suite}: {trials:#?}");
        assert!((to_request - 1.0).abs() <= TOLERANCE, "{suite}: {trials:#?}");
    }
}

/// The box reads both directions of TCP from the first byte on, as TLS.
#[test]
fn a_key_from_udp_opens_tls_that_boxes_let_through() {
    if !has_net() {
        return;
    }
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let path = format!("delay {}ms, dpi tls-only", RTT.as_millis() / 2).parse().unwrap();
    let lab = lab_with(Host::new("client").path(path));
    for suite in [Suite::P256, Suite::X25519MlKem768, Suite::MlKem512MlDsa44] {
        let trials = trials(&lab, Arm::TURBO_PSK, suite, directory.path());
        let to_request = round_trips(&trials, |trial| trial.ms_to_first_request_byte);
        let to_response = round_trips(&trials, |trial| trial.ms_to_first_response_byte);
        println!("{suite} request {to_request:.2}, response {to_response:.2} round trips");
        let turbo = trials.iter().filter(|trial| trial.opening == Carrier::TurboTls).count();
        assert!(turbo >= CONNECTIONS - 1, "{suite}: {trials:#?}");
        assert!((to_response - 2.0).abs() <= TOLERANCE, "{suite}: {trials:#?}");
    }
}

#[test]
fn early_data_counts_from_when_it_could_leave() {
    if !has_net() {
        return;
    }
    let (_alone, directory) = (alone(), tempfile::tempdir().unwrap());
    let path = format!("delay {}ms, drop udp", RTT.as_millis() / 2).parse().unwrap();
    let lab = lab_with(Host::new("client").path(path));
    // Whether the flight is lost each time, or the path's memory leaves it out in the end.
    for policy in [OpeningPolicy::Turbo, OpeningPolicy::Auto] {
        let trials =
            trials_under(&lab, Arm::TURBO_EARLY_DATA, Suite::P256, directory.path(), policy);
        assert!(trials.iter().all(|trial| trial.early_data), "{trials:#?}");
        assert!(trials.iter().all(|trial| !trial.reason.is_empty()), "{trials:#?}");
        let to_request = round_trips(&trials, |trial| trial.ms_to_first_request_byte);
        let to_response = round_trips(&trials, |trial| trial.ms_to_first_response_byte);
        println!("{policy:?} request {to_request:.2}, response {to_response:.2} round trips");
        assert!(to_request >= 0.95, "{policy:?}: {trials:#?}");
        assert!(to_response - to_request >= 0.95, "{policy:?}: {trials:#?}");
    }
}
