//! OpenSSL's callbacks during a server's handshake.

use std::sync::Arc;

use headstart_proto::cookie::{EXTENSION_TYPE, OFFER_LEN};
use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use openssl::ssl::{
    AlpnError, ClientHelloResponse, ExtensionContext, SslAlert, SslContextBuilder, SslRef,
    SslSessionRef, SslVersion,
};

use crate::ffi::{self, IV, KEY_NAME, Seal, TicketHooks, TicketKeys, guard};
use crate::flags;
use crate::keyring::{Epoch, Purpose};
use crate::limits::RESUMPTION_LIFE;
use crate::server::accepted::Accepted;
use crate::server::config::TicketBinding;
use crate::server::replay::FirstSeen;
use crate::session::ADVERT_EXTENSION;
use crate::ticket_request::{self, HINT_LEN, TicketRequest};
use crate::wire::{PRE_SHARED_KEY, SERVER_NAME, TicketData, binder_hash, server_name};

/// Installs all of them in a context. OpenSSL finds callbacks by type, so all contexts of a program
/// have to get them here.
pub(super) fn install(tls: &mut SslContextBuilder, alpn: &[Vec<u8>]) -> Result<(), ErrorStack> {
    tls.set_client_hello_callback(|ssl, _| {
        guard(Err(ErrorStack::get()), || on_hello(ssl)).map(|()| ClientHelloResponse::SUCCESS)
    });
    // Makes OpenSSL acknowledge the name and keep it in the session.
    tls.set_servername_callback(|_, _| Ok(()));
    if !alpn.is_empty() {
        let own: Arc<[Vec<u8>]> = alpn.into();
        tls.set_alpn_select_callback(move |_, offered| {
            guard(None, || select(&own, offered)).ok_or(AlpnError::ALERT_FATAL)
        });
    }
    tls.add_custom_ext(
        EXTENSION_TYPE,
        ExtensionContext::CLIENT_HELLO
            | ExtensionContext::TLS1_3_NEW_SESSION_TICKET
            | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || cookie_offer(ssl))),
        |ssl, _, content, _| guard(Err(SslAlert::INTERNAL_ERROR), || on_fop_request(ssl, content)),
    )?;
    tls.add_custom_ext(
        flags::EXTENSION_TYPE,
        ExtensionContext::TLS1_3_NEW_SESSION_TICKET | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || ticket_flags(ssl))),
        |_, _, _, _| Ok(()),
    )?;
    tls.add_custom_ext(
        ticket_request::EXTENSION_TYPE,
        ExtensionContext::CLIENT_HELLO
            | ExtensionContext::TLS1_3_ENCRYPTED_EXTENSIONS
            | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || ticket_hint(ssl))),
        |ssl, _, content, _| {
            guard(Err(SslAlert::INTERNAL_ERROR), || on_ticket_request(ssl, content))
        },
    )?;
    // Clients ignore what they do not know in a ticket (RFC 8446 section 4.6.1), and it answers
    // nothing in the ClientHello: so it needs no request, which would show headstart.
    tls.add_custom_ext(
        ADVERT_EXTENSION,
        ExtensionContext::TLS1_3_NEW_SESSION_TICKET | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || Accepted::from_ssl(ssl)?.serving.advert.clone())),
        |_, _, _, _| Ok(()),
    )?;
    ffi::set_ticket_hooks::<Tickets>(tls)
}

/// Chooses the host before OpenSSL reads tickets, and ties the session to it.
fn on_hello(ssl: &mut SslRef) -> Result<(), ErrorStack> {
    let Some(accepted) = Accepted::from_ssl(ssl).cloned() else { return Ok(()) };
    let name = ffi::hello_extension(ssl, SERVER_NAME).and_then(server_name);
    let binder = ffi::hello_extension(ssl, PRE_SHARED_KEY).and_then(binder_hash);
    let host = accepted.serving.hosts.find(name.as_deref());
    ssl.set_ssl_context(&host.context)?;
    ffi::set_session_id_context(ssl, &accepted.serving.binding(host, name.as_deref()))?;
    accepted.on_hello(name, binder);
    Ok(())
}

/// Returns the first of our protocols that the client offers, as a slice of the client's list.
fn select<'a>(own: &[Vec<u8>], offered: &'a [u8]) -> Option<&'a [u8]> {
    own.iter().find_map(|own| protocols(offered).find(|name| *name == own.as_slice()))
}

/// Yields the names in an ALPN list (RFC 7301 section 3.1), as far as they are well-formed.
fn protocols(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = list.split_first()?;
        let (name, rest) = rest.split_at_checked(length.into())?;
        list = rest;
        Some(name)
    })
}

/// Returns the content of the extension in a NewSessionTicket, with a new cookie for each.
fn cookie_offer(ssl: &SslRef) -> Option<[u8; OFFER_LEN]> {
    Accepted::from_ssl(ssl)?.offer(ssl).map(|offer| offer.emit())
}

/// Returns the content of tls_flags in a NewSessionTicket.
fn ticket_flags(ssl: &SslRef) -> Option<[u8; 3]> {
    let accepted = Accepted::from_ssl(ssl)?;
    let serving = &accepted.serving;
    let host = serving.hosts.find(accepted.hello().server_name.as_deref());
    let shares = serving.ticket_binding == TicketBinding::Certificate && host.owns_names;
    shares.then_some(flags::ONLY_ACROSS_NAMES)
}

