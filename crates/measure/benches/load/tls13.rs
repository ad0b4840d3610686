//! As little of a TLS 1.3 client (RFC 8446) as whole handshakes take: one group, one cipher, and no
//! look at certificates.
//!
//! OpenSSL's client takes as much of a processor as a server does, and verifies a signature
//! besides: with a processor for each of both, it would be what is measured. This one has the same
//! key share for all connections, multiplies once for each, and checks nothing but that the server
//! knows the keys: its Finished is verified, the certificate is not. Servers cannot tell the
//! difference; nobody else should do it like this.

use std::io;
use std::time::Instant;

use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey, Private};
use openssl::sha::{Sha256, sha256};
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};

use super::Failure;

/// Length of SHA-256, and so of every secret.
const HASH: usize = 32;

/// Bytes of a record's header, of a message's, and of what AES-GCM adds (sections 5.1, 4 and 5.2).
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;
const TAG: usize = 16;

/// Binders of a ClientHello with one identity, their lengths included (section 4.2.11).
const BINDERS: usize = 2 + 1 + HASH;

/// Content types (section 5.1) and messages (section 4).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const FINISHED: u8 = 20;

/// Extensions.
const KEY_SHARE: u16 = 51;
const PRE_SHARED_KEY: u16 = 41;

/// Alert close_notify, a warning.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// State that all connections of a client share.
pub(crate) struct Client {
    key: PKey<Private>,
    /// A ClientHello without a pre-shared key: from its version to the last extension.
    hello: Vec<u8>,
}

/// State that resumes a session.
#[derive(Clone)]
pub(crate) struct Ticket {
    identity: Vec<u8>,
    age_add: u32,
    received: Instant,
    secret: [u8; HASH],
}

/// A connection, from its ClientHello on.
pub(crate) struct Connection<'c> {
    client: &'c Client,
    transcript: Sha256,
    /// The secret before the key exchange.
    early: [u8; HASH],
    offered: bool,
    resumed: bool,
    phase: Phase,
    /// Handshake messages that are not whole yet.
    messages: Vec<u8>,
}

enum Phase {
    Hello,
    /// Up to the server's Finished.
    Flight {
        secret: [u8; HASH],
        ours: [u8; HASH],
        theirs: [u8; HASH],
        receiver: Keys,
    },
    Open {
        sender: Keys,
        receiver: Keys,
        resumption: [u8; HASH],
    },
}

/// Event in a record of the server.
pub(crate) enum Event {
    Nothing,
    /// The handshake is over; these bytes, and then the application's, are to be sent.
    Finished(Vec<u8>),
    Bytes(Vec<u8>),
    Ticket(Ticket),
    End,
}

impl Client {
    /// A client that asks for this name, and for one protocol if it is given.
    pub(crate) fn new(name: &str, protocol: Option<&str>) -> Result<Self, Failure> {
        let key = PKey::generate_x25519()?;
        let mut extensions =
            extension(0, &vector16(&[&[0][..], &vector16(name.as_bytes())].concat()));
        // X25519, ecdsa_secp256r1_sha256, TLS 1.3, psk_dhe_ke.
        extensions.extend(extension(10, &vector16(&[0, 29])));
        extensions.extend(extension(13, &vector16(&[4, 3])));
        extensions.extend(extension(43, &[2, 3, 4]));
        extensions.extend(extension(45, &[1, 1]));
        if let Some(protocol) = protocol {
            extensions.extend(extension(16, &vector16(&vector8(protocol.as_bytes()))));
        }
        let share = [&[0, 29][..], &vector16(&key.raw_public_key()?)].concat();
        extensions.extend(extension(KEY_SHARE, &vector16(&share)));
        // TLS_AES_128_GCM_SHA256 alone; without a session id, the server does without
        // ChangeCipherSpec (appendix D.4).
        let head = [&[3, 3][..], &[0; 32], &[0, 0, 2, 0x13, 0x01, 1, 0]].concat();
        Ok(Self { key, hello: [head, vector16(&extensions)].concat() })
    }

    /// A connection that resumes, if it can, and its first bytes.
    pub(crate) fn connect(&self, ticket: Option<&Ticket>) -> (Connection<'_>, Vec<u8>) {
        let mut body = self.hello.clone();
        if let Some(random) = body.get_mut(2..34) {
            random.fill_with(rand::random);
        }
        let secret = ticket.map_or([0; HASH], |ticket| ticket.secret);
        let early = extract(&[0; HASH], &secret);
        if let Some(ticket) = ticket {
            ticket.offer(&mut body);
        }
        let mut hello = message(1, &body);
        if ticket.is_some() {
            bind(&mut hello, &early);
        }
        let mut transcript = Sha256::new();
        transcript.update(&hello);
        let connection = Connection {
            client: self,
            transcript,
            early,
            offered: ticket.is_some(),
            resumed: false,
            phase: Phase::Hello,
            messages: Vec::new(),
        };
        (connection, record(HANDSHAKE, &hello))
    }
}

