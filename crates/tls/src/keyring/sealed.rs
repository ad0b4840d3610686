//! Key rings in untrusted storage, such as Redis: encrypted and authenticated under the fleet key.
//!
//! | at | length | field |
//! |---|---|---|
//! | 0 | 4 | `hsr1` |
//! | 4 | 8 | generation: one more with each rotation; the seconds since 1970 in a newly generated
//! ring |
//! | 12 | 8 | time at which it was written |
//! | 20 | 1 | id of the current epoch |
//! | 21 | 8 | time from which that is current |
//! | 29 | 4 | period |
//! | 33 | 12 | nonce, random |
//! | 45 | n | the ring's text, AES-256-GCM |
//! | 45+n | 16 | tag |
//!
//! Numbers are big-endian, times in seconds (since 1970). The associated data is `headstart sealed
//! ring 1`, a zero byte, the name of the site, a zero byte, and everything before the nonce: a ring
//! of another site, or one with changed times, does not open.

use std::fmt;

use headstart_proto::UnixSeconds;
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use zeroize::Zeroizing;

use super::fleet::SEAL;
use super::{FleetKey, KeyRing, KeyRingError, TextError};

const MAGIC: &[u8; 4] = b"hsr1";
const HEADER: usize = 33;
const NONCE: usize = 12;
const TAG: usize = 16;

/// Maximum size of a sealed ring in bytes: the text takes about 320.
const SEALED_MAX: usize = 1024;

impl KeyRing {
    /// Returns true if no edge may start with this ring: it should have been rotated more than a
    /// period ago, so it may be an old one that somebody has put back.
    #[must_use]
    pub fn is_stale(&self, now: UnixSeconds) -> bool {
        now > self.rotation_due() + self.period
    }

    /// Seals the ring for untrusted storage, as generation `generation` of the site `name`.
    ///
    /// # Errors
    /// A failure of randomness or OpenSSL.
    pub fn seal(
        &self,
        key: &FleetKey,
        name: &str,
        generation: u64,
        now: UnixSeconds,
    ) -> Result<Vec<u8>, KeyRingError> {
        let header = Header::from_ring(self, generation, now).emit();
        let mut nonce = [0; NONCE];
        rand_bytes(&mut nonce).map_err(|_| KeyRingError::Random)?;
        let (key, mut tag) = (key.derive(SEAL)?, [0; TAG]);
        let (associated, text) = (associated(name, &header), self.to_text());
        let cipher = Cipher::aes_256_gcm();
        let sealed =
            encrypt_aead(cipher, &key[..], Some(&nonce), &associated, text.as_bytes(), &mut tag)
                .map_err(|_| KeyRingError::Derive)?;
        Ok([&header[..], &nonce, &sealed, &tag].concat())
    }
}

/// A sealed ring after decryption.
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The ring.
    pub ring: KeyRing,
    /// Its number among the rings written to its storage.
    pub generation: u64,
    /// Time at which it was written.
    pub written: UnixSeconds,
}

impl Sealed {
    /// Opens what [`KeyRing::seal`] made with the same key and name.
    ///
    /// # Errors
    /// The fault. Errors contain nothing of the content.
    pub fn open(bytes: &[u8], key: &FleetKey, name: &str) -> Result<Self, SealFault> {
        if bytes.len() > SEALED_MAX {
            return Err(SealFault::Form);
        }
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(SealFault::Form)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(SealFault::Form)?;
        let (sealed, tag) = rest.split_last_chunk::<TAG>().ok_or(SealFault::Form)?;
        let says = Header::parse(header).ok_or(SealFault::Form)?;
        let key = key.derive(SEAL).map_err(|_| SealFault::NotAuthentic)?;
        let associated = associated(name, header);
        let cipher = Cipher::aes_256_gcm();
        let text = decrypt_aead(cipher, &key[..], Some(nonce), &associated, sealed, tag)
            .map_err(|_| SealFault::NotAuthentic)?;
        let text = Zeroizing::new(text);
        let text = std::str::from_utf8(&text).map_err(|_| SealFault::Form)?;
        let ring = KeyRing::parse(text).map_err(SealFault::Text)?;
        let (generation, written) = (says.generation, says.written);
        if Header::from_ring(&ring, generation, written) != says {
            return Err(SealFault::Form);
        }
        Ok(Self { ring, generation, written })
    }
}

/// The part of a sealed ring that is readable without the key, but authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    generation: u64,
    written: UnixSeconds,
    epoch: u8,
    from: UnixSeconds,
    period: u32,
}

impl Header {
    fn from_ring(ring: &KeyRing, generation: u64, written: UnixSeconds) -> Self {
        // At most a week.
        let period = u32::try_from(ring.period.as_secs()).unwrap_or(u32::MAX);
        Self { generation, written, epoch: ring.current.id, from: ring.current.from, period }
    }

