//! A peer that keeps requesting key updates, and reads none of the answers.

use headstart_tls::Progress;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, encrypt_aead};

use super::*;

/// Bytes that the transport buffers in each direction.
const CAPACITY: usize = 1 << 16;

/// KeyUpdates that the peer sends: at 27 bytes each, more than a megabyte of requests.
const UPDATES: usize = 40_000;

/// Traffic secret of a client that uses TLS_AES_256_GCM_SHA384 (RFC 8446 section 7).
struct TrafficSecret {
    secret: Vec<u8>,
}

impl TrafficSecret {
    /// Returns a KeyUpdate that requests one in return (section 4.6.3), and switches to the next
    /// keys.
    fn key_update(&mut self) -> Vec<u8> {
        // Message type and length, update_requested, and the inner content type.
        let inner = [24, 0, 0, 1, 1, 22];
        let head = [23, 3, 3, 0, 22];
        // The first record under these keys: its sequence number is zero, so the nonce is the IV.
        let (key, iv, mut tag) = (self.expand("key", 32), self.expand("iv", 12), [0; 16]);
        let sealed =
            encrypt_aead(Cipher::aes_256_gcm(), &key, Some(&iv), &head, &inner, &mut tag).unwrap();
        self.secret = self.expand("traffic upd", 48);
        [&head[..], &sealed, &tag].concat()
    }

    /// Computes HKDF-Expand-Label, for at most one block (section 7.1, RFC 5869 section 2.3).
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

/// Performs a client's handshake over `transport`; returns the client's traffic secret.
async fn handshake(transport: &mut DuplexStream) -> TrafficSecret {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lines);
    let config = ClientConfig {
        key_log: Some(Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()))),
        ..ClientConfig::new(Trust::Anyone)
    };
    let mut conn = ClientContext::new(&config).unwrap().connect(NAME, None, false).unwrap();
    let mut buffer = vec![0; CAPACITY];
    loop {
        let progress = conn.handshake().unwrap();
        while let Some(bytes) = conn.poll_bytes() {
            transport.write_all(&bytes).await.unwrap();
        }
        if progress == Progress::Done {
            break;
        }
        let count = transport.read(&mut buffer).await.unwrap();
        conn.handle_bytes(&buffer[..count]);
    }
    assert_eq!(conn.facts().cipher, Some("TLS_AES_256_GCM_SHA384"));
    let lines = lines.lock().unwrap();
    let line = lines.iter().find(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).unwrap();
    TrafficSecret { secret: unhex(line.rsplit(' ').next().unwrap()) }
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Writes `bytes` until `transport` blocks although all other tasks have run; returns the number
/// of bytes written.
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
async fn a_peer_that_requests_key_updates_and_reads_nothing_is_throttled() {
    let site = Site::new();
    let (mut near, far) = duplex(CAPACITY);
    let mut server = site.accept(far);
    let serve = tokio::spawn(async move { server.read(&mut [0; 1]).await });
    let mut traffic = handshake(&mut near).await;
    let flood: Vec<u8> = (0..UPDATES).flat_map(|_| traffic.key_update()).collect();

    let taken = push(&mut near, &flood).await;
    // Requests whose answers fill the transport or wait in the backlog, those of one read, and
    // those that are still unread in the transport.
    assert!(
        taken < CAPACITY + engine::BACKLOG + CAPACITY + CAPACITY,
        "{taken} of {} bytes",
        flood.len()
    );
    assert!(!serve.is_finished(), "the server ended");

    let (mut answers, mut rest) = split(near);
    let drain = tokio::spawn(async move { answers.read_to_end(&mut Vec::new()).await });
    // Once its answers are read, the server goes on, until it reaches the engine's limit on
    // protocol messages without data.
    let written = timeout(TIMEOUT, rest.write_all(&flood[taken..])).await;
    assert!(written.expect("the server stayed blocked").is_err(), "the server read everything");
    let read = timeout(TIMEOUT, serve).await.expect("the server still runs").unwrap();
    let error = read.unwrap_err().to_string();
    assert!(error.contains("protocol messages without data"), "{error}");
    timeout(TIMEOUT, drain).await.expect("the stream is still open").unwrap().unwrap();
}
