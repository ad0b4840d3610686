//! Interfaces whose packets begin with the IP header.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headstart_emulation::Node;
use headstart_net::Carrier;
use headstart_net::fastopen::{ServerOptions, attach_server};

use crate::server::Server;
use crate::support::{key, mint, now, succeeds};
use crate::world::{LIFE, LINE, PORT, World};

const NAME: &str = "t0";

/// Makes a tun device on a node, with addresses that end in `number`.
fn device(node: &Node, number: u8) -> File {
    let device = node.run(|| headstart_net::tun(NAME)).unwrap().unwrap();
    rustix::io::ioctl_fionbio(&device, true).unwrap();
    for arguments in [
        &["address", "add", &format!("10.79.0.{number}/24"), "dev", NAME][..],
        &["address", "add", &format!("fd79::{number}/64"), "dev", NAME, "nodad"],
        &["link", "set", NAME, "up"],
    ] {
        succeeds(node.command("ip").args(arguments));
    }
    device
}

/// Carries packets until `stop` is set.
fn carry(mut from: &File, mut to: &File, stop: &AtomicBool) {
    let mut packet = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        match from.read(&mut packet) {
            Ok(length) => to.write_all(&packet[..length]).unwrap(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Stops the threads that carry packets, however the check ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn over_tun() {
    let world = World::bare();
    let (client, server) = (device(world.client(), 1), device(world.server(), 2));
    world.attach_client();
    let options = ServerOptions { interfaces: vec![NAME.into()], ..world.server_options() };
    world.server().run(|| attach_server(&options)).unwrap().unwrap();
    let running = Server::start(&world);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| carry(&client, &server, &stop));
        scope.spawn(|| carry(&server, &client, &stop));
        for (known, net) in ["10.79.0.", "fd79::"].into_iter().enumerate() {
            let [from, to] = [1, 2].map(|end| format!("{net}{end}").parse::<IpAddr>().unwrap());
            let cookie = mint(&key(1), now() + LIFE, from);
            let to = (to, PORT).into();
            let opened = world.open(to, &cookie, LINE);
            assert!(opened.accepted && opened.answer == LINE, "{opened:?}");
            let again = world.open(to, &cookie, LINE);
            assert!(!again.accepted && again.answer == LINE, "{again:?}");
            let served = running.served(2 * known + 2);
            let line = LINE.to_vec();
            assert_eq!(served[2 * known..], [(Carrier::Fop, line.clone()), (Carrier::Tcp, line)]);
        }
    });
    let counted: Vec<_> = world.stats().iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("syns", 4), ("steered", 2), ("replayed", 2)]);
}