/// Handles the request for cookies: an empty extension of the ClientHello.
fn on_fop_request(ssl: &SslRef, content: &[u8]) -> Result<(), SslAlert> {
    if !content.is_empty() {
        // F-EXTENSION-3
        return Err(SslAlert::DECODE_ERROR);
    }
    if let Some(accepted) = Accepted::from_ssl(ssl) {
        accepted.on_fop_request();
    }
    Ok(())
}

/// Sends as many tickets as the client asks for, and tells it so (RFC 9149 section 3). By now it is
/// decided whether a session is resumed.
fn ticket_hint(ssl: &mut SslRef) -> Option<[u8; HINT_LEN]> {
    let count = Accepted::from_ssl(ssl)?.tickets_asked_for(ssl.session_reused())?;
    ssl.set_num_tickets(count.into()).ok()?;
    Some([count])
}

fn on_ticket_request(ssl: &SslRef, content: &[u8]) -> Result<(), SslAlert> {
    let request = TicketRequest::parse(content).ok_or(SslAlert::DECODE_ERROR)?;
    if let Some(accepted) = Accepted::from_ssl(ssl) {
        accepted.on_ticket_request(request);
    }
    Ok(())
}

/// Tickets under the key ring.
///
/// They start with a fresh cookie, or with the epoch's name if cookies are not handed out; then
/// comes the IV, whose first byte is the epoch's id. So two tickets share nothing that would link
/// them, except that id, which all clients of the epoch share.
enum Tickets {}

impl TicketHooks for Tickets {
    fn seal(ssl: &SslRef) -> Option<Seal> {
        let accepted = Accepted::from_ssl(ssl)?;
        let ring = accepted.serving.keyring.current();
        let epoch = &ring.current;
        let mut iv = [0; IV];
        rand_bytes(&mut iv).ok()?;
        iv[0] = epoch.id;
        // F-TICKET-1
        let cookie = accepted.mint(ssl);
        let key_name = cookie.map_or_else(|| epoch.ticket_name(), |cookie| *cookie.as_bytes());
        Some(Seal { key_name, iv, keys: keys(epoch) })
    }

    fn open(ssl: &SslRef, key_name: &[u8; KEY_NAME], iv: &[u8; IV]) -> Option<TicketKeys> {
        // F-TICKET-4
        Accepted::from_ssl(ssl)?.serving.keyring.current().epoch_of(key_name, iv).map(keys)
    }

    fn data(ssl: &SslRef) -> Vec<u8> {
        let Some(accepted) = Accepted::from_ssl(ssl) else { return Vec::new() };
        let resumed = ssl.session().filter(|_| ssl.session_reused()).and_then(data_of);
        let data = TicketData {
            scope: accepted.serving.replay.scope(),
            name: TicketData::name_hash(accepted.hello().server_name.as_deref()),
            since: resumed.map_or(accepted.now, |data| data.since),
        };
        data.emit().to_vec()
    }

    fn takes(ssl: &SslRef, session: &SslSessionRef) -> bool {
        let Some(accepted) = Accepted::from_ssl(ssl) else { return false };
        match data_of(session) {
            Some(data) => {
                // Of TLS 1.2 a session belongs to its name (RFC 6066 section 3).
                let fits = session.protocol_version() == SslVersion::TLS1_3
                    || data.name == TicketData::name_hash(accepted.hello().server_name.as_deref());
                fits && accepted.now.since(data.since) <= RESUMPTION_LIFE
            }
            // Where others make tickets, those from their full handshakes carry no time: count them
            // as made now. Tickets that they renew from ours still carry it, since OpenSSL copies
            // unknown data.
            None => {
                accepted.serving.takes_tickets_of_others()
                    && ffi::ticket_data_of(session).is_empty()
            }
        }
    }

    fn allows_early_data(ssl: &SslRef) -> bool {
        Accepted::from_ssl(ssl).and_then(|accepted| is_first(ssl, accepted)).unwrap_or(false)
    }
}

/// Returns true if early data may be accepted: with a ticket of this filter's scope that allows it,
/// for the name of the ticket, the first time it arrives.
fn is_first(ssl: &SslRef, accepted: &Accepted) -> Option<bool> {
    let (session, hello) = (ssl.session()?, accepted.hello());
    let ticket = data_of(session)?;
    let (filter, binder) = (&accepted.serving.replay, hello.binder?);
    let fits = session.max_early_data() > 0
        && ticket.name == TicketData::name_hash(hello.server_name.as_deref());
    let said_before = accepted.first == Some(FirstSeen { scope: ticket.scope, binder });
    // The filter remembers the binder: it is asked last.
    Some(fits && (said_before || ticket.scope == filter.scope() && filter.is_first(binder)))
}

/// Returns our data in the ticket of a session.
fn data_of(session: &SslSessionRef) -> Option<TicketData> {
    TicketData::parse(ffi::ticket_data_of(session))
}

fn keys(epoch: &Epoch) -> TicketKeys {
    TicketKeys {
        cipher: epoch.derive(Purpose::TicketCipher),
        mac: epoch.derive(Purpose::TicketMac),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_s_preference_decides() {
        let own = [b"h2".to_vec(), b"http/1.1".to_vec()];
        assert_eq!(select(&own, b"\x08http/1.1\x02h2"), Some(&b"h2"[..]));
        assert_eq!(select(&own, b"\x08http/1.1"), Some(&b"http/1.1"[..]));
        assert_eq!(select(&own, b"\x02h3"), None);
        assert_eq!(
            select(&own, b"\x08http/1.1\x05h2"),
            Some(&b"http/1.1"[..]),
            "the next name is cut"
        );
        assert_eq!(select(&own, b""), None);
    }
}
