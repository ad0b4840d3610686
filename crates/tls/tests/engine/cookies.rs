//! Fast Open cookies, in tickets and in the extension.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_proto::cookie::{Cookie, CookieError, EXTENSION_TYPE};
use headstart_proto::limits::COOKIE_LIFE;
use headstart_tls::{CookiePolicy, Version};

use crate::hello;
use crate::site::{NOW, Site, Visit, hands_out_cookies, peer};

/// Returns the answer of the site's servers to a cookie in the hands of `client`.
fn verify(site: &Site, cookie: &Cookie, client: IpAddr) -> Result<UnixSeconds, CookieError> {
    site.ring.current().cookies().verify(cookie, NOW, client)
}

fn visit(site: &Site, session: Option<headstart_tls::Session>, request_fop: bool) -> Visit {
    site.visit_by(site.client.connect("a.test", session, request_fop).unwrap())
}

/// The ticket that a session offers, as it goes over the wire.
fn offered(site: &Site, session: headstart_tls::Session) -> Vec<u8> {
    let visit = site.visit(Some(session));
    assert!(visit.resumed());
    hello::identity(&visit.hello).unwrap()
}

// F-TICKET-1
#[test]
fn every_ticket_starts_with_a_cookie_of_its_own() {
    let site = Site::with(hands_out_cookies);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.extend(site.visit(None).sessions.into_iter().map(|new| new.session));
    }
    let mut seen = HashSet::new();
    for session in sessions {
        let ticket = offered(&site, session);
        let cookie = Cookie::parse(&ticket[..16]).unwrap();
        assert_eq!(verify(&site, &cookie, peer()), Ok(NOW + COOKIE_LIFE));
        let elsewhere = [192, 0, 2, 2].into();
        assert_eq!(verify(&site, &cookie, elsewhere), Err(CookieError::Tag));
        assert_eq!(ticket[16], site.ring.current().current.id);
        assert!(seen.insert(cookie));
    }
    assert_eq!(seen.len(), 6);
}

// F-COOKIE-1
#[test]
fn a_renewed_ticket_has_a_new_cookie() {
    let site = Site::with(hands_out_cookies);
    let first = site.visit(Some(site.session()));
    let used = hello::identity(&first.hello).unwrap();
    let renewed = offered(&site, first.take());
    assert_ne!(used[..16], renewed[..16]);
    let cookie = Cookie::parse(&renewed[..16]).unwrap();
    assert!(verify(&site, &cookie, peer()).is_ok());
}

#[test]
fn a_client_that_turns_out_to_be_elsewhere_gets_cookies_for_there() {
    let site = Site::with(hands_out_cookies);
    let mut pair = site.pair("a.test", None);
    pair.client.handshake().unwrap();
    pair.carry_to_server();
    pair.server.handshake().unwrap();
    let elsewhere = [192, 0, 2, 2].into();
    pair.server.set_peer(elsewhere);
    pair.shake().unwrap();
    let sessions = pair.sessions();
    assert_eq!(sessions.len(), 2);
    for new in sessions {
        let cookie = Cookie::parse(&offered(&site, new.session)[..16]).unwrap();
        assert_eq!(verify(&site, &cookie, elsewhere), Ok(NOW + COOKIE_LIFE));
        assert_eq!(verify(&site, &cookie, peer()), Err(CookieError::Tag));
    }
}

#[test]
fn without_cookies_tickets_start_with_the_name_of_their_key() {
    let site = Site::new();
    let ticket = offered(&site, site.session());
    assert_eq!(ticket[..16], site.ring.current().current.ticket_name());
    let visit = visit(&site, None, true);
    assert!(visit.server.fop_requested);
    assert!(visit.sessions.iter().all(|new| new.cookies.is_empty()));
}

#[test]
fn a_site_that_starts_or_stops_handing_out_takes_all_its_tickets() {
    let mut site = Site::new();
    let plain = site.session();
    site.reconfigure(hands_out_cookies);
    let visit = site.visit(Some(plain));
    assert!(visit.resumed());
    site.reconfigure(|config| config.cookies = None);
    assert!(site.visit(Some(visit.take())).resumed());
}

#[test]
fn two_tickets_have_nothing_in_common_but_the_number_of_their_key() {
    let site = Site::with(hands_out_cookies);
    let mut sessions = site.visit(None).sessions.into_iter().map(|new| new.session);
    let [one, two] = [(); 2].map(|()| offered(&site, sessions.next().unwrap()));
    assert_eq!(one[16], two[16], "the number of the key");
    // Of random bytes five in a row are the same somewhere once in 10^7 runs.
    let [one, two] = [&one, &two].map(|ticket| ticket.windows(5).collect::<HashSet<_>>());
    assert!(one.is_disjoint(&two));
}