impl Ticket {
    /// Adds the extension pre_shared_key, with room for the binder, to a ClientHello (section
    /// 4.2.11).
    fn offer(&self, body: &mut Vec<u8>) {
        let age = u32::try_from(self.received.elapsed().as_millis()).unwrap_or(u32::MAX);
        let age = age.wrapping_add(self.age_add).to_be_bytes();
        let identities = vector16(&[&vector16(&self.identity)[..], &age].concat());
        let binders = vector16(&vector8(&[0; HASH]));
        let offer = extension(PRE_SHARED_KEY, &[identities, binders].concat());
        // Behind version, random, session id, cipher suites and compression.
        let place = 2 + 32 + 1 + 4 + 2;
        if let Some(length) = body.get_mut(place..place + 2) {
            let before = u16::from_be_bytes([length[0], length[1]]);
            let added = u16::try_from(offer.len()).unwrap_or(u16::MAX);
            length.copy_from_slice(&before.wrapping_add(added).to_be_bytes());
        }
        body.extend(offer);
    }

    /// Reads a NewSessionTicket (section 4.6.1).
    fn new(body: &[u8], resumption: &[u8; HASH]) -> Option<Self> {
        let mut fields = Fields(body);
        fields.take(4)?; // ticket_lifetime
        let age_add = u32::from_be_bytes(fields.take(4)?.try_into().ok()?);
        let nonce = fields.take(1)?.first().copied()?;
        let nonce = fields.take(usize::from(nonce))?;
        let identity = fields.vector16()?.to_vec();
        let secret = expand(resumption, b"resumption", nonce);
        Some(Self { identity, age_add, received: Instant::now(), secret })
    }
}

/// Puts the binder at the end of a ClientHello (section 4.2.11.2).
fn bind(hello: &mut [u8], early: &[u8; HASH]) {
    let place = hello.len().saturating_sub(BINDERS);
    let (truncated, binders) = hello.split_at_mut(place);
    let key = expand(early, b"res binder", &sha256(b""));
    let binder = hmac(&expand(&key, b"finished", b""), &[&sha256(truncated)]);
    if let Some(place) = binders.last_chunk_mut() {
        *place = binder;
    }
}

