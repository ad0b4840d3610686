//! TLS between the edges of a fleet.
//!
//! Both sides prove that they have the fleet key, by an external pre-shared key (RFC 8446 section
//! 2.2, with an ephemeral key exchange, so that a later theft of the key reveals nothing from
//! before). There are no certificates: the key is on every edge anyway and already makes its holder
//! one of them. Certificates would add an authority, names and an expiry, each of which could fail,
//! and would keep out nobody whom the key lets in.

use std::fmt;
use std::sync::Arc;

use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode, SslVerifyMode,
};
use zeroize::Zeroizing;

use crate::conn::{Conn, Role, Side};
use crate::error::{ConfigError, TlsError, forget_errors};
use crate::facts::Version;
use crate::keyring::{FleetKey, LINK};
use crate::settings::Settings;

/// Identity of the key on the wire; the same for all fleets, so that it reveals nothing.
const IDENTITY: &[u8] = b"headstart edge";

/// OpenSSL uses keys from the callbacks with SHA-256 (SSL_CTX_set_psk_client_callback(3)), so the
/// suite has to use that.
const SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// Creates connections between the edges of a fleet.
pub struct LinkContext {
    client: SslContext,
    server: SslContext,
}

impl LinkContext {
    /// Creates the context of the fleet with this key.
    ///
    /// # Errors
    /// OpenSSL itself failed.
    pub fn new(key: &FleetKey) -> Result<Self, ConfigError> {
        forget_errors();
        let key = key.derive(LINK).map_err(|_| ConfigError::Openssl("no key derived"))?;
        Ok(Self { client: client(key.clone())?, server: server(key)? })
    }

    /// Opens a connection to another edge.
    ///
    /// # Errors
    /// [`TlsError::Internal`]: out of memory.
    pub fn connect(&self) -> Result<Conn, TlsError> {
        forget_errors();
        let mut ssl = Ssl::new(&self.client)?;
        ssl.set_connect_state();
        Conn::new(ssl, Arc::new(Link))
    }

    /// Accepts a connection from another edge. If anyone else opened it, the handshake fails.
    ///
    /// # Errors
    /// [`TlsError::Internal`]: out of memory.
    pub fn accept(&self) -> Result<Conn, TlsError> {
        forget_errors();
        let mut ssl = Ssl::new(&self.server)?;
        ssl.set_accept_state();
        Conn::new(ssl, Arc::new(Link))
    }
}

/// Either side of a link.
struct Link;

impl Role for Link {
    fn side(&self) -> Side {
        Side::Link
    }
}

impl fmt::Debug for LinkContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkContext").finish_non_exhaustive()
    }
}

fn client(key: Zeroizing<[u8; 32]>) -> Result<SslContext, ConfigError> {
    let mut tls = common(SslMethod::tls_client())?;
    // No certificate can replace the key: there are no trusted issuers.
    tls.set_verify(SslVerifyMode::PEER);
    tls.set_psk_client_callback(move |_, _, identity, psk| {
        let buffer = identity.get_mut(..=IDENTITY.len());
        Ok(buffer.map_or(0, |buffer| {
            put(buffer, IDENTITY.iter().copied().chain([0]));
            put_key(psk, &key)
        }))
    });
    Ok(tls.build())
}

fn server(key: Zeroizing<[u8; 32]>) -> Result<SslContext, ConfigError> {
    let mut tls = common(SslMethod::tls_server())?;
    tls.set_num_tickets(0)?;
    // W-FLEET-2
    tls.set_psk_server_callback(move |_, identity, psk| {
        Ok(if identity == Some(IDENTITY) { put_key(psk, &key) } else { 0 })
    });
    Ok(tls.build())
}

fn common(method: SslMethod) -> Result<SslContextBuilder, ConfigError> {
    let settings = Settings {
        groups: None,
        signature_algorithms: None,
        versions: (Version::Tls13, Version::Tls13),
        key_log: None,
    };
    let mut tls = settings.context(method)?;
    tls.set_ciphersuites(SUITE)?;
    tls.set_session_cache_mode(SslSessionCacheMode::OFF);
    tls.set_options(SslOptions::NO_TICKET);
    Ok(tls)
}

/// Copies the key if there is room for it, and returns its length.
fn put_key(buffer: &mut [u8], key: &[u8; 32]) -> usize {
    match buffer.get_mut(..key.len()) {
        Some(buffer) => {
            put(buffer, key.iter().copied());
            key.len()
        }
        None => 0,
    }
}

fn put(buffer: &mut [u8], bytes: impl Iterator<Item = u8>) {
    buffer.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::{Progress, Read};

    /// Passes bytes both ways until neither side has any; returns the progress of each.
    fn settle(ends: [&mut Conn; 2]) -> [Result<Progress, TlsError>; 2] {
        let [a, b] = ends;
        loop {
            let progress = [a.handshake(), b.handshake()];
            let (from_a, from_b) = (a.poll_bytes(), b.poll_bytes());
            if from_a.is_none() && from_b.is_none() {
                return progress;
            }
            if let Some(bytes) = from_a {
                b.handle_bytes(&bytes);
            }
            if let Some(bytes) = from_b {
                a.handle_bytes(&bytes);
            }
        }
    }

    fn context(key: &FleetKey) -> LinkContext {
        LinkContext::new(key).unwrap()
    }

    #[test]
    fn edges_of_one_fleet_connect() {
        let key = FleetKey::generate().unwrap();
        let (mut a, mut b) = (context(&key).connect().unwrap(), context(&key).accept().unwrap());
        assert_eq!(settle([&mut a, &mut b]), [Ok(Progress::Done), Ok(Progress::Done)]);
        assert_eq!(a.write(b"joined").unwrap(), 6);
        b.handle_bytes(&a.poll_bytes().unwrap());
        let mut buffer = [0; 16];
        assert_eq!(b.read(&mut buffer).unwrap(), Read::Bytes(6));
        assert_eq!(&buffer[..6], b"joined");
        // External keys leave no room for resumption, and the exchange is ephemeral.
        let facts = a.facts();
        assert_eq!(facts.version, Some(Version::Tls13));
        assert!(facts.group.is_some() && facts.peer_certificate.is_none(), "{facts:?}");
        assert!(a.poll_session().is_none());
    }

    #[test]
    fn edges_of_another_fleet_are_refused_on_both_sides() {
        let (ours, theirs) = (FleetKey::generate().unwrap(), FleetKey::generate().unwrap());
        for (client, server) in [(&ours, &theirs), (&theirs, &ours)] {
            let mut a = context(client).connect().unwrap();
            let mut b = context(server).accept().unwrap();
            let [a, b] = settle([&mut a, &mut b]);
            assert!(a.is_err() && b.is_err(), "{a:?} {b:?}");
        }
    }

    /// Connects a client without a key, such as a scanner.
    #[test]
    fn without_the_key_there_is_no_connection() {
        use crate::client::{ClientConfig, ClientContext, Trust};
        let key = FleetKey::generate().unwrap();
        let stranger = ClientContext::new(&ClientConfig::new(Trust::Anyone)).unwrap();
        let mut a = stranger.connect("edge.test", None, false).unwrap();
        let mut b = context(&key).accept().unwrap();
        let [a, b] = settle([&mut a, &mut b]);
        assert!(a.is_err() && b.is_err(), "{a:?} {b:?}");
    }
}
