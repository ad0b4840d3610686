//! Resumption in a ServerHello: TLS 1.3 shows it in clear.

/// Content types of records (RFC 8446 section 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;

/// The type of the message (RFC 8446 section 4).
const SERVER_HELLO: u8 = 2;

/// Extensions that a ServerHello of TLS 1.3 may have (RFC 8446 section 4.2).
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS_1_3: [u8; 2] = [3, 4];

/// The random of a HelloRetryRequest, which is a ServerHello otherwise (RFC 8446 section 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Returns true if a server's stream begins with a ServerHello of TLS 1.3 that resumes a session;
/// `None` if it does not begin with one of TLS 1.3, or is cut off.
pub(super) fn resumes(mut stream: &[u8]) -> Option<bool> {
    loop {
        let (kind, record) = take_record(&mut stream)?;
        if kind == CHANGE_CIPHER_SPEC {
            continue;
        }
        let (random, extensions) = server_hello(record).filter(|_| kind == HANDSHAKE)?;
        if random == RETRY {
            continue;
        }
        if extension(extensions, SUPPORTED_VERSIONS)? != TLS_1_3 {
            return None;
        }
        return Some(extension(extensions, PRE_SHARED_KEY).is_some());
    }
}

fn take_record<'s>(stream: &mut &'s [u8]) -> Option<(u8, &'s [u8])> {
    let kind = take(stream, 1)?;
    take(stream, 2)?;
    let length = length(take(stream, 2)?);
    Some((*kind.first()?, take(stream, length)?))
}

/// Its random and its extensions.
fn server_hello(mut record: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = &mut record;
    let is_hello = take(rest, 1)? == [SERVER_HELLO];
    let length_of = length(take(rest, 3)?);
    let mut hello = take(rest, length_of).filter(|_| is_hello)?;
    let hello = &mut hello;
    take(hello, 2)?;
    let random = take(hello, RETRY.len())?;
    let session_id = length(take(hello, 1)?);
    take(hello, session_id)?;
    // Skips the cipher suite and the compression method.
    take(hello, 3)?;
    let extensions = length(take(hello, 2)?);
    Some((random, take(hello, extensions)?))
}

/// The content of the first extension of this type.
fn extension(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    let list = &mut list;
    loop {
        let kind = length(take(list, 2)?);
        let size = length(take(list, 2)?);
        let content = take(list, size)?;
        if kind == usize::from(wanted) {
            return Some(content);
        }
    }
}

fn take<'s>(bytes: &mut &'s [u8], count: usize) -> Option<&'s [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// A big-endian number of at most three bytes.
fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_length(width: usize, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len().to_be_bytes();
        [&length[length.len() - width..], bytes].concat()
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3][..], &with_length(2, content)].concat()
    }

    fn hello(random: [u8; 32], extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let list = extensions.iter().flat_map(|(kind, content)| {
            [&kind.to_be_bytes()[..], &with_length(2, content)].concat()
        });
        let list = with_length(2, &list.collect::<Vec<_>>());
        let id = with_length(1, &[5; 32]);
        let body = [&[3, 3][..], &random, &id, &[0x13, 0x02, 0], &list].concat();
        record(HANDSHAKE, &[&[SERVER_HELLO][..], &with_length(3, &body)].concat())
    }

    const VERSION: (u16, &[u8]) = (SUPPORTED_VERSIONS, &TLS_1_3);
    const KEY_SHARE: (u16, &[u8]) = (51, &[0, 29, 0, 1, 7]);
    const PSK: (u16, &[u8]) = (PRE_SHARED_KEY, &[0, 0]);

    #[test]
    fn a_session_is_resumed_if_its_key_is_chosen() {
        assert_eq!(resumes(&hello([7; 32], &[VERSION, KEY_SHARE])), Some(false));
        assert_eq!(resumes(&hello([7; 32], &[VERSION, KEY_SHARE, PSK])), Some(true));
        assert_eq!(resumes(&hello([7; 32], &[PSK, KEY_SHARE, VERSION])), Some(true));
    }

    #[test]
    fn behind_a_retry_the_second_hello_counts() {
        let retry = hello(RETRY, &[VERSION, (51, &[0, 23])]);
        let change = record(CHANGE_CIPHER_SPEC, &[1]);
        let all = [&retry[..], &change, &hello([7; 32], &[VERSION, KEY_SHARE, PSK])].concat();
        assert_eq!(resumes(&all), Some(true));
        assert_eq!(resumes(&retry), None);
    }

    #[test]
    fn other_versions_other_messages_and_pieces_say_nothing() {
        assert_eq!(resumes(&hello([7; 32], &[KEY_SHARE, PSK])), None, "TLS 1.2");
        assert_eq!(resumes(&record(21, &[2, 40])), None, "an alert");
        assert_eq!(resumes(b"HTTP/1.1 400 Bad Request\r\n\r\n"), None);
        let whole = hello([7; 32], &[VERSION, KEY_SHARE, PSK]);
        assert!((0..whole.len()).all(|end| resumes(&whole[..end]).is_none()));
    }
}
