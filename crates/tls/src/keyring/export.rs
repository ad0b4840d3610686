//! Ticket keys in the formats of other servers that use OpenSSL's tickets with the same algorithms.

use openssl::base64::encode_block;
use zeroize::Zeroizing;

use super::{Epoch, KeyRing, Purpose, Role};

/// Length of a ticket key with AES-256 in bytes: name 16, and two keys of 32.
const TICKET_KEY_LEN: usize = 80;

impl KeyRing {
    /// Returns each epoch as a file for nginx's `ssl_session_ticket_key`: name, HMAC key, AES key.
    ///
    /// This is the order of nginx 1.11.8 and later for files of 80 bytes (with 48 the AES key comes
    /// first).
    pub fn nginx_keys(&self) -> impl Iterator<Item = (Role, Zeroizing<[u8; TICKET_KEY_LEN]>)> {
        let order = [Purpose::TicketMac, Purpose::TicketCipher];
        self.roles().map(move |(role, epoch)| (role, ticket_key(epoch, order)))
    }

    /// Returns the epochs as the file of HAProxy's `tls-ticket-keys`: one line each, with name, AES
    /// key and HMAC key in base64.
    ///
    /// HAProxy needs at least three lines and makes tickets with the second-to-last, which is the
    /// current epoch here; in a new ring it appears twice.
    #[must_use]
    pub fn haproxy_keys(&self) -> Zeroizing<String> {
        let order = [Purpose::TicketCipher, Purpose::TicketMac];
        let previous = self.previous.as_ref().unwrap_or(&self.current);
        // Three lines of 108 characters fit, so that growing leaves no copy behind.
        let mut text = Zeroizing::new(String::with_capacity(512));
        for epoch in [previous, &self.current, &self.next] {
            let line = Zeroizing::new(encode_block(&ticket_key(epoch, order)[..]));
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

fn ticket_key(epoch: &Epoch, order: [Purpose; 2]) -> Zeroizing<[u8; TICKET_KEY_LEN]> {
    let keys = order.map(|purpose| epoch.derive(purpose));
    let parts =
        epoch.ticket_name().into_iter().chain(keys.iter().flat_map(|key| key.iter().copied()));
    let mut bytes = Zeroizing::new([0; TICKET_KEY_LEN]);
    bytes.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
    bytes
}

#[cfg(test)]
mod tests {
    use headstart_proto::UnixSeconds;
    use openssl::base64::decode_block;

    use super::super::PERIOD;
    use super::*;

    fn ring() -> KeyRing {
        KeyRing::generate(UnixSeconds(0), PERIOD).unwrap()
    }

    fn parts(key: &[u8]) -> (&[u8], &[u8], &[u8]) {
        (&key[..16], &key[16..48], &key[48..])
    }

    #[test]
    fn nginx_keys_have_the_mac_first() {
        assert_eq!(ring().nginx_keys().count(), 2, "a new ring");
        let rotated = ring().rotated(UnixSeconds(1)).unwrap();
        let keys: Vec<_> = rotated.nginx_keys().collect();
        let roles: Vec<_> = keys.iter().map(|(role, _)| *role).collect();
        assert_eq!(roles, [Role::Previous, Role::Current, Role::Next]);
        let (name, mac, cipher) = parts(&keys[1].1[..]);
        assert_eq!(name, rotated.current.ticket_name());
        assert_eq!(mac, &rotated.current.derive(Purpose::TicketMac)[..]);
        assert_eq!(cipher, &rotated.current.derive(Purpose::TicketCipher)[..]);
    }

    #[test]
    fn haproxy_keys_have_the_current_one_second_to_last() {
        let fresh = ring();
        let rotated = fresh.rotated(UnixSeconds(1)).unwrap();
        for ring in [&fresh, &rotated] {
            let text = ring.haproxy_keys();
            let lines: Vec<_> = text.lines().map(|line| decode_block(line).unwrap()).collect();
            assert_eq!(lines.len(), 3);
            let (name, cipher, mac) = parts(&lines[1]);
            assert_eq!(name, ring.current.ticket_name());
            assert_eq!(cipher, &ring.current.derive(Purpose::TicketCipher)[..]);
            assert_eq!(mac, &ring.current.derive(Purpose::TicketMac)[..]);
            assert_eq!(lines[2][..16], ring.next.ticket_name());
        }
    }
}
