//! HAProxy before the edges of a fleet, as docs/fleet.md has it, and as a proxy of one arm.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;

use headstart_emulation::Node;

use super::setting::Setting;
use crate::interrupt::Interrupt;
use crate::lab::listening::await_port;
use crate::lab::process::{Broken, Program, find_program};
use crate::lab::topology::{HAPROXY_ADDRESS, HTTPS, server_address};

impl Setting {
    /// Starts the balancer and waits until it listens.
    pub(super) fn balancer(&self, node: &Node, interrupt: &Interrupt) -> Result<Program, Broken> {
        let edges = (0..self.stage.servers())
            .map(|server| SocketAddr::from((server_address(server, 0, self.number), HTTPS)));
        let text = text(self.target(), edges);
        self.haproxy(node, self.target(), &text, interrupt)
    }

    /// Starts one that passes bytes from `listen` to `to`.
    pub(super) fn proxy(
        &self,
        node: &Node,
        listen: SocketAddr,
        to: SocketAddr,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        let text = format!(
            "{COMMON}frontend tcp\n    bind {listen}\n    default_backend next\n\
             backend next\n    server next {to}\n"
        );
        self.haproxy(node, listen, &text, interrupt)
    }

    fn haproxy(
        &self,
        node: &Node,
        listen: SocketAddr,
        text: &str,
        interrupt: &Interrupt,
    ) -> Result<Program, Broken> {
        let program = find_program("haproxy")
            .ok_or_else(|| Broken::Program("haproxy was not found".into()))?;
        let config = self.work().join(format!("{}-haproxy.cfg", self.label(node)));
        fs::write(&config, text).map_err(|error| Broken::unwritten(&config, &error))?;
        let mut command = node.command(program);
        command.arg("-db").arg("-f").arg(config);
        self.schedule(&mut command);
        let mut haproxy = Program::start(node, self.title("haproxy"), command)?;
        await_port(node, listen, &mut haproxy, interrupt)?;
        Ok(haproxy)
    }
}

const COMMON: &str = "\
global
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
";

fn text(listen: SocketAddr, edges: impl Iterator<Item = SocketAddr>) -> String {
    let mut text = format!(
        "{COMMON}frontend tls
    bind {listen}
    tcp-request inspect-delay 2m
    tcp-request content accept if {{ req.ssl_hello_type 1 }}
    tcp-request content reject
    default_backend edges
backend edges
    balance hash req.ssl_sni
    source {HAPROXY_ADDRESS}
"
    );
    for (number, edge) in (1..).zip(edges) {
        let _ = writeln!(text, "    server edge-{number} {edge} send-proxy-v2");
    }
    text
}
