//! nginx and HAProxy with the ticket keys of a site: what they resume of ours, and we of theirs.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use headstart_testkit::Running;
use headstart_tls::{ClientConfig, Session, Version};

use crate::client::{Client, NAME};
use crate::edge::{Edge, until};
use crate::ports::free;
use crate::site::{Site, keys};

/// A server that is killed when it is dropped.
struct Server {
    _child: Running,
    address: SocketAddr,
}

fn start(command: &mut Command, address: SocketAddr, log: &str) -> Server {
    let log = File::create(log).unwrap();
    let stdio = Stdio::from(log.try_clone().unwrap());
    let child = command.stdin(Stdio::null()).stdout(stdio).stderr(log).spawn().unwrap();
    let server = Server { _child: Running(child), address };
    until("the server listens", || std::net::TcpStream::connect(address).is_ok());
    server
}

/// nginx with the exported keys.
fn nginx(site: &Site) -> Server {
    let (dir, address) = (site.files.path("nginx"), free());
    fs::create_dir_all(format!("{dir}/html")).unwrap();
    fs::write(format!("{dir}/html/head"), "nginx").unwrap();
    let [certificate, key] = certificate(site);
    let text = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {dir}/temp; proxy_temp_path {dir}/temp;\n\
         fastcgi_temp_path {dir}/temp; uwsgi_temp_path {dir}/temp; scgi_temp_path {dir}/temp;\n\
         server {{ listen {address} ssl; root {dir}/html; ssl_protocols TLSv1.2 TLSv1.3;\n\
         ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         include {dir}/tickets/tickets.conf;\n}} }}\n"
    );
    let file = format!("{dir}/nginx.conf");
    fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", &dir, "-c", &file, "-e", "stderr"]);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    start(&mut command, address, &format!("{dir}/log"))
}

/// HAProxy with the exported keys.
fn haproxy(site: &Site) -> Server {
    let (file, address) = (site.files.path("haproxy.cfg"), free());
    let [certificate, key] = certificate(site);
    let both = [fs::read(certificate).unwrap(), fs::read(key).unwrap()].concat();
    let pem = site.files.write("both.pem", &both, 0o600);
    let text = format!(
        "global\n  ssl-default-bind-options prefer-client-ciphers\n\
         defaults\n  mode http\n  timeout client 30s\n  timeout server 30s\n  timeout connect 5s\n\
         frontend tls\n  bind {address} ssl crt {pem} tls-ticket-keys {}\n\
         \x20 http-request return status 200 content-type text/plain string haproxy\n",
        site.files.path("haproxy.keys")
    );
    fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f", &file]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    start(&mut command, address, &site.files.path("haproxy.log"))
}

fn certificate(site: &Site) -> [String; 2] {
    [site.files.path(&format!("{NAME}.pem")), site.files.path(&format!("{NAME}.key"))]
}

/// A ticket of `server`.
fn ticket(client: &Client, server: SocketAddr) -> Session {
    client.visit(server, "/head", None, false).unwrap().ok().session()
}

/// Returns true if `to` resumes a session of `from`.
fn resumes(client: &Client, from: SocketAddr, to: SocketAddr) -> bool {
    let session = ticket(client, from);
    client.visit(to, "/head", Some(session), false).unwrap().ok().resumed()
}

