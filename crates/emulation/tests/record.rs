//! Records of a lab: captures, the forwarder's faults, probes. Needs HEADSTART_TEST_NET=1 and root
//! (or a user namespace already entered).
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::{
    Element, Host, Lab, LabError, LabOptions, Link, Loss, Outputs, Packet, ProbeOptions,
    Scheduling, probe,
};
use headstart_testkit::has_net;
use support::{PATIENCE, udp};

fn lab(client: Host, options: LabOptions) -> Option<Lab> {
    has_net().then(|| Lab::build_with(vec![client, Host::new("server")], options).unwrap())
}

/// Sockets of the two nodes, connected with each other.
fn udp_pair(lab: &Lab) -> [UdpSocket; 2] {
    let [client, server] =
        [&lab.nodes()[0], &lab.nodes()[1]].map(|node| udp(node, (node.ipv4().unwrap(), 0)));
    client.connect(server.local_addr().unwrap()).unwrap();
    server.connect(client.local_addr().unwrap()).unwrap();
    [client, server]
}

/// Returns tcpdump's text of a file, `None` without tcpdump.
fn tcpdump(file: &Path) -> Option<String> {
    // By standard input, as it may give up the right to open files.
    let input = File::open(file).unwrap();
    let output = Command::new("tcpdump").args(["-n", "-tt", "-r", "-"]).stdin(input).output();
    if output.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        eprintln!("not read back: there is no tcpdump");
        return None;
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_capture_holds_both_directions_before_and_behind_the_links() {
    let delay = Duration::from_millis(5);
    let lossy = Link::default().with(Loss::exact([1]));
    let client = Host::new("client").delay(delay).outbound(lossy);
    let Some(lab) = lab(client, LabOptions::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.pcapng");
    let capture = lab.capture("client", &file, 1 << 20).unwrap();
    let [client, server] = udp_pair(&lab);
    client.send(b"lost").unwrap();
    client.send(b"request").unwrap();
    server.recv(&mut [0; 16]).unwrap();
    server.send(b"answer to it").unwrap();
    client.recv(&mut [0; 16]).unwrap();
    let captured = capture.finish().unwrap();
    assert_eq!((captured.packets, captured.dropped, captured.full), (3, 0, false));
    let Some(text) = tcpdump(&file) else { return };
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, what) in lines.iter().zip(["length 4", "length 7", "length 12"]) {
        assert!(line.contains("10.77.") && line.ends_with(what), "{text}");
    }
    let [request, answer] =
        [lines[1], lines[2]].map(|line| line.split(' ').next().unwrap().parse::<f64>().unwrap());
    assert!(answer - request >= delay.as_secs_f64(), "{text}");
}

#[test]
fn a_capture_ends_with_its_limit_and_the_packets_go_on() {
    let Some(lab) = lab(Host::new("client"), LabOptions::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limit.pcapng");
    let limit = 4096;
    let capture = lab.capture("server", &file, limit).unwrap();
    let [client, server] = udp_pair(&lab);
    for _ in 0..10 {
        client.send(&[0; 1000]).unwrap();
        server.recv(&mut [0; 2000]).unwrap();
    }
    let captured = capture.finish().unwrap();
    assert!(captured.full && captured.packets == 3, "{captured:?}");
    assert!(fs::metadata(&file).unwrap().len() <= limit);
    assert!(tcpdump(&file).is_none_or(|text| text.lines().count() == 3));
}

#[test]
fn a_capture_needs_a_node_and_a_place() {
    let Some(lab) = lab(Host::new("client"), LabOptions::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nobody.pcapng");
    let nobody = lab.capture("nobody", &file, 4096).unwrap_err();
    assert!(matches!(nobody, LabError::Topology(_)));
    assert!(!file.exists());
    let nowhere = lab.capture("client", file.join("capture"), 4096).unwrap_err();
    assert!(nowhere.to_string().contains("nobody.pcapng"));
    let too_small = lab.capture("client", &file, 10).unwrap_err();
    assert!(too_small.to_string().contains("no room"));
}

#[test]
fn a_capture_ends_well_with_the_lab() {
    let Some(lab) = lab(Host::new("client"), LabOptions::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("end.pcapng");
    let capture = lab.capture("client", &file, 1 << 20).unwrap();
    let [client, server] = udp_pair(&lab);
    client.send(b"x").unwrap();
    server.recv(&mut [0; 2]).unwrap();
    drop(lab);
    assert_eq!(capture.finish().unwrap().packets, 1);
}

#[test]
fn the_record_shows_the_forwarders_faults() {
    if !has_net() {
        return;
    }
    // Every packet is later than this, by the time it takes to send it.
    let strict = LabOptions { late: Duration::ZERO, ..LabOptions::default() };
    // And none is later than this.
    let generous = LabOptions { late: PATIENCE, ..LabOptions::default() };
    for (options, late) in [(strict, true), (generous, false)] {
        let lab = lab(Host::new("client"), options).unwrap();
        let before = Instant::now();
        let [client, server] = udp_pair(&lab);
        let start = Instant::now();
        client.send(b"x").unwrap();
        server.recv(&mut [0; 2]).unwrap();
        let end = Instant::now();
        let disturbance = lab.disturbance(start, end);
        assert_eq!(disturbance.late > 0, late, "{disturbance:?}");
        assert_eq!(lab.disturbed(start, end), late);
        assert!(disturbance.worst <= lab.counters().lateness.max * 101 / 100);
        assert_eq!((disturbance.missed, disturbance.refused), (0, 0));
        assert!(!lab.disturbed(before, before));
        assert!(lab.exactness().timestamps);
    }
}

/// Holds the forwarder up at the first packet until it is told to go on.
#[derive(Debug)]
struct HoldUp(Option<Receiver<()>>);

impl Element for HoldUp {
    fn handle(&mut self, _: Duration, packet: Packet, out: &mut Outputs) {
        let _ = self.0.take().map(|go_on| go_on.recv_timeout(PATIENCE));
        out.pass(packet);
    }
}

#[test]
fn frames_lost_by_a_held_up_forwarder_are_on_its_record() {
    let (go_on, told) = channel();
    let client = Host::new("client").outbound(Link::default().with(HoldUp(Some(told))));
    let Some(lab) = lab(client, LabOptions::default()) else { return };
    let [client, server] = udp_pair(&lab);
    let before = Instant::now();
    thread::sleep(Duration::from_millis(1));
    let start = Instant::now();
    // More than the forwarder's socket holds.
    let sent = 20_000;
    for _ in 0..sent {
        client.send(&[0; 1200]).unwrap();
    }
    go_on.send(()).unwrap();
    server.recv(&mut [0; 2000]).unwrap();
    let disturbance = lab.disturbance(start, Instant::now());
    assert!(disturbance.missed > 0 && disturbance.late > 0, "{disturbance:?}");
    assert_eq!(disturbance.missed, lab.counters().ports[0].missed);
    assert!(disturbance.missed < sent);
    assert_eq!(lab.disturbance(before, before).late, 0);
}

#[test]
fn a_pinned_forwarder_says_what_it_got() {
    let Some(lab) = lab(Host::new("client"), LabOptions { pinned: true, ..LabOptions::default() })
    else {
        return;
    };
    assert_eq!(lab.exactness().pinned, Scheduling::exact(0).cpu.is_some());
    let realtime = Scheduling { cpu: None, realtime: true };
    assert_eq!(lab.exactness().realtime, realtime.granted().realtime);
    let mut command = lab.nodes()[0].command("cat");
    let wanted = Scheduling::exact(0);
    let command = wanted.apply_to(command.arg("/proc/self/stat")).stdout(Stdio::piped());
    let output = command.output().unwrap();
    let stat = String::from_utf8(output.stdout).unwrap();
    // Field 41 of proc_pid_stat(5), counted from the name, is the policy; 1 is SCHED_FIFO.
    let policy = stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap();
    assert_eq!(policy == "1", wanted.granted().realtime, "{stat}");
}

#[test]
fn a_probe_sees_no_less_than_was_asked_for() {
    let rtt = Duration::from_millis(5);
    let Some(lab) = lab(Host::new("client").delay(rtt / 2), LabOptions::default()) else { return };
    let (echoes, connects) = (50, 10);
    let [client, server] = [Scheduling::default(); 2];
    let options = ProbeOptions { rtt, echoes, connects, client, server };
    let seen = probe(&lab.nodes()[0], &lab.nodes()[1], options).unwrap();
    assert_eq!((seen.echoes.len(), seen.connects.len(), seen.lost), (echoes, connects, 0));
    assert!(seen.echoes[0] >= rtt && seen.connects[0] >= rtt);
    assert!(seen.echoes.is_sorted() && seen.connects.is_sorted());
}
