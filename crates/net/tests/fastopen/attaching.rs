//! Attaching and detaching, repeated and concurrent.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::thread;

use headstart_net::fastopen::{
    AttachError, AttachMethod, ClientOptions, ServerMaps, ServerOptions, ServerStatus, Unavailable,
    attach_client, attach_server, client_status, detach_client, detach_server, probe,
    server_status,
};

use crate::server::Server;
use crate::support::bpf;
use crate::world::{LINE, PORT, World};

fn opens(world: &World, server: &Server, known: usize) {
    assert!(world.open(world.to(0), &world.cookie(0), LINE).accepted);
    server.served(known + 1);
}

/// A repeated attach keeps programs, counters and memory, and does not disturb the edge.
pub(crate) fn repeated_attach() {
    let world = World::new();
    let server = Server::start(&world);
    opens(&world, &server, 0);
    let before = world.server_status().unwrap();
    assert_eq!((before.keys, before.spent, before.stats.steered), (1, 1, 1));
    assert_eq!(before.hidden, server.hidden.map(|hidden| hidden.map(|hidden| hidden.port())));
    assert!(before.interfaces.iter().all(|interface| interface.is_live), "{before:?}");
    assert_eq!(world.attach_server(), before);
    assert_eq!(world.attach_client().sent, 1);
    opens(&world, &server, 1);
    assert!(server.is_attached());
    assert!(world.detach_server());
    assert!(!world.detach_server());
    assert_eq!(world.server_status(), None);
    assert!(!server.is_attached());
    world.attach_server();
    assert!(!server.is_attached(), "new programs have new maps");
    assert!(world.detach_server());
    drop(server);
    // A new attach knows nothing of the old one.
    let after = world.attach_server();
    assert_eq!((after.keys, after.spent, after.stats.syns), (0, 0, 0));
    opens(&world, &Server::start(&world), 0);
}

/// Leaves the state of an attach killed before its last step, or a detach killed after its first.
pub(crate) fn after_a_kill() {
    let world = World::new();
    fs::remove_file(world.dir().join("server/steer_ethernet")).unwrap();
    assert_eq!(world.server_status(), None);
    let status = world.attach_server();
    assert_eq!(status.interfaces.len(), 1);
    fs::remove_file(world.dir().join("client/setsockopt")).unwrap();
    assert_eq!(world.client_status(), None);
    // A link ends some time after its pin.
    world.wait_until_alone();
    let error = world.client().run(probe).unwrap().unwrap_err();
    assert!(matches!(error, Unavailable::NotAttached), "{error}");
    world.attach_client();
    let server = Server::start(&world);
    opens(&world, &server, 0);
    // Only some pins, of a server that was never complete.
    fs::remove_file(world.dir().join("server/steer_ethernet")).unwrap();
    assert!(world.server().run(|| detach_server(world.dir(), &[])).unwrap().is_ok());
    assert!(!world.dir().join("server").exists());
}

fn refusal(world: &World, options: &ServerOptions) -> AttachError {
    let error = world.server().run(|| attach_server(options)).unwrap().unwrap_err();
    assert!(!error.hint().is_empty());
    error
}

pub(crate) fn refusals() {
    let world = World::new();
    let error = refusal(&world, &ServerOptions { port: PORT + 1, ..world.server_options() });
    assert!(matches!(error, AttachError::OtherPort(PORT)), "{error}");
    let error = refusal(
        &world,
        &ServerOptions { interfaces: vec!["none0".into()], ..world.server_options() },
    );
    assert!(matches!(&error, AttachError::NoInterface(name) if name == "none0"), "{error}");
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = elsewhere.path().join("pins");
    let error = refusal(&world, &ServerOptions { dir: dir.clone(), ..world.server_options() });
    assert!(matches!(&error, AttachError::NoBpfFs(at) if *at == dir), "{error}");
    assert!(!dir.exists());
    let cgroup = Some(elsewhere.path().to_owned());
    let options = ClientOptions { dir: world.dir().join("other"), cgroup };
    let error = world.client().run(|| attach_client(&options)).unwrap().unwrap_err();
    assert!(matches!(error, AttachError::NotCgroup2(_)), "{error}");
    world.set(world.server(), "tcp_fastopen", "1").unwrap();
    let error = refusal(&world, &world.server_options());
    assert!(matches!(error, AttachError::Unavailable(Unavailable::TurnedOff(2))), "{error}");
    assert!(error.hint().contains("tcp_fastopen="), "{}", error.hint());
}