// F-EXTENSION-1
#[test]
fn the_extension_brings_cookies_to_who_asks() {
    let site = Site::with(|config| {
        config.cookies = Some(CookiePolicy { life: Duration::from_secs(600) });
    });
    let requested = visit(&site, None, true);
    assert!(requested.server.fop_requested && requested.client.fop_requested);
    assert_eq!(hello::extension(&requested.hello, EXTENSION_TYPE), Some(Vec::new()));
    let mut seen = HashSet::new();
    for new in requested.sessions {
        let [offer] = new.cookies[..] else { panic!("one cookie a ticket: {new:?}") };
        assert_eq!(offer.lifetime, Duration::from_secs(600));
        let expiry = NOW + Duration::from_secs(600);
        assert_eq!(verify(&site, &offer.cookie, peer()), Ok(expiry));
        assert!(seen.insert(offer.cookie));
        let ticket = offered(&site, new.session);
        assert!(seen.insert(Cookie::parse(&ticket[..16]).unwrap()), "another one in the ticket");
    }
    assert_eq!(seen.len(), 4);

    let not_asked = site.visit(None);
    assert!(!not_asked.server.fop_requested);
    assert_eq!(hello::extension(&not_asked.hello, EXTENSION_TYPE), None);
    assert!(not_asked.sessions.iter().all(|new| new.cookies.is_empty()));
}

#[test]
fn resumption_and_another_group_do_not_lose_the_request() {
    let mut site = Site::with(hands_out_cookies);
    let session = visit(&site, None, true).take();
    let again = visit(&site, Some(session), true);
    assert!(again.resumed());
    assert_eq!(again.sessions[0].cookies.len(), 1);
    site.reconfigure(|config| config.groups = Some("P-256".to_owned()));
    site.reconfigure_client(|config| config.groups = Some("X25519:P-256".to_owned()));
    let retried = visit(&site, None, true);
    assert!(retried.server.fop_requested);
    assert!(retried.sessions.iter().all(|new| new.cookies.len() == 1));
}

// F-TICKET-2
#[test]
fn tls_1_2_never_has_a_cookie() {
    let mut site = Site::with(hands_out_cookies);
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    let first = visit(&site, None, true);
    assert_eq!(hello::extension(&first.hello, EXTENSION_TYPE), None, "not even the request");
    assert!(first.sessions.iter().all(|new| new.cookies.is_empty()));
    let again = site.visit(Some(first.take()));
    assert!(again.resumed());
    let ticket = hello::ticket(&again.hello).unwrap();
    assert_eq!(ticket[..16], site.ring.current().current.ticket_name());
}

#[test]
fn a_server_that_speaks_tls_1_2_alone_is_not_made_to_talk() {
    let mut site = Site::with(hands_out_cookies);
    site.reconfigure(|config| config.max_version = Version::Tls12);
    let visit = visit(&site, None, true);
    assert_eq!(visit.client.version, Some(Version::Tls12));
    assert!(!visit.server.fop_requested);
    assert!(visit.sessions.iter().all(|new| new.cookies.is_empty()));
    let again = site.visit(Some(visit.take()));
    assert!(again.resumed());
    assert_eq!(
        hello::ticket(&again.hello).unwrap()[..16],
        site.ring.current().current.ticket_name()
    );
}

#[test]
fn cookies_are_never_in_clear_when_they_are_handed_out() {
    let site = Site::with(hands_out_cookies);
    let mut pair =
        crate::site::Pair::new(site.client.connect("a.test", None, true).unwrap(), site.accept());
    let mut wire = Vec::new();
    for _ in 0..4 {
        pair.client.handshake().unwrap();
        pair.carry_to_server();
        pair.server.handshake().unwrap();
        while let Some(bytes) = pair.server.poll_bytes() {
            wire.extend_from_slice(&bytes);
            pair.client.handle_bytes(&bytes);
        }
    }
    for new in pair.sessions() {
        let cookies = [*new.cookies[0].cookie.as_bytes(), first16(&offered(&site, new.session))];
        for cookie in cookies {
            assert!(!wire.windows(16).any(|window| window == cookie));
        }
    }
}

fn first16(bytes: &[u8]) -> [u8; 16] {
    bytes[..16].try_into().unwrap()
}

#[test]
fn rotated_keys_mint_the_next_cookies() {
    let site = Site::with(hands_out_cookies);
    let old = site.ring.current();
    site.ring.replace(old.rotated(NOW).unwrap());
    let ticket = offered(&site, site.session());
    let cookie = Cookie::parse(&ticket[..16]).unwrap();
    assert!(verify(&site, &cookie, peer()).is_ok());
    assert!(old.cookies().verify(&cookie, NOW, peer()).is_ok(), "servers that are late take it");
    let keys = old.cookies();
    assert!(keys.current.verify(&cookie, NOW, peer()).is_err(), "by their next key");
}
