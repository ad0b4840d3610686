use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use headstart_proto::PlainReason;

use crate::advert::Advert;
use crate::dns::EdgeAdvert;
use crate::report::NotUsed;

/// Knowledge about the server: whether it accepts datagrams.
pub(super) enum Offer {
    /// It does not, for this reason.
    Never(NotUsed),
    /// It accepts them at every address, by configuration.
    Known(Advert),
    /// Not known until the host's lookup reports. Where that finds no advertisement, what the
    /// server itself has said stands.
    Awaited(Option<Learnt>),
    /// Not known before the ClientHello names the server at this address.
    Unnamed(SocketAddr),
    /// Not known until a separate lookup reports.
    Requested(Pin<Box<dyn Future<Output = Self> + Send>>),
    /// Advertised, for some addresses.
    Advertised(EdgeAdvert),
    /// Advertised inside TLS, on an earlier connection.
    Learnt(Learnt),
}

/// Advertisement inside TLS by the server at some addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) advert: Advert,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Offer {
    pub(super) fn requested(lookup: impl Future<Output = Self> + Send + 'static) -> Self {
        Self::Requested(Box::pin(lookup))
    }

    /// Returns the offer by the result of a lookup, and by what the server itself has said.
    pub(super) fn new(edge: Option<EdgeAdvert>, learnt: Option<Learnt>) -> Self {
        match (edge, learnt) {
            (Some(edge), _) => Self::Advertised(edge),
            (None, Some(learnt)) => Self::Learnt(learnt),
            (None, None) => Self::Never(NotUsed::NotAdvertised),
        }
    }

    /// Takes the result of the host's lookup, if that was awaited.
    pub(super) fn learn(&mut self, edge: Option<EdgeAdvert>) {
        match self {
            Self::Awaited(learnt) => *self = Self::new(edge, learnt.take()),
            Self::Advertised(_) => *self = Self::new(edge, None),
            _ => {}
        }
    }

    /// Drives a separate lookup.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Requested(lookup) = self
            && let Poll::Ready(answer) = lookup.as_mut().poll(cx)
        {
            *self = answer;
        }
    }

    /// Returns the offer at `address`, as far as known.
    pub(super) fn at(&self, address: SocketAddr) -> Option<Advert> {
        match self {
            Self::Known(advert) => Some(*advert),
            // W-DNS-1
            Self::Advertised(edge) => edge.addresses.contains(&address).then_some(edge.advert),
            // W-TLS-2
            Self::Learnt(learnt) => learnt.addresses.contains(&address).then_some(learnt.advert),
            Self::Never(_) | Self::Awaited(_) | Self::Unnamed(_) | Self::Requested(_) => None,
        }
    }

    /// Returns the reason why nothing was offered before TCP connected to `address`.
    pub(super) fn not_used_reason(&self, address: Option<SocketAddr>) -> NotUsed {
        match self {
            Self::Never(reason) => *reason,
            Self::Unnamed(_) => NotUsed::Literal,
            Self::Awaited(_) | Self::Requested(_) => NotUsed::AdvertLate,
            // TCP connected immediately, as on one machine.
            _ if address.is_some_and(|address| self.at(address).is_some()) => {
                NotUsed::Fallback(PlainReason::TcpFirst)
            }
            Self::Known(_) | Self::Advertised(_) | Self::Learnt(_) => NotUsed::OtherAddress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separate_lookup_ignores_the_lookup_of_the_address() {
        let mut offer = Offer::requested(std::future::pending());
        offer.learn(None);
        assert_eq!(offer.not_used_reason(None), NotUsed::AdvertLate);
        let mut offer = Offer::requested(std::future::ready(Offer::new(None, None)));
        offer.poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(offer.not_used_reason(None), NotUsed::NotAdvertised);
    }

    #[test]
    fn what_dns_advertises_goes_before_what_a_server_has_said() {
        let [here, there] = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 443)));
        let learnt = Learnt { advert: Advert::default(), addresses: vec![here] };
        let mut offer = Offer::Awaited(Some(learnt.clone()));
        assert_eq!(offer.at(here), None, "DNS may still say something else");
        offer.learn(None);
        // W-TLS-2
        assert_eq!((offer.at(here), offer.at(there)), (Some(Advert::default()), None));
        assert_eq!(offer.not_used_reason(Some(there)), NotUsed::OtherAddress);
        let mut offer = Offer::Awaited(Some(learnt));
        let advert = Advert { slots: 9, ..Advert::default() };
        offer.learn(Some(EdgeAdvert {
            advert,
            addresses: vec![there],
            target: "edge.test".into(),
            valid_until: std::time::Instant::now(),
        }));
        assert_eq!((offer.at(here), offer.at(there)), (None, Some(advert)));
    }
}
