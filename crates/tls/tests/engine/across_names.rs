//! Sessions for all names of a certificate (draft-ietf-tls-cross-sni-resumption).

use headstart_tls::{ClientAuth, ConfigError, EarlyData, Session, TicketBinding, Trust};

use crate::certificates::Certified;
use crate::hello;
use crate::site::{Pair, Site, Visit, altered, client_config, takes_early_data};

/// A server for a.test and b.test with one certificate, whose sessions are for both.
fn site() -> Site {
    let mut site = Site::with(takes_early_data);
    let both = site.authority.issue(&["a.test", "b.test"]).certified();
    site.reconfigure(|config| {
        config.certificates = vec![both];
        config.ticket_binding = TicketBinding::Certificate;
    });
    site
}

fn visit(site: &Site, name: &str, session: Session) -> Visit {
    site.visit_by(site.client.connect(name, Some(session), false).unwrap())
}

fn is_offered(visit: &Visit) -> bool {
    hello::identity(&visit.hello).is_some()
}

#[test]
fn a_session_is_resumed_under_another_name_without_early_data() {
    let site = site();
    let first = site.visit(None);
    for new in &first.sessions {
        assert_eq!(new.across_names, ["a.test", "b.test"]);
    }
    let mut client = site.client.connect("b.test", Some(first.take()), false).unwrap();
    assert_eq!(client.write_early(b"hi"), Ok(0), "that was granted for the other name");
    let second = site.visit_by(client);
    assert!(second.resumed());
    assert_eq!(
        second.server.server_name.as_deref(),
        Some("b.test"),
        "the name of this ClientHello"
    );
    assert_eq!(second.client.peer_certificate, site.visit(None).client.peer_certificate);
    assert_eq!(second.sessions[0].session.server_name(), "b.test");
    // The renewed session is one of b.test, also for early data.
    let mut client = site.client.connect("b.test", Some(second.take()), false).unwrap();
    assert_eq!(client.write_early(b"hi"), Ok(2));
    let mut pair = Pair::new(client, site.accept());
    pair.shake().unwrap();
    assert_eq!(pair.client.facts().early_data, EarlyData::Accepted);
}

#[test]
fn a_session_is_offered_to_no_name_beyond_the_certificate() {
    let mut site = site();
    let session = site.session();
    let both = site.authority.issue(&["b.test", "c.test"]).certified();
    site.reconfigure(|config| config.certificates = vec![both]);
    let visit = visit(&site, "c.test", session);
    assert!(!is_offered(&visit) && !visit.resumed());
}

#[test]
fn a_session_without_the_flag_stays_with_its_name() {
    let mut site = site();
    site.reconfigure(|config| config.ticket_binding = TicketBinding::ServerName);
    let first = site.visit(None);
    assert!(first.sessions.iter().all(|new| new.across_names.is_empty()));
    site.reconfigure(|config| config.ticket_binding = TicketBinding::Certificate);
    assert!(!is_offered(&visit(&site, "b.test", first.take())));
}

/// A renewed session is as old as its full handshake, and so is its certificate.
#[test]
fn a_session_is_not_offered_elsewhere_once_its_certificate_has_expired() {
    let site = site();
    let session = site.session();
    let certificate = site.visit(None).client.peer_certificate.unwrap();
    // The second UTCTime is the end: it becomes the year 2001.
    let times: Vec<_> =
        (0..certificate.len()).filter(|at| is_utc_time(&certificate[*at..])).collect();
    let [_, end] = times[..] else { panic!("{times:?}") };
    let end = &certificate[end..end + 15];
    let expired = altered(&session, end, &[&end[..2], b"01", &end[4..]].concat());
    assert!(is_offered(&visit(&site, "b.test", session)));
    assert!(!is_offered(&visit(&site, "b.test", expired)));
}

/// UTCTime of 13 characters, the last of which is Z.
fn is_utc_time(der: &[u8]) -> bool {
    matches!(der, [0x17, 13, text @ ..] if text.get(12) == Some(&b'Z'))
}

#[test]
fn a_client_without_verification_keeps_sessions_with_names() {
    let mut site = site();
    site.reconfigure_client(|config| config.trust = Trust::Anyone);
    let first = site.visit(None);
    assert!(first.sessions.iter().all(|new| new.across_names.is_empty()));
    assert!(!is_offered(&visit(&site, "b.test", first.take())));
}

#[test]
fn a_client_with_other_trust_does_not_offer_it() {
    let site = site();
    let session = site.session();
    let other = Site::new();
    let mut config = client_config(&site.authority);
    config.trust = Trust::Roots([site.authority.pem(), other.authority.pem()].concat());
    let client = headstart_tls::ClientContext::new(&config).unwrap();
    assert!(!is_offered(&site.visit_by(client.connect("b.test", Some(session), false).unwrap())));
}

#[test]
fn servers_that_ask_for_client_certificates_keep_sessions_with_names() {
    let site = site();
    let mut config = site.config.clone();
    config.early_data_max = 0;
    config.client_auth = ClientAuth::Optional(site.authority.pem());
    let error = headstart_tls::ServerContext::new(&config).unwrap_err();
    assert_eq!(error, ConfigError::SharedTicketsAndClientAuth);
}

#[test]
fn a_session_of_tls_1_2_stays_with_its_name() {
    let mut site = site();
    site.reconfigure_client(|config| config.max_version = headstart_tls::Version::Tls12);
    let mut pair = site.pair("b.test", Some(crate::site::renamed(&site.session())));
    pair.shake().unwrap();
    assert!(!pair.server.facts().resumed, "the server sees another name");
    assert!(site.visit(Some(site.session())).resumed());
}

/// The other certificate's host would be found for b.test, and does not take the session.
#[test]
fn certificates_that_share_a_name_share_no_sessions() {
    let mut site = site();
    let other = site.authority.issue(&["b.test"]).certified();
    site.reconfigure(|config| config.certificates.insert(0, other));
    let first = site.visit(None);
    assert!(first.sessions.iter().all(|new| new.across_names.is_empty()));
}
