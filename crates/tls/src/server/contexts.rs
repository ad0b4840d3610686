//! OpenSSL contexts made of a configuration, one for each host.

use std::sync::Arc;
use std::time::Duration;

use headstart_proto::limits::COOKIE_LIFE_MAX;
use openssl::error::ErrorStack;
use openssl::sha::{Sha1, Sha256, sha1, sha256};
use openssl::ssl::{
    SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode, SslVerifyMode,
};
use openssl::x509::X509;

use crate::error::{ConfigError, forget_errors, words};
use crate::ffi;
use crate::limits::{ADVERT_MAX, EARLY_DATA_MAX, TICKET_LIFE_MAX, TICKETS_MAX};
use crate::server::config::{ClientAuth, ServerConfig, TicketBinding};
use crate::server::hooks;
use crate::server::hosts::{Host, Hosts};
use crate::server::serving::Serving;
use crate::settings::{CertifiedKey, Settings, alpn_wire, roots};

/// Builds the contexts of a configuration.
///
/// # Errors
/// The configuration is contradictory, or OpenSSL does not accept it.
pub(super) fn serving(config: &ServerConfig) -> Result<Serving, ConfigError> {
    forget_errors();
    check(config)?;
    let mut hosts = Vec::new();
    for group in by_names(&config.certificates)? {
        hosts.push(host(config, &group)?);
    }
    let mut hosts = hosts.into_iter();
    let first = hosts.next().ok_or(ConfigError::NoCertificate)?;
    Ok(Serving {
        hosts: Hosts::new(first, hosts),
        keyring: Arc::clone(&config.keyring),
        early_data_max: config.early_data_max,
        replay: Arc::clone(&config.replay),
        cookies: config.cookies,
        advert: config.advert.clone().filter(|advert| advert.len() <= ADVERT_MAX),
        hands_out_tickets: config.tickets > 0,
        ticket_binding: config.ticket_binding,
        client_auth: client_auth_hash(&config.client_auth),
    })
}

/// Returns nginx's session id context for HTTP, `ngx_ssl_session_id_context`: a hash of `HTTP` and
/// of the hash of each certificate, the last configured one first. The names of client CAs would
/// follow, but there are none.
fn nginx_context(group: &Group<'_>) -> Result<[u8; 20], ErrorStack> {
    let mut hash = Sha1::new();
    hash.update(b"HTTP");
    for (_, certificate) in group.iter().rev() {
        hash.update(&sha1(&certificate.certificate.to_der()?));
    }
    Ok(hash.finish())
}

fn check(config: &ServerConfig) -> Result<(), ConfigError> {
    let cookie_lives = Duration::from_secs(1)..=COOKIE_LIFE_MAX;
    if config.tickets > TICKETS_MAX {
        return Err(ConfigError::Tickets);
    }
    if config.early_data_max > EARLY_DATA_MAX {
        return Err(ConfigError::EarlyData);
    }
    if config.early_data_max > 0 && config.client_auth != ClientAuth::None {
        return Err(ConfigError::EarlyDataAndClientAuth);
    }
    let shares_tickets = config.ticket_binding != TicketBinding::ServerName;
    if shares_tickets && config.client_auth != ClientAuth::None {
        return Err(ConfigError::SharedTicketsAndClientAuth);
    }
    if config.cookies.is_some_and(|policy| !cookie_lives.contains(&policy.life)) {
        return Err(ConfigError::CookieLife);
    }
    Ok(())
}

/// Certificates with their numbers.
type Group<'a> = Vec<(usize, &'a CertifiedKey)>;

/// Groups certificates with the same names, in the order of the first of each.
fn by_names(certificates: &[CertifiedKey]) -> Result<Vec<Group<'_>>, ConfigError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (number, certificate) in certificates.iter().enumerate() {
        if number > 0 && certificate.names().is_empty() {
            return Err(ConfigError::NoNames(number));
        }
        let same = groups.iter_mut().find(|group| group[0].1.names() == certificate.names());
        match same {
            Some(group) => group.push((number, certificate)),
            None => groups.push(vec![(number, certificate)]),
        }
    }
    Ok(groups)
}

fn host(config: &ServerConfig, group: &Group<'_>) -> Result<Host, ConfigError> {
    let names = group.first().map(|(_, certificate)| certificate.names().to_vec());
    let (names, nginx) = (names.unwrap_or_default(), nginx_context(group)?);
    Ok(Host { names, owns_names: true, nginx, context: context(config, group)? })
}

/// Creates the context of one host. All contexts of a server differ only in their certificates:
/// OpenSSL starts with the first host's, switches to the right one when the name is known, and
/// takes some settings from each.
fn context(config: &ServerConfig, group: &Group<'_>) -> Result<SslContext, ConfigError> {
    let settings = Settings {
        groups: config.groups.as_deref(),
        signature_algorithms: config.signature_algorithms.as_deref(),
        versions: (config.min_version, config.max_version),
        key_log: config.key_log.as_ref(),
    };
    let mut tls = settings.context(SslMethod::tls_server())?;
    for (number, certificate) in group {
        certificate
            .add_to(&mut tls)
            .map_err(|error: ErrorStack| ConfigError::Certificate(*number, words(&error)))?;
    }
    set_client_auth(&mut tls, &config.client_auth)?;
    set_tickets(&mut tls, config)?;
    alpn_wire(&config.alpn)?; // only for its checks: the selection comes from the client's own list
    hooks::install(&mut tls, &config.alpn)?;
    Ok(tls.build())
}

fn set_client_auth(tls: &mut SslContextBuilder, auth: &ClientAuth) -> Result<(), ConfigError> {
    let Some(pem) = auth.roots() else { return Ok(()) };
    let (certificates, store) = roots(pem)?;
    for certificate in &certificates {
        tls.add_client_ca(certificate)?;
    }
    tls.set_cert_store(store);
    tls.set_verify(match auth {
        ClientAuth::Required(_) => SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
        _ => SslVerifyMode::PEER,
    });
    Ok(())
}

/// Configures tickets. They hold the whole session; the server keeps none of it.
fn set_tickets(tls: &mut SslContextBuilder, config: &ServerConfig) -> Result<(), ConfigError> {
    tls.set_session_cache_mode(SslSessionCacheMode::OFF);
    tls.set_num_tickets(config.tickets)?;
    if config.tickets == 0 {
        tls.set_options(SslOptions::NO_TICKET);
    }
    tls.set_max_early_data(config.early_data_max)?;
    // Not less, even if fewer bytes are configured: tickets of an earlier configuration may allow
    // more, and refused data has to be skipped.
    ffi::set_early_data_limit(tls, EARLY_DATA_MAX)?;
    ffi::set_session_life(tls, config.keyring.current().period.min(TICKET_LIFE_MAX));
    Ok(())
}

fn client_auth_hash(auth: &ClientAuth) -> [u8; 32] {
    let roots = auth.roots().map(|pem| X509::stack_from_pem(pem).unwrap_or_default());
    let mut hash = Sha256::new();
    hash.update(&[auth.mark()]);
    for root in roots.unwrap_or_default() {
        hash.update(&sha256(&root.to_der().unwrap_or_default()));
    }
    hash.finish()
}
