use std::net::SocketAddr;
use std::time::Instant;

use crate::context::Context;
use crate::host::normal;
use crate::limits::{OFFER_ADDRESSES, OFFER_LIFE, OFFERS};
use crate::origin::Whose;
use crate::table::{Owned, Table};

/// Offers that servers made inside TLS, such as other ways to connect: by owner, host and port, and
/// each for the addresses that made it.
#[derive(Debug)]
pub struct OfferMemory<T> {
    rows: Table<Key, Row<T>>,
}

/// A host's port as the owner of a connection sees it.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// The host's name, in any case, with or without a final dot.
    pub host: &'a str,
    /// Its TCP port.
    pub port: u16,
    /// Owner of the connection.
    pub context: &'a Context,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    host: Box<str>,
    port: u16,
    context: Context,
}

#[derive(Debug)]
struct Row<T> {
    offer: T,
    /// Addresses that made it, the latest last.
    addresses: Vec<SocketAddr>,
    end: Instant,
}

impl<T> Default for OfferMemory<T> {
    fn default() -> Self {
        Self { rows: Table::default() }
    }
}

impl<T: Clone + PartialEq> OfferMemory<T> {
    /// Keeps the offer that the server at `address` makes now. Another offer than the kept one is
    /// made by this address alone.
    pub fn put(&mut self, service: &Service<'_>, address: SocketAddr, offer: T, now: Instant) {
        let Some(key) = Key::new(service) else { return };
        let kept = self.rows.remove(&key).filter(|row| row.offer == offer && now < row.end);
        let mut addresses = kept.map_or_else(Vec::new, |row| row.addresses);
        addresses.retain(|known| *known != address);
        if addresses.len() == OFFER_ADDRESSES {
            addresses.remove(0);
        }
        addresses.push(address);
        self.rows.make_room(key.user(), OFFERS);
        self.rows.use_or_insert(key, || Row { offer, addresses, end: now + OFFER_LIFE });
    }

    /// Returns the offer of a service, and the addresses that made it.
    pub fn get(&mut self, service: &Service<'_>, now: Instant) -> Option<(T, Vec<SocketAddr>)> {
        let row = self.rows.use_row(&Key::new(service)?)?;
        (now < row.end).then(|| (row.offer.clone(), row.addresses.clone()))
    }

    /// Forgets the offer of a service, such as one that did not hold.
    pub fn remove(&mut self, service: &Service<'_>) {
        if let Some(key) = Key::new(service) {
            self.rows.remove(&key);
        }
    }

    /// Forgets the offers made to any of these contexts.
    pub fn forget(&mut self, whose: Whose<'_>) {
        self.rows.retain(|key, _| !whose.includes(&key.context));
    }
}

impl Key {
    /// `None` if the context shares nothing, or the host is no name.
    fn new(service: &Service<'_>) -> Option<Self> {
        let Service { host, port, context } = *service;
        let host = normal(host).filter(|_| context.is_shared())?;
        Some(Self { host, port, context: context.clone() })
    }
}

impl Owned for Key {
    fn user(&self) -> Option<u32> {
        self.context.uid
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn service<'a>(host: &'a str, context: &'a Context) -> Service<'a> {
        Service { host, port: 443, context }
    }

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 443).into()
    }

    #[test]
    fn an_offer_is_its_context_s_service_s_and_address_s_own() {
        let (me, now) = (Context::user(1), Instant::now());
        let mut offers = OfferMemory::default();
        offers.put(&service("A.test.", &me), address(1), "turbo", now);
        let found = offers.get(&service("a.test", &me), now);
        assert_eq!(found, Some(("turbo", vec![address(1)])));
        let private = Context { label: Some("private".into()), ..me.clone() };
        for other in [
            service("a.test", &Context::user(2)),
            service("a.test", &private),
            service("b.test", &me),
            Service { port: 853, ..service("a.test", &me) },
        ] {
            assert_eq!(offers.get(&other, now), None, "{other:?}");
        }
        offers.forget(Whose::Context(&private));
        assert!(offers.get(&service("a.test", &me), now).is_some());
        offers.forget(Whose::User(1));
        assert_eq!(offers.get(&service("a.test", &me), now), None);
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let (nobody, now) = (Context::UNKNOWN, Instant::now());
        let mut offers = OfferMemory::default();
        offers.put(&service("a.test", &nobody), address(1), "turbo", now);
        assert_eq!(offers.get(&service("a.test", &nobody), now), None);
        assert_eq!(offers.rows.len(), 0);
    }

    #[test]
    fn an_offer_ends_unless_it_is_made_again() {
        let (me, now) = (Context::user(1), Instant::now());
        let mut offers = OfferMemory::default();
        let here = service("a.test", &me);
        offers.put(&here, address(1), "turbo", now);
        let later = now + OFFER_LIFE - Duration::from_secs(1);
        offers.put(&here, address(2), "turbo", later);
        let both = vec![address(1), address(2)];
        assert_eq!(offers.get(&here, now + OFFER_LIFE), Some(("turbo", both)));
        assert_eq!(offers.get(&here, later + OFFER_LIFE), None);
        offers.put(&here, address(3), "turbo", later + OFFER_LIFE);
        let alone = Some(("turbo", vec![address(3)]));
        assert_eq!(offers.get(&here, later + OFFER_LIFE), alone, "what has ended is not renewed");
        offers.put(&here, address(1), "other", now);
        assert_eq!(offers.get(&here, now), Some(("other", vec![address(1)])));
        offers.remove(&here);
        assert_eq!(offers.get(&here, now), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (me, now) = (Context::user(1), Instant::now());
        let mut offers = OfferMemory::default();
        for number in 0..=OFFERS {
            offers.put(&service(&format!("{number}.test"), &me), address(1), number, now);
        }
        assert_eq!(offers.rows.len(), OFFERS);
        assert_eq!(offers.get(&service("0.test", &me), now), None);
        assert!(offers.get(&service("1.test", &me), now).is_some());
        let many = service("many.test", &me);
        let made = (0..=u8::try_from(OFFER_ADDRESSES).unwrap()).map(address);
        made.clone().for_each(|address| offers.put(&many, address, 7, now));
        assert_eq!(offers.get(&many, now), Some((7, made.skip(1).collect())));
    }
}
