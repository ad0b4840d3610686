//! The programs that are compared, and the origins behind them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use headstart_openers::{Identity, NAME};

use super::spec::{Benchmark, OTHER, Subject, Variant};
use super::web::{Direct, Way};
use super::work::Place;
use crate::interrupt::Interrupt;
use crate::lab::listening::{await_port, await_socket};
use crate::lab::process::{Program, find_program};
use headstart::base::failure::Failure;

/// First port of arms; each has ten.
const FIRST_PORT: u16 = 9_100;

/// The port of the origin that is nginx.
const ORIGIN_PORT: u16 = 9_000;

/// Connections that each server has room for: nginx counts those to the origin as well.
const CONNECTIONS_MAX: u16 = 8192;

/// Pipes of HAProxy that splices; by default it wants as many files for them that it does not start
/// where 20,000 are the most.
const PIPES_MAX: u16 = 1024;

/// nginx's module for streams, of Debian's package libnginx-mod-stream.
const STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Bytes of the long answer: of 4 GB/s, more than a processor encrypts, a quarter of an hour.
const BULK: u64 = 1 << 42;

/// The libraries that all programs that speak TLS have to share, by the beginnings of file names.
const LIBRARIES: [&str; 2] = ["libssl.so.3", "libcrypto.so.3"];

/// Settings that all programs start with.
pub(super) struct Starter<'s> {
    pub(super) place: Place<'s>,
    pub(super) folder: &'s Path,
    pub(super) bench: &'s Benchmark,
    /// This build of the product, and another one.
    pub(super) product: &'s Path,
    pub(super) other: &'s Path,
    pub(super) identity: &'s Identity,
    pub(super) origin: SocketAddr,
    pub(super) interrupt: &'s Interrupt,
}

/// One arm of a comparison while it runs.
pub(super) struct Contender {
    pub(super) arm: String,
    pub(super) program: Option<Program>,
    /// The server behind it, if it has one of its own.
    _behind: Option<Program>,
    pub(super) access: Access,
    /// Resident memory in bytes before it was first attacked.
    pub(super) resident: Option<usize>,
}

/// Way in which clients reach it.
pub(super) enum Access {
    /// Bytes that a proxy passes on.
    Relay(SocketAddr),
    Web(Way),
}

