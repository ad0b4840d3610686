use std::sync::Arc;
use std::time::Instant;

use headstart_net::Context;
use headstart_sessions::{
    CertificateNames, Origin, Server, Sharing, Stamp, Taken, Ticket, TicketsWanted,
};
use headstart_tls::{ClientContext, NewSession, Version};
use openssl::sha::Sha256;
use zeroize::Zeroizing;

use super::request::{TlsAsk, Verify};
use super::state::AgentState;

/// One connection, as the session store sees it: whose it is, and what it may have in common with
/// others.
pub(super) struct Visit {
    known: Arc<AgentState>,
    /// Held for as long as the connection is: so it is known how many there are.
    _client: Arc<ClientContext>,
    server: String,
    alpn: Vec<Vec<u8>>,
    /// Hash of the settings that two connections must share.
    settings: [u8; 32],
    /// Context of its sessions: nobody's, if it shares none.
    context: Context,
    /// True if other names of the server's certificate may have them.
    across_names: bool,
    /// True if it shows a certificate to servers that ask for one.
    shows_certificate: bool,
    opened: Stamp,
}

/// State that a connection begins with.
pub(super) struct Begun {
    pub(super) visit: Visit,
    /// Session to offer.
    pub(super) taken: Option<Taken>,
    /// Tickets to request.
    pub(super) wanted: TicketsWanted,
    /// Context whose Fast Open cookies may be spent and kept.
    pub(super) cookies: Context,
}

impl Begun {
    /// Returns the context to send to an upstream proxy: nobody's only if the connection shares
    /// no sessions, which tell a server the same, or shows a certificate, which connections without
    /// one do not.
    pub(super) fn login(&self) -> Context {
        let Visit { context: sessions, shows_certificate, .. } = &self.visit;
        match sessions.is_shared() && !shows_certificate {
            true => sessions.clone(),
            false => self.cookies.clone(),
        }
    }
}

impl Visit {
    /// Begins a connection of `caller` to `port`, which may take a session out of the store.
    pub(super) fn begin(
        known: &Arc<AgentState>,
        client: &Arc<ClientContext>,
        ask: &TlsAsk,
        port: u16,
        caller: &Context,
    ) -> Begun {
        let now = known.now();
        let mut store = known.store();
        let sharing = strictest(store.policy(caller).sharing, ask);
        let (sessions, cookies) = shared(sharing, ask, caller);
        let visit = Self {
            known: Arc::clone(known),
            _client: Arc::clone(client),
            settings: settings(client.fingerprint(), port),
            server: ask.server.to_string(),
            alpn: ask.alpn.clone(),
            context: sessions,
            across_names: sharing == Sharing::ShareCertificate,
            shows_certificate: ask.certificate.is_some(),
            opened: store.stamp(),
        };
        let taken = match visit.across_names {
            true => store.take_across_names(&visit.origin(), now),
            false => store.take(&visit.origin(), now),
        };
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
        self.known.now()
    }

    /// The handshake has never begun, so nobody has seen the session.
    pub(super) fn give_back(&self, taken: Taken) {
        let now = self.known.now();
        self.known.store().give_back(taken, now);
    }

    /// Keeps what the server has handed out on this connection, if it is kept at all.
    pub(super) fn put(&self, new: &NewSession, verified: Instant) {
        let now = self.known.now();
        let ticket = Ticket {
            session: Zeroizing::new(new.session.as_bytes().to_vec()),
            alpn: new.alpn.clone(),
            // What is replayed would be the owner's word.
            early_data_max: if new.client_certificate { 0 } else { new.max_early_data },
            lifetime: new.lifetime,
            received: now,
            verified,
            opened: self.opened,
            reusable: new.version == Some(Version::Tls12),
        };
        let (mut store, origin) = (self.known.store(), self.origin());
        let names = self.across_names.then(|| CertificateNames::new(&new.across_names)).flatten();
        let put = match names {
            Some(names) => store.put_across_names(&origin, &names, ticket, now),
            None => store.put(&origin, ticket, now),
        };
        if let Err(reason) = put {
            tracing::debug!(server = self.server, %reason, "session not kept");
        }
    }

