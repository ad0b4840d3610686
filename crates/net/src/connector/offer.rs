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
    /// Not known until the host's lookup reports.
    Awaited,
    /// Not known before the ClientHello names the server at this address.
    Unnamed(SocketAddr),
    /// Not known until a separate lookup reports.
    Requested(Pin<Box<dyn Future<Output = Self> + Send>>),
    /// Advertised, for some addresses.
    Advertised(EdgeAdvert),
    /// Advertised inside TLS by the server at these addresses, on an earlier connection.
    Learnt(Advert, Vec<SocketAddr>),
}

impl Offer {
    pub(super) fn requested(lookup: impl Future<Output = Self> + Send + 'static) -> Self {
        Self::Requested(Box::pin(lookup))
    }

    /// Takes the result of the host's lookup, if that was awaited. Where there is no advertisement,
    /// what the server itself has said stands.
    pub(super) fn learn(&mut self, edge: Option<EdgeAdvert>) {
        match self {
            Self::Awaited | Self::Advertised(_) => *self = edge.into(),
            Self::Learnt(..) if edge.is_some() => *self = edge.into(),
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
            Self::Learnt(advert, made) => made.contains(&address).then_some(*advert),
            Self::Never(_) | Self::Awaited | Self::Unnamed(_) | Self::Requested(_) => None,
        }
    }

    /// Returns the reason why nothing was offered before TCP connected to `address`.
    pub(super) fn not_used_reason(&self, address: Option<SocketAddr>) -> NotUsed {
        match self {
            Self::Never(reason) => *reason,
            Self::Unnamed(_) => NotUsed::Literal,
            Self::Awaited | Self::Requested(_) => NotUsed::AdvertLate,
            // TCP connected immediately, as on one machine.
            _ if address.is_some_and(|address| self.at(address).is_some()) => {
                NotUsed::Fallback(PlainReason::TcpFirst)
            }
            Self::Known(_) | Self::Advertised(_) | Self::Learnt(..) => NotUsed::OtherAddress,
        }
    }
}

impl From<Option<EdgeAdvert>> for Offer {
    fn from(edge: Option<EdgeAdvert>) -> Self {
        edge.map_or(Self::Never(NotUsed::NotAdvertised), Self::Advertised)
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
        let mut offer = Offer::requested(std::future::ready(None.into()));
        offer.poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(offer.not_used_reason(None), NotUsed::NotAdvertised);
    }

    #[test]
    fn what_dns_advertises_goes_before_what_a_server_has_said() {
        let [here, there] = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 443)));
        let mut offer = Offer::Learnt(Advert::default(), vec![here]);
        // W-TLS-2
        assert_eq!((offer.at(here), offer.at(there)), (Some(Advert::default()), None));
        assert_eq!(offer.not_used_reason(Some(there)), NotUsed::OtherAddress);
        offer.learn(None);
        assert_eq!(offer.at(here), Some(Advert::default()));
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