impl Starter<'_> {
    /// Starts an arm, the `number`th; `None` if it lacks a part that not every machine has.
    ///
    /// # Errors
    /// The benchmark has no such arm, or a program does not start.
    pub(super) fn start(
        &self,
        arm: &str,
        number: u16,
        variant: &Variant,
    ) -> Result<Option<Contender>, Failure> {
        let at = local(FIRST_PORT + 10 * number);
        let subject = self.bench.bench;
        let server = variant.passes.then(|| {
            let block = self.terminating_nginx(variant, behind(at));
            self.nginx("behind", behind(at), &block)
        });
        let server = server.transpose()?;
        let program = match (subject, arm) {
            (Subject::Attack, "sink") | (Subject::Managed, "direct") => None,
            (Subject::Managed, "managed" | OTHER) => Some(self.agent(arm, at)?),
            (_, "haproxy") | (Subject::Relay, "haproxy-splice" | "haproxy-sni") => {
                Some(self.haproxy(arm, variant, at)?)
            }
            (Subject::Handshakes, "nginx") if variant.bytes && !Path::new(STREAM).exists() => {
                return Ok(None);
            }
            (Subject::Handshakes | Subject::AttackHttp, "nginx") => {
                Some(self.nginx(arm, at, &self.terminating_nginx(variant, at))?)
            }
            (_, "edge" | OTHER) => Some(self.edge(arm, variant, at)?),
            _ => return Err(Failure::usage(format!("{} has no arm {arm}", self.bench.name))),
        };
        let access = match (subject, arm) {
            (Subject::Relay, _) => Access::Relay(at),
            (Subject::Attack, _) => Access::Relay(local(FIRST_PORT)),
            _ if subject.terminates() => Access::Web(self.direct(at, variant)?),
            (_, "direct") => Access::Web(self.direct(self.origin, variant)?),
            (_, "haproxy") => Access::Web(Way::Plain(at)),
            _ => {
                let (socket, origin) = (self.socket(arm), self.origin);
                Access::Web(Way::Managed { socket, origin, resumes: variant.resumes })
            }
        };
        let arm = arm.to_owned();
        Ok(Some(Contender { arm, program, _behind: server, access, resident: None }))
    }

    fn direct(&self, server: SocketAddr, variant: &Variant) -> Result<Way, Failure> {
        let direct = Direct::new(server, &self.identity.root_file(), variant.resumes);
        Ok(Way::Direct(direct.map_err(cannot)?.into()))
    }

    fn product(&self, arm: &str) -> Command {
        let mut command =
            self.place.node.command(if arm == OTHER { self.other } else { self.product });
        command.env("HEADSTART_LOG", "error");
        command
    }

    fn edge(&self, arm: &str, variant: &Variant, at: SocketAddr) -> Result<Program, Failure> {
        let Self { bench, identity, .. } = self;
        let mut command = self.product(arm);
        command.args(["edge", "--listen", &at.to_string()]);
        command.args(["--workers", &bench.threads.to_string(), "--udp-workers", "1"]);
        let terminates = bench.bench.terminates() && !variant.passes;
        if terminates {
            command.args(["--min-tls", "1.3", "--cert"]).arg(identity.chain_file());
            command.arg("--key").arg(identity.key_file());
        }
        let origin = match variant.bytes {
            _ if variant.passes => behind(at).to_string(),
            _ if !terminates => self.origin.to_string(),
            true => format!("tcp://{}", self.origin),
            false => format!("http://{}", self.origin),
        };
        match variant.names() {
            Some(count) => command.arg("--config").arg(self.names(arm, count, &origin)?),
            None => command.args(["--origin", &origin]),
        };
        if matches!(bench.bench, Subject::Attack | Subject::AttackHttp) {
            // Counting is part of what an attack costs.
            command.args(["--metrics", &SocketAddr::new(at.ip(), at.port() + 1).to_string()]);
        }
        if bench.bench == Subject::AttackHttp {
            command.args(["--max-connections", &CONNECTIONS_MAX.to_string()]);
        }
        self.run(arm, command, at)
    }

    /// Writes a configuration with `count` server names, that of the clients the last of them, all
    /// with the same origin.
    fn names(&self, arm: &str, count: u32, origin: &str) -> Result<PathBuf, Failure> {
        let others = (1..count).map(|number| format!("\"n{number}.names.test={origin}\",\n"));
        let others: String = others.collect();
        let text = format!("edge.origin = [\n{others}\"{NAME}={origin}\"]\n");
        self.write(&format!("{arm}.toml"), &text)
    }

    /// The agent, with one thread. The origin's certificate is what the system trusts, as far as it
    /// knows.
    fn agent(&self, arm: &str, at: SocketAddr) -> Result<Program, Failure> {
        let socket = self.socket(arm);
        let mut command = self.product(arm);
        command.args(["agent", "--listen", &at.to_string(), "--socket"]).arg(&socket);
        command.env("SSL_CERT_FILE", self.identity.root_file()).env_remove("SSL_CERT_DIR");
        command.env("TOKIO_WORKER_THREADS", "1");
        let mut program = self.run(arm, command, at)?;
        await_socket(&socket, &mut program, self.interrupt)?;
        Ok(program)
    }

    fn socket(&self, arm: &str) -> PathBuf {
        self.folder.join(format!("{arm}.sock"))
    }

    /// nginx as the origin of programs that speak TLS for others.
    ///
    /// Its short answer, `/`, says of the connection whether it was resumed (`r` or `.`), the
    /// version and the cipher; its long one, `/bulk`, has no end while a turn lasts.
    pub(super) fn origin(&self) -> Result<Program, Failure> {
        let at = Self::origin_address();
        let bulk = self.folder.join("bulk");
        File::create(&bulk).and_then(|file| file.set_len(BULK)).map_err(cannot)?;
        let block = format!(
            "http {{ access_log off; {temporary} output_buffers 2 256k;
               server {{ {tls}
                 location = / {{
                   return 200 \"$ssl_session_reused $ssl_protocol $ssl_cipher {padding}\\n\";
                 }}
                 location = /bulk {{ alias {bulk}; }}
               }}
             }}",
            temporary = self.temporary(),
            tls = self.nginx_tls(at),
            padding = "x".repeat(64),
            bulk = bulk.display(),
        );
        self.nginx("origin", at, &block)
    }

    pub(super) const fn origin_address() -> SocketAddr {
        local(ORIGIN_PORT)
    }

    fn terminating_nginx(&self, variant: &Variant, at: SocketAddr) -> String {
        let (origin, tls) = (self.origin, self.nginx_tls(at));
        match variant.bytes {
            false => format!(
                "http {{ access_log off; {temporary}
                   upstream origin {{
                     server {origin}; keepalive 64; keepalive_requests 1000000000;
                   }}
                   server {{ {tls}
                     location / {{
                       proxy_pass http://origin; proxy_http_version 1.1;
                       proxy_set_header Connection \"\";
                     }}
                   }}
                 }}",
                temporary = self.temporary(),
            ),
            true => format!("stream {{ server {{ {tls} proxy_pass {origin}; }} }}"),
        }
    }

    /// Folders that nginx makes, whether it uses them or not.
    fn temporary(&self) -> String {
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folder = self.folder.display();
        kinds.map(|kind| format!("{kind}_temp_path {folder}/nginx;")).join(" ")
    }

    fn nginx_tls(&self, at: SocketAddr) -> String {
        let http2 = if self.bench.bench == Subject::AttackHttp { "http2" } else { "" };
        format!(
            "listen {at} ssl {http2} backlog=4096; ssl_certificate {}; ssl_certificate_key {};
             ssl_protocols TLSv1.3; ssl_ecdh_curve X25519;",
            self.identity.chain_file().display(),
            self.identity.key_file().display(),
        )
    }

    /// Starts nginx with one process, whose processor time is then all of it.
    fn nginx(&self, name: &str, at: SocketAddr, block: &str) -> Result<Program, Failure> {
        let stream = block.starts_with("stream").then(|| format!("load_module {STREAM};"));
        let folder = self.folder.display();
        let text = format!(
            "{load} daemon off; master_process off; worker_processes 1;
             pid {folder}/{name}.pid; error_log stderr crit;
             events {{ worker_connections {CONNECTIONS_MAX}; }}
             {block}\n",
            load = stream.unwrap_or_default(),
        );
        let file = self.write(&format!("{name}.conf"), &text)?;
        let mut command = self.place.node.command(installed("nginx")?);
        command.arg("-p").arg(self.folder).arg("-c").arg(file).args(["-e", "stderr"]);
        self.run(name, command, at)
    }

    fn haproxy(&self, arm: &str, variant: &Variant, at: SocketAddr) -> Result<Program, Failure> {
        let Self { bench, identity, origin, .. } = self;
        let (mut defaults, mut bind, mut front, mut back, mut server) = Default::default();
        match bench.bench {
            subject if subject.terminates() => {
                // It takes certificates and key as one file.
                let files = [identity.chain_file(), identity.key_file()];
                let texts = files.into_iter().map(fs::read_to_string);
                let text = texts.collect::<io::Result<String>>().map_err(cannot)?;
                let pem = self.write("haproxy.pem", &text)?;
                bind = format!("ssl crt {} ssl-min-ver TLSv1.3 curves X25519", pem.display());
                if subject == Subject::AttackHttp {
                    bind += " alpn h2,http/1.1";
                }
                if !variant.bytes {
                    defaults = "mode http";
                    back = "http-reuse always";
                }
            }
            Subject::Managed => {
                server = format!(
                    "ssl verify required ca-file {} sni str({NAME}) verifyhost {NAME} {}",
                    identity.root_file().display(),
                    if variant.resumes { "" } else { "no-ssl-reuse" },
                );
            }
            _ if arm == "haproxy-splice" => defaults = "option splice-auto",
            _ if arm == "haproxy-sni" => {
                front = "tcp-request inspect-delay 10s
    tcp-request content accept if { req.ssl_hello_type 1 }
    use_backend origin if { req.ssl_sni -m found }";
            }
            _ => {}
        }
        let text = format!(
            "global
    nbthread {}
    maxconn {CONNECTIONS_MAX}
    maxpipes {PIPES_MAX}
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
    {defaults}
frontend in
    bind {at} {bind}
    {front}
    default_backend origin
backend origin
    {back}
    server origin {origin} {server}
",
            bench.threads
        );
        let file = self.write(&format!("{arm}.cfg"), &text)?;
        let mut command = self.place.node.command(installed("haproxy")?);
        command.arg("-db").arg("-f").arg(file);
        self.run(arm, command, at)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let file = self.folder.join(name);
        fs::write(&file, text).map_err(cannot)?;
        Ok(file)
    }

    /// Starts a program and waits until it listens at `at`.
    fn run(&self, name: &str, mut command: Command, at: SocketAddr) -> Result<Program, Failure> {
        self.place.scheduling().apply_to(&mut command);
        let mut program = Program::start(self.place.node, name, command)?;
        await_port(self.place.node, at, &mut program, self.interrupt)?;
        Ok(program)
    }
}

