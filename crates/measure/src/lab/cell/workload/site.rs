//! The servers of a workload: edges that speak TLS for some virtual hosts; and what runs all the
//! time beside programs.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use headstart_emulation::Node;
use headstart_openers::{Carrier, Identity, OpeningPolicy, Suite};

use crate::interrupt::Interrupt;
use crate::lab::cell::agent::Agent;
use crate::lab::cell::setting::Setting;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program};
use crate::lab::topology::{HTTPS, Site};
use crate::lab::workload::Application;

/// Ports on loopback of a cell, all below those that the kernel gives out (32,768): of reverse
/// proxies at the client, of metrics at the edges.
const PROXY_PORTS: u16 = 22_000;
const METRICS_PORTS: u16 = 24_000;

/// Reverse proxies of a cell.
const PROXIES: u16 = 2;

impl Setting {
    pub(super) fn host_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.stage.hosts()).map(|host| self.stage.host_name(self.number, host))
    }

    /// The keys of each virtual host: other servers of the cell find those of the first.
    fn identities_of_hosts(&self) -> Result<Vec<Identity>, Broken> {
        let flight = self.stage.variant.flight.and_then(|bytes| usize::try_from(bytes).ok());
        let all = self
            .host_names()
            .map(|name: String| {
                Identity::obtain(&self.work().join("hosts").join(&name), Suite::P256, &name, flight)
            })
            .collect::<Result<_, _>>();
        all.map_err(|error| Broken::Program(format!("no keys: {error}")))
    }

    /// Whom programs trust: a file of all hosts' certificates.
    pub(super) fn roots(&self) -> PathBuf {
        self.work().join(format!("roots-{}.pem", self.number + 1))
    }

    pub(super) fn edge_metrics(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, METRICS_PORTS + self.number_of_port()).into()
    }

    /// At most 250 cells.
    fn number_of_port(&self) -> u16 {
        u16::try_from(self.number).unwrap_or_default()
    }

    pub(super) fn proxy_address(&self, program: Application) -> SocketAddr {
        let place = u16::from(program == Application::Haproxy);
        (Ipv4Addr::LOCALHOST, PROXY_PORTS + PROXIES * self.number_of_port() + place).into()
    }

    /// An edge that speaks TLS for the virtual hosts, before an origin that speaks HTTP in clear.
    pub(in crate::lab::cell) fn site_edge(
        &self,
        site: Site<'_>,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        let (node, listen) = (site.node, self.target());
        let mut command = node.command(self.program());
        command.args(["edge", "--log", "error", "--listen", &listen.to_string()]);
        command.arg("--metrics").arg(self.edge_metrics().to_string());
        command.arg("--origin").arg(format!("http://{}", self.origin_address(site)));
        let identities = self.identities_of_hosts()?;
        for identity in &identities {
            command.arg("--cert").arg(identity.chain_file()).arg("--key").arg(identity.key_file());
        }
        write_roots(&self.roots(), &identities)?;
        self.know_others(&mut command, site)?;
        if self.spec.arm.sends_early_data() {
            command.args(["--early-data-requests", "safe", "--early-data"]);
        }
        self.schedule(&mut command);
        let mut edge = Program::start(node, self.title("edge"), command)?;
        await_port(node, listen, &mut edge, interrupt)?;
        await_port(node, self.edge_metrics(), &mut edge, interrupt)?;
        Ok(edge)
    }

    /// The agent's socket: in a folder with a short name, as a path of a socket has 107 bytes at
    /// most (unix(7)).
    pub(super) fn socket(&self) -> PathBuf {
        let (run, stage, cell) = (std::process::id(), self.stage.number + 1, self.number + 1);
        std::env::temp_dir().join(format!("headstart-emulation-{run}-{stage}-{cell}.sock"))
    }

    /// An agent that keeps sessions; it opens connections as the programs themselves would, unless
    /// the arm has another opening.
    pub(super) fn sharing_agent(
        &self,
        node: &Node,
        socket: &Path,
        interrupt: &Interrupt,
    ) -> Result<Agent, Broken> {
        let mut command = node.command(self.program());
        let arm = self.spec.arm;
        let policy = match arm.opening().carrier {
            Carrier::TurboTls => OpeningPolicy::Auto,
            _ => OpeningPolicy::Plain,
        };
        command.args(["agent", "--log", "error", "--opening", policy.name(), "--socket"]);
        command.arg(socket);
        let offer = if arm.sends_early_data() { ",ed=1" } else { "" };
        for name in self.host_names() {
            command.arg("--edge").arg(format!("{name}={}{offer}", self.target()));
        }
        command.env("SSL_CERT_FILE", self.roots()).env_remove("SSL_CERT_DIR");
        self.schedule(&mut command);
        Agent::start(node, self.title("agent"), command, self.number, interrupt)
    }

    /// nginx or HAProxy before their host, to which each request is a connection of its own.
    pub(super) fn reverse_proxy(
        &self,
        node: &Node,
        program: Application,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        let name = program.name();
        let file = crate::lab::process::find_program(name);
        let file = file.ok_or_else(|| Broken::Program(format!("{name} was not found")))?;
        let config = self.work().join(format!("{name}-{}.conf", self.number + 1));
        let host = program.own_host().unwrap_or_default().min(self.stage.hosts().saturating_sub(1));
        let host = self.stage.host_name(self.number, host);
        let listen = self.proxy_address(program);
        let mut command = node.command(file);
        let text = match program {
            Application::Haproxy => {
                command.arg("-db").arg("-f").arg(&config);
                haproxy(listen, &host, self.target(), &self.roots())
            }
            _ => {
                command.arg("-p").arg(self.work()).arg("-c").arg(&config).args(["-e", "stderr"]);
                nginx(listen, &host, self.work(), &self.roots())
            }
        };
        fs::write(&config, text).map_err(|error| Broken::unwritten(&config, &error))?;
        self.schedule(&mut command);
        let mut proxy = Program::start(node, self.title(name), command)?;
        await_port(node, listen, &mut proxy, interrupt)?;
        Ok(proxy)
    }
}