    fn emit(&self) -> [u8; HEADER] {
        let fields = MAGIC
            .iter()
            .copied()
            .chain(self.generation.to_be_bytes())
            .chain(self.written.0.to_be_bytes())
            .chain([self.epoch])
            .chain(self.from.0.to_be_bytes())
            .chain(self.period.to_be_bytes());
        let mut header = [0; HEADER];
        header.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
        header
    }

    fn parse(header: &[u8; HEADER]) -> Option<Self> {
        let rest = header.strip_prefix(MAGIC)?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (written, rest) = rest.split_first_chunk()?;
        let (&epoch, rest) = rest.split_first()?;
        let (from, rest) = rest.split_first_chunk()?;
        let period = rest.first_chunk()?;
        Some(Self {
            generation: u64::from_be_bytes(*generation),
            written: UnixSeconds(u64::from_be_bytes(*written)),
            epoch,
            from: UnixSeconds(u64::from_be_bytes(*from)),
            period: u32::from_be_bytes(*period),
        })
    }
}

fn associated(name: &str, header: &[u8; HEADER]) -> Vec<u8> {
    [b"headstart sealed ring 1\0", name.as_bytes(), b"\0", header].concat()
}

/// The newest ring taken from storage, by which older ones are recognized.
///
/// Takes a ring of a later generation. Of the same generation it takes one written later: storage
/// that lost the last change and was changed again has such a ring. Of two written in the same
/// second, every edge takes the one with the greater bytes, in whatever order they arrive. It never
/// goes back.
#[derive(Clone, Debug, Default)]
pub struct Newest {
    taken: Option<Taken>,
}

/// Compared in the order of fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Taken {
    generation: u64,
    written: UnixSeconds,
    bytes: Vec<u8>,
}

impl Newest {
    /// Returns the ring in `bytes` if it is newer than the last one taken; `None` if it is the
    /// same.
    ///
    /// The first ring must not be stale, since nothing else limits its age: its current epoch may
    /// be overdue by at most one period, after which a ring should be worthless.
    ///
    /// # Errors
    /// The reason why it is refused. The last ring taken then stays valid.
    pub fn take(
        &mut self,
        bytes: &[u8],
        key: &FleetKey,
        name: &str,
        now: UnixSeconds,
    ) -> Result<Option<KeyRing>, RingRefused> {
        if self.taken.as_ref().is_some_and(|taken| taken.bytes == bytes) {
            return Ok(None);
        }
        let Sealed { ring, generation, written } =
            Sealed::open(bytes, key, name).map_err(RingRefused::Seal)?;
        let found = Taken { generation, written, bytes: bytes.to_vec() };
        match &self.taken {
            Some(taken) if found < *taken => {
                return Err(RingRefused::Older { generation, taken: taken.generation });
            }
            None if ring.is_stale(now) => return Err(RingRefused::Stale),
            _ => {}
        }
        self.taken = Some(found);
        Ok(Some(ring))
    }
}

/// Reason why a ring in storage is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRefused {
    /// It does not open.
    Seal(SealFault),
    /// It is older than the last ring taken.
    Older {
        /// Its generation.
        generation: u64,
        /// Generation of the last ring taken.
        taken: u64,
    },
    /// It should have been rotated more than a period ago.
    Stale,
}

/// A fault of a sealed ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealFault {
    /// It is too short, too long, of another version, or its header contradicts its content.
    Form,
    /// It was sealed with another key or for another site, or somebody has changed it.
    NotAuthentic,
    /// The content is not a ring.
    Text(TextError),
}

impl fmt::Display for RingRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seal(fault) => fault.fmt(f),
            Self::Older { generation, taken } => {
                write!(
                    f,
                    "the ring of generation {generation} is older than the one in use, \
                     of generation {taken}"
                )
            }
            Self::Stale => f.write_str("the ring should have been renewed more than a period ago"),
        }
    }
}

impl std::error::Error for RingRefused {}

impl fmt::Display for SealFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("this is not a sealed key ring, or has another version"),
            Self::NotAuthentic => {
                f.write_str("the ring was not sealed with this fleet key for this name")
            }
            Self::Text(error) => write!(f, "the sealed content is not a key ring: {error}"),
        }
    }
}

impl std::error::Error for SealFault {}

