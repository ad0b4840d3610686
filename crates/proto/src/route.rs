//! Route tags, which tell the edges of a fleet, and only those with the keys, which edge owns a
//! session.
//!
//! | bits of the tag | field |
//! |---|---|
//! | 31-30 | the id of the key's epoch, modulo 4; in clear |
//! | 29-22 | number of the edge, masked |
//! | 21-0 | identifier of this start of the edge, masked |
//!
//! The mask is the low 30 bits of SipHash-2-4 of the session id: a different one for every session,
//! so two tags do not reveal whether one edge made them. Anyone with the key finds their owner
//! without asking another edge. A tag that would be zero, which stands for no tag, becomes all
//! ones.

use core::fmt;
use core::num::NonZeroU8;

use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

use crate::id::{RouteTag, SessionId};

/// Bits that identify a start of an edge.
const START_BITS: u32 = 22;

/// Mask of the masked bits: number and start.
const MASKED: u32 = (1 << (START_BITS + 8)) - 1;

/// The number of an edge in its fleet, from 1 to 255.
///
/// No balancer gives one name more addresses than that; the rest of the four bytes tells starts
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeNumber(pub NonZeroU8);

impl EdgeNumber {
    /// Returns the edge of that number; `None` for 0.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        NonZeroU8::new(number).map(Self)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0.get()
    }
}

impl fmt::Display for EdgeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The mask of one epoch of the key ring; wiped when dropped.
#[derive(Clone)]
#[cfg_attr(test, derive(Hash))]
pub struct RouteKey {
    epoch: u8,
    key: [u8; 16],
}

impl RouteKey {
    /// Creates the key of the epoch with that id.
    #[must_use]
    pub const fn new(epoch: u8, key: [u8; 16]) -> Self {
        Self { epoch, key }
    }

    fn mask(&self, id: &SessionId) -> u32 {
        let [a, b, c, d, ..] = SipHasher24::new_with_key(&self.key).hash(&id.0).to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) & MASKED
    }

    /// Returns the two bits in clear, shifted into position.
    fn mark(&self) -> u32 {
        u32::from(self.epoch & 3) << 30
    }
}

impl Drop for RouteKey {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteKey").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The keys of one moment: the current one makes tags, and any of them reads them.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub struct RouteRing {
    /// The previous key; `None` in a new ring.
    pub previous: Option<RouteKey>,
    /// The key that makes tags.
    pub current: RouteKey,
    /// The next key: other edges may have rotated already.
    pub next: RouteKey,
}

/// Routing state of an edge in a fleet: its own number and the shared keys.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub struct Routes {
    /// The number of this edge.
    pub own: EdgeNumber,
    /// Keys that mask tags.
    pub ring: RouteRing,
}

impl Routes {
    /// Returns the tag of a session here; the low 22 bits of `start` tell starts of this edge
    /// apart.
    #[must_use]
    pub fn tag(&self, start: u32, id: &SessionId) -> RouteTag {
        let key = &self.ring.current;
        let number = u32::from(self.own.get()) << START_BITS;
        let start = start & ((1 << START_BITS) - 1);
        let tag = key.mark() | ((number | start) ^ key.mask(id));
        // W-TAG-5
        RouteTag((if tag == 0 { u32::MAX } else { tag }).to_be_bytes())
    }

