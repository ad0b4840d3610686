//! Captures that tcpdump writes of OpenSSL's own client and server. Needs tcpdump, openssl and the right to capture on
//! the loopback: HEADSTART_TEST_NET=1 switches it on, and then it fails if it cannot run.
#![allow(clippy::unwrap_used)] // a test may panic, its helper functions too

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headstart_pageload::sharing::{Audit, Report};
use tempfile::TempDir;

/// How long programs may take to start or end.
const PATIENCE: Duration = Duration::from_secs(20);

fn is_enabled() -> bool {
    let enabled = std::env::var_os("HEADSTART_TEST_NET").is_some_and(|value| value == "1");
    if !enabled {
        println!("skipped: set HEADSTART_TEST_NET=1 and run as root");
    }
    enabled
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An OpenSSL server on a port that it chose.
struct Server {
    port: u16,
    _program: Program,
}

impl Server {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .args([
                "s_server",
                "-accept",
                "127.0.0.1:0",
                "-www",
                "-cert",
                "cert.pem",
                "-key",
                "key.pem",
            ])
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let program = Program(child);
        let accept =
            lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
        let port = accept.unwrap().rsplit_once(':').unwrap().1.trim().parse().unwrap();
        // Nobody reads the rest, which is little.
        thread::spawn(move || lines.for_each(drop));
        Self { port, _program: program }
    }

    /// One connection of s_client; whether it says that it resumed.
    fn visit(&self, dir: &Path, arguments: &[&str]) -> bool {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", self.port), "-ign_eof"])
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        drop(stdin);
        child.wait().unwrap();
        let (new, reused) = (said.contains("New, TLSv1"), said.contains("Reused, TLSv1"));
        assert!(new || reused, "{said}");
        reused
    }
}

/// tcpdump on the loopback.
struct Capture {
    program: Program,
    file: PathBuf,
}

impl Capture {
    fn start(dir: &Path, interface: &str, filter: &str) -> Self {
        let file = dir.join(format!("{interface}.pcap"));
        let log = dir.join(format!("{interface}.log"));
        let child = Command::new("tcpdump")
            // As root it would give its rights away, and with them the folder.
            .args(["-Z", "root", "-i", interface, "-s", "0", "-U", "-w"])
            .arg(&file)
            .arg(filter)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let capture = Self { program: Program(child), file };
        wait_until("tcpdump listens", || {
            fs::read_to_string(&log).is_ok_and(|said| said.contains("listening on"))
        });
        capture
    }

    /// Ends it once the file has not grown for a while.
    fn finish(mut self) -> PathBuf {
        let mut length = None;
        wait_until("the capture is written", || {
            thread::sleep(Duration::from_millis(500));
            let now = fs::metadata(&self.file).map(|file| file.len()).ok();
            let is_quiet = now == length && now.is_some_and(|length| length > 24);
            length = now;
            is_quiet
        });
        self.program.0.kill().unwrap();
        self.program.0.wait().unwrap();
        self.file.clone()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn with_certificate() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=a.example", "-days", "2"])
        .current_dir(dir.path())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    dir
}

fn audited(file: &Path) -> Report {
    let mut audit = Audit::new();
    audit.read("real", File::open(file).unwrap()).unwrap();
    audit.report(None)
}

/// Ten connections to servers of both versions, with and without tickets; some resume, as OpenSSL itself says.
#[test]
fn what_openssl_says_is_what_the_capture_says() {
    if !is_enabled() {
        return;
    }
    let dir = with_certificate();
    let dir = dir.path();
    let servers = [
        Server::start(dir, &["-tls1_3"]),
        Server::start(dir, &["-tls1_2"]),
        // Sessions by their id, which the server keeps.
        Server::start(dir, &["-tls1_2", "-no_ticket"]),
    ];
    let filter: Vec<String> =
        servers.iter().map(|server| format!("tcp port {}", server.port)).collect();
    let filter = filter.join(" or ");
    let captures = [Capture::start(dir, "lo", &filter), Capture::start(dir, "any", &filter)];

    let mut resumed = 0;
    let mut count = 0;
    for (at, server) in servers.iter().enumerate() {
        let kept = format!("session{at}");
        let name = ["-servername", "a.example"];
        let visits: [&[&str]; 3] =
            [&["-sess_out", &kept], &["-sess_in", &kept], &["-servername", "b.example"]];
        for (turn, arguments) in visits.iter().enumerate() {
            let arguments =
                if turn < 2 { [&name[..], arguments].concat() } else { arguments.to_vec() };
            let reused = server.visit(dir, &arguments);
            assert_eq!(reused, turn == 1, "server {at}, turn {turn}");
            resumed += u64::from(reused);
            count += 1;
        }
    }
    // Without a name.
    assert!(!servers[0].visit(dir, &["-noservername"]));
    count += 1;

    for capture in captures {
        let report = audited(&capture.finish());
        assert_eq!(
            (report.connections, report.today.resumed),
            (count, resumed),
            "{:?}",
            report.seen
        );
        assert_eq!((report.versions.tls13, report.versions.tls12), (4, 6));
        assert_eq!((report.names, report.seen.without_name), (2, 1));
        // One address: the first to each name, and without one, cannot resume.
        assert_eq!((report.today.full, report.client_only.full), (7, 3));
        assert_eq!(report.seen.resumption_offered, 3);
        // In TLS 1.2 the server with tickets gave each visit one, the resumed perhaps.
        assert!((2..=3).contains(&report.tickets.in_clear.count), "{:?}", report.tickets);
        assert!(report.tickets.offered.count >= 2, "{:?}", report.tickets);
        assert_eq!(report.seen.unanswered + report.seen.unreadable + report.seen.cut_off, 0);
    }
}
