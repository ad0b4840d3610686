//! Programs in Go, whose net/http opens connections by the package in go/.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::figures::{SAVED_MIN, judged, round_trips};
use crate::net::{Net, ms};
use crate::nginx::Nginx;

const RTT: Duration = ms(50);

/// Bytes of a long download.
const HUGE: u64 = 100_000_000;

/// Time of a long download beside that of crypto/tls over TCP, at most: what both add on a busy
/// machine is noise.
const HUGE_MAX: f64 = 1.25;

/// Times by name: plain TLS, and with TurboTLS.
type Figures = BTreeMap<String, [Duration; 2]>;

/// Returns the tests of the package as a program.
fn build(net: &Net) -> PathBuf {
    let (package, program) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("../../go"), net.file("link.test"));
    let mut go = Command::new("go");
    let built = go.args(["test", "-c", "-o"]).arg(&program).current_dir(package).status();
    assert!(built.unwrap().success());
    program
}

fn measure(net: &Net, program: &Path) -> Figures {
    let mut command = net.client().command(program);
    command.args(["-test.run", "^TestLink$", "-test.v"]);
    command.env("HEADSTART_LINK", net.edge4().to_string());
    command.env("HEADSTART_LINK_CA", net.file("cert.pem"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter_map(|line| line.strip_prefix("figures "));
    let figures: Figures = lines
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap().to_owned();
            let times = [(); 2].map(|()| words.next().unwrap().parse().unwrap());
            (name, times.map(Duration::from_secs_f64))
        })
        .collect();
    for (name, [plain, turbo]) in &figures {
        let ratio = turbo.as_secs_f64() / plain.as_secs_f64();
        println!("  {name}: plain {plain:.2?}, TurboTLS {turbo:.2?}, {ratio:.3} of it");
    }
    figures
}

/// HTTP/1.1 and HTTP/2 begin a round trip sooner, and long downloads are as fast.
pub(crate) fn programs_in_go_save_a_round_trip() {
    let net = Net::new(RTT);
    let _nginx = Nginx::start(&net, net.server(), &["127.0.0.1:8443 http2"]);
    File::create(net.file("nginx-server/html/huge")).unwrap().set_len(HUGE).unwrap();
    let _edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let program = build(&net);
    judged(
        || measure(&net, &program),
        |figures| {
            for (name, [plain, turbo]) in figures {
                let saved = round_trips(*plain, RTT) - round_trips(*turbo, RTT);
                if name == "huge" {
                    let ratio = turbo.as_secs_f64() / plain.as_secs_f64();
                    if ratio > HUGE_MAX {
                        return Err(format!("a long download took {ratio:.2} of plain TLS"));
                    }
                } else if saved < SAVED_MIN {
                    return Err(format!("{name} saved {saved:.3} RTT"));
                }
            }
            Ok(())
        },
    );
}
