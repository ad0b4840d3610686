//! Recognizes tickets made by the ring, without opening them.

use openssl::hash::MessageDigest;
use openssl::memcmp;
use openssl::pkey::PKey;
use openssl::sign::Signer;

use super::{Epoch, KeyRing, Purpose};

/// Lengths of the name at a ticket's start, of the IV after it, and of the MAC at its end
/// (docs/fop.md section 3).
const NAME: usize = 16;
const IV: usize = 16;
const MAC: usize = 32;

impl KeyRing {
    /// Returns the epoch with the keys of a ticket with this start: by its static name, or else by
    /// the IV's first byte.
    pub(crate) fn epoch_of(&self, name: &[u8; NAME], iv: &[u8; IV]) -> Option<&Epoch> {
        let named = self.epochs().find(|epoch| epoch.ticket_name() == *name);
        named.or_else(|| self.epoch(iv[0]))
    }

    /// Returns true if one of the epochs made this ticket.
    ///
    /// Costs an HMAC: for callers who would spend more on a ticket before TLS has checked it. TLS
    /// decides whether the client may use it.
    #[must_use]
    pub fn made(&self, ticket: &[u8]) -> bool {
        self.authenticates(ticket).unwrap_or(false)
    }

    fn authenticates(&self, ticket: &[u8]) -> Option<bool> {
        let (content, mac) = ticket.split_last_chunk::<MAC>()?;
        let (name, rest) = content.split_first_chunk::<NAME>()?;
        let iv = rest.first_chunk::<IV>()?;
        let epoch = self.epoch_of(name, iv)?;
        let key = PKey::hmac(&epoch.derive(Purpose::TicketMac)[..]).ok()?;
        let mut signer = Signer::new(MessageDigest::sha256(), &key).ok()?;
        let mut made = [0; MAC];
        signer.update(content).ok()?;
        signer.sign(&mut made).ok()?;
        Some(memcmp::eq(&made, mac))
    }
}
