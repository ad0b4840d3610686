//! Requests and answers. The same as the other servers of the lab have it (crates/openers): clients
//! check every byte, so that a difference shows in every trial.

/// Bytes that may be asked for at most.
const BYTES_MAX: u64 = 1 << 30;

/// Bytes of a request's head at most.
const HEAD_MAX: usize = 8 * 1024;

/// Fields of a head at most.
const FIELDS_MAX: usize = 32;

/// Writes what stands at `offset` of every response into `room`: the top byte of a multiplicative
/// hash (Knuth, vol. 3, 6.4).
pub(crate) fn fill(offset: u64, room: &mut [u8]) {
    for (byte, at) in room.iter_mut().zip(offset..) {
        *byte = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
    }
}

/// Reads a request as far as it is here: none if more is to come, else how many bytes are asked
/// for.
///
/// # Errors
/// Status line of the refusal.
pub(crate) fn asked(text: &[u8]) -> Result<Option<u64>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(text) {
        Ok(httparse::Status::Partial) if text.len() <= HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err("400 Bad Request"),
    }
    let number = request.path.and_then(|path| path.strip_prefix("/bytes/"));
    let number = number.and_then(|number| number.parse().ok());
    number.filter(|number| *number <= BYTES_MAX).map(Some).ok_or("404 Not Found")
}

/// The head of the answer to what [`asked`] said, and how many bytes of content follow.
pub(crate) fn head(asked: Result<u64, &'static str>) -> (Vec<u8>, u64) {
    let (status, bytes) = asked.map_or_else(|refusal| (refusal, 0), |bytes| ("200 OK", bytes));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {bytes}\r\nConnection: close\r\n\r\n"
    );
    (head.into_bytes(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_when_whole() {
        let request = |bytes: u64| format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: x\r\n\r\n");
        let whole = request(12);
        assert_eq!(asked(whole.as_bytes()), Ok(Some(12)));
        assert_eq!(asked(&whole.as_bytes()[..whole.len() - 1]), Ok(None));
        assert_eq!(asked(b"GET /else HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(asked(request(BYTES_MAX).as_bytes()), Ok(Some(BYTES_MAX)));
        assert_eq!(asked(request(BYTES_MAX + 1).as_bytes()), Err("404 Not Found"));
        assert_eq!(asked(b"\x16\x03\x01"), Err("400 Bad Request"));
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_MAX));
        assert_eq!(asked(endless.as_bytes()), Err("400 Bad Request"));
    }

    #[test]
    fn content_depends_on_its_place_alone() {
        let (mut whole, mut part) = ([0; 100], [0; 40]);
        fill(0, &mut whole);
        fill(60, &mut part);
        assert_eq!(whole[60..], part);
        assert_eq!(whole[..3], [0, 0x9e, 0x3c]);
    }
}
