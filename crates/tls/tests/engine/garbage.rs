//! Bytes that are cut, changed or made up: an error or a full handshake, and nothing else.

use headstart_testkit::hello::{extension, message, record, vector8, vector16};
use headstart_tls::{Conn, Progress, Read, TlsError};

use crate::hello;
use crate::site::{Site, hands_out_cookies, takes_early_data, write};

fn demanding() -> Site {
    Site::with(|config| {
        takes_early_data(config);
        hands_out_cookies(config);
    })
}

/// A first flight with everything in it: a session, early data, the request for cookies.
fn flight(site: &Site) -> (Conn, Vec<u8>) {
    let mut client = site.client.connect("a.test", Some(site.session()), true).unwrap();
    assert_eq!(client.write_early(b"early"), Ok(5));
    let flight = client.poll_bytes().unwrap();
    (client, flight)
}

/// Everything that a caller might do with a connection after these bytes.
fn drive(conn: &mut Conn, bytes: &[u8]) -> Result<Read, TlsError> {
    conn.handle_bytes(bytes);
    let _ = conn.handshake();
    let _ = conn.write(b"answer");
    let _ = conn.facts();
    while conn.poll_bytes().is_some() {}
    conn.read(&mut [0; 100])
}

#[test]
fn a_first_flight_that_is_cut_anywhere_waits_and_then_fails() {
    let site = demanding();
    let (_, flight) = flight(&site);
    for cut in 0..flight.len() {
        let mut server = site.accept();
        let waiting = drive(&mut server, &flight[..cut]);
        assert!(waiting.is_ok(), "{cut} bytes: {waiting:?}");
        server.handle_end();
        assert_eq!(last_error(&mut server), TlsError::Truncated, "{cut} bytes");
    }
}

