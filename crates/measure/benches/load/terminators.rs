//! Programs that speak TLS before an origin in clear: the edge, nginx and HAProxy, all with the
//! same library, one thread each.

use crate::programs::headstart;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use headstart_openers::{Identity, NAME, Suite};

use super::Failure;
use super::process::Program;
use super::report::output;

/// Where ordinary users have no path to.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// nginx's module for streams: in Debian of the package libnginx-mod-stream.
const STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// The libraries that have to be the same, by the beginnings of their files' names.
const LIBRARIES: [&str; 2] = ["libssl.so.3", "libcrypto.so.3"];

const OWN_LIBRARY: &str = "has an OpenSSL of its own, so that versions of it would be compared: \
    build with the system's (OPENSSL_NO_VENDOR=1, packages libssl-dev and pkg-config), see \
    bench/README.md";

/// Kind of the origin behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests of HTTP, passed on over connections that are kept.
    Http,
    /// Bytes: a connection to the origin for each of a client.
    Tcp,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

/// One of the programs.
pub(crate) struct Terminator {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
}

/// Settings that all of them start with.
pub(crate) struct Setting {
    pub(crate) folder: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) origin: SocketAddr,
}

impl Setting {
    /// A P-256 certificate in a folder for files of these programs.
    pub(crate) fn new(folder: &Path, origin: SocketAddr) -> Result<Self, Failure> {
        let identity = Identity::obtain(folder, Suite::P256, NAME, None)?;
        Ok(Self { folder: folder.to_owned(), identity, origin })
    }

    /// `headstart edge`; this build, unless another `program` is given.
    pub(crate) fn edge(
        &self,
        kind: Kind,
        name: &'static str,
        program: Option<&Path>,
        port: u16,
    ) -> Result<Terminator, Failure> {
        let program = program.map_or_else(headstart, Path::to_owned);
        let address = local(port);
        let mut command = Command::new(program);
        command.args(["edge", "--min-tls", "1.3", "--workers", "1", "--udp-workers", "1"]);
        command.args(["--listen", &address.to_string()]);
        command.args(["--origin", &format!("{}://{}", kind.name(), self.origin)]);
        command.arg("--cert").arg(self.identity.chain_file());
        command.arg("--key").arg(self.identity.key_file());
        command.env("HEADSTART_LOG", "error");
        let program = Program::start(&mut command, address)?;
        Ok(Terminator { name, kind, program, address })
    }

    /// nginx; none for streams where its module is not installed.
    pub(crate) fn nginx(&self, kind: Kind, port: u16) -> Result<Option<Terminator>, Failure> {
        if kind == Kind::Tcp && !Path::new(STREAM).exists() {
            return Ok(None);
        }
        let address = local(port);
        let file = self.folder.join(format!("nginx-{}.conf", kind.name()));
        fs::write(&file, self.nginx_conf(kind, address))?;
        let mut command = Command::new(find("nginx")?);
        command.arg("-p").arg(&self.folder).arg("-c").arg(&file).args(["-e", "stderr"]);
        let program = Program::start(&mut command, address)?;
        Ok(Some(Terminator { name: "nginx", kind, program, address }))
    }

