//! The journal: a file with the changes made, from which they can be undone.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::failure::Failure;
use crate::base::files;
use crate::up::listener;
use crate::up::server::{Edit, restored};
use crate::up::unit::{run, systemctl};

/// The edge's options.
pub(super) const CONFIG: &str = "/etc/headstart/up.toml";

/// The journal's file. It exists from before the first change until after the last is undone.
const JOURNAL: &str = "/etc/headstart/up.json";

const EDGE: &str = "headstart-edge@up.service";
const SOCKET: &str = "headstart-edge@up.socket";

/// Port of [`SOCKET`].
const SOCKET_PORT: u16 = 443;

/// Longest wait until a port is free, or has a listener. nginx tries for two seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// State that `headstart down` needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Port of clients.
    pub(super) port: u16,
    /// Address of the server behind the edge.
    pub(super) server: SocketAddr,
    pub(super) proxy_protocol: bool,
    /// Service of the server; none if it was moved by hand.
    pub(super) unit: Option<String>,
    /// Command that checks the server's configuration.
    pub(super) check: Vec<String>,
    /// Files with edited lines.
    pub(super) files: Vec<PathBuf>,
}

impl Journal {
    pub(super) fn read() -> Result<Option<Self>, Failure> {
        let path = Path::new(JOURNAL);
        let file = match files::open_configuration(path) {
            Err(files::FileFault::Io(error)) if error.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            found => found.map_err(|fault| fault.failure(path))?,
        };
        let read = serde_json::from_reader(file);
        read.map(Some).map_err(|error| Failure::usage(format!("{JOURNAL}: {error}")))
    }

    /// Moves the server and starts the edge. Returns the time without a listener on the port.
    ///
    /// # Errors
    /// A step failed; the caller has to undo those before it.
    pub(super) fn apply(&self, edits: &[Edit]) -> Result<Duration, Failure> {
        write(Path::new(JOURNAL), &serde_json::to_string_pretty(self).unwrap_or_default())?;
        write(Path::new(CONFIG), &self.config())?;
        for edit in edits {
            write(&edit.path, &edit.text)?;
        }
        self.check()?;
        // An edge that is still ending would delay the new one while the port has no listener.
        systemctl(&["stop", EDGE])?;
        let began = Instant::now();
        self.reload()?;
        if listener::wait(self.port, false, LIMIT).is_none() {
            return Err(Failure::negative("the server did not leave the port"));
        }
        systemctl(&[&["enable", "--now"], self.units()].concat())?;
        // A socket starts its service at the first connection.
        systemctl(&["start", EDGE])?;
        Ok(began.elapsed())
    }

    /// Undoes all changes, also those of an incomplete [`apply`](Self::apply).
    ///
    /// # Errors
    /// The server does not come back; the journal stays.
    pub(super) fn undo(&self) -> Result<(), Failure> {
        // Units that are not enabled or started yet are no error.
        let _ = systemctl(&[&["disable"], self.units()].concat());
        // The port is free at once, while open connections may take long to end. If one command
        // stopped both, systemd would close the socket after the service.
        let _ = systemctl(&["stop", SOCKET]);
        let _ = systemctl(&["stop", "--no-block", EDGE]);
        for path in &self.files {
            match fs::read_to_string(path) {
                Ok(text) => restored(&text).map_or(Ok(()), |text| write(path, &text))?,
                // The server was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(unwritable(path, &error)),
            }
        }
        let is_free = || listener::Listener::find(self.port).is_none_or(|by| !is_edge(&by));
        let began = Instant::now();
        while !is_free() && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !is_free() {
            systemctl(&[&["stop"], self.units()].concat())?;
        }
        if self.unit.is_some() {
            self.check()?;
            self.reload()?;
            if listener::wait(self.port, true, LIMIT).is_none() {
                return Err(Failure::negative(format!("nobody listens on port {}", self.port))
                    .hint("systemctl restart the server; its configuration is the old one"));
            }
        }
        for path in [CONFIG, JOURNAL] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(unwritable(Path::new(path), &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn units(&self) -> &'static [&'static str] {
        if self.port == SOCKET_PORT && has_ipv6() { &[SOCKET, EDGE] } else { &[EDGE] }
    }

    fn config(&self) -> String {
        let Self { port, server, proxy_protocol, .. } = self;
        let ipv6 = if has_ipv6() { format!(", \"[::]:{port}\"") } else { String::new() };
        format!(
            "# By `headstart up`; `headstart down` removes it.\n\
             [edge]\n\
             listen = [\"0.0.0.0:{port}\"{ipv6}]\n\
             origin = \"{server}\"\n\
             proxy-protocol = {proxy_protocol}\n"
        )
    }

    fn check(&self) -> Result<(), Failure> {
        let Some((program, arguments)) = self.check.split_first() else { return Ok(()) };
        run(program, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn reload(&self) -> Result<(), Failure> {
        self.unit.as_deref().map_or(Ok(()), |unit| systemctl(&["reload-or-restart", unit]))
    }
}

/// Returns true unless the kernel was started without IPv6.
fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

fn is_edge(listener: &listener::Listener) -> bool {
    ["headstart", "systemd"].contains(&listener.name().as_str())
}

/// Replaces a file atomically; keeps the owner and mode of an existing one.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = || {
        let above = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(above)?;
        let mut file = tempfile::Builder::new()
            .prefix(".headstart-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(above)?;
        if let Ok(old) = fs::metadata(path) {
            chown(file.path(), Some(old.uid()), Some(old.gid()))?;
            file.as_file().set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    };
    written().map(drop).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}