#[cfg(test)]
mod tests {
    use super::super::PERIOD;
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_790_000_000);
    const SITE: &str = "www";

    fn key() -> FleetKey {
        FleetKey::generate().unwrap()
    }

    fn ring() -> KeyRing {
        KeyRing::generate(NOW, PERIOD).unwrap()
    }

    fn ids(ring: &KeyRing) -> Vec<u8> {
        ring.epochs().map(|epoch| epoch.id).collect()
    }

    #[test]
    fn a_sealed_ring_opens_again_and_hides_its_secrets() {
        let (key, ring) = (key(), ring());
        let bytes = ring.seal(&key, SITE, 7, NOW).unwrap();
        assert!(bytes.len() <= SEALED_MAX);
        let open = Sealed::open(&bytes, &key, SITE).unwrap();
        assert_eq!((open.generation, open.written), (7, NOW));
        assert_eq!(*open.ring.to_text(), *ring.to_text());
        for epoch in ring.epochs() {
            let secret = &epoch.secret()[..8];
            assert!(!bytes.windows(8).any(|window| window == secret));
        }
        assert_ne!(ring.seal(&key, SITE, 7, NOW).unwrap(), bytes, "another nonce");
    }

    #[test]
    fn no_byte_of_a_sealed_ring_can_be_changed() {
        let (fleet, ring) = (key(), ring());
        let bytes = ring.seal(&fleet, SITE, 7, NOW).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let fault = Sealed::open(&changed, &fleet, SITE).unwrap_err();
            let expected = if at < 4 { SealFault::Form } else { SealFault::NotAuthentic };
            assert_eq!(fault, expected, "byte {at}");
        }
        for cut in 0..bytes.len() {
            assert!(Sealed::open(&bytes[..cut], &fleet, SITE).is_err(), "{cut} bytes");
        }
        let long = [&bytes[..], &[0; SEALED_MAX]].concat();
        assert_eq!(Sealed::open(&long, &fleet, SITE).unwrap_err(), SealFault::Form);
        for other in [Sealed::open(&bytes, &key(), SITE), Sealed::open(&bytes, &fleet, "api")] {
            assert_eq!(other.unwrap_err(), SealFault::NotAuthentic);
        }
    }

    #[test]
    fn takes_later_rings_only() {
        let (key, first) = (key(), ring());
        let second = first.rotated(NOW).unwrap();
        let (one, two) =
            (first.seal(&key, SITE, 1, NOW).unwrap(), second.seal(&key, SITE, 2, NOW).unwrap());
        let mut newest = Newest::default();
        let older = RingRefused::Older { generation: 1, taken: 2 };
        let steps: [(&[u8], _); 6] = [
            (&one, Ok(Some(ids(&first)))),
            (&one, Ok(None)), // it was taken already
            (&two, Ok(Some(ids(&second)))),
            (&one, Err(older)),
            (b"garbage", Err(RingRefused::Seal(SealFault::Form))),
            (&two, Ok(None)), // the ring taken stays
        ];
        for (step, (bytes, expected)) in steps.into_iter().enumerate() {
            let taken = newest.take(bytes, &key, SITE, NOW);
            assert_eq!(taken.map(|ring| ring.map(|ring| ids(&ring))), expected, "step {step}");
        }
    }

    /// Storage that loses its last change and is changed again has had two rings of one generation.
    #[test]
    fn takes_the_later_of_one_generation() {
        let (key, before) = (key(), ring());
        let [lost, kept] = [NOW, UnixSeconds(NOW.0 + 9)]
            .map(|now| before.rotated(now).unwrap().seal(&key, SITE, 2, now).unwrap());
        let mut newest = Newest::default();
        assert!(newest.take(&lost, &key, SITE, NOW).unwrap().is_some());
        assert!(newest.take(&kept, &key, SITE, NOW).unwrap().is_some());
        assert!(newest.take(&lost, &key, SITE, NOW).is_err());
    }

    #[test]
    fn all_take_the_same_of_one_generation_and_second() {
        let (key, before) = (key(), ring());
        let rings =
            [(); 2].map(|()| before.rotated(NOW).unwrap().seal(&key, SITE, 2, NOW).unwrap());
        for order in [[0, 1, 0], [1, 0, 1]] {
            let mut newest = Newest::default();
            let taken = order.map(|at| newest.take(&rings[at], &key, SITE, NOW));
            let last =
                taken.iter().zip(order).rev().find(|(taken, _)| matches!(taken, Ok(Some(_))));
            assert_eq!(Some(&rings[last.unwrap().1]), rings.iter().max(), "{order:?}");
        }
    }

    #[test]
    fn the_first_ring_must_not_be_stale() {
        let (key, ring) = (key(), ring());
        let bytes = ring.seal(&key, SITE, 1, NOW).unwrap();
        let last = NOW + PERIOD + PERIOD;
        assert!(Newest::default().take(&bytes, &key, SITE, last).unwrap().is_some());
        let late = UnixSeconds(last.0 + 1);
        let refused = Newest::default().take(&bytes, &key, SITE, late).unwrap_err();
        assert_eq!(refused, RingRefused::Stale);
        // A ring in use stays until there is another.
        let mut newest = Newest::default();
        newest.take(&bytes, &key, SITE, NOW).unwrap();
        assert!(newest.take(&bytes, &key, SITE, late).unwrap().is_none());
    }
}
