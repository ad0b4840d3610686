//! `headstart up` and `headstart down`: an edge before this machine's TLS server, and away again.

mod journal;
mod link;
mod listener;
mod measure;
pub mod options;
mod server;
mod shared;
mod unit;

use std::fmt::Write;
use std::io::{IsTerminal, stderr, stdin};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use headstart_net::advert::{Advert, HttpsRecord};
use rustix::process::geteuid;
use serde_json::json;

use crate::base::failure::Failure;
use crate::base::output;
use crate::up::journal::{CONFIG, Journal};
use crate::up::link::RTT;
use crate::up::listener::Listener;
use crate::up::measure::{Cost, Identity, Way};
use crate::up::options::{DownOptions, UpOptions};
use crate::up::server::{Edit, Kind};

const HTTPS: u16 = 443;

/// Steps to take.
struct Plan {
    /// Words for the server that is moved; none for one that was moved by hand.
    moves: Option<String>,
    identity: Identity,
    edits: Vec<Edit>,
    journal: Journal,
}

/// Puts the edge before the server, or starts the agent.
pub(crate) fn run(options: &UpOptions) -> Result<ExitCode, Failure> {
    if options.agent {
        return unit::agent_up();
    }
    let plan = Plan::new(options)?;
    if !options.json || options.dry_run {
        let text = if options.json { format!("{:#}\n", plan.json()) } else { plan.text() };
        output::print(text.as_bytes())?;
    }
    if options.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    confirm(options)?;
    let way = Way::new(plan.journal.port, &plan.identity.name);
    let before = match plan.moves {
        Some(_) => Some(way.measure("plain").map_err(|why| {
            Failure::negative(format!("a request to the server fails already: {why}"))
                .hint("--name HOST asks for another name; nothing was changed")
        })?),
        None => None,
    };
    let gap = plan.journal.apply(&plan.edits);
    let after = gap.and_then(|gap| Ok((gap, verified(&way, before.as_ref())?)));
    let (gap, after) = after.map_err(|failure| undone(&plan.journal, &failure))?;
    if options.json {
        let out = json!({
            "plan": plan.json(),
            "before": before.as_ref().map(Cost::json),
            "after": after.json(),
            "refused_ms": gap.as_secs_f64() * 1000.0,
            "unmeasured": way.unmeasured(),
        });
        output::print(format!("{out:#}\n").as_bytes())?;
    } else {
        output::print(plan.outcome(&way, before.as_ref(), &after, gap).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Undoes what [`run`] did.
pub(crate) fn down(options: &DownOptions) -> Result<ExitCode, Failure> {
    if options.agent {
        return unit::agent_down();
    }
    check_environment()?;
    let journal = Journal::read()?.ok_or_else(|| {
        Failure::negative("there is nothing to undo").hint("`headstart up` has not been run here")
    })?;
    journal.undo()?;
    Ok(ExitCode::SUCCESS)
}

fn check_environment() -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Err(Failure::usage("only root can move a server").hint("run it with sudo"));
    }
    if !unit::is_booted() {
        return Err(Failure::usage("systemd does not run here").hint(
            "move the server to 127.0.0.1:8443 by hand, then: headstart edge --origin \
             127.0.0.1:8443 --proxy-protocol, if the server expects that header; without it, it \
             sees the edge's address in place of clients'",
        ));
    }
    Ok(())
}

fn confirm(options: &UpOptions) -> Result<(), Failure> {
    if options.yes {
        return Ok(());
    }
    if options.json || !stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked").hint("add --yes, or --dry-run to look"));
    }
    eprint!("Do this? [y/N] ");
    let mut answer = String::new();
    // No answer is a no.
    let _ = (std::io::Write::flush(&mut stderr()), stdin().read_line(&mut answer));
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::negative("nothing was changed")),
    }
}

/// Measures the server behind the edge.
///
/// # Errors
/// It does not respond as before.
fn verified(way: &Way, before: Option<&Cost>) -> Result<Cost, Failure> {
    let after = way.measure("turbo");
    let after = after.map_err(|why| Failure::negative(format!("a request fails: {why}")))?;
    match before.filter(|before| before.status != after.status) {
        None => Ok(after),
        Some(before) => Err(Failure::negative(format!(
            "the server answered {} before, and {} behind the edge",
            before.status, after.status
        ))),
    }
}

fn undone(journal: &Journal, failure: &Failure) -> Failure {
    let end = match journal.undo() {
        Ok(()) => "everything was undone".to_owned(),
        Err(failure) => format!("and was not undone: {}", failure.message()),
    };
    let undone = Failure::negative(format!("{}; {end}", failure.message()));
    undone.hint("journalctl --unit headstart-edge@up says what the edge says")
}

