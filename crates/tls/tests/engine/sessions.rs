//! Sessions as bytes that can be kept elsewhere.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headstart_testkit::Authority;
use headstart_tls::limits::RESUMPTION_LIFE;
use headstart_tls::{CertifiedKey, ClientAuth, ClientContext, EarlyData, Session, Trust};

use crate::certificates::Certified;
use crate::hello;
use crate::site::{Site, client_config, takes_early_data};

#[test]
fn a_session_goes_as_bytes_to_another_client() {
    let site = Site::with(takes_early_data);
    let bytes = site.session().as_bytes().to_vec();
    let other = ClientContext::new(&client_config(&site.authority)).unwrap();
    assert_eq!(other.fingerprint(), site.client.fingerprint());
    let session = Session::from_bytes(&bytes).unwrap();
    assert_eq!(session.server_name(), "a.test");
    let mut client = other.connect("a.test", Some(session), false).unwrap();
    assert_eq!(client.write_early(b"hi"), Ok(2));
    let visit = site.visit_by(client);
    assert!(visit.resumed());
    assert_eq!(visit.client.early_data, EarlyData::Accepted);
    assert_eq!(visit.client.peer_certificate.as_ref(), Some(&site.issued[0].der));
}

#[test]
fn a_session_of_a_client_with_another_trust_is_not_offered() {
    let site = Site::new();
    let session = site.session();
    let other = Site::new();
    let both = [site.authority.pem(), other.authority.pem()];
    for trust in [Trust::Roots(both.concat()), Trust::Anyone] {
        let mut config = client_config(&site.authority);
        config.trust = trust;
        let client = ClientContext::new(&config).unwrap();
        assert_ne!(client.fingerprint(), site.client.fingerprint());
        let visit = site.visit_by(client.connect("a.test", Some(session.clone()), false).unwrap());
        assert!(!visit.resumed());
        assert_eq!(hello::identity(&visit.hello), None);
    }
    assert!(site.visit(Some(session)).resumed());
}

/// The server would take each of them, and the client would be whoever the session stands for.
#[test]
fn sessions_are_offered_by_clients_with_the_same_certificate_alone() {
    let mut site = Site::new();
    let people = Authority::new();
    site.reconfigure(|config| config.client_auth = ClientAuth::Optional(people.pem()));
    let shown = [None, Some("one.test"), Some("other.test")]
        .map(|name| name.map(|name| people.issue(&[name]).certified()));
    let mut session_of = |certificate: &Option<CertifiedKey>| {
        site.reconfigure_client(|config| config.certificate.clone_from(certificate));
        site.session()
    };
    let sessions = shown.each_ref().map(&mut session_of);
    for (own, certificate) in shown.iter().enumerate() {
        for (of, session) in sessions.iter().enumerate() {
            site.reconfigure_client(|config| config.certificate.clone_from(certificate));
            let visit = site.visit(Some(session.clone()));
            assert_eq!(visit.resumed(), own == of, "client {own}, session of client {of}");
            assert_eq!(hello::identity(&visit.hello).is_some(), own == of);
        }
    }
}

#[test]
fn the_order_of_roots_is_no_other_trust() {
    let (one, other) = (Site::new(), Site::new());
    let [first, second] = [[&one, &other], [&other, &one]].map(|order: [&Site; 2]| {
        let mut config = client_config(&one.authority);
        config.trust = Trust::Roots(order.map(|site| site.authority.pem()).concat());
        ClientContext::new(&config).unwrap()
    });
    assert_eq!(first.fingerprint(), second.fingerprint());
    let visit = one.visit_by(first.connect("a.test", None, false).unwrap());
    let session = Some(visit.take());
    assert!(one.visit_by(second.connect("a.test", session, false).unwrap()).resumed());
}

#[test]
fn changed_bytes_are_no_session_or_mean_a_full_handshake() {
    let site = Site::new();
    let bytes = site.session().as_bytes().to_vec();
    let first = site.visit(Some(Session::from_bytes(&bytes).unwrap()));
    let ticket = hello::identity(&first.hello).unwrap();
    let at = bytes.windows(ticket.len()).position(|window| window == ticket).unwrap();
    for byte in at..at + ticket.len() {
        let mut bytes = bytes.clone();
        bytes[byte] ^= 0x20;
        let visit = site.visit(Some(Session::from_bytes(&bytes).unwrap()));
        assert!(!visit.resumed(), "byte {byte} of the ticket is authenticated");
    }
    for length in 0..bytes.len() {
        assert!(Session::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
    }
}

/// Where a session has the time of the full handshake.
const SINCE: std::ops::Range<usize> = 33..41;

#[test]
fn a_session_is_not_offered_when_the_full_handshake_is_long_ago() {
    let site = Site::new();
    let bytes = site.session().as_bytes().to_vec();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let minute = Duration::from_secs(60);
    for (age, is_offered) in [(RESUMPTION_LIFE - minute, true), (RESUMPTION_LIFE + minute, false)] {
        let since = (now - age).as_secs().to_be_bytes();
        let mut bytes = bytes.clone();
        bytes[SINCE].copy_from_slice(&since);
        let visit = site.visit(Some(Session::from_bytes(&bytes).unwrap()));
        assert_eq!(visit.resumed(), is_offered, "{age:?}");
        assert_eq!(hello::identity(&visit.hello).is_some(), is_offered);
        let next = visit.take();
        let same = next.as_bytes()[SINCE] == since;
        assert_eq!(same, is_offered, "renewed, it is of the same handshake; else of its own");
    }
}

#[test]
fn sessions_do_not_show_themselves() {
    let site = Site::new();
    let visit = site.visit(None);
    let shown = format!("{:?}", visit.sessions);
    assert!(shown.contains("Session(..)"));
    assert!(shown.len() < 1000, "{shown}");
}
