//! Tickets that a client asks for (RFC 9149), and what servers say in theirs.

use std::collections::HashSet;

use headstart_tls::limits::{ADVERT_MAX, TICKETS_MAX};
use headstart_tls::{
    ADVERT_EXTENSION, EarlyData, Progress, Session, TicketRequest, TlsError, Version,
};

use crate::hello;
use crate::site::{Site, Visit, takes_early_data};

/// The number of the extension ticket_request.
const TICKET_REQUEST: u16 = 58;

/// A visit of a client that asks for tickets.
fn visit(site: &Site, session: Option<Session>, new_session: u8, resumption: u8) -> Visit {
    let mut client = site.client.connect("a.test", session, false).unwrap();
    client.request_tickets(TicketRequest { new_session, resumption }).unwrap();
    site.visit_by(client)
}

#[test]
fn a_full_handshake_brings_as_many_as_asked_for() {
    let site = Site::new();
    for count in [0, 1, 5] {
        let visit = visit(&site, None, count, 7);
        assert!(!visit.resumed());
        assert_eq!(visit.sessions.len(), usize::from(count));
    }
}

#[test]
fn a_resumption_brings_as_many_as_asked_for_and_all_are_good() {
    let site = Site::new();
    for count in [0, 1, 4] {
        let visit = visit(&site, Some(site.session()), 7, count);
        assert!(visit.resumed());
        assert_eq!(visit.sessions.len(), usize::from(count));
        let mut tickets = HashSet::new();
        for new in visit.sessions {
            let again = site.visit(Some(new.session));
            assert!(again.resumed());
            assert!(tickets.insert(hello::identity(&again.hello)), "each is another");
        }
    }
}

#[test]
fn tickets_asked_for_at_the_limit_and_one_over() {
    let site = Site::new();
    let most = u8::try_from(TICKETS_MAX).unwrap();
    for count in [most, most + 1, u8::MAX] {
        let first = visit(&site, None, count, count);
        assert_eq!(first.sessions.len(), TICKETS_MAX);
        let second = visit(&site, Some(first.take()), count, count);
        assert!(second.resumed());
        assert_eq!(second.sessions.len(), TICKETS_MAX);
    }
}

#[test]
fn a_client_asks_only_if_it_is_told_to() {
    let site = Site::new();
    assert_eq!(hello::extension(&site.visit(None).hello, TICKET_REQUEST), None);
    let asking = visit(&site, None, 4, 1);
    assert_eq!(hello::extension(&asking.hello, TICKET_REQUEST), Some(vec![4, 1]));
}

#[test]
fn more_tickets_come_with_early_data_too() {
    let site = Site::with(takes_early_data);
    let mut client = site.client.connect("a.test", Some(site.session()), false).unwrap();
    client.request_tickets(TicketRequest { new_session: 1, resumption: 3 }).unwrap();
    assert_eq!(client.write_early(b"hi"), Ok(2));
    let visit = site.visit_by(client);
    assert_eq!(visit.client.early_data, EarlyData::Accepted);
    assert_eq!(visit.sessions.len(), 3);
    assert!(visit.sessions.iter().all(|new| new.max_early_data > 0));
}

#[test]
fn where_there_are_no_tickets_none_are_sent() {
    let site = Site::with(|config| config.tickets = 0);
    assert_eq!(visit(&site, None, 5, 5).sessions.len(), 0);
}

#[test]
fn tls_1_2_knows_nothing_of_it() {
    let mut site = Site::new();
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    let first = visit(&site, None, 5, 5);
    assert_eq!(hello::extension(&first.hello, TICKET_REQUEST), None);
    assert_eq!(first.sessions.len(), 1);
    // The client could do with either version, and the server has only the lower one.
    let mut site = Site::with(|config| config.max_version = Version::Tls12);
    site.reconfigure_client(|_| ());
    let first = visit(&site, None, 5, 5);
    assert!(hello::extension(&first.hello, TICKET_REQUEST).is_some());
    assert_eq!(first.sessions.len(), 1);
    let second = visit(&site, Some(first.take()), 5, 5);
    assert!(second.resumed());
    assert_eq!(second.sessions.len(), 1);
}

#[test]
fn only_a_client_asks_and_only_at_the_start() {
    let site = Site::new();
    let request = TicketRequest { new_session: 1, resumption: 1 };
    let mut pair = site.pair("a.test", None);
    assert!(matches!(pair.server.request_tickets(request), Err(TlsError::Misuse(_))));
    assert_eq!(pair.client.handshake(), Ok(Progress::Wait));
    assert!(matches!(pair.client.request_tickets(request), Err(TlsError::Misuse(_))));
}

#[test]
fn a_request_of_another_length_ends_the_handshake() {
    let site = Site::new();
    // The request for cookies is empty; under the other number that is malformed.
    let mut client = site.client.connect("a.test", None, true).unwrap();
    client.handshake().unwrap();
    let mut hello = client.poll_bytes().unwrap();
    let empty = [0xff, 0xc8, 0, 0];
    let at = hello.windows(4).position(|bytes| bytes == empty).unwrap();
    hello[at..at + 2].copy_from_slice(&TICKET_REQUEST.to_be_bytes());
    let mut server = site.accept();
    server.handle_bytes(&hello);
    assert!(server.handshake().is_err());
    client.handle_bytes(&server.poll_bytes().unwrap());
    assert_eq!(client.handshake(), Err(TlsError::Alert(50)), "decode_error");
}

/// The client has not asked: its ClientHello is that of others.
#[test]
fn every_ticket_of_tls_1_3_has_the_server_s_advertisement() {
    let advert = b"v=2,slots=6";
    let mut site = Site::with(|config| config.advert = Some(advert.as_slice().into()));
    let full = site.visit(None);
    assert_eq!(hello::extension(&full.hello, ADVERT_EXTENSION), None);
    assert_eq!(full.sessions.len(), 2);
    assert!(full.sessions.iter().all(|new| new.advert.as_deref() == Some(advert)));
    let resumed = site.visit(Some(full.take()));
    assert!(resumed.resumed());
    assert!(resumed.sessions.iter().all(|new| new.advert.as_deref() == Some(advert)));
    for (length, is_sent) in [(ADVERT_MAX, true), (ADVERT_MAX + 1, false)] {
        site.reconfigure(|config| config.advert = Some(vec![b'x'; length].into()));
        let visit = site.visit(None);
        assert!(visit.sessions.iter().all(|new| new.advert.is_some() == is_sent), "{length}");
    }
    site.reconfigure(|config| config.advert = Some(advert.as_slice().into()));
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    assert!(site.visit(None).sessions.iter().all(|new| new.advert.is_none()));
}
