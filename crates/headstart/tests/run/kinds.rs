//! Programs for which the library is not meant, or not in all they do: setuid, static, with another
//! TLS library, servers.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use headstart_testkit::has_net;

use crate::agent::Agent;
use crate::call::outcome;
use crate::edge::until;
use crate::files::Files;
use crate::library::library;
use crate::ports::free;
use crate::program::{Program, headstart_run, resumed};
use crate::server::{NAME, PAGE, Server, files, served};

/// A user that owns nothing else.
pub(crate) const OTHER: u32 = 54_321;

const WORK: [&str; 2] = ["--context", "work"];

fn let_pass(directory: impl AsRef<Path>) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

fn program<const N: usize>(socket: &Path, command: [&str; N]) -> Command {
    let mut run = headstart_run(socket);
    run.args(["--proxy", "", "--preload"]).arg(library()).args(WORK).arg("--").args(command);
    run.env("HEADSTART_PATIENCE_MS", "9000");
    run
}

/// The same file, with the bit and without.
#[test]
fn a_setuid_program_shares_nothing() {
    if !has_net() {
        return;
    }
    let files = files();
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&["--socket-mode", "666"]));
    let_pass(agent.path(""));
    let_pass(files.path(""));
    let copy = files.path("openssl");
    fs::copy("/usr/bin/openssl", &copy).unwrap();
    // Each of mode 755 has requested one, and left one; the last takes what the second has left.
    for (mode, is_resumed, audited) in
        [(0o755, false, 2), (0o755, true, 4), (0o4755, false, 4), (0o755, true, 6)]
    {
        fs::set_permissions(&copy, Permissions::from_mode(mode)).unwrap();
        assert_eq!(resumes_as_other(&copy, &server, &agent, &files), is_resumed, "{mode:o}");
        agent.until_audited(&["session of a program"], audited);
    }
}

/// Returns true if the client of this openssl resumes, run by another user.
fn resumes_as_other(openssl: &str, server: &Server, agent: &Agent, files: &Files) -> bool {
    let (to, roots) = (server.address.to_string(), files.path(&format!("{NAME}.pem")));
    let verify = ["-verify_return_error", "-verify_quiet", "-CAfile", &roots];
    let mut run = program(&agent.socket(), [openssl, "s_client", "-connect", &to]);
    run.args(["-servername", NAME, "-ign_eof"]).args(verify);
    run.current_dir("/").uid(OTHER).gid(OTHER).stdin(request("/")).stderr(Stdio::piped());
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    resumed(&String::from_utf8(output.stdout).unwrap())
}

/// openssl's client reads its request from there.
fn request(path: &str) -> Stdio {
    let (read, mut write) = std::io::pipe().unwrap();
    let text = format!("GET {path} HTTP/1.0\r\nHost: front.example\r\n\r\n");
    std::io::Write::write_all(&mut write, text.as_bytes()).unwrap();
    read.into()
}