/// Returns the connection's error once everything was read.
fn last_error(conn: &mut Conn) -> TlsError {
    loop {
        match conn.read(&mut [0; 100]) {
            Ok(Read::Bytes(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_first_flight_with_any_byte_changed_never_ends_the_handshake() {
    let site = demanding();
    let (_, flight) = flight(&site);
    for at in 0..flight.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changed = flight.clone();
            changed[at] ^= change;
            let mut server = site.accept();
            let _ = drive(&mut server, &changed);
            assert_ne!(server.handshake(), Ok(Progress::Done), "byte {at}");
            server.handle_end();
            last_error(&mut server);
        }
    }
}

#[test]
fn a_changed_answer_is_noticed_by_the_client() {
    let site = Site::new();
    let mut trials = 0;
    for at in 0.. {
        let mut pair = site.pair("a.test", None);
        pair.client.handshake().unwrap();
        pair.carry_to_server();
        pair.server.handshake().unwrap();
        write_nothing(&mut pair.server);
        let mut answer = pair.server.poll_bytes().unwrap();
        let Some(byte) = answer.get_mut(at) else { break };
        *byte ^= 0x10;
        let changes_nothing = is_ignored(&answer, at);
        pair.client.handle_bytes(&answer);
        let outcome = pair.client.handshake();
        if !changes_nothing {
            assert_ne!(outcome, Ok(Progress::Done), "byte {at}");
            trials += 1;
        }
        pair.client.handle_end();
        let _ = pair.client.read(&mut [0; 100]);
    }
    assert!(trials > 500, "{trials}");
}

fn write_nothing(conn: &mut Conn) {
    assert_eq!(conn.write(b"too early"), Ok(0));
}

/// Returns true if TLS 1.3 tells receivers to pass over this byte: versions in record headers (RFC
/// 8446 section 5.1), and the record of change_cipher_spec (appendix D.4).
fn is_ignored(stream: &[u8], at: usize) -> bool {
    let mut start = 0;
    while let Some(header) = stream.get(start..start + 5) {
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if (start + 1..start + 3).contains(&at) {
            return true;
        }
        if header[0] == 20 && (start..start + 5 + length).contains(&at) {
            return true;
        }
        start += 5 + length;
    }
    false
}

#[test]
fn other_bytes_than_tls_are_refused() {
    let site = demanding();
    let texts: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0; 100],
        &[0xff; 100],
        &[0x16, 0x03, 0x01, 0xff, 0xff],
        &[0x16, 0x03, 0x01, 0x00, 0x00, 0x16, 0x03, 0x01, 0x00, 0x00],
    ];
    for text in texts {
        let mut server = site.accept();
        let _ = drive(&mut server, text);
        server.handle_end();
        let error = last_error(&mut server);
        assert!(!error.to_string().is_empty());
        let mut client = site.client.connect("a.test", None, true).unwrap();
        client.handshake().unwrap();
        let _ = drive(&mut client, text);
        client.handle_end();
        last_error(&mut client);
    }
}

#[test]
fn application_data_that_is_changed_is_not_delivered() {
    let site = Site::new();
    for at in 0..30 {
        let mut pair = site.pair("a.test", None);
        pair.shake().unwrap();
        write(&mut pair.client, b"question");
        let mut record = pair.client.poll_bytes().unwrap();
        assert_eq!(record.len(), 5 + 8 + 1 + 16);
        record[at] ^= 1;
        pair.server.handle_bytes(&record);
        pair.server.handle_end();
        let read = pair.server.read(&mut [0; 100]);
        assert!(!matches!(read, Ok(Read::Bytes(_))), "byte {at}: {read:?}");
    }
}

// F-EXTENSION-3
#[test]
fn a_request_for_cookies_with_content_is_malformed() {
    // One byte of content, and all lengths around it one more.
    let site = demanding();
    let mut client = site.client.connect("a.test", None, true).unwrap();
    client.handshake().unwrap();
    let mut hello = client.poll_bytes().unwrap();
    let at = hello.windows(4).position(|window| window == [0xff, 0xc8, 0, 0]).unwrap();
    hello[at + 3] = 1;
    hello.insert(at + 4, 0);
    for (at, bytes) in [(3, 2), (6, 3), (extensions(&hello), 2)] {
        let length =
            hello[at..at + bytes].iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        let longer = (length + 1).to_be_bytes();
        hello[at..at + bytes].copy_from_slice(&longer[8 - bytes..]);
    }
    let mut server = site.accept();
    server.handle_bytes(&hello);
    let error = server.handshake().unwrap_err();
    assert!(matches!(error, TlsError::Protocol(_)), "{error:?}");
    client.handle_bytes(&server.poll_bytes().unwrap());
    assert_eq!(client.handshake(), Err(TlsError::Alert(50)), "decode_error");
}

/// A ClientHello that offers `identities` instead of its own ticket, in as many records as it
/// takes.
fn offering(hello: &[u8], identities: &[Vec<u8>]) -> Vec<u8> {
    let own = hello::extension(hello, 41).unwrap();
    let (head, others) = hello[..hello.len() - own.len() - 4].split_at(extensions(hello));
    let listed: Vec<u8> =
        identities.iter().flat_map(|identity| [vector16(identity), vec![0; 4]].concat()).collect();
    let offer = [vector16(&listed), vector16(&vector8(&[0; 32]))].concat();
    let all = [&others[2..], &extension(41, &offer)].concat();
    let message = message(1, &[&head[9..], &vector16(&all)].concat());
    message.chunks(16_384).flat_map(|piece| record(22, piece)).collect()
}

#[test]
fn a_hello_full_of_tickets_that_are_none_means_a_full_handshake() {
    let site = demanding();
    let mut client = site.client.connect("a.test", Some(site.session()), false).unwrap();
    client.handshake().unwrap();
    let hello = client.poll_bytes().unwrap();
    let mut ticket = hello::identity(&hello).unwrap();
    let start = ticket[..32].to_vec(); // of a key that is known
    *ticket.last_mut().unwrap() ^= 1;
    let parts = [vec![7], start[..31].to_vec(), start.clone(), vec![9; 80]];
    let full = vec![[start, vec![9; 40]].concat(); 800];
    let cases = [vec![ticket.clone()], [&parts[..], &[ticket.clone(), ticket]].concat(), full];
    for identities in cases {
        let mut server = site.accept();
        server.handle_bytes(&offering(&hello, &identities));
        assert_eq!(server.handshake(), Ok(Progress::Wait), "{} identities", identities.len());
        assert!(server.poll_bytes().unwrap().len() > 500, "with a certificate");
    }
}

/// Where the length of all extensions stands in a ClientHello of one record.
fn extensions(hello: &[u8]) -> usize {
    let session_id = 5 + 4 + 2 + 32;
    let suites = session_id + 1 + usize::from(hello[session_id]);
    let compression =
        suites + 2 + usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
    compression + 1 + usize::from(hello[compression])
}