impl Connection<'_> {
    /// Returns true if the server took the ticket; known once the handshake is over.
    pub(crate) const fn resumed(&self) -> bool {
        self.resumed
    }

    /// Takes a whole record.
    pub(crate) fn receive(&mut self, record: &[u8]) -> Result<Event, Failure> {
        let (header, body) = record.split_first_chunk::<RECORD_HEADER>().ok_or("no record")?;
        let [kind, ..] = *header;
        match &mut self.phase {
            _ if kind == CHANGE_CIPHER_SPEC => Ok(Event::Nothing),
            Phase::Hello if kind == HANDSHAKE => {
                self.messages.extend_from_slice(body);
                self.hello()
            }
            Phase::Hello => Err("the server refuses the ClientHello".into()),
            Phase::Flight { receiver, .. } => {
                let (kind, content) = receiver.open(header, body)?;
                if kind != HANDSHAKE {
                    return Err(format!("content {kind} in a handshake").into());
                }
                self.messages.extend(content);
                self.flight()
            }
            Phase::Open { receiver, resumption, .. } => {
                let (kind, content) = receiver.open(header, body)?;
                match kind {
                    APPLICATION => Ok(Event::Bytes(content)),
                    // A server may put several into one record; one of them is enough.
                    HANDSHAKE if content.first() == Some(&NEW_SESSION_TICKET) => {
                        let body = Message::first(&content).ok_or("no whole ticket")?.body;
                        let ticket = Ticket::new(body, resumption).ok_or("a malformed ticket")?;
                        Ok(Event::Ticket(ticket))
                    }
                    ALERT if content == CLOSE_NOTIFY => Ok(Event::End),
                    other => Err(format!("content {other} after the handshake").into()),
                }
            }
        }
    }

    /// Encrypts bytes of the application.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        self.seal(APPLICATION, bytes)
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self) -> Result<Vec<u8>, Failure> {
        self.seal(ALERT, &CLOSE_NOTIFY)
    }

    fn seal(&mut self, kind: u8, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        match &mut self.phase {
            Phase::Open { sender, .. } => sender.seal(kind, bytes),
            _ => Err("not open yet".into()),
        }
    }

    /// The ServerHello, and the keys that follow from it (section 7.1).
    fn hello(&mut self) -> Result<Event, Failure> {
        let Some(Message { kind, body, whole }) = Message::first(&self.messages) else {
            return Ok(Event::Nothing);
        };
        let hello = Some(body).filter(|_| kind == SERVER_HELLO).and_then(ServerHello::read);
        let ServerHello { share, resumed } =
            hello.ok_or("no ServerHello with a share of X25519")?;
        let peer = PKey::public_key_from_raw_bytes(&share, Id::X25519)?;
        let mut deriver = Deriver::new(&self.client.key)?;
        deriver.set_peer(&peer)?;
        let mut shared = [0; HASH];
        deriver.derive(&mut shared)?;
        self.transcript.update(whole);
        self.resumed = resumed;
        if resumed && !self.offered {
            return Err("resumed, which nobody asked for".into());
        }
        // Where the ticket was refused, there is no pre-shared key (section 4.2.11).
        let early = if resumed { self.early } else { extract(&[0; HASH], &[0; HASH]) };
        let secret = extract(&expand(&early, b"derived", &sha256(b"")), &shared);
        let hash = self.transcript.clone().finish();
        let ours = expand(&secret, b"c hs traffic", &hash);
        let theirs = expand(&secret, b"s hs traffic", &hash);
        self.phase = Phase::Flight { secret, ours, theirs, receiver: Keys::new(&theirs) };
        self.messages.clear();
        Ok(Event::Nothing)
    }

    /// The server's messages up to its Finished, which is answered with the client's (section
    /// 4.4.4).
    fn flight(&mut self) -> Result<Event, Failure> {
        let Phase::Flight { secret, ours, theirs, .. } = &self.phase else {
            return Ok(Event::Nothing);
        };
        let mut used = 0;
        while let Some(Message { kind, body, whole }) =
            Message::first(self.messages.get(used..).unwrap_or_default())
        {
            used += whole.len();
            if kind != FINISHED {
                self.transcript.update(whole);
                continue;
            }
            let hash = self.transcript.clone().finish();
            if body != hmac(&expand(theirs, b"finished", b""), &[&hash]) {
                return Err("the server's Finished is wrong".into());
            }
            self.transcript.update(whole);
            let hash = self.transcript.clone().finish();
            let verify = hmac(&expand(ours, b"finished", b""), &[&hash]);
            let finished = message(FINISHED, &verify);
            let flight = Keys::new(ours).seal(HANDSHAKE, &finished)?;
            self.transcript.update(&finished);
            let master = extract(&expand(secret, b"derived", &sha256(b"")), &[0; HASH]);
            let [sender, receiver] = [&b"c ap traffic"[..], b"s ap traffic"]
                .map(|label| Keys::new(&expand(&master, label, &hash)));
            let all = self.transcript.clone().finish();
            let resumption = expand(&master, b"res master", &all);
            self.phase = Phase::Open { sender, receiver, resumption };
            self.messages.clear();
            return Ok(Event::Finished(flight));
        }
        self.messages.drain(..used);
        Ok(Event::Nothing)
    }
}

/// A whole handshake message at the beginning of some bytes.
struct Message<'m> {
    kind: u8,
    body: &'m [u8],
    whole: &'m [u8],
}

impl<'m> Message<'m> {
    fn first(bytes: &'m [u8]) -> Option<Self> {
        let &[kind, high, middle, low] = bytes.first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
        let whole = bytes.get(..MESSAGE_HEADER + length)?;
        Some(Self { kind, body: whole.get(MESSAGE_HEADER..)?, whole })
    }
}

/// The parts of a ServerHello that are needed (section 4.1.3).
struct ServerHello {
    share: Vec<u8>,
    resumed: bool,
}

impl ServerHello {
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        fields.take(2 + 32)?; // legacy_version, random
        let session_id = fields.take(1)?.first().copied()?;
        fields.take(usize::from(session_id) + 2 + 1)?; // and cipher suite, compression
        let mut extensions = Fields(fields.vector16()?);
        let (mut share, mut resumed) = (None, false);
        while !extensions.0.is_empty() {
            let number = u16::from_be_bytes(extensions.take(2)?.try_into().ok()?);
            let content = extensions.vector16()?;
            match number {
                // The group comes before; a HelloRetryRequest has nothing behind it.
                KEY_SHARE => share = Fields(content.get(2..)?).vector16().map(<[u8]>::to_vec),
                PRE_SHARED_KEY => resumed = true,
                _ => {}
            }
        }
        Some(Self { share: share?, resumed })
    }
}

