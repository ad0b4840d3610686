//! Captures that tcpdump writes of real programs: curl and OpenSSL's client, nginx and OpenSSL's
//! server. Needs these, tcpdump and the right to capture on the loopback: HEADSTART_TEST_NET=1
//! switches it on, and then it fails if it cannot run.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use headstart_pageload::sharing::{Audit, Report};
use headstart_testkit::{Running, has_net, until};
use tempfile::TempDir;

/// An OpenSSL server on a port that it chose.
struct Server {
    port: u16,
    _program: Running,
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
        let program = Running(child);
        let accept =
            lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
        let port = accept.unwrap().rsplit_once(':').unwrap().1.trim().parse().unwrap();
        // Nobody reads the rest, which is little.
        thread::spawn(move || lines.for_each(drop));
        Self { port, _program: program }
    }

    /// One connection of s_client; whether it says that it resumed.
    fn visit(&self, dir: &Path, arguments: &[&str]) -> bool {
        s_client(dir, &format!("127.0.0.1:{}", self.port), arguments, REQUEST)
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// One connection of OpenSSL's client; whether it says that it resumed.
fn s_client(dir: &Path, to: &str, arguments: &[&str], request: &[u8]) -> bool {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", to, "-ign_eof"])
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(request).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    drop(stdin);
    child.wait().unwrap();
    let (new, reused) = (text.contains("New, TLSv1"), text.contains("Reused, TLSv1"));
    assert!(new || reused, "{text}");
    reused
}

/// So many connections of one curl process, one after the other; with how many it says that it
/// offered a session.
fn curl(dir: &Path, name: &str, address: &str, port: u16, count: usize, arguments: &[&str]) -> u64 {
    let urls = vec![format!("https://{name}:{port}/"); count];
    let output = Command::new("curl")
        .args(["-q", "-sv", "--noproxy", "*", "--http1.1", "-H", "Connection: close"])
        .args(["--cacert", "cert.pem", "--resolve", &format!("{name}:{port}:{address}")])
        .args(arguments)
        .args(urls)
        .current_dir(dir)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert_eq!(output.stdout, b"ok\n".repeat(count));
    // In the words of older and newer curls.
    let offers = ["SSL re-using session", "SSL reusing session"];
    message.lines().filter(|line| offers.iter().any(|offer| line.contains(offer))).count() as u64
}

/// nginx, which writes down what each connection was.
struct Nginx {
    /// Any version; with a HelloRetryRequest; with a client certificate asked for.
    ports: [u16; 3],
    log: PathBuf,
    _program: Running,
}

/// A connection as nginx saw it.
#[derive(Debug)]
struct Logged {
    address: String,
    port: u16,
    name: String,
    protocol: String,
    is_resumed: bool,
}

impl Nginx {
    fn start(dir: &Path) -> Self {
        let ports = free_ports();
        let log = dir.join("access.log");
        fs::write(dir.join("nginx.conf"), nginx_conf(ports)).unwrap();
        let child = Command::new("nginx")
            // Debian's is where only root looks.
            .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
            .arg("-p")
            .arg(dir)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .current_dir(dir)
            .spawn()
            .unwrap();
        let program = Running(child);
        until("nginx listens", || TcpStream::connect(("127.0.0.2", ports[0])).is_ok());
        Self { ports, log, _program: program }
    }

    /// All connections so far, once there are so many.
    fn logged(&self, count: usize) -> Vec<Logged> {
        until("nginx has written down all connections", || {
            fs::read_to_string(&self.log).is_ok_and(|text| text.lines().count() >= count)
        });
        fs::read_to_string(&self.log).unwrap().lines().map(Logged::from_line).collect()
    }
}

impl Logged {
    fn from_line(line: &str) -> Self {
        let fields: Vec<&str> = line.split('|').collect();
        let [address, port, name, protocol, reused]: [&str; 5] = fields.try_into().unwrap();
        Self {
            address: address.into(),
            port: port.parse().unwrap(),
            // An empty value is written as one, or as a dash.
            name: name.trim_matches('-').into(),
            protocol: protocol.into(),
            is_resumed: reused == "r",
        }
    }
}

fn nginx_conf(ports: [u16; 3]) -> String {
    let [any, retry, private] =
        ports.map(|port| format!("listen 127.0.0.1:{port} ssl; listen 127.0.0.2:{port} ssl;"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String =
        temporary.iter().map(|kind| format!("{kind}_temp_path tmp_{kind}; ")).collect();
    format!(
        "daemon off; master_process off; pid nginx.pid; events {{}}
         http {{
             \
             {temporary}
             log_format tls \
             '$server_addr|$server_port|$ssl_server_name|$ssl_protocol|$ssl_session_reused';
             \
             access_log access.log tls;
             ssl_certificate cert.pem; ssl_certificate_key \
             key.pem;
             ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on;
             \
             server {{ {any} return 200 \"ok\\n\"; }}
             server {{ {retry} ssl_ecdh_curve \
             secp384r1; return 200 \"ok\\n\"; }}
             server {{ {private} ssl_protocols TLSv1.2; \
             ssl_verify_client optional_no_ca; return 200 \"ok\\n\"; }}
         }}"
    )
}

/// Ports that nobody listens on: all are taken together, so they differ.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// tcpdump on the loopback.
struct Capture {
    program: Running,
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
        let capture = Self { program: Running(child), file };
        until("tcpdump listens", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("listening on"))
        });
        capture
    }

    /// Ends it once the file has not grown for a while.
    fn finish(mut self) -> PathBuf {
        let mut length = None;
        until("the capture is written", || {
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

fn with_certificate() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=a.example", "-days", "2"])
        .args(["-addext", "subjectAltName=DNS:a.example,DNS:b.example"])
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

/// Ten connections to servers of both versions, with and without tickets; some resume, as OpenSSL
/// itself says.
#[test]
fn openssl_and_the_capture_agree() {
    if !has_net() {
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

/// Full handshakes by nginx's own account: as they were, and without those that follow another one
/// in a group.
fn expected(logged: &[Logged], private: u16) -> [u64; 3] {
    let mut seen = [HashSet::new(), HashSet::new()];
    let mut full = [0; 3];
    for line in logged {
        // Servers without a name share nothing but their address.
        let far = if line.name.is_empty() { &line.address } else { &line.name };
        let groups = [format!("{} {}", line.name, line.address), far.clone()];
        full[0] += u64::from(!line.is_resumed);
        for ((seen, group), full) in seen.iter_mut().zip(groups).zip(&mut full[1..]) {
            let is_shared = line.port != private && !seen.insert(group);
            *full += u64::from(!line.is_resumed && !is_shared);
        }
    }
    full
}

/// curl and OpenSSL's client visit nginx at two addresses under two names, with and without
/// sessions.
#[test]
fn nginx_and_the_capture_agree() {
    if !has_net() {
        return;
    }
    let dir = with_certificate();
    let dir = dir.path();
    let nginx = Nginx::start(dir);
    let [any, retry, private] = nginx.ports;
    let filter = format!("tcp port {any} or tcp port {retry} or tcp port {private}");
    let captures = [Capture::start(dir, "lo", &filter), Capture::start(dir, "any", &filter)];

    let (one, two) = ("127.0.0.1", "127.0.0.2");
    let mut offered = 0;
    offered += curl(dir, "a.example", one, any, 2, &[]);
    offered += curl(dir, "a.example", one, any, 1, &[]);
    offered += curl(dir, "a.example", two, any, 1, &[]);
    // Some nginx refuse the session that this curl then offers.
    offered += curl(dir, "b.example", one, any, 2, &["--tls-max", "1.2"]);
    offered += curl(dir, "a.example", one, retry, 1, &[]);
    offered += curl(dir, "b.example", two, private, 1, &[]);
    offered += curl(dir, "b.example", two, private, 1, &[]);
    let server = format!("{two}:{any}");
    for (arguments, is_resumed) in [
        ("-servername a.example -sess_out a", false),
        ("-servername b.example -tls1_2 -sess_out b", false),
        ("-servername b.example -tls1_2 -sess_in b", true),
        ("-noservername", false),
        ("-noservername", false),
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        assert_eq!(s_client(dir, &server, &words, REQUEST), is_resumed, "{arguments}");
        offered += u64::from(is_resumed);
    }
    // The request is in the early data.
    fs::write(dir.join("request"), REQUEST).unwrap();
    let early = ["-servername", "a.example", "-sess_in", "a", "-early_data", "request"];
    assert!(s_client(dir, &server, &early, b""));
    offered += 1;

    let count = 15;
    let logged = nginx.logged(count);
    assert_eq!(logged.len(), count, "{logged:?}");
    let resumed = logged.iter().filter(|line| line.is_resumed).count() as u64;
    let tls12 = logged.iter().filter(|line| line.protocol == "TLSv1.2").count() as u64;
    let full = expected(&logged, private);
    for capture in captures {
        let report = audited(&capture.finish());
        let seen = &report.seen;
        assert_eq!(report.connections, count as u64, "{seen:?}");
        assert_eq!(report.today.resumed, resumed, "{logged:?}");
        let arms = [&report.today, &report.client_only, &report.client_and_server];
        assert_eq!(arms.map(|arm| arm.full), full, "{logged:?}");
        assert_eq!((report.versions.tls12, report.versions.tls13), (tls12, count as u64 - tls12));
        assert_eq!((report.names, report.addresses, seen.without_name), (2, 2, 2));
        assert_eq!((seen.hello_retry, seen.client_certificate_requested), (1, 2));
        let offers = (seen.resumption_offered, seen.resumption_refused);
        assert_eq!(offers, (offered, offered - resumed), "{logged:?}");
        assert_eq!((seen.early_data_offered, seen.copies), (1, 0));
        assert_eq!(seen.unanswered + seen.unreadable + seen.cut_off + seen.displaced, 0);
    }
}