    /// Returns the edge whose tag of this session it is; `None` if no key fits, or the number is
    /// zero.
    ///
    /// Any four bytes may decode to some edge: only that edge knows whether it has the session.
    #[must_use]
    pub fn owner(&self, tag: RouteTag, id: &SessionId) -> Option<EdgeNumber> {
        if tag == RouteTag::default() {
            return None;
        }
        let tag = u32::from_be_bytes(tag.0);
        let ring = &self.ring;
        // W-TAG-4
        let mut keys = [&ring.current].into_iter().chain(&ring.previous).chain([&ring.next]);
        let key = keys.find(|key| key.mark() == tag & !MASKED)?;
        let [_, _, _, number] = (((tag ^ key.mask(id)) & MASKED) >> START_BITS).to_be_bytes();
        EdgeNumber::new(number)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn edge(number: u8) -> EdgeNumber {
        EdgeNumber::new(number).unwrap()
    }

    fn ring(epochs: [u8; 3]) -> RouteRing {
        let [previous, current, next] = epochs.map(|epoch| RouteKey::new(epoch, [epoch; 16]));
        RouteRing { previous: Some(previous), current, next }
    }

    fn routes(number: u8) -> Routes {
        Routes { own: edge(number), ring: ring([6, 7, 8]) }
    }

    fn ids() -> impl Iterator<Item = SessionId> {
        (0..=255).map(|n| SessionId([n; 12]))
    }

    #[test]
    fn any_edge_of_the_fleet_reads_any_number() {
        for id in ids() {
            for number in [1, 2, 128, 255] {
                let tag = routes(number).tag(0xabc_def0, &id);
                assert_ne!(tag, RouteTag::default());
                assert_eq!(routes(9).owner(tag, &id), Some(edge(number)));
            }
        }
    }

    // W-TAG-4
    #[test]
    fn edges_one_rotation_apart_read_each_other() {
        let (behind, ahead) = (routes(1), Routes { own: edge(2), ring: ring([7, 8, 9]) });
        for id in ids() {
            assert_eq!(ahead.owner(behind.tag(1, &id), &id), Some(edge(1)));
            assert_eq!(behind.owner(ahead.tag(1, &id), &id), Some(edge(2)));
        }
        let far = Routes { own: edge(3), ring: ring([9, 10, 11]) };
        let id = SessionId([1; 12]);
        assert_eq!(
            far.owner(Routes { ring: ring([3, 4, 5]), ..far.clone() }.tag(1, &id), &id),
            None
        );
    }

    #[test]
    fn starts_of_one_edge_have_other_tags() {
        let id = SessionId([1; 12]);
        assert_ne!(routes(1).tag(1, &id), routes(1).tag(2, &id));
        assert_eq!(routes(1).tag(1, &id), routes(1).tag(1 | 1 << START_BITS, &id));
    }

    /// Checks that neither the number nor the start shows: over many sessions each masked bit is
    /// set about half the time, and two tags of one edge agree in them no more often than tags of
    /// two edges.
    #[test]
    fn tags_look_random_without_the_key() {
        let (one, other) = (routes(1), routes(2));
        let mut ones = [0_u32; 30];
        let mut agreeing = [0_u32; 2];
        let sessions: Vec<_> = (0_u16..4096)
            .map(|n| {
                let mut id = [0; 12];
                id[..2].copy_from_slice(&n.to_be_bytes());
                SessionId(id)
            })
            .collect();
        for pair in sessions.chunks(2) {
            let [tag, same, different] =
                [one.tag(5, &pair[0]), one.tag(5, &pair[1]), other.tag(6, &pair[1])]
                    .map(|tag| u32::from_be_bytes(tag.0) & MASKED);
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += tag >> bit & 1;
            }
            agreeing[0] += (tag ^ same).count_zeros() - 2;
            agreeing[1] += (tag ^ different).count_zeros() - 2;
        }
        for count in ones {
            assert!((850..1200).contains(&count), "{ones:?}");
        }
        // 2,048 pairs of 30 bits: half agree, give or take five standard deviations.
        for count in agreeing {
            assert!((30_100..31_340).contains(&count), "{agreeing:?}");
        }
    }

    #[test]
    fn an_invalid_tag_has_no_owner() {
        let id = SessionId([1; 12]);
        assert_eq!(routes(1).owner(RouteTag::default(), &id), None);
        let foreign = RouteTag((5_u32 << 30).to_be_bytes()); // epoch 1 modulo 4, which no key has
        assert_eq!(routes(1).owner(foreign, &id), None);
        let key = routes(1).ring.current;
        let zero = RouteTag((key.mark() | key.mask(&id)).to_be_bytes());
        assert_eq!(routes(1).owner(zero, &id), None, "number 0");
    }

    #[test]
    fn an_edge_is_shown_by_its_number() {
        assert_eq!(alloc::format!("{:>4}", edge(42)), "  42");
    }

    #[test]
    fn keys_do_not_show() {
        let shown = alloc::format!("{:?}", RouteKey::new(7, [0xab; 16]));
        assert_eq!(shown, "RouteKey { epoch: 7, .. }");
    }
}
