//! Edge and client as a user without any capability: only attaching needs some.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_lab::Node;
use headstart_net::fastopen::{HiddenListener, ServerMaps, ServerOptions, attach_server};
use headstart_net::{Acceptor, AcceptorConfig};
use headstart_proto::cookie::Cookie;

use crate::server::serve;
use crate::support::bpf;
use crate::world::{LIFE, LINE, PORT, World, block_on, open, usual_ring};

/// The user nobody, everywhere.
const NOBODY: u32 = 65534;

/// Says what this process is to do instead of running checks, and with what.
const ROLE: &str = "HEADSTART_TEST_ROLE";
const DIR: &str = "HEADSTART_TEST_DIR";
const TO: &str = "HEADSTART_TEST_TO";
const COOKIE: &str = "HEADSTART_TEST_COOKIE";

/// What a process of another user does.
pub(crate) enum Role {
    /// Serves one connection.
    Edge,
    /// Opens one.
    Client,
    /// Tries to open the server's maps.
    Look,
}

/// What this process is to do, if it is one of these.
pub(crate) fn role() -> Option<Role> {
    match std::env::var(ROLE).ok()?.as_str() {
        "edge" => Some(Role::Edge),
        "client" => Some(Role::Client),
        "look" => Some(Role::Look),
        other => panic!("no role is called {other}"),
    }
}

impl Role {
    pub(crate) fn play(self) -> ExitCode {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.contains("CapEff:\t0000000000000000\n"), "{status}");
        match self {
            Self::Edge => block_on(edge()),
            Self::Client => block_on(client()),
            Self::Look => match ServerMaps::open(&dir()) {
                Ok(_) => println!("opened"),
                Err(error) => println!("{}", error.name()),
            },
        }
        ExitCode::SUCCESS
    }
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
    let mut acceptor = Acceptor::bind(public, config).unwrap();
    maps.set_public(&acceptor).unwrap();
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

/// This program on a node, as nobody, where nobody can reach it.
fn as_nobody(node: &Node, role: &str) -> Command {
    let place = bpf().parent().unwrap().join("checks");
    copy_once(&place);
    let mut command = node.command("setpriv");
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    command.arg(place).env(ROLE, role).stdout(Stdio::piped());
    command
}

fn copy_once(place: &Path) {
    if !place.exists() {
        fs::copy(std::env::current_exe().unwrap(), place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn both_sides() {
    let world = World::bare();
    world.attach_client();
    let options = ServerOptions { owner: Some(NOBODY), ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let mut edge = as_nobody(world.server(), "edge").env(DIR, world.dir()).spawn().unwrap();
    let mut said_by_edge = BufReader::new(edge.stdout.take().unwrap());
    let mut line = String::new();
    said_by_edge.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let cookie = u128::from_be_bytes(*world.cookie(0).as_bytes());
    let mut client = as_nobody(world.client(), "client");
    client.env(TO, world.to(0).to_string()).env(COOKIE, format!("{cookie:032x}"));
    assert_eq!(said(&mut client), "accepted true, answered true\n");
    let mut rest = String::new();
    said_by_edge.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "fop\n1 steered\n");
    assert!(edge.wait().unwrap().success());
    // It is gone, and nobody took its place.
    assert_eq!(world.server_status().unwrap().keys, 0);
}

/// Without `owner` the maps are of who attached.
pub(crate) fn denied() {
    let world = World::new();
    let look = |dir: &Path| said(as_nobody(world.server(), "look").env(DIR, dir));
    assert_eq!(look(world.dir()), "denied\n");
    let options = ServerOptions { owner: Some(NOBODY), ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    assert_eq!(look(world.dir()), "opened\n");
    assert_eq!(look(Path::new("/nowhere")), "no_maps\n");
}
