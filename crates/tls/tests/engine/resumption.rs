//! Sessions and tickets, and where servers accept them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use headstart_proto::UnixSeconds;
use headstart_testkit::Authority;
use headstart_tls::keyring::{KeyRing, PERIOD};
use headstart_tls::limits::RESUMPTION_LIFE;
use headstart_tls::{ClientAuth, SharedRing, TicketBinding, Version};

use crate::certificates::Certified;
use crate::hello;
use crate::site::{NOW, Site, renamed};

#[test]
fn a_full_handshake_brings_tickets_and_each_resumption_one() {
    let site = Site::new();
    let first = site.visit(None);
    assert_eq!(first.sessions.len(), 2);
    assert!(!first.resumed());
    for new in &first.sessions {
        assert_eq!(new.version, Some(Version::Tls13));
        assert_eq!(new.lifetime, PERIOD, "no longer than the key");
        assert_eq!((new.max_early_data, new.client_certificate), (0, false));
        assert_eq!(new.session.server_name(), "a.test");
    }
    let mut session = first.take();
    for _ in 0..5 {
        let visit = site.visit(Some(session));
        assert!(visit.resumed());
        assert_eq!(visit.sessions.len(), 1);
        assert_eq!(visit.client.peer_certificate.as_ref(), Some(&site.issued[0].der));
        session = visit.take();
    }
}

#[test]
fn tickets_are_as_many_as_configured() {
    for tickets in [1, 5] {
        let site = Site::with(|config| config.tickets = tickets);
        assert_eq!(site.visit(None).sessions.len(), tickets);
    }
    let mut site = Site::new();
    let session = site.session();
    site.reconfigure(|config| config.tickets = 0);
    let visit = site.visit(Some(session));
    assert!(!visit.resumed(), "without tickets nothing is resumed");
    assert_eq!(visit.sessions.len(), 0);
}

#[test]
fn tls_1_2_is_resumed_and_renewed() {
    let mut site = Site::new();
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    let first = site.visit(None);
    assert_eq!(first.sessions.len(), 1);
    assert_eq!(first.sessions[0].version, Some(Version::Tls12));
    let ring = site.ring.current();
    let mut session = first.take();
    let mut last = Vec::new();
    for _ in 0..3 {
        let visit = site.visit(Some(session));
        assert!(visit.resumed());
        let ticket = hello::ticket(&visit.hello).unwrap();
        assert_eq!(ticket[..16], ring.current.ticket_name());
        assert_ne!(ticket, last, "another ticket each time");
        last = ticket;
        session = visit.take();
    }
    site.reconfigure_client(|config| config.min_version = Version::Tls13);
    assert!(!site.visit(Some(session)).resumed(), "the other version does not resume it");
}

#[test]
fn a_ticket_of_one_host_is_not_accepted_by_another() {
    let site = Site::new();
    let stray = renamed(&site.session());
    let mut pair = site.pair("b.test", Some(stray));
    pair.client.handshake().unwrap();
    let hello = pair.client.poll_bytes().unwrap();
    assert!(hello::identity(&hello).is_some(), "it was offered");
    pair.server.handle_bytes(&hello);
    pair.shake().unwrap();
    assert!(!pair.server.facts().resumed);
    assert_eq!(pair.client.facts().peer_certificate.as_ref(), Some(&site.issued[1].der));
    assert_eq!(pair.sessions().len(), 2);
}

#[test]
fn hosts_of_one_certificate_are_apart_unless_bound_to_it() {
    for (binding, resumes) in
        [(TicketBinding::ServerName, false), (TicketBinding::Certificate, true)]
    {
        let mut site = Site::new();
        let both = site.authority.issue(&["a.test", "b.test"]).certified();
        site.reconfigure(|config| {
            config.certificates = vec![both];
            config.ticket_binding = binding;
        });
        let mut pair = site.pair("b.test", Some(renamed(&site.session())));
        pair.shake().unwrap();
        assert_eq!(pair.server.facts().resumed, resumes, "{binding:?}");
        assert_eq!(pair.client.facts().resumed, resumes);
        let mut pair = site.pair("a.test", Some(site.session()));
        pair.shake().unwrap();
        assert!(pair.server.facts().resumed, "the same host");
    }
}

#[test]
fn a_ticket_without_client_certificate_is_not_accepted_where_one_is_requested() {
    let mut site = Site::new();
    let roots = Authority::new().pem();
    let session = site.session();
    site.reconfigure(|config| config.client_auth = ClientAuth::Optional(roots.clone()));
    assert!(!site.visit(Some(session)).resumed());
    let session = site.session();
    assert!(site.visit(Some(session)).resumed());
    let session = site.session();
    let others = Authority::new().pem();
    site.reconfigure(|config| config.client_auth = ClientAuth::Optional(others));
    assert!(!site.visit(Some(session)).resumed(), "nor with other authorities");
    let session = site.session();
    site.reconfigure(|config| config.client_auth = ClientAuth::None);
    assert!(!site.visit(Some(session)).resumed());
}