    /// One process, whose processor time is then all of it.
    fn nginx_conf(&self, kind: Kind, address: SocketAddr) -> String {
        let Self { folder, identity, origin } = self;
        let folder = folder.display();
        let tls = format!(
            "listen {address} ssl backlog=4096;
             ssl_certificate {}; ssl_certificate_key {};
             ssl_protocols TLSv1.3; ssl_ecdh_curve X25519;",
            identity.chain_file().display(),
            identity.key_file().display(),
        );
        let (load, block) = match kind {
            Kind::Http => (
                String::new(),
                format!(
                    "http {{
                       access_log off;
                       \
                       client_body_temp_path {folder}/nginx; proxy_temp_path {folder}/nginx;
                       \
                       fastcgi_temp_path {folder}/nginx; uwsgi_temp_path {folder}/nginx; \
                       scgi_temp_path {folder}/nginx;
                       upstream origin {{ \
                       server {origin}; keepalive 64; keepalive_requests 1000000000; }}
                       \
                       server {{
                         {tls}
                         location \
                       / {{
                           proxy_pass http://origin; \
                       proxy_http_version 1.1; proxy_set_header Connection \"\";
                         \
                       }}
                       }}
                     }}"
                ),
            ),
            Kind::Tcp => (
                format!("load_module {STREAM};"),
                format!("stream {{ server {{ {tls} proxy_pass {origin}; }} }}"),
            ),
        };
        let pid = format!("{folder}/nginx-{}.pid", kind.name());
        format!(
            "{load}
             daemon off; master_process off; worker_processes 1; pid {pid};
             error_log stderr crit;
             events {{ worker_connections 4096; }}
             {block}\n"
        )
    }

    pub(crate) fn haproxy(&self, kind: Kind, port: u16) -> Result<Terminator, Failure> {
        let address = local(port);
        let file = self.folder.join(format!("haproxy-{}.cfg", kind.name()));
        // It takes certificates and key as one file.
        let pem = file.with_extension("pem");
        let identity = &self.identity;
        fs::write(
            &pem,
            [fs::read(identity.chain_file())?, fs::read(identity.key_file())?].concat(),
        )?;
        let (mode, reuse) = match kind {
            Kind::Http => ("http", "http-reuse always"),
            Kind::Tcp => ("tcp", ""),
        };
        fs::write(
            &file,
            format!(
                "global
    nbthread 1
    maxconn 4096
defaults
    mode {mode}
    timeout connect 5s
    timeout client 1m
    timeout server 1m
frontend in
    bind {address} ssl crt {} ssl-min-ver TLSv1.3 curves X25519
    default_backend origin
backend origin
    {reuse}
    server origin {}
",
                pem.display(),
                self.origin
            ),
        )?;
        let mut command = Command::new(find("haproxy")?);
        command.arg("-db").arg("-f").arg(&file);
        let program = Program::start(&mut command, address)?;
        Ok(Terminator { name: "haproxy", kind, program, address })
    }
}

pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The file of a program, also where ordinary users have no path to.
pub(crate) fn find(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    let mut files = listed.map(|directory| directory.join(name));
    let found = files.find(|file| file.is_file());
    found.ok_or_else(|| format!("{name} was not found: install the package {name}").into())
}

/// Returns the programs that run, each with its version, and the one OpenSSL of them all, which is
/// the load's as well.
///
/// # Errors
/// They do not have the same: then nothing is compared.
pub(crate) fn versions<'a>(
    programs: impl IntoIterator<Item = (&'a str, &'a Program)>,
) -> Result<Vec<String>, Failure> {
    let own = libraries("self").ok_or_else(|| format!("this bench {OWN_LIBRARY}"))?;
    for (name, program) in programs {
        let theirs = libraries(&program.id().to_string());
        let theirs = theirs.ok_or_else(|| format!("{name} {OWN_LIBRARY}"))?;
        if theirs != own {
            return Err(format!("{name} has {theirs:?}, and the load has {own:?}").into());
        }
    }
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let nginx = find("nginx").ok().and_then(|nginx| Command::new(nginx).arg("-v").output().ok());
    let nginx = nginx.map(|said| String::from_utf8_lossy(&said.stderr).into_owned());
    let haproxy = find("haproxy").map(|haproxy| output(&haproxy.to_string_lossy(), &["-v"]));
    Ok(vec![
        format!("{} in {}", openssl::version::version(), own.join(" and ")),
        first(output(&headstart().to_string_lossy(), &["--version"])),
        first(nginx.unwrap_or_default()),
        first(haproxy.unwrap_or_default()),
    ])
}

/// The files of OpenSSL that a process has in memory, which is what counts of what `ldd` shows;
/// none if it lacks one.
fn libraries(process: &str) -> Option<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let file = |library: &str| {
        let mut files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let found = files.find(|file| {
            Path::new(file)
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(library))
        });
        found.map(str::to_owned)
    };
    LIBRARIES.iter().map(|library| file(library)).collect()
}