/// Returns where the edge under attack tells what it has counted.
pub(super) const fn metrics() -> SocketAddr {
    local(FIRST_PORT + 1)
}

/// Returns where the server behind an arm at `at` listens.
const fn behind(at: SocketAddr) -> SocketAddr {
    local(at.port() + 2)
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Returns the file of a program of others.
pub(super) fn installed(name: &str) -> Result<PathBuf, Failure> {
    find_program(name).ok_or_else(|| {
        Failure::usage(format!("this benchmark needs {name}"))
            .hint(format!("install the package {name}"))
    })
}

/// Turns an error of the benchmark itself into one for the terminal.
pub(super) fn cannot(error: io::Error) -> Failure {
    Failure::usage(format!("the benchmark cannot go on: {error}"))
}

/// Checks that programs have the OpenSSL of this process, the load; else says who has not.
pub(super) fn differs<'p>(programs: impl IntoIterator<Item = &'p Contender>) -> Option<String> {
    let Some(own) = libraries("self") else {
        return Some("the load has an OpenSSL of its own".to_owned());
    };
    programs.into_iter().find_map(|contender| {
        let pid = contender.program.as_ref()?.pid();
        let is_same = libraries(&pid.to_string()).is_some_and(|theirs| theirs == own);
        (!is_same).then(|| format!("{} has not the load's OpenSSL", contender.arm))
    })
}

/// Returns the files of OpenSSL that a process has in memory; `None` if it lacks one.
fn libraries(process: &str) -> Option<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut files = LIBRARIES.iter().map(|library| {
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let mut own = paths
            .filter(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with(library)));
        own.next().map(str::to_owned)
    });
    files.by_ref().collect()
}
