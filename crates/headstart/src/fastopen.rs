//! `headstart fastopen`: a privileged helper for edge and agent, which have no privilege.

pub mod options;
mod status;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headstart_net::fastopen::{
    AttachError, ClientOptions, ServerOptions, attach_client, attach_server, client_status,
    detach_client, detach_server, probe, server_status,
};
use serde_json::{Value, json};

use crate::base::failure::{Failure, NEGATIVE};
use crate::base::output;
use crate::fastopen::options::{
    AttachClientOptions, AttachServerOptions, AttachSide, DetachOptions, FastopenCommand,
    FastopenOptions, FastopenSide, StatusOptions,
};
use status::{Client, Server};

/// Does what is asked. It starts no thread, and touches this network namespace only.
pub(crate) fn run(options: &FastopenOptions) -> Result<ExitCode, Failure> {
    match &options.command {
        FastopenCommand::Attach(options) => match &options.side {
            AttachSide::Client(options) => attach_to_cgroup(options),
            AttachSide::Server(options) => attach_to_interfaces(options),
        },
        FastopenCommand::Detach(options) => detach(options),
        FastopenCommand::Status(options) => status(options),
    }
}

fn attach_to_cgroup(options: &AttachClientOptions) -> Result<ExitCode, Failure> {
    let wanted = ClientOptions { dir: options.place.dir.clone(), cgroup: options.cgroup.clone() };
    let attached = attach_client(&wanted).map_err(explain)?;
    let client = Client { status: attached, usable: probe() };
    if let Err(why) = &client.usable {
        // Attached to a cgroup that this process is not in, most likely.
        eprintln!("note: this process itself cannot use it: {why}");
    }
    show(options.place.json, json!({ "client": client.json() }), &client.text())
}

fn attach_to_interfaces(options: &AttachServerOptions) -> Result<ExitCode, Failure> {
    let usual = ServerOptions::new(options.interface.clone(), options.port);
    let wanted = ServerOptions {
        dir: options.place.dir.clone(),
        owner: options.owner,
        spent: options.spent,
        ..usual
    };
    let server = Server(attach_server(&wanted).map_err(explain)?);
    if let Some(closed) = options.owner.and_then(|_| closed_directory(&options.place.dir)) {
        let closed = closed.display();
        eprintln!(
            "warning: other users cannot pass through {closed}, so the edge cannot open its maps"
        );
        eprintln!("hint: chmod 711 {closed}; or mount another BPF file system for --dir");
    }
    show(options.place.json, json!({ "server": server.json() }), &server.text())
}

fn detach(options: &DetachOptions) -> Result<ExitCode, Failure> {
    let dir = &options.place.dir;
    if !options.interface.is_empty() && options.side == Some(FastopenSide::Client) {
        return Err(Failure::usage("a client is attached to no interface")
            .hint("leave --interface out, or say: detach server"));
    }
    let only_server = !options.interface.is_empty();
    let client = is_meant(options.side, FastopenSide::Client) && !only_server;
    let client = client.then(|| detach_client(dir)).transpose().map_err(explain)?;
    let server = is_meant(options.side, FastopenSide::Server)
        .then(|| detach_server(dir, &options.interface));
    let server = server.transpose().map_err(explain)?;
    let text = detached("client", client) + &detached("server", server);
    show(options.place.json, json!({ "client": client, "server": server }), &text)
}

fn detached(side: &str, was_attached: Option<bool>) -> String {
    match was_attached {
        Some(true) => format!("{side}: detached\n"),
        Some(false) => format!("{side}: nothing was attached\n"),
        None => String::new(),
    }
}

/// Returns true for the side that was named, and for both if none was.
fn is_meant(named: Option<FastopenSide>, side: FastopenSide) -> bool {
    named.is_none_or(|named| named == side)
}

fn status(options: &StatusOptions) -> Result<ExitCode, Failure> {
    let dir = &options.place.dir;
    let mut well = true;
    let mut text = String::new();
    let mut all = serde_json::Map::new();
    if is_meant(options.side, FastopenSide::Client) {
        let attached = client_status(dir).map_err(explain)?;
        let client = attached.map(|status| Client { status, usable: probe() });
        well &= client.as_ref().is_some_and(Client::is_well);
        text += &client.as_ref().map_or("client   not attached\n".into(), Client::text);
        all.insert("client".into(), client.map_or(Value::Null, |client| client.json()));
    }
    if is_meant(options.side, FastopenSide::Server) {
        let server = server_status(dir).map_err(explain)?.map(Server);
        well &= server.as_ref().is_some_and(Server::is_well);
        text += &server.as_ref().map_or("server   not attached\n".into(), Server::text);
        all.insert("server".into(), server.map_or(Value::Null, |server| server.json()));
    }
    show(options.place.json, Value::Object(all), &text)?;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

fn show(as_json: bool, json: Value, text: &str) -> Result<ExitCode, Failure> {
    let json = format!("{json:#}\n");
    output::print(if as_json { json.as_bytes() } else { text.as_bytes() })?;
    Ok(ExitCode::SUCCESS)
}

/// The nearest directory, of this one and those above it, that other users cannot pass through.
fn closed_directory(dir: &Path) -> Option<PathBuf> {
    dir.ancestors()
        .find(|dir: &&Path| {
            fs::metadata(dir).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
        })
        .map(Path::to_owned)
}

fn explain(error: AttachError) -> Failure {
    Failure::usage(error.to_string()).hint(error.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(dir: &Path, mode: u32) {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_closed_directory_is_found_wherever_it_is() {
        let place = tempfile::tempdir().unwrap();
        let (outer, inner) = (place.path().join("outer"), place.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        set(place.path(), 0o711);
        set(&outer, 0o711);
        set(&inner, 0o700);
        assert_eq!(closed_directory(&inner), Some(inner.clone()));
        set(&inner, 0o711);
        set(&outer, 0o750);
        assert_eq!(closed_directory(&inner), Some(outer.clone()));
        set(&outer, 0o711);
        assert_eq!(closed_directory(&inner.join("absent")), None);
    }

    #[test]
    fn every_error_has_a_hint() {
        for error in [AttachError::Privilege, AttachError::NoCgroup2, AttachError::OtherPort(443)] {
            let failure = explain(error);
            assert!(failure.is_usage() && failure.advice().is_some_and(|hint| hint.len() > 20));
        }
    }
}