#[test]
fn a_static_program_runs_as_ever() {
    let files = files();
    let (source, binary) = (files.path("static.c"), files.path("static"));
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
                int main(void) { puts(getenv(\"LD_PRELOAD\") ? \"ran\" : \"no library\"); return \
                7; }\n";
    fs::write(&source, text).unwrap();
    let built = Command::new("cc").args(["-static", "-o", &binary, &source]).status().unwrap();
    assert!(built.success());
    let output = program(Path::new("/nonexistent"), [&binary]).output().unwrap();
    assert_eq!(outcome(output), (Some(7), "ran\n".into(), String::new()));
}

/// Node.js has an OpenSSL of its own inside, whose functions are called as those that are
/// interposed.
#[test]
fn a_program_with_its_own_tls_is_left_alone() {
    let (files, server, agent) = served(PAGE);
    let script = "const [host, port, servername] = process.argv.slice(1);\
                  require('node:https').get({ host, port, servername, path: '/' }, (page) => \
                  page.pipe(process.stdout));";
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    for _ in 0..2 {
        let mut run =
            program(&agent.socket(), ["node", "--no-warnings", "-e", script, &host, &port, NAME]);
        let output = run.env("NODE_EXTRA_CA_CERTS", files.path(&format!("{NAME}.pem"))).output();
        let output = output.unwrap();
        let (page, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !resumed(&page), "{page}{err}");
    }
    assert_eq!(agent.audited(&["session of a program"]), 0);
}

/// Two of such names would look alike to the agent.
#[test]
fn a_context_that_is_no_text_is_nobodys() {
    let (files, server, agent) = served(PAGE);
    let to = format!("{NAME}:443:{}", server.address);
    for context in [&b"\xfe"[..], b"\xff"] {
        let mut run = headstart_run(&agent.socket());
        run.args(["--proxy", "", "--preload"]).arg(library());
        run.args(["--", "curl", "-sS", "--connect-to", &to, &format!("https://{NAME}/")]);
        run.env("SSL_CERT_FILE", files.path(&format!("{NAME}.pem")));
        run.env("HEADSTART_CONTEXT", OsStr::from_bytes(context));
        let output = run.output().unwrap();
        assert!(!resumed(&String::from_utf8(output.stdout).unwrap()));
    }
    assert_eq!(agent.audited(&["session of a program"]), 0);
}

/// Its contexts are made where the library does not see it.
#[test]
fn a_module_that_is_bound_deeply_is_left_alone() {
    let (files, server, agent) = served(PAGE);
    for _ in 0..2 {
        assert!(!Program::python_bound_deeply(&server).resumes(&agent, &files, &WORK));
    }
    assert_eq!(agent.audited(&["session of a program"]), 0);
}

/// nginx serves as ever, from processes that it has forked; where it is a client, it verifies by
/// itself, afterwards, which is to be left alone.
#[test]
fn a_forking_server_serves_as_ever() {
    let files = files();
    files.issue("front.example");
    let (server, agent) = (Server::start(&files, PAGE), Agent::start(&[]));
    let mut nginx = Nginx::start(&files, &server, &agent.socket());
    let front = nginx.address.to_string();
    let trust = files.path("front.example.pem");
    let session = files.path("session");
    // Its own tickets, and its own cache of TLS 1.2.
    for version in [&["-tls1_3"][..], &["-tls1_2"], &["-tls1_2", "-no_ticket"]] {
        let [first, next] = ["-sess_out", "-sess_in"].map(|option| {
            let mut openssl = Command::new("openssl");
            openssl.args(["s_client", "-connect", &front, "-servername", "front.example"]);
            openssl.args(["-CAfile", &trust, "-verify_return_error", "-ign_eof"]);
            openssl.args(version).args([option, &session]).stdin(request("/own"));
            String::from_utf8(openssl.output().unwrap().stdout).unwrap()
        });
        assert!(first.contains("served") && first.contains("New, TLSv1"), "{first}");
        assert!(next.contains("served") && next.contains("Reused, TLSv1"), "{next}");
    }
    for _ in 0..3 {
        let to = format!("front.example:443:{front}");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "50", "--cacert", &trust, "--connect-to", &to]);
        let output = curl.arg("https://front.example/").output().unwrap();
        assert!(!resumed(&String::from_utf8(output.stdout).unwrap()));
    }
    nginx.is_well();
    assert_eq!(agent.audited(&["session of a program"]), 0);
}

/// Killed when dropped, with its workers.
struct Nginx {
    child: Child,
    address: std::net::SocketAddr,
}

impl Nginx {
    /// Starts two workers that verify the server behind them and keep no sessions of their own.
    fn start(files: &Files, behind: &Server, socket: &Path) -> Self {
        let (dir, address) = (files.path("nginx"), free());
        fs::create_dir_all(&dir).unwrap();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let (certificate, roots) =
            (files.path("front.example"), files.path(&format!("{NAME}.pem")));
        let text = format!(
            "daemon off; {user} worker_processes 2; pid {dir}/pid; error_log stderr;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {dir}/temp; proxy_temp_path \
             {dir}/temp;\n\
             fastcgi_temp_path {dir}/temp; uwsgi_temp_path {dir}/temp; scgi_temp_path {dir}/temp;\n\
             server {{ listen {address} ssl; ssl_protocols TLSv1.2 TLSv1.3;\n\
             ssl_session_cache shared:a:1m;\n\
             ssl_certificate {certificate}.pem; ssl_certificate_key {certificate}.key;\n\
             location = /own {{ return 200 served; }}\n\
             location / {{ proxy_pass https://{}; proxy_ssl_name {NAME}; proxy_ssl_server_name \
             on;\n\
             proxy_ssl_verify on; proxy_ssl_trusted_certificate {roots};\n\
             proxy_ssl_protocols TLSv1.3; proxy_ssl_session_reuse off; }} }} }}\n",
            behind.address
        );
        let file = format!("{dir}/nginx.conf");
        fs::write(&file, text).unwrap();
        let mut run = program(socket, ["nginx", "-p", &dir, "-c", &file, "-e", "stderr"]);
        run.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        let mut nginx = Self { child: run.spawn().unwrap(), address };
        until("nginx listens", || {
            nginx.is_well();
            std::net::TcpStream::connect(address).is_ok()
        });
        nginx
    }

    fn is_well(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "nginx has ended");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It stops its workers.
        let nginx = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let _ =
            nginx.map(|nginx| rustix::process::kill_process(nginx, rustix::process::Signal::TERM));
        let _ = self.child.wait();
    }
}
