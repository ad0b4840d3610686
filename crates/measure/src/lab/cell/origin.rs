//! nginx and HAProxy as servers of plain TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use headstart_emulation::Node;
use headstart_openers::fill;

use super::start::{Setting, await_port};
use super::{ech, workload};
use crate::interrupt::Interrupt;
use crate::lab::experiment::OriginKind;
use crate::lab::plan::Plan;
use crate::lab::process::{Broken, Program};
use headstart::base::failure::Failure;

/// Where servers are that ordinary users lack on the path.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Finds missing programs before anything is built.
pub(crate) fn check_tools(plan: &Plan) -> Result<(), Failure> {
    workload::check(plan)?;
    if ech::is_needed(plan) && ech::program().is_none() {
        return Err(Failure::usage(format!(
            "this run of {} needs the program {}",
            plan.experiment.name,
            ech::PROGRAM
        ))
        .hint(ech::HINT));
    }
    let kinds = plan.stages.iter().map(|stage| stage.variant.origin);
    for name in kinds.filter_map(program_name) {
        if find(name).is_none() {
            return Err(Failure::usage(format!(
                "this run of {} needs {name}",
                plan.experiment.name
            ))
            .hint(format!("install the package {name}")));
        }
    }
    Ok(())
}

/// Returns the versions of the programs that a run uses beside this one.
pub(crate) fn versions(plan: &Plan) -> BTreeMap<&'static str, String> {
    let kinds = plan.stages.iter().map(|stage| stage.variant.origin);
    let names = kinds.filter_map(program_name).collect::<BTreeSet<_>>();
    let ech = ech::is_needed(plan).then_some(ech::PROGRAM);
    let ech = ech.and_then(|name| Some((name, version(&ech::program()?, "-V")?)));
    // Both know `-v`; nginx answers on standard error.
    let others = names.into_iter().filter_map(|name| Some((name, version(&find(name)?, "-v")?)));
    others.chain(ech).chain(workload::versions(plan)).collect()
}

fn version(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&said).lines().next()?.trim().to_owned())
}

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
    let program = find(name).ok_or_else(|| Broken::Program(format!("{name} was not found")))?;
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

const fn program_name(kind: OriginKind) -> Option<&'static str> {
    match kind {
        OriginKind::Builtin => None,
        OriginKind::Nginx => Some("nginx"),
        OriginKind::Haproxy => Some("haproxy"),
    }
}

pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    listed.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The response as a file, at the path that clients ask for below `work`.
fn content(work: &Path, bytes: u64) -> io::Result<PathBuf> {
    let folder = work.join("bytes");
    fs::create_dir_all(&folder)?;
    let file = folder.join(bytes.to_string());
    let mut room = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    fill(0, &mut room);
    fs::write(&file, room)?;
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
    format!(
        "daemon off; master_process off; pid {work}/{listen}.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {work}/nginx; proxy_temp_path {work}/nginx;\n\
           fastcgi_temp_path {work}/nginx; uwsgi_temp_path {work}/nginx; scgi_temp_path {work}/nginx;\n\
           default_type application/octet-stream;\n\
           server {{\n\
             listen {listen} ssl backlog=4096; root {work};\n\
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
    format!(
        "global\n  nbthread {threads}\n  maxconn 4000\n  tune.bufsize 65536\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         frontend lab\n\
         \x20 bind {listen} ssl crt {} ssl-min-ver TLSv1.3 curves {} ciphersuites TLS_AES_128_GCM_SHA256\n\
         \x20 http-request return status 200 content-type application/octet-stream file {}\n",
        pem.display(),
        setting.suite().group(),
        content.display(),
    )
}
