//! A peer that keeps requesting new keys, and reads none of the answers.

use headstart_tls::Progress;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, encrypt_aead};

use super::*;

/// Bytes that each direction of the transport holds.
const ROOM: usize = 1 << 16;

/// A request for new keys and its answer have 27 bytes each: more than a megabyte of requests.
const UPDATES: usize = 40_000;

/// Secrets that a client encrypts with in TLS_AES_256_GCM_SHA384 (RFC 8446 section 7).
struct Traffic {
    secret: Vec<u8>,
}

impl Traffic {
    /// Returns a KeyUpdate that requests one in return (section 4.6.3), and switches to the next
    /// keys.
    fn key_update(&mut self) -> Vec<u8> {
        // Message type, its length, update_requested, and the record type.
        let inner = [24, 0, 0, 1, 1, 22];
        let head = [23, 3, 3, 0, 22];
        // The first record of these keys: the number is zero and the nonce is the IV.
        let (key, iv, mut tag) = (self.expand("key", 32), self.expand("iv", 12), [0; 16]);
        let sealed =
            encrypt_aead(Cipher::aes_256_gcm(), &key, Some(&iv), &head, &inner, &mut tag).unwrap();
        self.secret = self.expand("traffic upd", 48);
        [&head[..], &sealed, &tag].concat()
    }

    /// HKDF-Expand-Label, for at most one block (section 7.1, RFC 5869 section 2.3).
    fn expand(&self, label: &str, length: u8) -> Vec<u8> {
        let label = format!("tls13 {label}");
        let label_length = u8::try_from(label.len()).unwrap();
        let info = [&[0, length, label_length][..], label.as_bytes(), &[0, 1]].concat();
        let key = PKey::hmac(&self.secret).unwrap();
        let mut block = Signer::new(MessageDigest::sha384(), &key).unwrap();
        let mut block = block.sign_oneshot_to_vec(&info).unwrap();
        block.truncate(length.into());
        block
    }
}

/// Does a client's handshake over `transport`; returns its keys afterwards.
async fn handshake(transport: &mut DuplexStream) -> Traffic {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let config = ClientConfig {
        key_log: Some(Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()))),
        ..ClientConfig::new(Trust::Anyone)
    };
    let mut conn = ClientContext::new(&config).unwrap().connect(NAME, None, false).unwrap();
    let mut room = vec![0; ROOM];
    loop {
        let progress = conn.handshake().unwrap();
        while let Some(bytes) = conn.poll_bytes() {
            transport.write_all(&bytes).await.unwrap();
        }
        if progress == Progress::Done {
            break;
        }
        let count = transport.read(&mut room).await.unwrap();
        conn.handle_bytes(&room[..count]);
    }
    assert_eq!(conn.facts().cipher, Some("TLS_AES_256_GCM_SHA384"));
    let lines = lines.lock().unwrap();
    let line = lines.iter().find(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).unwrap();
    Traffic { secret: unhex(line.rsplit(' ').next().unwrap()) }
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Writes as much of `bytes` as `transport` accepts while all other tasks run; returns how much.
async fn push(transport: &mut DuplexStream, bytes: &[u8]) -> usize {
    let (mut taken, mut waited) = (0, false);
    while taken < bytes.len() {
        let polled =
            poll_fn(|cx| Poll::Ready(Pin::new(&mut *transport).poll_write(cx, &bytes[taken..])));
        match polled.await {
            Poll::Ready(count) => {
                taken += count.unwrap();
                waited = false;
            }
            Poll::Pending if waited => break,
            Poll::Pending => {
                run_other_tasks().await;
                waited = true;
            }
        }
    }
    taken
}

#[tokio::test]
async fn a_peer_that_requests_keys_and_reads_nothing_is_throttled() {
    let site = Site::new();
    let (mut near, far) = duplex(ROOM);
    let mut server = site.accept(far);
    let serve = tokio::spawn(async move { server.read(&mut [0; 1]).await });
    let mut traffic = handshake(&mut near).await;
    let flood: Vec<u8> = (0..UPDATES).flat_map(|_| traffic.key_update()).collect();

    let taken = push(&mut near, &flood).await;
    // Answers that fill the transport, those that wait behind it, bytes read at once, and unread
    // bytes.
    assert!(taken < ROOM + engine::BACKLOG + ROOM + ROOM, "{taken} of {} bytes", flood.len());
    assert!(!serve.is_finished(), "the server ended");

    let (mut answers, mut rest) = split(near);
    let drain = tokio::spawn(async move { answers.read_to_end(&mut Vec::new()).await });
    // It goes on when its answers are read, until the engine's limit on protocol messages without
    // data.
    let written = timeout(TIMEOUT, rest.write_all(&flood[taken..])).await;
    assert!(written.expect("the server stayed blocked").is_err(), "everything was read");
    let read = timeout(TIMEOUT, serve).await.expect("it ends").unwrap();
    let error = read.unwrap_err().to_string();
    assert!(error.contains("protocol messages without data"), "{error}");
    timeout(TIMEOUT, drain).await.expect("it ends").unwrap().unwrap();
}
