//! Programs that speak TLS to an origin for others, the agent and HAProxy, and that origin, which
//! is nginx: one thread each.

use crate::programs::headstart;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use headstart_openers::{Identity, NAME, Suite};
use tempfile::TempDir;

use super::Failure;
use super::process::Program;
use super::terminators::{find, local};
use super::ways::{Direct, Managed, Proxied, Way};

/// Files here are memory, and what was never written of them takes none: reading it costs no disk.
const MEMORY: &str = "/dev/shm";

/// Bytes of the long answer: of 4 GB/s, more than a processor encrypts, a quarter of an hour.
const BULK: u64 = 1 << 42;

/// Behind what the origin says in its short answer: about 100 bytes in all.
const PADDING: usize = 64;

/// nginx with TLS 1.3.
///
/// Its short answer, `/`, says of the connection whether it was resumed (`r` or `.`), the version
/// and the cipher; its long one, `/bulk`, has no end while a turn lasts.
pub(crate) struct Origin {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
    identity: Identity,
    _bulk: TempDir,
}

impl Origin {
    /// A P-256 certificate and a configuration in `folder`.
    pub(crate) fn start(folder: &Path, port: u16) -> Result<Self, Failure> {
        let identity = Identity::obtain(folder, Suite::P256, NAME, None)?;
        let bulk = tempfile::tempdir_in(MEMORY)?;
        let endless = bulk.path().join("bulk");
        File::create(&endless)?.set_len(BULK)?;
        let (address, file) = (local(port), folder.join("origin.conf"));
        fs::write(&file, conf(folder, &identity, address, &endless))?;
        let mut command = Command::new(find("nginx")?);
        command.arg("-p").arg(folder).arg("-c").arg(&file).args(["-e", "stderr"]);
        let program = Program::start(&mut command, address)?;
        Ok(Self { program, address, identity, _bulk: bulk })
    }
}

/// One process, whose processor time is then all of it.
fn conf(folder: &Path, identity: &Identity, address: SocketAddr, bulk: &Path) -> String {
    let [folder, bulk] = [folder.display(), bulk.display()];
    let (chain, key) = (identity.chain_file(), identity.key_file());
    let (chain, key) = (chain.display(), key.display());
    let padding = "x".repeat(PADDING);
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/origin.pid;
         \
           error_log stderr crit;
         events {{ worker_connections 4096; }}
         http {{
           \
           access_log off;
           client_body_temp_path {folder}/nginx; proxy_temp_path \
           {folder}/nginx;
           fastcgi_temp_path {folder}/nginx; uwsgi_temp_path \
           {folder}/nginx; scgi_temp_path {folder}/nginx;
           output_buffers 2 256k;
           \
           server {{
             listen {address} ssl backlog=4096;
             ssl_certificate \
           {chain}; ssl_certificate_key {key};
             ssl_protocols TLSv1.3; ssl_ecdh_curve \
           X25519;
             location = / {{ return 200 \"$ssl_session_reused $ssl_protocol \
           $ssl_cipher {padding}\\n\"; }}
             location = /bulk {{ alias {bulk}; }}
           \
           }}
         }}\n"
    )
}

/// A way to the origin that is measured.
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    pub(crate) way: Arc<Way>,
    /// Program that speaks TLS in the client's place.
    pub(crate) between: Option<Program>,
}

impl Arm {
    pub(crate) fn direct(origin: &Origin) -> Result<Self, Failure> {
        let direct = Direct::new(origin.address, &origin.identity.root_file())?;
        Ok(Self { name: "direct", way: Arc::new(Way::Direct(direct)), between: None })
    }

    /// `headstart agent`; this build, unless another `program` is given.
    pub(crate) fn managed(
        folder: &Path,
        origin: &Origin,
        name: &'static str,
        program: Option<&Path>,
        port: u16,
    ) -> Result<Self, Failure> {
        let socket = folder.join(format!("agent-{port}.sock"));
        let program = program.map_or_else(headstart, Path::to_owned);
        let mut command = Command::new(program);
        command.args(["agent", "--listen", &local(port).to_string()]);
        command.arg("--socket").arg(&socket);
        // The origin's certificate is what the system trusts, as far as the agent knows.
        command.env("SSL_CERT_FILE", origin.identity.root_file()).env_remove("SSL_CERT_DIR");
        command.env("HEADSTART_LOG", "error").env("TOKIO_WORKER_THREADS", "1");
        let program = Program::start_on_socket(&mut command, &socket)?;
        let way = Way::Managed(Managed::new(origin.address, socket));
        Ok(Self { name, way: Arc::new(way), between: Some(program) })
    }

    /// HAProxy, on this port and the next.
    pub(crate) fn haproxy(folder: &Path, origin: &Origin, port: u16) -> Result<Self, Failure> {
        let proxied = Proxied { full: local(port), resuming: local(port + 1) };
        let file = folder.join("originator.cfg");
        fs::write(&file, haproxy_cfg(origin, &proxied))?;
        let mut command = Command::new(find("haproxy")?);
        command.arg("-db").arg("-f").arg(&file);
        let program = Program::start(&mut command, proxied.full)?;
        let way = Arc::new(Way::Proxied(proxied));
        Ok(Self { name: "haproxy", way, between: Some(program) })
    }
}

fn haproxy_cfg(origin: &Origin, proxied: &Proxied) -> String {
    let server = format!(
        "server origin {} ssl verify required ca-file {} sni str({NAME}) verifyhost {NAME}",
        origin.address,
        origin.identity.root_file().display(),
    );
    let Proxied { full, resuming } = proxied;
    format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen full
    bind {full}
    {server} no-ssl-reuse
listen resuming
    bind {resuming}
    {server}
"
    )
}
