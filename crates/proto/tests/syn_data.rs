//! The client's streams where the SYN took the first bytes along: no byte lost, none doubled.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headstart_proto::{Client, ClientConfig, ClientEvent, Instant, JoinKey, PlainReason};

const NOW: Instant = Instant::ZERO;
const HELLO: &[u8] = b"the ClientHello, and early data";

fn client() -> Client {
    let mut client = Client::new(JoinKey::new([7; 16]), ClientConfig::default());
    client.handle_app_data(NOW, HELLO);
    client
}

fn connected(client: &mut Client) -> Vec<u8> {
    client.handle_tcp_connected(NOW, true, Duration::ZERO);
    let plain = std::iter::from_fn(|| client.poll_event())
        .any(|event| event == ClientEvent::Plain(PlainReason::NotOffered));
    assert!(plain && client.is_decided());
    client.poll_tcp().unwrap_or_default()
}

#[test]
fn tcp_goes_on_behind_what_the_syn_took_along() {
    for taken in 0..=HELLO.len() {
        let mut client = client();
        assert_eq!(client.stream(), HELLO);
        client.handle_syn_data(taken);
        client.handle_app_data(NOW, b" and more");
        let rest = connected(&mut client);
        assert_eq!([&HELLO[..taken], &rest].concat(), [HELLO, b" and more"].concat());
        assert!(client.is_transparent() && client.stream().is_empty());
    }
}

#[test]
fn a_connection_without_syn_data_begins_at_the_start() {
    assert_eq!(connected(&mut client()), HELLO);
}

#[test]
fn no_more_is_left_out_than_was_written() {
    let mut client = client();
    client.handle_syn_data(HELLO.len() + 1);
    client.handle_app_data(NOW, b"more");
    assert_eq!(connected(&mut client), b"more");
}

#[test]
fn what_is_said_of_the_syn_after_it_connected_changes_nothing() {
    let mut client = client();
    assert_eq!(connected(&mut client), HELLO);
    client.handle_syn_data(5);
    client.handle_app_data(NOW, b"more");
    assert_eq!(client.poll_tcp().unwrap(), b"more");
}

/// Where datagrams were offered, the edge's stream is theirs: it starts anew on TCP.
#[test]
fn datagrams_and_data_in_the_syn_exclude_each_other() {
    let mut client = client();
    client.offer_udp(ClientConfig::default());
    client.handle_syn_data(5);
    client.handle_tcp_connected(NOW, true, Duration::ZERO);
    assert_eq!(client.poll_tcp().unwrap(), HELLO);
}

#[test]
fn a_stream_that_ends_with_the_syn_ends_in_order() {
    let mut client = client();
    client.handle_syn_data(HELLO.len());
    client.handle_app_finished(NOW);
    assert_eq!(connected(&mut client), b"");
    assert!(client.wants_tcp_finish());
    client.handle_tcp_data(b"answer");
    assert_eq!(client.poll_app().unwrap(), b"answer");
}
