//! Full handshakes, and what is agreed on in them.

use std::sync::{Arc, Mutex};

use headstart_testkit::{Authority, DAY, Issued, ML_DSA_44};
use headstart_tls::limits::OUTPUT_MAX;
use headstart_tls::{
    ClientAuth, ClientConfig, ClientContext, EarlyData, KeyLog, Read, TlsError, Trust, Version,
};

use crate::certificates::Certified;
use crate::site::{Pair, Site, client_config, read_all, takes_early_data, write};

#[test]
fn both_sides_know_what_was_agreed_on() {
    let site = Site::new();
    let visit = site.visit(None);
    for facts in [&visit.client, &visit.server] {
        assert_eq!(facts.version, Some(Version::Tls13));
        assert!(facts.cipher.unwrap().starts_with("TLS_"));
        assert!(facts.group.as_deref().unwrap().eq_ignore_ascii_case("x25519"));
        assert_eq!(facts.server_name.as_deref(), Some("a.test"));
        assert_eq!(facts.alpn, None);
        assert_eq!((facts.early_data, facts.early_bytes), (EarlyData::None, 0));
        assert!(!facts.resumed && !facts.fop_requested);
    }
    assert_eq!(visit.client.peer_certificate.as_ref(), Some(&site.issued[0].der));
    assert_eq!(visit.server.peer_certificate, None);
}

#[test]
fn bytes_go_both_ways_and_ends_are_told() {
    let site = Site::new();
    let mut pair = site.pair("a.test", None);
    pair.shake().unwrap();
    write(&mut pair.client, b"question");
    pair.carry_to_server();
    assert_eq!(read_all(&mut pair.server), b"question");
    write(&mut pair.server, b"answer");
    pair.server.close();
    assert!(matches!(pair.server.write(b"more"), Err(TlsError::Misuse(_))));
    pair.carry_to_client();
    assert_eq!(read_all(&mut pair.client), b"answer");
    assert_eq!(pair.client.read(&mut [0; 10]), Ok(Read::End));
    write(&mut pair.client, b"still here");
    pair.client.close();
    pair.carry_to_server();
    assert_eq!(read_all(&mut pair.server), b"still here");
    assert_eq!(pair.server.read(&mut [0; 10]), Ok(Read::End));
}

#[test]
fn an_end_without_notice_is_told_apart() {
    let site = Site::new();
    let mut pair = site.pair("a.test", None);
    pair.shake().unwrap();
    write(&mut pair.client, b"question");
    pair.carry_to_server();
    pair.server.handle_end();
    let mut buffer = [0; 100];
    assert_eq!(pair.server.read(&mut buffer), Ok(Read::Bytes(8)));
    assert_eq!(pair.server.read(&mut buffer), Err(TlsError::Truncated));
    assert_eq!(pair.server.write(b"answer"), Err(TlsError::Truncated), "it stays so");
}

#[test]
fn a_writer_is_held_back_until_its_bytes_are_sent() {
    let site = Site::new();
    let mut pair = site.pair("a.test", None);
    pair.shake().unwrap();
    let block = vec![7; 100_000];
    let mut sent = 0;
    loop {
        match pair.server.write(&block).unwrap() {
            0 => break,
            count => sent += count,
        }
    }
    assert!((OUTPUT_MAX..2 * OUTPUT_MAX).contains(&sent), "{sent}");
    pair.carry_to_client();
    assert_eq!(read_all(&mut pair.client).len(), sent);
    assert!(pair.server.write(&block).unwrap() > 0);
}

#[test]
fn tls_1_2_is_spoken_where_it_may_be() {
    let mut site = Site::new();
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    let visit = site.visit(None);
    assert_eq!(visit.client.version, Some(Version::Tls12));
    assert_eq!(visit.server.version, Some(Version::Tls12));
    site.reconfigure(|config| config.min_version = Version::Tls13);
    let (client, server) = site.pair("a.test", None).clash();
    assert!(matches!(server, Err(TlsError::Unsupported(_))), "{server:?}");
    assert_eq!(client, Err(TlsError::Alert(70)), "protocol_version");
}

#[test]
fn early_data_machinery_does_no_harm_to_tls_1_2() {
    let mut site = Site::with(takes_early_data);
    site.reconfigure_client(|config| config.max_version = Version::Tls12);
    assert_eq!(site.visit(None).client.version, Some(Version::Tls12));
}