/// Keys of one direction, and how many records they were used for (section 5.3).
struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    records: u64,
}

impl Keys {
    fn new(secret: &[u8; HASH]) -> Self {
        let mut keys = Self { key: [0; 16], iv: [0; 12], records: 0 };
        expand_into(secret, b"key", b"", &mut keys.key);
        expand_into(secret, b"iv", b"", &mut keys.iv);
        keys
    }

    fn nonce(&mut self) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, number) in nonce.iter_mut().skip(4).zip(self.records.to_be_bytes()) {
            *byte ^= number;
        }
        self.records += 1;
        nonce
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Result<Vec<u8>, Failure> {
        let inner = [content, &[kind]].concat();
        let length = u16::try_from(inner.len() + TAG)?.to_be_bytes();
        let header = [APPLICATION, 3, 3, length[0], length[1]];
        let nonce = self.nonce();
        let mut tag = [0; TAG];
        let sealed = encrypt_aead(
            Cipher::aes_128_gcm(),
            &self.key,
            Some(&nonce),
            &header,
            &inner,
            &mut tag,
        )?;
        Ok([&header[..], &sealed, &tag].concat())
    }

    /// Type and content of a record.
    fn open(
        &mut self,
        header: &[u8; RECORD_HEADER],
        body: &[u8],
    ) -> Result<(u8, Vec<u8>), Failure> {
        let (sealed, tag) = body.split_last_chunk::<TAG>().ok_or("a record without a tag")?;
        let nonce = self.nonce();
        let mut inner =
            decrypt_aead(Cipher::aes_128_gcm(), &self.key, Some(&nonce), header, sealed, tag)?;
        while inner.last() == Some(&0) {
            inner.pop();
        }
        let kind = inner.pop().ok_or("a record of nothing but padding")?;
        Ok((kind, inner))
    }
}

/// HMAC-SHA-256 (RFC 2104), whose key is no longer than a block.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; HASH] {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        let mut hash = Sha256::new();
        hash.update(&block);
        hash
    };
    let mut inner = padded(0x36);
    parts.iter().for_each(|part| inner.update(part));
    let mut outer = padded(0x5c);
    outer.update(&inner.finish());
    outer.finish()
}

/// HKDF-Extract (RFC 5869).
fn extract(salt: &[u8; HASH], secret: &[u8; HASH]) -> [u8; HASH] {
    hmac(salt, &[secret])
}

/// HKDF-Expand-Label (section 7.1), as long as a hash.
fn expand(secret: &[u8; HASH], label: &[u8], context: &[u8]) -> [u8; HASH] {
    let mut key = [0; HASH];
    expand_into(secret, label, context, &mut key);
    key
}

fn expand_into(secret: &[u8; HASH], label: &[u8], context: &[u8], key: &mut [u8]) {
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
    let label = vector8(&[&b"tls13 "[..], label].concat());
    // One round of HKDF-Expand: nothing here is longer than a hash.
    let round = hmac(secret, &[&length, &label, &vector8(context), &[1]]);
    key.iter_mut().zip(round).for_each(|(byte, made)| *byte = made);
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    // legacy_record_version of a first ClientHello (section 5.1).
    [&[kind, 3, 1][..], &vector16(content)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn extension(number: u16, content: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &vector16(content)].concat()
}

fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap_or(u8::MAX)][..], bytes].concat()
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes()[..], bytes].concat()
}

/// Takes fields off the front.
struct Fields<'f>(&'f [u8]);

impl<'f> Fields<'f> {
    fn take(&mut self, count: usize) -> Option<&'f [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn vector16(&mut self) -> Option<&'f [u8]> {
        let length = self.take(2)?.try_into().ok().map(u16::from_be_bytes)?;
        self.take(usize::from(length))
    }
}

/// Returns the length of the record that begins with these bytes, once they tell it.
pub(crate) fn record_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    /// Section 5.2: 2^14 bytes of content, and 256 for the rest.
    const MAX: usize = (1 << 14) + 256;
    let Some(&[_, _, _, high, low]) = bytes.first_chunk::<RECORD_HEADER>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match length <= MAX {
        true => Ok(Some(RECORD_HEADER + length)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
