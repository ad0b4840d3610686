//! Edge and client as a user without any capability, and attaching with the two that it needs.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_emulation::Node;
use headstart_net::fastopen::{
    AttachError, ClientOptions, HiddenListener, ServerMaps, ServerOptions, attach_client,
    attach_server, client_status, detach_client, detach_server, server_status,
};
use headstart_net::{Acceptor, AcceptorConfig};
use headstart_proto::cookie::Cookie;
use headstart_testkit::Running;

use crate::server::{listen, serve};
use crate::support::bpf;
use crate::world::{LIFE, LINE, PORT, World, block_on, open, usual_ring};

/// The user nobody, the same everywhere.
const NOBODY: u32 = 65534;

/// Environment variable with this process's role, if it runs no checks, and the role's arguments.
const ROLE: &str = "HEADSTART_TEST_ROLE";
const DIR: &str = "HEADSTART_TEST_DIR";
const TO: &str = "HEADSTART_TEST_TO";
const COOKIE: &str = "HEADSTART_TEST_COOKIE";

/// Role of a process of another user.
pub(crate) enum Role {
    /// Serves one connection.
    Edge,
    /// Opens one.
    Client,
    /// Tries to open the server's maps.
    Look,
    /// Attaches both sides, looks at them, and detaches them.
    Helper,
}

/// Returns the role of this process, if it has one.
pub(crate) fn role() -> Option<Role> {
    match std::env::var(ROLE).ok()?.as_str() {
        "edge" => Some(Role::Edge),
        "client" => Some(Role::Client),
        "look" => Some(Role::Look),
        "helper" => Some(Role::Helper),
        other => panic!("no role is called {other}"),
    }
}

impl Role {
    pub(crate) fn play(self) -> ExitCode {
        assert!(matches!(self, Self::Helper) || capabilities() == 0);
        match self {
            Self::Edge => block_on(edge()),
            Self::Client => block_on(client()),
            Self::Look => match ServerMaps::open(&dir()) {
                Ok(_) => println!("opened"),
                Err(error) => println!("{}", error.name()),
            },
            Self::Helper => match helper() {
                Ok(()) => println!("done with {:x}", capabilities()),
                Err(AttachError::Privilege) => println!("privilege"),
                Err(AttachError::NoCgroup2) => println!("no_cgroup2"),
                Err(error) => println!("{error}"),
            },
        }
        ExitCode::SUCCESS
    }
}

/// Returns the effective capabilities, as bits.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

fn helper() -> Result<(), AttachError> {
    let dir = dir();
    let server = ServerOptions { dir: dir.clone(), ..ServerOptions::new(vec!["w0".into()], PORT) };
    // Both sides must report the same.
    let attached = attach_server(&server);
    let client = attach_client(&ClientOptions { dir: dir.clone(), cgroup: None });
    assert_eq!(attached.is_ok(), client.is_ok() || matches!(client, Err(AttachError::NoCgroup2)));
    assert_eq!(server_status(&dir)?, Some(attached?));
    assert_eq!(client_status(&dir)?, Some(client?));
    // Does what an edge of the same user does.
    ServerMaps::open(&dir)?.refresh().expect("the maps can be written");
    assert!(detach_server(&dir, &[])? && detach_client(&dir)?);
    Ok(())
}

fn dir() -> PathBuf {
    std::env::var_os(DIR).unwrap().into()
}

async fn edge() {
    let public = ([0, 0, 0, 0], PORT).into();
    let hidden = Arc::new(HiddenListener::bind(public).unwrap());
    let mut maps =
        ServerMaps::open(&dir()).unwrap_or_else(|error| panic!("{error}: {}", error.hint()));
    maps.set_keys(&usual_ring(), Duration::from_secs(LIFE)).unwrap();
    maps.set_hidden(&hidden).unwrap();
    maps.refresh().unwrap();
    let config =
        AcceptorConfig { udp_workers: 0, hidden: Some(hidden), ..AcceptorConfig::default() };
    let sockets = listen(public);
    maps.set_public(&sockets).unwrap();
    let mut acceptor = Acceptor::new(sockets, config).unwrap();
    println!("ready");
    let stream = acceptor.accept().await.unwrap().establish().await.unwrap().unwrap();
    println!("{}", stream.opened_by().name());
    serve(stream, &Mutex::default()).await.unwrap();
    println!("{} steered", maps.stats().unwrap().steered);
}