#[test]
fn resumptions_come_to_an_end_however_often_tickets_are_renewed() {
    let mut site = Site::new();
    let second = Duration::from_secs(1);
    for version in [Version::Tls13, Version::Tls12] {
        site.reconfigure_client(|config| config.max_version = version);
        let mut session = site.session();
        for step in 1..=4 {
            let visit = site.visit_after(Some(session), RESUMPTION_LIFE / 4 * step);
            assert!(visit.resumed(), "{version}, step {step}");
            session = visit.take();
        }
        let visit = site.visit_after(Some(session.clone()), RESUMPTION_LIFE + second);
        assert!(!visit.resumed(), "{version}: too long ago");
        let again = site.visit_after(Some(visit.take()), 2 * RESUMPTION_LIFE + second);
        assert!(again.resumed(), "{version}: the full handshake counts");
        let early = site.visit_after(Some(session), Duration::ZERO);
        assert!(early.resumed(), "{version}: it was the time, not the ticket");
    }
}

/// Runs until there were enough of both visits and changes, however they share the processor.
#[test]
fn keys_and_certificates_change_while_many_shake_hands() {
    const VISITS: usize = 60;
    const CHANGES: usize = 20;
    let site = Site::new();
    let site = &site;
    let changes = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let visitors = [(); 3].map(|()| {
            scope.spawn(|| {
                let mut session = None;
                let mut resumed = 0;
                let mut visits = 0;
                // Bounded, in case the changing thread has failed.
                while visits < VISITS
                    || (changes.load(Ordering::Relaxed) < CHANGES && visits < 100 * VISITS)
                {
                    let visit = site.visit(session);
                    resumed += usize::from(visit.resumed());
                    session = Some(visit.take());
                    visits += 1;
                }
                resumed
            })
        });
        while !visitors.iter().all(|visitor| visitor.is_finished()) {
            site.server.replace(&site.config).unwrap();
            if changes.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
                rotate(&site.ring);
            }
        }
        let resumed = visitors.map(|visitor| visitor.join().unwrap());
        assert!(resumed.iter().sum::<usize>() > 0, "{resumed:?}");
        assert!(changes.load(Ordering::Relaxed) >= CHANGES);
    });
}

fn rotate(ring: &SharedRing) {
    let next = ring.current().rotated(UnixSeconds(NOW.0 + PERIOD.as_secs())).unwrap();
    ring.replace(next);
}

#[test]
fn tickets_outlive_one_rotation_and_no_second() {
    let site = Site::new();
    let [one, two] = [site.session(), site.session()];
    rotate(&site.ring);
    let visit = site.visit(Some(one));
    assert!(visit.resumed());
    rotate(&site.ring);
    assert!(!site.visit(Some(two)).resumed(), "its key is gone");
    assert!(site.visit(Some(visit.take())).resumed(), "it was renewed under the newer key");
}

#[test]
fn servers_that_rotate_early_are_understood() {
    let early = Site::new();
    let mut late = Site::new();
    let ring = early.ring.current();
    let shared = std::sync::Arc::new(SharedRing::new((*ring).clone()));
    late.reconfigure(|config| config.keyring = shared);
    late.client =
        headstart_tls::ClientContext::new(&crate::site::client_config(&early.authority)).unwrap();
    let certificates = early.config.certificates.clone();
    late.reconfigure(|config| config.certificates = certificates);
    rotate(&early.ring);
    assert!(late.visit(Some(early.session())).resumed(), "by its next key");
    assert!(early.visit(Some(late.session())).resumed(), "by its previous key");
}

// F-TICKET-4
#[test]
fn tickets_of_other_keys_mean_a_full_handshake() {
    let site = Site::new();
    let session = site.session();
    site.ring.replace(KeyRing::generate(NOW, PERIOD).unwrap());
    let visit = site.visit(Some(session));
    assert!(!visit.resumed());
    assert_eq!(visit.sessions.len(), 2, "and new tickets");
}

#[test]
fn keys_change_also_for_connections_that_run() {
    let site = Site::new();
    let mut pair = site.pair("a.test", None);
    pair.client.handshake().unwrap();
    pair.carry_to_server();
    site.ring.replace(KeyRing::generate(NOW, PERIOD).unwrap());
    pair.shake().unwrap();
    let session = pair.sessions().pop().unwrap().session;
    assert!(site.visit(Some(session)).resumed());
}

#[test]
fn a_session_is_offered_to_its_name_alone() {
    let site = Site::new();
    let mut client = site.client.connect("b.test", Some(site.session()), false).unwrap();
    client.handshake().unwrap();
    assert_eq!(hello::identity(&client.poll_bytes().unwrap()), None);
}
