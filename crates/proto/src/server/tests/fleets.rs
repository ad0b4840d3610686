//! Edges of a fleet, and an edge that has restarted: tags tell who answered.

use super::*;
use crate::route::{RouteKey, RouteRing};

fn route_ring(epochs: [u8; 3]) -> RouteRing {
    let [previous, current, next] = epochs.map(|epoch| RouteKey::new(epoch, [epoch; 16]));
    RouteRing { previous: Some(previous), current, next }
}

fn routes(number: u8) -> Option<Routes> {
    let own = EdgeNumber::new(number).unwrap();
    Some(Routes { own, ring: route_ring([1, 2, 3]) })
}

/// Creates edge `number` of a fleet.
fn member(number: u8) -> Server {
    let config = ServerConfig { tag: RouteTag([number; 4]), ..ServerConfig::default() };
    let mut server = Server::new(config);
    server.set_routes(routes(number));
    server
}

/// Another process of the edge may know it.
#[test]
fn a_join_is_stray_if_neither_this_edge_nor_another_is_known_to_have_answered() {
    let mut server = server();
    server.begin(1, peer(1)).unwrap();
    let tag = tag_sent(&mut server);
    server.part(0, 2, peer(2), 0..50).unwrap();
    assert!(server.runs(&id(1)) && !server.runs(&id(2)) && !server.runs(&id(3)));
    let is_stray =
        |server: &Server, number, tag| server.is_stray(&Join { tag, ..join(number, 0, 0) });
    let other_start = RouteTag([9; 4]);
    assert!(!is_stray(&server, 1, tag) && is_stray(&server, 1, other_start));
    assert!(is_stray(&server, 2, tag), "its ClientHello is not whole");
    assert!(is_stray(&server, 3, tag) && !is_stray(&server, 3, RouteTag::default()));

    server.set_routes(routes(1));
    let [own, other] = [1, 2].map(|number| routes(number).unwrap().tag(7, &id(3)));
    assert!(is_stray(&server, 3, own) && !is_stray(&server, 3, other));
}

#[test]
fn a_join_finds_the_edge_that_answered() {
    let (mut owner, mut other) = (member(1), member(2));
    owner.begin(1, peer(1)).unwrap();
    let join = Join { tag: tag_sent(&mut owner), ..join(1, 0, 0) };
    let elsewhere = JoinOutcome::Elsewhere(EdgeNumber::new(1).unwrap());
    assert_eq!(other.handle_join(at(1), peer(1), &join), elsewhere);
    assert_eq!(
        other.handle_join(at(1), peer(1), &join),
        elsewhere,
        "the first attempt left no trace"
    );
    let outcome = owner.handle_join(at(1), peer(1), &join);
    assert!(matches!(outcome, JoinOutcome::Joined(..)), "{outcome:?}");
}

#[test]
fn a_join_that_cannot_be_forwarded_is_decided_here() {
    let mut owner = member(1);
    owner.begin(1, peer(1)).unwrap();
    let tag = tag_sent(&mut owner);
    for (offset, expected) in [(0, JoinOutcome::Fresh), (1, JoinOutcome::Refused)] {
        let (mut other, join) = (member(2), Join { tag, ..join(1, offset, offset) });
        assert_eq!(other.handle_join_here(at(1), peer(1), &join), expected);
        assert_eq!(
            other.handle_join_here(at(1), peer(1), &join),
            JoinOutcome::Refused,
            "a key works once"
        );
    }
}

// W-FLEET-1
#[test]
fn a_session_of_another_edge_does_not_join_a_copy_of_its_flight() {
    let (mut owner, mut other) = (member(1), member(2));
    owner.begin(1, peer(1)).unwrap();
    other.begin(1, peer(1)).unwrap();
    let join = Join { tag: tag_sent(&mut owner), ..join(1, 0, 0) };
    assert!(matches!(other.handle_join(at(1), peer(1), &join), JoinOutcome::Elsewhere(_)));
    // The owner cannot be reached: the stream takes over the session that runs here, from its
    // start.
    assert_eq!(other.handle_join_here(at(1), peer(1), &join), JoinOutcome::Fresh);
    let stream = other.handle_plain(at(1), peer(1), &hello(1, 100));
    assert!(matches!(stream, Attachment::Attached(handover) if handover.id == id(1)));
}

#[test]
fn a_restarted_edge_does_not_accept_its_earlier_tags() {
    let mut before = member(1);
    before.begin(1, peer(1)).unwrap();
    let tag = tag_sent(&mut before);
    let config = ServerConfig { tag: RouteTag([77; 4]), ..ServerConfig::default() };
    let mut restarted = Server::new(config);
    restarted.set_routes(routes(1));
    restarted.begin(1, peer(1)).unwrap();
    let joined = Join { tag, ..join(1, 1, 0) };
    assert_eq!(restarted.handle_join(at(1), peer(1), &joined), JoinOutcome::Refused);
}

// W-TAG-2
#[test]
fn a_session_keeps_its_tag_when_keys_change() {
    let mut server = member(1);
    server.begin(1, peer(1)).unwrap();
    let tag = tag_sent(&mut server);
    let own = EdgeNumber::new(1).unwrap();
    server.set_routes(Some(Routes { own, ring: route_ring([2, 3, 4]) }));
    server.datagram(peer(1), &request(1, 1, 0, &[])).unwrap();
    server.handle_origin_data(id(1), b"flight");
    assert_eq!(tag_sent(&mut server), tag);
    let joined = server.handle_join(at(1), peer(1), &Join { tag, ..join(1, 100, 6) });
    assert!(matches!(joined, JoinOutcome::Joined(..)), "{joined:?}");
}

#[test]
fn an_edge_alone_forwards_nothing() {
    let mut owner = member(1);
    owner.begin(1, peer(1)).unwrap();
    let join = Join { tag: tag_sent(&mut owner), ..join(1, 0, 0) };
    assert_eq!(server().handle_join(at(1), peer(1), &join), JoinOutcome::Fresh);
}

#[test]
fn a_flight_started_again_after_a_restart_does_not_run_a_third_time() {
    let mut server = Server::new(ServerConfig { tag: RouteTag([1; 4]), ..ServerConfig::default() });
    server.begin(1, peer(1)).unwrap();
    let earlier = Join { tag: RouteTag([2; 4]), ..join(1, 0, 0) };
    assert_eq!(server.handle_join(at(1), peer(1), &earlier), JoinOutcome::Fresh);
    let stream = server.handle_plain(at(1), peer(1), &hello(1, 100));
    assert!(matches!(stream, Attachment::Attached(handover) if handover.id == id(1)));
    assert!(server.is_empty());
}

#[test]
fn a_join_of_another_start_leaves_the_session_as_it_is() {
    let mut server = Server::new(ServerConfig { tag: RouteTag([1; 4]), ..ServerConfig::default() });
    server.begin(1, peer(1)).unwrap();
    for (client, expected) in [(0, JoinOutcome::Fresh), (100, JoinOutcome::Refused)] {
        let earlier = Join { tag: RouteTag([2; 4]), ..join(1, client, 0) };
        assert_eq!(server.handle_join(at(1), peer(3), &earlier), expected);
        assert_eq!(server.unproven(), 1);
    }
    let joined = server.handle_join(at(1), peer(1), &join(1, 0, 0));
    assert!(matches!(joined, JoinOutcome::Joined(..)), "{joined:?}");
}