/// An attach during another process's detach succeeds; in the end everything is detached.
pub(crate) fn at_the_same_time() {
    let world = World::bare();
    let client = world.client_options();
    let server = world.server_options();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                world.client().run(|| {
                    for _ in 0..10 {
                        attach_client(&client).unwrap();
                        client_status(&client.dir).unwrap();
                        detach_client(&client.dir).unwrap();
                    }
                })
            });
            scope.spawn(|| {
                world.server().run(|| {
                    for _ in 0..3 {
                        attach_server(&server).unwrap();
                        server_status(&server.dir).unwrap();
                        detach_server(&server.dir, &[]).unwrap();
                    }
                })
            });
        }
    });
    assert_eq!((world.client_status(), world.server_status()), (None, None));
    assert!(!world.dir().exists());
}

fn is_foreign(error: &AttachError, dir: &Path) -> bool {
    matches!(error, AttachError::Unavailable(Unavailable::Foreign(at)) if at == dir)
}

/// Pins are not made or read where other users could replace them, and only pins are removed.
pub(crate) fn directories_of_others() {
    const NOBODY: u32 = 65534;
    let world = World::bare();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("server/file");
    fs::create_dir(elsewhere.path().join("server")).unwrap();
    fs::write(&file, "kept").unwrap();
    // An ordinary directory, by mistake.
    let error = detach_server(elsewhere.path(), &[]).unwrap_err();
    assert!(matches!(&error, AttachError::NoBpfFs(_)), "{error}");
    let error = server_status(elsewhere.path()).unwrap_err();
    assert!(matches!(&error, AttachError::NoBpfFs(_)), "{error}");
    // By default everyone may write to a BPF file system: another user was there first.
    let dir = bpf().join("others");
    let pins = dir.join("server");
    fs::create_dir(&dir).unwrap();
    symlink(elsewhere.path().join("server"), &pins).unwrap();
    refuses(&world, &dir, &pins);
    let error = detach_server(&dir, &[]).unwrap_err();
    assert!(is_foreign(&error, &pins), "{error}");
    fs::remove_file(&pins).unwrap();
    fs::create_dir(&pins).unwrap();
    chown(&pins, Some(NOBODY), None).unwrap();
    refuses(&world, &dir, &pins);
    let error = ServerMaps::open(&dir).map(drop).unwrap_err();
    assert!(matches!(&error, Unavailable::Foreign(at) if *at == pins), "{error}");
    chown(&dir, Some(NOBODY), None).unwrap();
    refuses(&world, &dir, &dir);
    let link = bpf().join("link");
    symlink(&dir, &link).unwrap();
    let error = detach_server(&link, &[]).unwrap_err();
    assert!(is_foreign(&error, &link), "{error}");
    // Root may remove it.
    assert!(!detach_server(&dir, &[]).unwrap());
    assert!(!dir.exists());
    fs::remove_file(&link).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

/// Checks that attaching in `dir` fails because of `foreign`.
fn refuses(world: &World, dir: &Path, foreign: &Path) {
    let options = ServerOptions { dir: dir.to_owned(), ..world.server_options() };
    let error = world.server().run(|| attach_server(&options)).unwrap().unwrap_err();
    assert!(is_foreign(&error, foreign), "{error}");
    assert!(!error.hint().is_empty());
}

fn interfaces(status: &ServerStatus) -> Vec<(String, AttachMethod)> {
    status.interfaces.iter().map(|one| (one.name.clone(), one.method)).collect()
}

pub(crate) fn other_interfaces() {
    let world = World::new();
    let options = ServerOptions { interfaces: vec!["lo".into()], ..world.server_options() };
    let status = world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let how = interfaces(&status)[0].1;
    assert_eq!(interfaces(&status), [("lo".into(), how), ("w0".into(), how)]);
    println!("  by {}", how.name());
    for attached in [true, false] {
        let detached = world.server().run(|| detach_server(world.dir(), &["lo".into()])).unwrap();
        assert_eq!(detached.unwrap(), attached);
    }
    assert_eq!(interfaces(&world.server_status().unwrap()), [("w0".into(), how)]);
    let server = Server::start(&world);
    opens(&world, &server, 0);
}