    /// Calls `keep`, which stores something for `context`, such as cookies, unless the context was
    /// forgotten since the connection began. It cannot be forgotten during the call.
    pub(super) fn unless_forgotten(&self, context: &Context, keep: impl FnOnce()) {
        let store = self.known.store();
        if !store.was_forgotten(context, self.opened) {
            keep();
        }
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

/// The TLS settings and the port: behind another port there is mostly another server, which has
/// other ticket keys, and whose refusal of a ticket would have all others dropped.
fn settings(fingerprint: &[u8; 32], port: u16) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(fingerprint);
    hash.update(&port.to_be_bytes());
    hash.finish()
}

/// The stricter of the policy and what is asked for. Servers for other names are not to learn who
/// has shown a certificate to one.
fn strictest(policy: Sharing, ask: &TlsAsk) -> Sharing {
    let strictest = match (policy, ask.sharing) {
        (Sharing::Isolate, _) | (_, Some(Sharing::Isolate)) => Sharing::Isolate,
        (Sharing::Off, _) | (_, Some(Sharing::Off)) => Sharing::Off,
        (Sharing::ShareCertificate, Some(asked)) => asked,
        (policy, _) => policy,
    };
    match strictest {
        Sharing::ShareCertificate if ask.certificate.is_some() => Sharing::Share,
        strictest => strictest,
    }
}

/// The contexts of sessions and of cookies. Whoever is asked by a program that checks nothing may
/// be anybody: cookies of an interceptor are not to be shown by programs that would notice it.
/// Connections that show a certificate have no cookies in common with those that show none: they
/// would tell the server whose these are. Their sessions are apart by their settings.
fn shared(sharing: Sharing, ask: &TlsAsk, caller: &Context) -> (Context, Context) {
    let (sessions, cookies) = contexts(sharing, caller);
    let has_own = ask.verify != Verify::Nobody && ask.certificate.is_none();
    (sessions, if has_own { cookies } else { Context::UNKNOWN })
}

fn contexts(sharing: Sharing, caller: &Context) -> (Context, Context) {
    match sharing {
        Sharing::Isolate => (Context::UNKNOWN, Context::UNKNOWN),
        Sharing::Off => (Context::UNKNOWN, caller.clone()),
        Sharing::Share | Sharing::ShareCertificate => (caller.clone(), caller.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::inbound::Host;

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
        let (both, cookies, none) = ((true, true), (false, true), (false, false));
        for (policy, asked, expected) in [
            (Sharing::Share, None, both),
            (Sharing::Share, Some(Sharing::Off), cookies),
            (Sharing::Share, Some(Sharing::Isolate), none),
            (Sharing::Off, Some(Sharing::Share), cookies),
            (Sharing::Off, Some(Sharing::Isolate), none),
            (Sharing::Isolate, Some(Sharing::Share), none),
            (Sharing::Isolate, Some(Sharing::Off), none),
            (Sharing::ShareCertificate, Some(Sharing::Share), both),
        ] {
            let ask = ask(asked, None);
            let (sessions, cookies) = shared(strictest(policy, &ask), &ask, &me);
            assert_eq!((sessions == me, cookies == me), expected, "{policy:?} {asked:?}");
        }
        let asks = [None, Some(Sharing::Share)].map(|asked| ask(asked, None));
        let across = asks.map(|ask| strictest(Sharing::ShareCertificate, &ask));
        assert_eq!(across, [Sharing::ShareCertificate, Sharing::Share], "one name, if so asked");
    }

    #[test]
    fn ports_are_servers_of_their_own() {
        assert_eq!(settings(&[1; 32], 443), settings(&[1; 32], 443));
        assert_ne!(settings(&[1; 32], 443), settings(&[1; 32], 8443));
        assert_ne!(settings(&[1; 32], 443), settings(&[2; 32], 443));
    }

    #[test]
    fn a_certificate_shares_sessions_of_one_name_and_no_cookies() {
        let (me, work) = (Context::user(1), ask(None, Some("work")));
        let sharing = strictest(Sharing::ShareCertificate, &work);
        assert_eq!(sharing, Sharing::Share);
        assert_eq!(shared(sharing, &work, &me), (me.clone(), Context::UNKNOWN));
        let isolated = strictest(Sharing::Share, &ask(Some(Sharing::Isolate), Some("work")));
        assert_eq!(shared(isolated, &work, &me), (Context::UNKNOWN, Context::UNKNOWN));
    }

    #[test]
    fn who_checks_nothing_shares_no_cookies() {
        let (me, ask) = (Context::user(1), ask(None, None));
        let anybody = TlsAsk { verify: Verify::Nobody, ..ask };
        let sessions_alone = (me.clone(), Context::UNKNOWN);
        assert_eq!(shared(Sharing::Share, &anybody, &me), sessions_alone);
    }
}