fn write_roots(file: &Path, identities: &[Identity]) -> Result<(), Broken> {
    let read = identities.iter().map(|identity| fs::read(identity.root_file()));
    let written =
        read.collect::<Result<Vec<_>, _>>().and_then(|roots| fs::write(file, roots.concat()));
    written.map_err(|error| Broken::unwritten(file, &error))
}

/// As its documentation has it for a server that speaks TLS; its version in Debian 12 does not
/// speak 1.3 there unless told.
fn nginx(listen: SocketAddr, host: &str, work: &Path, roots: &Path) -> String {
    let (work, roots) = (work.display(), roots.display());
    format!(
        "daemon off; master_process off; pid {work}/{listen}.pid;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n\
           access_log off;\n\
           client_body_temp_path {work}/nginx; proxy_temp_path {work}/nginx;\n\
           fastcgi_temp_path {work}/nginx; uwsgi_temp_path {work}/nginx; scgi_temp_path \
           {work}/nginx;\n\
           server {{\n\
             listen {listen};\n\
             location / {{\n\
               proxy_pass https://{host}:{HTTPS};\n\
               proxy_set_header Host {host};\n\
               proxy_ssl_server_name on; proxy_ssl_name {host};\n\
               proxy_ssl_protocols TLSv1.2 TLSv1.3;\n\
               proxy_ssl_verify on; proxy_ssl_trusted_certificate {roots};\n\
             }}\n\
           }}\n\
         }}\n"
    )
}

fn haproxy(listen: SocketAddr, host: &str, target: SocketAddr, roots: &Path) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 64\n\
         defaults\n  mode http\n  timeout connect 30s\n  timeout client 60s\n  timeout server 60s\n\
         listen lab\n\
         \x20 bind {listen}\n\
         \x20 http-reuse never\n\
         \x20 http-request set-header Host {host}\n\
         \x20 server site {target} ssl verify required ca-file {} verifyhost {host} sni \
         str({host}) alpn http/1.1\n",
        roots.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_proxies_check_whom_they_reach_and_name_the_host() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 22_000));
        let nginx = nginx(listen, "v1.test", Path::new("/w"), Path::new("/w/roots.pem"));
        for line in ["listen 127.0.0.1:22000;", "proxy_ssl_verify on;", "proxy_ssl_name v1.test;"] {
            assert!(nginx.contains(line), "{line}: {nginx}");
        }
        let target = SocketAddr::from(([10, 99, 0, 1], 443));
        let haproxy = haproxy(listen, "v2.test", target, Path::new("/w/roots.pem"));
        let server = "  server site 10.99.0.1:443 ssl verify required ca-file /w/roots.pem \
            verifyhost v2.test ";
        assert!(haproxy.lines().any(|line| line.starts_with(server)), "{haproxy}");
    }
}
