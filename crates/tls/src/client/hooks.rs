//! OpenSSL's callbacks during a client's connection.

use headstart_proto::cookie::{EXTENSION_TYPE, OfferedCookie};
use openssl::error::ErrorStack;
use openssl::ssl::{ExtensionContext, SslAlert, SslContextBuilder, SslRef, SslSessionCacheMode};

use crate::client::connecting::Connecting;
use crate::ffi::guard;
use crate::flags;
use crate::limits::ADVERT_MAX;
use crate::session::ADVERT_EXTENSION;
use crate::ticket_request::{self, HINT_LEN, TicketRequest};

/// Installs all of them in a context.
pub(super) fn install(tls: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    tls.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
    tls.set_new_session_callback(|ssl, session| {
        guard((), || {
            if let Some(connecting) = Connecting::from_ssl(ssl) {
                connecting.on_session(ssl, &session);
            }
        });
    });
    tls.add_custom_ext(
        EXTENSION_TYPE,
        ExtensionContext::CLIENT_HELLO
            | ExtensionContext::TLS1_3_NEW_SESSION_TICKET
            | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || request(ssl))),
        |ssl, _, content, _| {
            guard((), || on_offer(ssl, content));
            Ok(())
        },
    )?;
    tls.add_custom_ext(
        flags::EXTENSION_TYPE,
        ExtensionContext::TLS1_3_NEW_SESSION_TICKET | ExtensionContext::TLS1_3_ONLY,
        |_, _, _| Ok(None::<[u8; 0]>),
        |ssl, _, content, _| {
            guard((), || on_flags(ssl, content));
            Ok(())
        },
    )?;
    tls.add_custom_ext(
        ADVERT_EXTENSION,
        ExtensionContext::TLS1_3_NEW_SESSION_TICKET | ExtensionContext::TLS1_3_ONLY,
        |_, _, _| Ok(None::<[u8; 0]>),
        |ssl, _, content, _| {
            guard((), || on_advert(ssl, content));
            Ok(())
        },
    )?;
    tls.add_custom_ext(
        ticket_request::EXTENSION_TYPE,
        ExtensionContext::CLIENT_HELLO
            | ExtensionContext::TLS1_3_ENCRYPTED_EXTENSIONS
            | ExtensionContext::TLS1_3_ONLY,
        |ssl, _, _| Ok(guard(None, || ticket_request(ssl))),
        // The number of tickets the server expects to send makes no difference here.
        |_, _, hint, _| if hint.len() == HINT_LEN { Ok(()) } else { Err(SslAlert::DECODE_ERROR) },
    )
}

/// Returns the request for cookies: an empty extension of the ClientHello.
fn request(ssl: &SslRef) -> Option<[u8; 0]> {
    Connecting::from_ssl(ssl)?.request_fop.then_some([])
}

fn ticket_request(ssl: &SslRef) -> Option<[u8; TicketRequest::LEN]> {
    Connecting::from_ssl(ssl)?.ticket_request.get().map(|request| request.emit())
}

/// Takes an advertisement, unless it is too long: the ticket works without.
fn on_advert(ssl: &SslRef, content: &[u8]) {
    if let Some(connecting) = Connecting::from_ssl(ssl).filter(|_| content.len() <= ADVERT_MAX) {
        connecting.on_advert(content);
    }
}

/// Takes an offered cookie. Ignores one that was not requested, like every unknown extension of a
/// NewSessionTicket (RFC 8446 section 4.6.1), and one of the wrong length: the ticket works
/// without.
fn on_offer(ssl: &SslRef, content: &[u8]) {
    let requested = Connecting::from_ssl(ssl).filter(|connecting| connecting.request_fop);
    if let Some((connecting, offer)) = requested.zip(OfferedCookie::parse(content)) {
        connecting.on_offer(offer);
    }
}

/// Takes the flags of a ticket, which may come without a request.
fn on_flags(ssl: &SslRef, content: &[u8]) {
    if let Some(connecting) = Connecting::from_ssl(ssl).filter(|_| flags::across_names(content)) {
        connecting.on_across_names();
    }
}
