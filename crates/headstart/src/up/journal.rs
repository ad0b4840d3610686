//! The journal: a file with the changes made, from which they can be undone.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::failure::Failure;
use crate::base::files;
use crate::base::own_address::has_ipv6;
use crate::up::server::{Edit, restored};
use crate::up::shared::SharedPort;
use crate::up::unit::{run, systemctl};
use crate::up::{listener, shared};

/// The edge's options.
pub(super) const CONFIG: &str = "/etc/headstart/up.toml";

/// The journal's file. It exists from before the first change until after the last is undone.
const JOURNAL: &str = "/etc/headstart/up.json";

const EDGE: &str = "headstart-edge@up.service";
const SOCKET: &str = "headstart-edge@up.socket";

/// Port of [`SOCKET`].
const SOCKET_PORT: u16 = 443;

/// Lets [`SOCKET`] bind a port that the server has still; only while it does.
const REUSE_PORT: &str = "/run/systemd/system/headstart-edge@up.socket.d/reuse-port.conf";

/// Time in which connections that have begun at the server are accepted there: two
/// retransmissions of a SYN-ACK.
const HANDSHAKES: Duration = Duration::from_secs(3);

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
        // An edge that is still ending would delay the new one.
        systemctl(&["stop", EDGE])?;
        let refused = if edits.is_empty() {
            self.start().map(|()| Duration::ZERO)
        } else {
            self.exchange(edits)
        };
        // At a start of the machine in between, the server has its port.
        refused
            .and_then(|refused| systemctl(&[&["enable"], self.units()].concat()).map(|()| refused))
    }

    /// Has the edge take the place of the server. Returns the time without a listener on the port.
    fn exchange(&self, edits: &[Edit]) -> Result<Duration, Failure> {
        self.configure(edits.iter().map(|edit| (edit, edit.both())))?;
        self.reload()?;
        if !listener::wait(|| TcpStream::connect(self.server).is_ok()) {
            return Err(Failure::negative(format!(
                "the server does not listen at {}",
                self.server
            )));
        }
        let servers = listener::inodes(self.port);
        let is_shared = self.share()?;
        self.configure(edits.iter().map(|edit| (edit, edit.text.clone())))?;
        let began = Instant::now();
        self.reload()?;
        let is_left = || !listener::inodes(self.port).iter().any(|inode| servers.contains(inode));
        if !listener::wait(is_left) {
            return Err(Failure::negative("the server did not leave the port"));
        }
        if is_shared {
            shared::end(self.port);
            return Ok(Duration::ZERO);
        }
        self.start()?;
        Ok(began.elapsed())
    }

    /// Writes files of the server, and has it check them.
    fn configure<'a>(
        &self,
        files: impl Iterator<Item = (&'a Edit, String)>,
    ) -> Result<(), Failure> {
        for (edit, text) in files {
            write(&edit.path, &text)?;
        }
        self.check()
    }

    /// Starts the edge beside the server, and has the edge get all new connections. Returns false,
    /// and does nothing, where they cannot share the port.
    fn share(&self) -> Result<bool, Failure> {
        if !self.units().contains(&SOCKET) {
            return Ok(false);
        }
        let Ok(port) = SharedPort::open(self.port) else { return Ok(false) };
        write(Path::new(REUSE_PORT), "[Socket]\nReusePort=yes\n")?;
        let started = systemctl(&["daemon-reload"]).and_then(|()| systemctl(&["start", SOCKET]));
        remove_drop_in();
        systemctl(&["daemon-reload"])?;
        if started.is_err() {
            return Ok(false);
        }
        self.start()?;
        port.steer();
        thread::sleep(HANDSHAKES);
        Ok(true)
    }

    fn start(&self) -> Result<(), Failure> {
        // A socket alone starts its service at the first connection.
        systemctl(&[&["start"], self.units()].concat())
    }

    /// Undoes all changes, also those of an incomplete [`apply`](Self::apply).
    ///
    /// # Errors
    /// The server does not come back; the journal stays.
    pub(super) fn undo(&self) -> Result<(), Failure> {
        for path in &self.files {
            match fs::read_to_string(path) {
                Ok(text) => restored(&text).map_or(Ok(()), |text| write(path, &text))?,
                // The server was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(unwritable(path, &error)),
            }
        }
        // The edge serves on if the server could not.
        if self.unit.is_some() {
            self.check()?;
        }
        remove_drop_in();
        // Units that are not enabled or started yet are no error.
        let _ = systemctl(&[&["disable"], self.units()].concat());
        // The port is free at once, while open connections may take long to end. If one command
        // stopped both, systemd would close the socket after the service.
        let _ = systemctl(&["stop", SOCKET]);
        // Its worker as well, which would wait for another to take over.
        let _ = systemctl(&["kill", EDGE]);
        let _ = systemctl(&["stop", "--no-block", EDGE]);
        let is_free = || listener::Listener::find(self.port).is_none_or(|by| !is_edge(&by));
        if !listener::wait(is_free) {
            systemctl(&[&["stop"], self.units()].concat())?;
        }
        if self.unit.is_some() {
            self.reload()?;
            let is_back =
                || listener::is_taken(self.port) && !listener::is_taken(self.server.port());
            if !listener::wait(is_back) && !listener::is_taken(self.port) {
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

/// Removes [`REUSE_PORT`], and its folder if there is nothing else in it.
fn remove_drop_in() {
    // What is not there need not be removed.
    let _ = fs::remove_file(REUSE_PORT);
    let _ = Path::new(REUSE_PORT).parent().map(fs::remove_dir);
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