/// Clients that differ in what could come between: version, and the cipher they like best.
fn clients() -> [(&'static str, Client); 3] {
    [
        ("TLS 1.3", Client::new()),
        (
            "TLS 1.2",
            Client::with(|config: &mut ClientConfig| {
                config.max_version = Version::Tls12;
                // TLS 1.2 needs the curve of the certificate among them (RFC 8422 section 5.1).
                config.groups = Some("X25519:P-256".into());
            }),
        ),
        ("TLS 1.3 with other groups", Client::with(|config| config.groups = Some("P-256".into()))),
    ]
}

fn with_ring() -> (Site, String) {
    let site = Site::new();
    let ring = site.files.keys("keys");
    fs::create_dir_all(site.files.path("nginx/tickets")).unwrap();
    export(&site, &ring);
    (site, ring)
}

fn export(site: &Site, ring: &str) {
    let (nginx, haproxy) = (site.files.path("nginx/tickets"), site.files.path("haproxy.keys"));
    keys(&["export", "--nginx", &nginx, "--haproxy", &haproxy, ring]).ok();
}

#[test]
fn nginx_and_an_edge_resume_each_other() {
    let (site, ring) = with_ring();
    let edge = site.edge(&ring, &["--ticket-peers=nginx"]);
    let nginx = nginx(&site);
    for (which, client) in clients() {
        assert!(resumes(&client, edge.address, nginx.address), "{which}: ours at nginx");
        assert!(resumes(&client, nginx.address, edge.address), "{which}: nginx's at the edge");
    }
    // One rotation later both sides still accept earlier tickets.
    let client = Client::new();
    let (ours, theirs) = (ticket(&client, edge.address), ticket(&client, nginx.address));
    crate::files::rotate(&ring);
    export(&site, &ring);
    drop(nginx);
    let nginx = self::nginx(&site);
    until("the edge has the new keys", || edge.logged("new keys for session tickets") == 1);
    for (server, session) in [(nginx.address, ours), (edge.address, theirs)] {
        assert!(client.visit(server, "/head", Some(session), false).unwrap().ok().resumed());
    }
    assert!(
        resumes(&client, edge.address, nginx.address)
            && resumes(&client, nginx.address, edge.address)
    );
}

#[test]
fn haproxy_and_an_edge_resume_each_other() {
    let (site, ring) = with_ring();
    let edge = site.edge(&ring, &["--ticket-peers=haproxy"]);
    let haproxy = haproxy(&site);
    for (which, client) in clients() {
        assert!(resumes(&client, edge.address, haproxy.address), "{which}: ours at HAProxy");
        assert!(resumes(&client, haproxy.address, edge.address), "{which}: HAProxy's at the edge");
    }
}

/// The keys alone are not enough, which is why there is an option.
#[test]
fn without_the_option_nothing_is_resumed_elsewhere() {
    let (site, ring) = with_ring();
    let edge = site.edge(&ring, &[]);
    let (nginx, haproxy) = (nginx(&site), haproxy(&site));
    let client = Client::new();
    assert!(resumes(&client, edge.address, edge.address));
    for other in [&nginx, &haproxy] {
        assert!(!resumes(&client, edge.address, other.address));
        assert!(!resumes(&client, other.address, edge.address));
    }
}

/// A ticket that another program made says nothing about early data here.
#[test]
fn early_data_is_for_tickets_of_our_own() {
    let (site, ring) = with_ring();
    let flags = ["--ticket-peers=nginx", "--early-data-requests=on"];
    let edge: Edge = site.edge(&ring, &flags);
    let nginx = nginx(&site);
    let client = Client::new();
    until("early data is taken of our own", || {
        let session = ticket(&client, edge.address);
        let visit = client.visit(edge.address, "/head", Some(session), true).unwrap().ok();
        visit.early()
    });
    let session = ticket(&client, nginx.address);
    let visit = client.visit(edge.address, "/head", Some(session), true).unwrap().ok();
    assert!(visit.resumed() && !visit.early());
    // And our tickets, which allow it, bring no early data to a server that refuses it.
    let session = ticket(&client, edge.address);
    let visit = client.visit(nginx.address, "/head", Some(session), true).unwrap().ok();
    assert!(visit.resumed() && !visit.early());
}

#[test]
fn the_export_is_private_and_names_only_existing_files() {
    let (site, ring) = with_ring();
    let conf = site.files.path("nginx/tickets/tickets.conf");
    let text = fs::read_to_string(&conf).unwrap();
    assert_eq!(text.matches("ssl_session_ticket_key ").count(), 2, "a new ring: {text}");
    for name in ["nginx/tickets/current.key", "nginx/tickets/next.key", "haproxy.keys"] {
        let file = fs::metadata(site.files.path(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o7777, 0o600, "{name}");
    }
    crate::files::rotate(&ring);
    export(&site, &ring);
    let text = fs::read_to_string(&conf).unwrap();
    assert_eq!(text.matches("ssl_session_ticket_key ").count(), 3);
    let first = text.lines().find(|line| line.starts_with("ssl_session_ticket_key")).unwrap();
    assert!(first.ends_with("current.key\";"), "nginx makes tickets with the first: {first}");
    let previous = site.files.path("nginx/tickets/previous.key");
    assert!(fs::exists(&previous).unwrap());
    site.files.keys("keys");
    export(&site, &ring);
    assert!(!fs::exists(&previous).unwrap(), "a new ring has no previous key");
    let none = keys(&["export", &ring]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("--nginx"), "{}", none.err);
    let nowhere = keys(&["export", "--nginx", "/nowhere/tickets", &ring]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.err.contains("\nhint: make its directory first"), "{}", nowhere.err);
}
