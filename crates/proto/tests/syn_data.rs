//! The client's streams if the SYN carried the first bytes: no byte lost, none duplicated.

#![allow(clippy::unwrap_used)]

use headstart_proto::{Client, ClientConfig, ClientEvent, Instant, JoinKey, PlainReason};

const NOW: Instant = Instant::ZERO;
const HELLO: &[u8] = b"the ClientHello, and early data";

fn client() -> Client {
    let mut client = Client::new(JoinKey::new([7; 16]), ClientConfig::default());
    client.handle_app_data(NOW, HELLO);
    client
}

fn connected(client: &mut Client) -> Vec<u8> {
    client.handle_tcp_connected(NOW, true, None);
    let plain = std::iter::from_fn(|| client.poll_event())
        .any(|event| event == ClientEvent::Plain(PlainReason::NotOffered));
    assert!(plain && client.is_decided());
    client.poll_tcp().unwrap_or_default()
}

#[test]
fn tcp_continues_after_the_data_in_the_syn() {
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
fn syn_data_is_capped_at_the_bytes_written() {
    let mut client = client();
    client.handle_syn_data(HELLO.len() + 1);
    client.handle_app_data(NOW, b"more");
    assert_eq!(connected(&mut client), b"more");
}

#[test]
fn reports_about_the_syn_after_connecting_change_nothing() {
    let mut client = client();
    assert_eq!(connected(&mut client), HELLO);
    client.handle_syn_data(5);
    client.handle_app_data(NOW, b"more");
    assert_eq!(client.poll_tcp().unwrap(), b"more");
}

/// A client that may send datagrams restarts its stream on TCP.
#[test]
fn datagrams_and_data_in_the_syn_exclude_each_other() {
    let mut client = client();
    client.offer_udp(ClientConfig::default());
    client.handle_syn_data(5);
    client.handle_tcp_connected(NOW, true, None);
    assert_eq!(client.poll_tcp().unwrap(), HELLO);
}

#[test]
fn a_stream_that_ends_in_the_syn_ends_normally() {
    let mut client = client();
    client.handle_syn_data(HELLO.len());
    client.handle_app_finished(NOW);
    assert_eq!(connected(&mut client), b"");
    assert!(client.wants_tcp_finish());
    client.handle_tcp_data(NOW, b"answer");
    assert_eq!(client.poll_app().unwrap(), b"answer");
}
