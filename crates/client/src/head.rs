//! The head of an answer, and the bytes behind it.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::Error;

/// Largest head in bytes: a certificate of 7 to 17 kB (with ML-DSA) in base64, and the other
/// fields. An agent sends no more.
pub(crate) const HEAD_MAX: usize = 64 * 1024;

/// Most fields of a head: the agent sends a dozen.
const FIELDS_MAX: usize = 64;

/// Largest text of a refusal in bytes: it has two lines.
const TEXT_MAX: usize = 16 * 1024;

/// Bytes read at a time.
const STEP: usize = 4 * 1024;

const END: &[u8] = b"\r\n\r\n";

/// Status and fields of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
}

/// Reason for having no head.
#[derive(Debug)]
pub(crate) enum HeadError {
    /// The connection broke, or ended.
    Io(io::Error),
    /// The bytes are no head.
    Malformed(Error),
}

const TOO_LARGE: HeadError = HeadError::Malformed(Error::NotUnderstood("its head is too large"));

impl Head {
    /// Reads a head; returns it with the bytes that were read behind it.
    ///
    /// # Errors
    /// [`HeadError`] if none comes.
    pub(crate) async fn read<R: AsyncRead + Unpin>(
        from: &mut R,
    ) -> Result<(Self, Bytes), HeadError> {
        let mut bytes = BytesMut::new();
        loop {
            let seen = bytes.len().saturating_sub(END.len() - 1);
            if bytes.len() >= HEAD_MAX {
                return Err(TOO_LARGE);
            }
            bytes.reserve(STEP);
            if from.read_buf(&mut bytes).await.map_err(HeadError::Io)? == 0 {
                return Err(HeadError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            let found =
                bytes.get(seen..).and_then(|new| new.windows(END.len()).position(|at| at == END));
            if let Some(at) = found {
                let length = seen + at + END.len();
                if length > HEAD_MAX {
                    return Err(TOO_LARGE);
                }
                let head = bytes.split_to(length);
                return Ok((Self::parse(&head).map_err(HeadError::Malformed)?, bytes.freeze()));
            }
        }
    }

    /// # Errors
    /// The bytes are not an HTTP/1 head.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(bytes).map_err(|error| match error {
            httparse::Error::TooManyHeaders => Error::NotUnderstood("it has too many fields"),
            _ => Error::NotUnderstood("it is not HTTP"),
        })?;
        match response.code {
            Some(status) if parsed.is_complete() => {
                let fields = response.headers.iter().map(|field| {
                    let value = String::from_utf8_lossy(field.value).into_owned();
                    (field.name.to_owned(), value)
                });
                Ok(Self { status, fields: fields.collect() })
            }
            _ => Err(Error::NotUnderstood("it is not HTTP")),
        }
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Reads the text of a refusal, as much of it as comes.
    pub(crate) async fn read_text<R: AsyncRead + Unpin>(
        &self,
        from: &mut R,
        behind: Bytes,
    ) -> String {
        let length = self.field("Content-Length").and_then(|length| length.parse().ok());
        let length = length.unwrap_or(TEXT_MAX).min(TEXT_MAX);
        let mut text = behind.to_vec();
        let left = length.saturating_sub(text.len());
        // If the rest does not come, the status says most of it.
        let _ = from.take(left as u64).read_to_end(&mut text).await;
        text.truncate(length);
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nHeadstart-Opening: plain\r\n\r\nfirst words";

    #[tokio::test]
    async fn a_head_may_come_in_pieces() {
        for at in 1..ANSWER.len() {
            let (one, two) = ANSWER.split_at(at);
            let (head, behind) = Head::read(&mut one.chain(two)).await.unwrap();
            assert_eq!((head.status, head.field("headstart-opening")), (200, Some("plain")));
            assert!(b"first words".starts_with(&behind), "{at}");
        }
        let (_, behind) = Head::read(&mut &*ANSWER).await.unwrap();
        assert_eq!(behind, "first words");
    }

    /// Returns a head of this length.
    fn filled(length: usize) -> Vec<u8> {
        let head = "HTTP/1.1 200 OK\r\nx: ";
        let fill = "x".repeat(length - head.len() - END.len());
        format!("{head}{fill}\r\n\r\n").into_bytes()
    }

    #[tokio::test]
    async fn lengths_at_the_limit_and_over() {
        assert!(Head::read(&mut &*filled(HEAD_MAX)).await.is_ok());
        for over in [HEAD_MAX + 1, 3 * HEAD_MAX] {
            let refused = Head::read(&mut &*filled(over)).await;
            assert!(matches!(refused, Err(HeadError::Malformed(_))), "{over}: {refused:?}");
        }
        for (count, fits) in [(FIELDS_MAX, true), (FIELDS_MAX + 1, false)] {
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
            assert_eq!(Head::parse(head.as_bytes()).is_ok(), fits, "{count}");
        }
    }

    #[tokio::test]
    async fn malformed_heads_are_rejected() {
        for garbage in
            [&b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..], b"HTTP/1.1 2000 OK\r\n\r\n", b"\r\n\r\n"]
        {
            let refused = Head::read(&mut &*garbage).await;
            assert!(matches!(refused, Err(HeadError::Malformed(_))), "{refused:?}");
        }
        for cut in [&b""[..], b"HTTP/1.1 200 OK\r\n"] {
            assert!(matches!(Head::read(&mut &*cut).await, Err(HeadError::Io(_))));
        }
    }

    #[tokio::test]
    async fn the_text_of_a_refusal_is_bounded() {
        let counted = Head::parse(b"HTTP/1.1 502 x\r\ncontent-length: 7\r\n\r\n").unwrap();
        let mut more = &b"rds and more"[..];
        assert_eq!(counted.read_text(&mut more, "wo".into()).await, "words a");
        let uncounted = Head::parse(b"HTTP/1.1 502 x\r\n\r\n").unwrap();
        let endless = "x".repeat(2 * TEXT_MAX);
        let words = uncounted.read_text(&mut endless.as_bytes(), Bytes::new()).await;
        assert_eq!(words.len(), TEXT_MAX);
    }
}
