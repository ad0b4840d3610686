//! The vectors of `docs/vectors/keys.txt`: from the text of a ring to the keys of each purpose.

use std::net::IpAddr;

use crate::blocks::{Block, read};
use headstart_proto::UnixSeconds;
use headstart_tls::keyring::{Epoch, KeyRing, Purpose};

/// A ring whose current epoch has the secret of the block.
fn ring(block: &Block) -> KeyRing {
    let secret: String = block.bytes("secret").iter().map(|byte| format!("{byte:02x}")).collect();
    let next = "0123456789abcdef".repeat(4);
    let text =
        format!("headstart key ring 1\nperiod 43200\ncurrent 7 0 {secret}\nnext 8 0 {next}\n");
    KeyRing::parse(&text).unwrap()
}

fn key(epoch: &Epoch, purpose: Purpose) -> Vec<u8> {
    epoch.derive(purpose).to_vec()
}

#[test]
fn keys_are_derived_byte_for_byte() {
    for block in &read("keys.txt") {
        let ring = ring(block);
        for purpose in Purpose::ALL {
            let name = purpose.label().replace(' ', "_");
            assert_eq!(key(&ring.current, purpose), block.bytes(&name), "{purpose:?}");
        }
        let name = key(&ring.current, Purpose::TicketName);
        assert_eq!(ring.current.ticket_name(), name[..16]);
    }
}

#[test]
fn cookies_are_of_the_first_halves_of_their_keys() {
    for block in &read("keys.txt") {
        let client: IpAddr = block.number("client");
        let expiry = UnixSeconds(block.number("expiry"));
        let cookies = ring(block).cookies();
        let cookie = cookies.mint(block.array("nonce"), expiry, client);
        assert_eq!(*cookie.as_bytes(), block.array::<16>("cookie"));
        let before = UnixSeconds(expiry.0 - 60);
        assert_eq!(cookies.verify(&cookie, before, client), Ok(expiry));
    }
}
