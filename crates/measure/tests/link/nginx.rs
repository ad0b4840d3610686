//! nginx as the origin, and the certificate that everything here is trusted by.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;

use headstart_emulation::Node;
use headstart_testkit::Running;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use crate::net::{Net, until};

/// Names whose edge is reached over IPv4 and IPv6, unknown names and others: all in the
/// certificate.
const NAMES: &[&str] = &["*.four.test", "*.six.test", "*.adv.test"];

/// Bytes of `/small`: more than one segment.
pub(crate) const SMALL: usize = 4_000;

/// Bytes of `/big`.
pub(crate) const BIG: usize = 4_000_000;

/// A running nginx; killed when dropped.
pub(crate) struct Nginx {
    _child: Running,
    log: PathBuf,
}

impl Nginx {
    /// Serves `/small` and `/big` on `node`, at each address of `listen` (with its options).
    pub(crate) fn start(net: &Net, node: &Node, listen: &[&str]) -> Self {
        certificate(net);
        let dir = net.file(&format!("nginx-{}", node.name()));
        for sub in ["html", "temp"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::write(dir.join("html/small"), content(SMALL)).unwrap();
        fs::write(dir.join("html/big"), content(BIG)).unwrap();
        fs::write(dir.join("html/who"), node.name()).unwrap();
        fs::write(dir.join("nginx.conf"), configuration(net, &dir, listen)).unwrap();
        let mut command = node.command("nginx");
        command.arg("-p").arg(&dir).arg("-c").arg(dir.join("nginx.conf"));
        command.arg("-e").arg(dir.join("error.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(dir.join("stderr")).unwrap());
        let child = node.spawn(command).unwrap();
        for address in listen {
            let address: SocketAddr = address.split(' ').next().unwrap().parse().unwrap();
            until("nginx", || node.run(|| TcpStream::connect(address).is_ok()).unwrap());
        }
        Self { _child: Running(child), log: dir.join("access.log") }
    }

    /// Behind an edge on the server.
    pub(crate) fn behind(net: &Net) -> Self {
        Self::start(net, net.server(), &["127.0.0.1:8443"])
    }

    /// Lines `client-by-proxy-protocol protocol uri` of the requests that were answered.
    pub(crate) fn log(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// Bytes that are no two alike at any small distance.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    })
    .take(length)
    .collect()
}

fn configuration(net: &Net, dir: &std::path::Path, listen: &[&str]) -> String {
    let (dir, files) = (dir.display(), net.dir().display());
    let mut text = format!(
        "daemon off; master_process off; pid {dir}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         log_format check '$proxy_protocol_addr $ssl_protocol $request_uri';\n\
         access_log {dir}/access.log check;\n\
         client_body_temp_path {dir}/temp; proxy_temp_path {dir}/temp;\n\
         fastcgi_temp_path {dir}/temp; uwsgi_temp_path {dir}/temp; scgi_temp_path {dir}/temp;\n\
         ssl_certificate {files}/cert.pem; ssl_certificate_key {files}/key.pem;\n\
         ssl_protocols TLSv1.2 TLSv1.3;\n\
         client_header_timeout 10m; send_timeout 10m;\n\
         server {{ root {dir}/html;\n"
    );
    for address in listen {
        let (address, options) = address.split_once(' ').unwrap_or((address, ""));
        writeln!(text, "listen {address} ssl {options};").unwrap();
    }
    text + "} }\n"
}

/// The certificate of every origin, which is its own authority, and its key: made once for a check.
pub(crate) fn certificate(net: &Net) -> (X509, PKey<Private>) {
    let (cert, key) = (net.file("cert.pem"), net.file("key.pem"));
    if !cert.exists() {
        let made = self_signed();
        fs::write(&cert, made.0.to_pem().unwrap()).unwrap();
        fs::write(&key, made.1.private_key_to_pem_pkcs8().unwrap()).unwrap();
        return made;
    }
    let cert = X509::from_pem(&fs::read(cert).unwrap()).unwrap();
    (cert, PKey::private_key_from_pem(&fs::read(key).unwrap()).unwrap())
}

fn self_signed() -> (X509, PKey<Private>) {
    let names = [NAMES, &["127.0.0.1"]].concat();
    let issued = headstart_testkit::self_signed(&names, 0..2 * headstart_testkit::DAY);
    let certificate = X509::from_pem(&issued.chain).unwrap();
    (certificate, PKey::private_key_from_pem(&issued.key).unwrap())
}
