//! An observer's view of a ClientHello.

/// The content of an extension of the ClientHello in the first record of a stream.
pub(crate) fn extension(stream: &[u8], number: u16) -> Option<Vec<u8>> {
    // Record header 5, handshake header 4, version 2, random 32 (RFC 8446 sections 4, 4.1.2, 5.1).
    let rest = &stream[5 + 4 + 2 + 32..];
    let rest = &rest[1 + usize::from(rest[0])..]; // session id
    let rest = &rest[2 + length16(rest)..]; // cipher suites
    let rest = &rest[1 + usize::from(rest[0])..]; // compression
    let mut list = &rest[2..2 + length16(rest)];
    while !list.is_empty() {
        let (kind, content) = (&list[..2], &list[2..]);
        let length = length16(content);
        if kind == number.to_be_bytes() {
            return Some(content[2..2 + length].to_vec());
        }
        list = &content[2 + length..];
    }
    None
}

/// The first identity of pre_shared_key: a ticket of TLS 1.3.
pub(crate) fn identity(stream: &[u8]) -> Option<Vec<u8>> {
    let offered = extension(stream, 41)?;
    let length = length16(&offered[2..]);
    Some(offered[4..4 + length].to_vec())
}

/// The content of session_ticket: a ticket of TLS 1.2.
pub(crate) fn ticket(stream: &[u8]) -> Option<Vec<u8>> {
    extension(stream, 35)
}

fn length16(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}
