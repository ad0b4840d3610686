use std::sync::Arc;
use std::time::Instant;

use headstart_net::Context;
use headstart_sessions::{Origin, Server, Sharing, Stamp, Taken, Ticket, TicketsWanted};
use headstart_tls::{ClientContext, NewSession, Version};
use openssl::sha::Sha256;
use zeroize::Zeroizing;

use super::known::Known;
use super::request::TlsAsk;

/// One connection, as the session store sees it: whose it is, and what it may have in common with others.
pub(super) struct Visit {
    known: Arc<Known>,
    server: String,
    alpn: Vec<Vec<u8>>,
    /// What else two connections have to have in common.
    settings: [u8; 32],
    /// That of its sessions: nobody's, if it shares none.
    context: Context,
    opened: Stamp,
}

/// What a connection begins with.
pub(super) struct Begun {
    pub(super) visit: Visit,
    /// To be offered.
    pub(super) taken: Option<Taken>,
    /// To be asked for.
    pub(super) wanted: TicketsWanted,
    /// Whose Fast Open cookies may be spent and kept.
    pub(super) cookies: Context,
}

impl Visit {
    /// Begins a connection of `caller` to `port`, which may take a session out of the store.
    pub(super) fn begin(
        known: &Arc<Known>,
        client: &ClientContext,
        ask: &TlsAsk,
        port: u16,
        caller: &Context,
    ) -> Begun {
        let now = Instant::now();
        let mut store = known.store();
        let (sessions, cookies) = shared(store.policy(caller).sharing, ask, caller);
        let visit = Self {
            known: Arc::clone(known),
            settings: settings(client.fingerprint(), port),
            server: ask.server.to_string(),
            alpn: ask.alpn.clone(),
            context: sessions,
            opened: store.stamp(),
        };
        let taken = store.take(&visit.origin(), now);
        let wanted = store.wanted(&visit.origin(), now);
        Begun { taken, wanted, cookies, visit }
    }

    /// The handshake is done: says when the server has last proven who it is.
    pub(super) fn on_done(&self, taken: Option<Taken>, resumed: bool) -> Instant {
        match taken {
            Some(taken) if resumed => return taken.verified(),
            Some(taken) => {
                self.known.store().refused(taken);
            }
            None => {}
        }
        Instant::now()
    }

    /// The handshake has never begun, so nobody has seen the session.
    pub(super) fn give_back(&self, taken: Taken) {
        self.known.store().give_back(taken, Instant::now());
    }

    /// Keeps what the server has handed out on this connection, if it is kept at all.
    pub(super) fn put(&self, new: &NewSession, verified: Instant) {
        let now = Instant::now();
        let ticket = Ticket {
            session: Zeroizing::new(new.session.as_bytes().to_vec()),
            alpn: new.alpn.clone(),
            early_data_max: new.max_early_data,
            lifetime: new.lifetime,
            received: now,
            verified,
            opened: self.opened,
            client_certificate: new.client_certificate,
            reusable: new.version == Some(Version::Tls12),
        };
        if let Err(reason) = self.known.store().put(&self.origin(), ticket, now) {
            tracing::debug!(server = self.server, %reason, "session not kept");
        }
    }

    /// Notes whether the server takes Fast Open cookies.
    pub(super) fn note_cookies(&self, takes: bool) {
        self.known.note_cookies(&self.server, takes);
    }

    fn origin(&self) -> Origin<'_> {
        Origin {
            server: Server::Name(&self.server),
            alpn: &self.alpn,
            settings: &self.settings,
            context: &self.context,
        }
    }
}

/// The TLS settings and the port: behind another port there is mostly another server, which has other ticket keys,
/// and whose refusal of a ticket would have all others dropped.
fn settings(fingerprint: &[u8; 32], port: u16) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(fingerprint);
    hash.update(&port.to_be_bytes());
    hash.finish()
}

/// The contexts of sessions and of cookies: the stricter of the policy and what is asked for counts. A
/// certificate that is shown is the owner's alone, and so is whatever comes of it.
fn shared(policy: Sharing, ask: &TlsAsk, caller: &Context) -> (Context, Context) {
    let strictest = match (policy, ask.sharing) {
        _ if ask.certificate.is_some() => Sharing::Isolate,
        (Sharing::Isolate, _) | (_, Some(Sharing::Isolate)) => Sharing::Isolate,
        (Sharing::Off, _) | (_, Some(Sharing::Off)) => Sharing::Off,
        (policy, _) => policy,
    };
    match strictest {
        Sharing::Isolate => (Context::UNKNOWN, Context::UNKNOWN),
        Sharing::Off => (Context::UNKNOWN, caller.clone()),
        Sharing::Share | Sharing::ShareCertificate => (caller.clone(), caller.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::inbound::Host;
    use crate::agent::managed::request::Verify;

    fn ask(sharing: Option<Sharing>, certificate: Option<&str>) -> TlsAsk {
        TlsAsk {
            server: Host::parse("a.example").unwrap(),
            alpn: Vec::new(),
            sharing,
            early_data: Vec::new(),
            verify: Verify::System,
            certificate: certificate.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_asked_for_can_only_be_stricter() {
        let me = Context::user(1);
        let of = |policy, asked| {
            let (sessions, cookies) = shared(policy, &ask(asked, None), &me);
            (sessions == me, cookies == me)
        };
        let (both, cookies, none) = ((true, true), (false, true), (false, false));
        assert_eq!(of(Sharing::Share, None), both);
        assert_eq!(of(Sharing::Share, Some(Sharing::Off)), cookies);
        assert_eq!(of(Sharing::Share, Some(Sharing::Isolate)), none);
        assert_eq!(of(Sharing::Off, Some(Sharing::Share)), cookies);
        assert_eq!(of(Sharing::Off, Some(Sharing::Isolate)), none);
        assert_eq!(of(Sharing::Isolate, Some(Sharing::Share)), none);
        assert_eq!(of(Sharing::Isolate, Some(Sharing::Off)), none);
        assert_eq!(of(Sharing::ShareCertificate, Some(Sharing::Share)), both);
    }

    #[test]
    fn ports_are_servers_of_their_own() {
        assert_eq!(settings(&[1; 32], 443), settings(&[1; 32], 443));
        assert_ne!(settings(&[1; 32], 443), settings(&[1; 32], 8443));
        assert_ne!(settings(&[1; 32], 443), settings(&[2; 32], 443));
    }

    #[test]
    fn a_certificate_shares_nothing() {
        let nobody = (Context::UNKNOWN, Context::UNKNOWN);
        assert_eq!(shared(Sharing::Share, &ask(None, Some("work")), &Context::user(1)), nobody);
    }
}
