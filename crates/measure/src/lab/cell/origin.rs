//! nginx and HAProxy as servers of plain TLS.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headstart_emulation::Node;
use headstart_openers::fill;

use super::setting::Setting;
use crate::interrupt::Interrupt;
use crate::lab::experiment::OriginKind;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program, find_program};

/// Starts the server and waits until it listens.
pub(super) fn start(
    setting: &Setting,
    node: &Node,
    listen: SocketAddr,
    interrupt: &Interrupt,
) -> Result<Program, Broken> {
    let cannot =
        |error: io::Error| Broken::Program(format!("cannot write a configuration: {error}"));
    let config = setting.work().join(format!("{}.conf", setting.label(node)));
    let identity = setting.identity()?;
    let content = content(setting.work(), setting.response()).map_err(cannot)?;
    let kind = setting.kind();
    let name = program_name(kind).unwrap_or_default();
    let program =
        find_program(name).ok_or_else(|| Broken::Program(format!("{name} was not found")))?;
    let mut command = node.command(program);
    let text = match kind {
        OriginKind::Haproxy => {
            let pem = joined(&identity.chain_file(), &identity.key_file(), &config);
            command.arg("-db").arg("-f").arg(&config);
            haproxy(setting, listen, &pem.map_err(cannot)?, &content)
        }
        OriginKind::Nginx | OriginKind::Builtin => {
            command.arg("-p").arg(setting.work()).arg("-c").arg(&config).args(["-e", "stderr"]);
            nginx(setting, listen, &identity.chain_file(), &identity.key_file())
        }
    };
    fs::write(&config, text).map_err(cannot)?;
    let mut server = Program::start(node, setting.title(name), command)?;
    await_port(node, listen, &mut server, interrupt)?;
    Ok(server)
}

pub(super) const fn program_name(kind: OriginKind) -> Option<&'static str> {
    match kind {
        OriginKind::Builtin => None,
        OriginKind::Nginx => Some("nginx"),
        OriginKind::Haproxy => Some("haproxy"),
    }
}

/// The response as a file, at the path that clients ask for below `work`.
fn content(work: &Path, bytes: u64) -> io::Result<PathBuf> {
    let folder = work.join("bytes");
    fs::create_dir_all(&folder)?;
    let file = folder.join(bytes.to_string());
    let mut buffer = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    fill(0, &mut buffer);
    fs::write(&file, buffer)?;
    Ok(file)
}

/// HAProxy takes certificates and key as one file.
fn joined(chain: &Path, key: &Path, config: &Path) -> io::Result<PathBuf> {
    let file = config.with_extension("pem");
    let text = [fs::read(chain)?, fs::read(key)?].concat();
    fs::write(&file, text)?;
    Ok(file)
}

/// One process, whose processor time is then all of the server's.
fn nginx(setting: &Setting, listen: SocketAddr, chain: &Path, key: &Path) -> String {
    let work = setting.work().display();
    let proxy = if setting.tells_clients() { "proxy_protocol" } else { "" };
    format!(
        "daemon off; master_process off; pid {work}/{listen}.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {work}/nginx; proxy_temp_path {work}/nginx;\n\
           fastcgi_temp_path {work}/nginx; uwsgi_temp_path {work}/nginx; scgi_temp_path \
           {work}/nginx;\n\
           default_type application/octet-stream;\n\
           server {{\n\
             listen {listen} ssl {proxy} backlog=4096; root {work};\n\
             ssl_certificate {}; ssl_certificate_key {};\n\
             ssl_protocols TLSv1.3; ssl_ecdh_curve {};\n\
             ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n\
           }}\n\
         }}\n",
        chain.display(),
        key.display(),
        setting.suite().group(),
    )
}

fn haproxy(setting: &Setting, listen: SocketAddr, pem: &Path, content: &Path) -> String {
    let threads = setting.threads().unwrap_or(1);
    let proxy = if setting.tells_clients() { "accept-proxy" } else { "" };
    format!(
        "global\n  nbthread {threads}\n  maxconn 4000\n  tune.bufsize 65536\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         frontend lab\n\
         \x20 bind {listen} {proxy} ssl crt {} ssl-min-ver TLSv1.3 curves {} ciphersuites \
         TLS_AES_128_GCM_SHA256\n\
         \x20 http-request return status 200 content-type application/octet-stream file {}\n",
        pem.display(),
        setting.suite().group(),
        content.display(),
    )
}
