//! An emulated link to this machine itself.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Name of the device.
const DEVICE: &str = "headstart-up";

/// Address of this machine on the link, from the block for measurements (RFC 2544 appendix C).
const NEAR: &str = "198.18.53.1/30";
const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 53, 2);

/// Time that a packet takes to the far end and back.
pub(super) const RTT: Duration = Duration::from_millis(50);

/// Largest packet of the device.
const MTU: usize = 1500;
/// Source and destination in a header of IPv4.
const ADDRESSES: std::ops::Range<usize> = 12..20;

/// A link whose far end is this machine again: what is sent to [`FAR`] comes back from there, to
/// the same ports, half of [`RTT`] later.
///
/// Exchanging source and destination leaves all checksums as they are. The link goes with the
/// process.
pub(super) struct Link;

impl Link {
    /// # Errors
    /// Words for the user.
    pub(super) fn open() -> Result<Self, String> {
        let device =
            headstart_net::tun(DEVICE).map_err(|error| format!("/dev/net/tun: {error}"))?;
        ip(&["address", "add", NEAR, "dev", DEVICE])?;
        ip(&["link", "set", DEVICE, "up"])?;
        let writer = device.try_clone().map_err(|error| error.to_string())?;
        let (sender, packets) = mpsc::channel();
        thread::spawn(move || read(device, &sender));
        thread::spawn(move || write(writer, packets));
        Ok(Self)
    }

    /// Returns the address of this machine's `port` beyond the link.
    pub(super) fn far(&self, port: u16) -> SocketAddr {
        (FAR, port).into()
    }
}

/// Waits for the ends of connections: those whose last packets are lost stay open for minutes.
impl Drop for Link {
    fn drop(&mut self) {
        thread::sleep(RTT * 4);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(arguments).output();
    let output = ran.map_err(|error| format!("cannot run ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Both directions take the same time, so packets stay in order.
fn read(mut device: File, packets: &mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut packet = [0; MTU];
    while let Ok(length) = device.read(&mut packet) {
        let due = Instant::now() + RTT / 2;
        if let Some(back) = turned(&packet[..length])
            && packets.send((due, back)).is_err()
        {
            return;
        }
    }
}

fn write(mut device: File, packets: mpsc::Receiver<(Instant, Vec<u8>)>) {
    for (due, packet) in packets {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A packet that the kernel does not take is lost, as on any link.
        let _ = device.write(&packet);
    }
}

/// Exchanges the addresses of a packet of IPv4.
fn turned(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let (source, destination) = packet.get_mut(ADDRESSES)?.split_at_mut(4);
    source.swap_with_slice(destination);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_packet_has_its_addresses_exchanged_and_no_other_byte() {
        let packet: Vec<u8> = (0x45..0x45 + 40).collect();
        let back = turned(&packet).unwrap();
        assert_eq!(back[12..16], packet[16..20]);
        assert_eq!(back[16..20], packet[12..16]);
        assert_eq!((&back[..12], &back[20..]), (&packet[..12], &packet[20..]));
        assert_eq!(turned(&back).unwrap(), packet);
        assert_eq!(turned(&[0x60; 40]), None, "IPv6");
        assert_eq!(turned(&packet[..19]), None, "cut");
    }
}
