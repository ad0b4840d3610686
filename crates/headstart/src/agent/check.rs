//! `headstart agent --check`.

use std::process::ExitCode;
use std::sync::Arc;

use socket2::Type;

use super::managed::Clients;
use super::options::AgentOptions;
use super::serve::{connector_config, files_allow};
use crate::base::failure::Failure;
use crate::base::settings::Invocation;
use crate::check::{self, finding};
use crate::daemon;
use crate::doctor::{self, Finding};

/// Checks all that a start needs, and prints a line for each.
///
/// # Errors
/// The output cannot be written.
pub fn check(options: &AgentOptions, invocation: &Invocation) -> Result<ExitCode, Failure> {
    daemon::raise_file_limit();
    let mut all = check::common(options.config.as_deref(), &options.log, invocation);
    // With the edges' addresses in a row of their own: the connector needs them as well.
    let edges = options.edges();
    all.push(finding("edges", &edges, format!("{} by --edge", options.edge.len())));
    if edges.is_ok() {
        let config = connector_config(options, &Arc::default());
        all.push(finding("connector", &config, "names can be looked up"));
    }
    if !options.managed.client_certificate.is_empty() {
        let clients = Clients::new(&options.managed.client_certificate);
        all.push(finding("certificate", &clients, "those of --client-certificate can be used"));
    }
    match options.listen() {
        Ok(ports) => all.extend(ports.iter().map(|(at, _)| check::port(Type::STREAM, *at))),
        Err(failure) => all.push(Finding::failed("listen", &failure)),
    }
    match options.managed.port() {
        Ok(port) => all.extend(port.map(|(address, _)| check::port(Type::STREAM, address))),
        Err(failure) => all.push(Finding::failed("managed", &failure)),
    }
    all.extend(check::metrics(&options.metrics));
    let sockets = [("socket", &options.managed.socket), ("takeover", &options.takeover.takeover)];
    all.extend(
        sockets
            .into_iter()
            .filter_map(|(option, path)| path.as_deref().map(|path| check::new_file(option, path))),
    );
    all.extend(check::qlog(&options.qlog));
    all.push(check::connections(options.max_connections, files_allow()));
    doctor::print(&[("this agent".to_owned(), all)], options.check.json)
}