async fn client() {
    let to = std::env::var(TO).unwrap().parse().unwrap();
    let cookie = u128::from_str_radix(&std::env::var(COOKIE).unwrap(), 16).unwrap();
    let opened = open(to, None, &Cookie::new(cookie.to_be_bytes()), LINE).await;
    println!("accepted {}, answered {}", opened.accepted, opened.answer == LINE);
}

/// Returns a command that runs this program on a node, as nobody.
fn as_nobody(node: &Node, role: &str) -> Command {
    as_nobody_with(node, role, "")
}

/// Does the same with capabilities, such as `,+bpf`.
fn as_nobody_with(node: &Node, role: &str, capabilities: &str) -> Command {
    let mut command = node.command("setpriv");
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        command.arg(format!("--{set}=-all{capabilities}"));
    }
    command.arg(program()).env(ROLE, role).stdout(Stdio::piped());
    command
}

/// Makes a copy of this program that every user can execute.
fn program() -> PathBuf {
    let place = bpf().parent().unwrap().join("checks");
    if !place.exists() {
        fs::copy(std::env::current_exe().unwrap(), &place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place
}

fn stdout_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn both_sides() {
    let world = World::bare();
    world.attach_client();
    let options = ServerOptions { owner: Some(NOBODY), ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let edge = as_nobody(world.server(), "edge").env(DIR, world.dir()).spawn().unwrap();
    let mut edge = Running(edge);
    let mut said_by_edge = BufReader::new(edge.0.stdout.take().unwrap());
    let mut line = String::new();
    said_by_edge.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let cookie = u128::from_be_bytes(*world.cookie(0).as_bytes());
    let mut client = as_nobody(world.client(), "client");
    client.env(TO, world.to(0).to_string()).env(COOKIE, format!("{cookie:032x}"));
    assert_eq!(stdout_of(&mut client), "accepted true, answered true\n");
    let mut rest = String::new();
    said_by_edge.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "fop\n1 steered\n");
    assert!(edge.0.wait().unwrap().success());
    // The edge has exited, and no other took its place.
    assert_eq!(world.server_status().unwrap().keys, 0);
}

/// Runs the role "look" with this directory; returns its output.
fn look(world: &World, dir: &Path) -> String {
    stdout_of(as_nobody(world.server(), "look").env(DIR, dir))
}

/// Without `owner` the maps belong to the user who attached.
pub(crate) fn denied() {
    let world = World::new();
    assert_eq!(look(&world, world.dir()), "denied\n");
    let options = ServerOptions { owner: Some(NOBODY), ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    assert_eq!(look(&world, world.dir()), "opened\n");
    assert_eq!(look(&world, Path::new("/nowhere")), "no_maps\n");
}

/// Makes a directory of pins for nobody, as a systemd unit would.
fn own_directory(name: &str) -> PathBuf {
    let dir = bpf().join(name);
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    dir
}

/// CAP_BPF and CAP_NET_ADMIN suffice for all that the helper does, and each is needed.
pub(crate) fn helper_with_capabilities() {
    let world = World::bare();
    let dir = own_directory("helper");
    for (capabilities, expected) in [
        // Bits 12 and 39 (linux/capability.h).
        (",+bpf,+net_admin", "done with 8000001000\n"),
        ("", "privilege\n"),
        (",+bpf", "privilege\n"),
        (",+net_admin", "privilege\n"),
    ] {
        let mut helper = as_nobody_with(world.server(), "helper", capabilities);
        assert_eq!(stdout_of(helper.env(DIR, &dir)), expected, "{capabilities}");
    }
}

/// There are no cgroups, as in some containers.
pub(crate) fn helper_without_cgroup2() {
    const SCRIPT: &str = "grep ' cgroup2 ' /proc/self/mounts | cut -d ' ' -f 2 | \
                          while read -r at; do umount --lazy \"$at\" || exit; done; exec \"$0\"";
    let world = World::bare();
    let mut command = world.server().command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]).arg(program());
    command.env(ROLE, "helper").env(DIR, world.dir()).stdout(Stdio::piped());
    assert_eq!(stdout_of(&mut command), "no_cgroup2\n");
}