impl Plan {
    fn new(options: &UpOptions) -> Result<Self, Failure> {
        let (port, server) = (options.port.get(), options.server);
        check_environment()?;
        if Journal::read()?.is_some() {
            return Err(Failure::usage("an edge is up").hint("`headstart down` undoes that"));
        }
        if Path::new(CONFIG).exists() {
            return Err(Failure::usage(format!("{CONFIG} is there, and not by headstart up"))
                .hint("give it another name: the edge of `headstart up` has this one"));
        }
        if listener::takes_udp(port) {
            return Err(Failure::negative(format!("another program has UDP port {port}"))
                .hint("HTTP/3? docs/edge.md, HTTP/3 on the same port, says what to do by hand"));
        }
        let name = options.name.as_deref();
        let journal = Journal {
            port,
            server,
            proxy_protocol: true,
            unit: None,
            check: Vec::new(),
            files: Vec::new(),
        };
        let Some(found) = Listener::find(port) else {
            return Self::for_moved(options, journal);
        };
        let kind = Kind::from_program(&found.name());
        let by_hand = |why: &str| {
            Failure::negative(format!("{} has port {port}: {why}", found.name())).hint(format!(
                "write by hand: {}\nand then: headstart up --server {server} --proxy-protocol",
                kind.by_hand(server)
            ))
        };
        let check = kind.check(&found).map_err(|why| by_hand(&why))?;
        let edits = kind.edits(&found, port, server).map_err(|why| by_hand(&why))?;
        let unit = found.unit.clone().ok_or_else(|| by_hand("it is no service of systemd"))?;
        TcpListener::bind(server).map_err(|error| {
            Failure::bind(server, &error).hint("--server 127.0.0.1:PORT names another port")
        })?;
        let identity = Identity::ask((Ipv4Addr::LOCALHOST, port).into(), name, false)?;
        let files = edits.iter().map(|edit| edit.path.clone()).collect();
        let moves = Some(format!("{} ({unit})", found.name()));
        let journal = Journal { unit: Some(unit), check, files, ..journal };
        Ok(Self { moves, identity, edits, journal })
    }

    /// Plans for a server that has already left the port.
    fn for_moved(options: &UpOptions, journal: Journal) -> Result<Self, Failure> {
        let (port, server) = (options.port, options.server);
        if Listener::find(server.port()).is_none() {
            return Err(Failure::negative(format!(
                "nobody listens on port {port}, nor on {server}"
            ))
            .hint("start the TLS server first; --port or --server says where it is"));
        }
        let proxied = options.proxy_protocol;
        let identity = Identity::ask(server, options.name.as_deref(), proxied)?;
        let journal = Journal { proxy_protocol: proxied, ..journal };
        Ok(Self { moves: None, identity, edits: Vec::new(), journal })
    }

    fn text(&self) -> String {
        let Journal { port, server, .. } = self.journal;
        let name = &self.identity.name;
        let mut text = match &self.moves {
            Some(moves) => format!("{moves} serves {name} on port {port}. This will\n"),
            None => format!("A server at {server} serves {name}. This will\n"),
        };
        if let Some(moves) = &self.moves {
            let _ = writeln!(text, "* move {moves} to {server}, and tell it clients' addresses:");
            for edit in &self.edits {
                let _ = writeln!(text, "    {}", edit.path.display());
                for line in edit.lines() {
                    let _ = writeln!(text, "      {line}");
                }
            }
        } else if !self.journal.proxy_protocol {
            text.push_str("* hide clients' addresses from it, for want of --proxy-protocol\n");
        }
        let _ = write!(
            text,
            "* start headstart-edge@up on port {port}, TCP and UDP, by {CONFIG}\n\
             * try requests over an emulated link of {} ms, and undo all if they fail\n\
             `headstart down` undoes it.\n\n",
            RTT.as_millis()
        );
        text
    }

    fn json(&self) -> serde_json::Value {
        let edits = self.edits.iter().map(|edit| {
            let lines: Vec<_> = edit.lines().collect();
            json!({ "file": edit.path, "lines": lines })
        });
        json!({
            "server": self.moves,
            "name": self.identity.name,
            "port": self.journal.port,
            "moved_to": self.journal.server,
            "proxy_protocol": self.journal.proxy_protocol,
            "edits": edits.collect::<Vec<_>>(),
            "record": self.record(),
        })
    }

    fn outcome(&self, way: &Way, before: Option<&Cost>, after: &Cost, gap: Duration) -> String {
        let mut text: String = before.and_then(|before| before.line("before")).unwrap_or_default();
        text.extend(after.line("after"));
        if let Some(why) = way.unmeasured() {
            let _ = writeln!(text, "requests succeed; round trips were not measured: {why}");
        }
        if !gap.is_zero() {
            let _ = writeln!(text, "connections were refused for {} ms", gap.as_millis());
        }
        let port = self.journal.port;
        let _ = writeln!(text, "\nOpen UDP port {port} in firewalls, and tell clients:");
        text.push_str(&match self.record() {
            Some(record) => format!("{record}\n"),
            None => format!("--edge {}=HOST:{port}\n", self.identity.name),
        });
        text
    }

    /// The DNS record; only port 443 can have one.
    fn record(&self) -> Option<String> {
        let record = HttpsRecord {
            owner: self.identity.name.clone(),
            ttl: 300,
            priority: 1,
            target: ".".into(),
            port: HTTPS,
            alpn: self.identity.is_h2.then(|| "h2".to_owned()).into_iter().collect(),
            // As many as headstart dns-record says.
            advert: Advert { slots: 6, ..Advert::default() },
        };
        record.zone_line().ok().filter(|_| self.journal.port == HTTPS)
    }
}