#[test]
fn the_server_chooses_the_application_protocol() {
    let mut site = Site::with(|config| config.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(site.visit(None).client.alpn, None, "not asked for");
    site.reconfigure_client(|config| config.alpn = vec![b"http/1.1".to_vec(), b"h2".to_vec()]);
    let visit = site.visit(None);
    assert_eq!(visit.client.alpn.as_deref(), Some(&b"h2"[..]));
    assert_eq!(visit.server.alpn.as_deref(), Some(&b"h2"[..]));
    assert_eq!(visit.sessions[0].alpn.as_deref(), Some(&b"h2"[..]));
    site.reconfigure_client(|config| config.alpn = vec![b"h3".to_vec()]);
    let (client, server) = site.pair("a.test", None).clash();
    assert!(matches!(server, Err(TlsError::Unsupported(_))), "{server:?}");
    assert_eq!(client, Err(TlsError::Alert(120)), "no_application_protocol");
}

/// Returns the protocol that the site chooses among those of one connection.
fn offer(site: &Site, alpn: &[Vec<u8>]) -> Option<Vec<u8>> {
    let client = site.client.connect_offering(alpn, "a.test", None, false).unwrap();
    site.visit_by(client).client.alpn
}

#[test]
fn a_connection_offers_protocols_of_its_own() {
    let mut site = Site::with(|config| config.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(offer(&site, &[b"http/1.1".to_vec()]).as_deref(), Some(&b"http/1.1"[..]));
    site.reconfigure_client(|config| config.alpn = vec![b"h2".to_vec()]);
    assert_eq!(offer(&site, &[]), None, "none at all");
    assert_eq!(site.visit(None).client.alpn.as_deref(), Some(&b"h2"[..]), "others as ever");
    let nameless = site.client.connect_offering(&[Vec::new()], "a.test", None, false);
    assert!(matches!(nameless, Err(TlsError::Misuse(_))));
}

#[test]
fn early_data_goes_with_a_protocol_that_the_connection_offers() {
    let mut site = Site::with(|config| {
        takes_early_data(config);
        config.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    });
    site.reconfigure_client(|config| config.alpn = vec![b"h2".to_vec()]);
    for (alpn, taken) in [(b"h2".to_vec(), 2), (b"http/1.1".to_vec(), 0)] {
        let session = Some(site.session());
        let mut client = site.client.connect_offering(&[alpn], "a.test", session, false).unwrap();
        assert_eq!(client.write_early(b"hi"), Ok(taken));
    }
}

/// Returns the certificate shown to a client, and the name that the server saw.
fn shown(site: &Site, name: &str) -> (Vec<u8>, Option<String>) {
    let mut pair = site.pair(name, None);
    pair.shake().unwrap();
    (pair.client.facts().peer_certificate.unwrap(), pair.server.facts().server_name)
}

#[test]
fn the_name_chooses_the_certificate() {
    let mut site = Site::new();
    let [a, b] = [0, 1].map(|at: usize| site.issued[at].der.clone());
    assert_eq!(shown(&site, "a.test"), (a.clone(), Some("a.test".to_owned())));
    assert_eq!(shown(&site, "B.Test."), (b, Some("b.test".to_owned())));
    site.reconfigure_client(|config| config.trust = Trust::Anyone);
    assert_eq!(shown(&site, "c.test"), (a.clone(), Some("c.test".to_owned())), "the first");
    assert_eq!(shown(&site, "192.0.2.7"), (a, None), "addresses are not sent");
}

#[test]
fn the_client_s_algorithms_choose_among_certificates_for_one_name() {
    let mut site = Site::new();
    let names = ["a.test"];
    let elliptic = site.authority.issue(&names);
    let lattice = site.authority.issue_for(&ML_DSA_44, &names, -DAY..DAY);
    site.reconfigure(|config| {
        config.certificates = [&elliptic, &lattice].map(Issued::certified).into();
    });
    for (algorithm, expected) in [("ecdsa_secp256r1_sha256", elliptic), ("mldsa44", lattice)] {
        site.reconfigure_client(|config| {
            config.signature_algorithms = Some(algorithm.to_owned());
        });
        assert_eq!(site.visit(None).client.peer_certificate, Some(expected.der), "{algorithm}");
    }
}

#[test]
fn groups_of_today_and_tomorrow() {
    for group in ["X25519MLKEM768", "MLKEM512"] {
        let mut site = Site::new();
        let issued = site.authority.issue_for(&ML_DSA_44, &["a.test"], -DAY..DAY);
        site.reconfigure(|config| {
            config.certificates = vec![issued.certified()];
            config.groups = Some("X25519MLKEM768:MLKEM512".to_owned());
        });
        site.reconfigure_client(|config| config.groups = Some(group.to_owned()));
        let visit = site.visit(None);
        for facts in [&visit.client, &visit.server] {
            assert!(facts.group.as_deref().unwrap().eq_ignore_ascii_case(group), "{facts:?}");
        }
        assert_eq!(visit.client.peer_certificate.as_ref(), Some(&issued.der));
        let again = site.visit(Some(visit.take()));
        assert!(again.resumed());
        assert!(again.client.group.unwrap().eq_ignore_ascii_case(group), "a fresh exchange");
    }
}

#[test]
fn a_group_that_the_client_did_not_guess_costs_a_round_trip_and_no_more() {
    let mut site = Site::new();
    site.reconfigure(|config| config.groups = Some("P-256".to_owned()));
    site.reconfigure_client(|config| config.groups = Some("X25519:P-256".to_owned()));
    let visit = site.visit(None);
    assert!(visit.client.group.as_deref().unwrap().contains("256"), "{visit:?}");
    let again = site.visit(Some(visit.take()));
    assert!(again.resumed());
    site.reconfigure_client(|config| config.groups = Some("X25519".to_owned()));
    let (_, server) = site.pair("a.test", None).clash();
    assert!(matches!(server, Err(TlsError::Unsupported(_))), "{server:?}");
}

#[test]
fn a_reload_is_for_new_connections() {
    let mut site = Site::new();
    let old = site.issued[0].clone();
    let mut running = site.pair("a.test", None);
    running.shake().unwrap();
    let mut shaking = site.pair("a.test", None);
    shaking.client.handshake().unwrap();
    shaking.carry_to_server();

    let new = site.authority.issue(&["a.test"]);
    site.reconfigure(|config| config.certificates = vec![new.certified()]);
    write(&mut running.client, b"still there?");
    running.carry_to_server();
    assert_eq!(read_all(&mut running.server), b"still there?");
    shaking.shake().unwrap();
    assert_eq!(shaking.client.facts().peer_certificate, Some(old.der));
    assert_eq!(site.visit(None).client.peer_certificate, Some(new.der));
    let old_session = running.sessions().pop().unwrap().session;
    assert!(site.visit(Some(old_session)).resumed(), "sessions stay good");
}

#[test]
fn a_configuration_that_cannot_be_leaves_the_old_one() {
    let site = Site::new();
    let mut config = site.config.clone();
    config.certificates.clear();
    assert!(site.server.replace(&config).is_err());
    assert_eq!(site.visit(None).client.peer_certificate.as_ref(), Some(&site.issued[0].der));
}

#[test]
fn clients_show_certificates_where_they_are_asked() {
    let mut site = Site::new();
    let people = Authority::new();
    let someone = people.issue(&["someone.test"]);
    for required in [false, true] {
        site.reconfigure(|config| {
            let roots = people.pem();
            config.client_auth = match required {
                true => ClientAuth::Required(roots),
                false => ClientAuth::Optional(roots),
            };
        });
        site.reconfigure_client(|config| config.certificate = Some(someone.certified()));
        let visit = site.visit(None);
        assert_eq!(visit.server.peer_certificate.as_ref(), Some(&someone.der));
        assert!(visit.sessions[0].client_certificate);
        let again = site.visit(Some(visit.take()));
        assert!(again.resumed());
        assert_eq!(again.server.peer_certificate, Some(someone.der.clone()), "it is in the ticket");
    }
    site.reconfigure_client(|_| ());
    let (client, server) = site.pair("a.test", None).clash();
    assert!(matches!(server, Err(TlsError::Unsupported(_))), "{server:?}");
    assert_eq!(client, Err(TlsError::Alert(116)), "certificate_required");
    let foreign = site.authority.issue(&["someone.test"]);
    site.reconfigure_client(|config| config.certificate = Some(foreign.certified()));
    let (client, server) = site.pair("a.test", None).clash();
    assert!(matches!(server, Err(TlsError::Certificate(..))), "{server:?}");
    assert_eq!(client, Err(TlsError::Alert(48)), "unknown_ca");
}

#[test]
fn secrets_are_logged_on_demand() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log: KeyLog = {
        let lines = Arc::clone(&lines);
        Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let mut site = Site::new();
    site.visit(None);
    assert_eq!(lines.lock().unwrap().len(), 0);
    let client = ClientConfig { key_log: Some(Arc::clone(&log)), ..client_config(&site.authority) };
    let client = ClientContext::new(&client).unwrap();
    site.visit_by(client.connect("a.test", None, false).unwrap());
    let logged = std::mem::take(&mut *lines.lock().unwrap());
    assert!(logged.iter().any(|line| line.starts_with("CLIENT_HANDSHAKE_TRAFFIC_SECRET ")));
    site.reconfigure(|config| config.key_log = Some(log));
    let mut pair = site.pair("b.test", None);
    pair.shake().unwrap();
    let logged = std::mem::take(&mut *lines.lock().unwrap());
    assert!(logged.iter().any(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0 ")), "{logged:?}");
}

#[test]
fn an_end_asked_for_in_mid_handshake_comes_after_it() {
    let site = Site::new();
    let mut pair = site.pair("a.test", None);
    pair.server.close();
    pair.shake().unwrap();
    pair.carry_to_client();
    assert_eq!(pair.client.read(&mut [0; 10]), Ok(Read::End));
}

#[test]
fn callers_are_told_of_calls_that_make_no_sense() {
    let site = Site::new();
    let mut pair: Pair = site.pair("a.test", None);
    assert!(matches!(pair.server.write_early(b"x"), Err(TlsError::Misuse(_))));
    assert!(matches!(pair.client.read(&mut []), Err(TlsError::Misuse(_))));
    assert_eq!(pair.client.write_early(b"x"), Ok(0), "no session");
    assert_eq!(pair.client.write(b"x"), Ok(0), "too early");
    assert!(matches!(site.client.connect("", None, false), Err(TlsError::Misuse(_))));
    assert!(matches!(site.client.connect("a\0b", None, false), Err(TlsError::Misuse(_))));
}
