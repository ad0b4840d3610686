use std::io::{self, ErrorKind, Read, Write};
use std::mem;

/// The transport as OpenSSL sees it: the bytes that have arrived, and those to send.
///
/// Reads block while nothing has arrived; writes never do. Its size is limited because callers hand
/// in more only when OpenSSL has taken everything, and by
/// [`OUTPUT_MAX`](crate::limits::OUTPUT_MAX).
#[derive(Default)]
pub(crate) struct Pipe {
    arrived: Vec<u8>,
    taken: usize,
    ended: bool,
    leaving: Vec<u8>,
    /// Bytes that OpenSSL has taken since they last yielded plain text.
    fruitless: usize,
}

impl Pipe {
    /// Appends bytes from the transport.
    pub(crate) fn push(&mut self, ciphertext: &[u8]) {
        if self.taken == self.arrived.len() {
            self.arrived.clear();
            self.taken = 0;
        }
        self.arrived.extend_from_slice(ciphertext);
    }

    /// Reports that nothing more will arrive.
    pub(crate) const fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true if a read would not block.
    pub(crate) fn is_readable(&self) -> bool {
        self.taken < self.arrived.len() || self.ended
    }

    /// Takes the bytes to send, if any.
    pub(crate) fn take_leaving(&mut self) -> Option<Vec<u8>> {
        (!self.leaving.is_empty()).then(|| mem::take(&mut self.leaving))
    }

    /// Reports that the bytes taken have yielded plain text.
    pub(crate) const fn note_plain_text(&mut self) {
        self.fruitless = 0;
    }

    /// Returns the number of bytes taken since then, or since the start.
    pub(crate) const fn fruitless(&self) -> usize {
        self.fruitless
    }

    /// Returns the number of bytes that wait to be sent.
    pub(crate) const fn leaving(&self) -> usize {
        self.leaving.len()
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.arrived.get(self.taken..).unwrap_or_default();
        if rest.is_empty() {
            return if self.ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        self.fruitless += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.leaving.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_then_reads_block() {
        let mut pipe = Pipe::default();
        let mut buffer = [0; 4];
        assert_eq!(pipe.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        pipe.push(b"abcde");
        assert_eq!((pipe.read(&mut buffer).unwrap(), &buffer[..4]), (4, &b"abcd"[..]));
        pipe.push(b"f");
        assert!(pipe.is_readable());
        assert_eq!((pipe.read(&mut buffer).unwrap(), &buffer[..2]), (2, &b"ef"[..]));
        assert_eq!(pipe.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        pipe.end();
        assert_eq!(pipe.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn bytes_taken_are_dropped() {
        let mut pipe = Pipe::default();
        for _ in 0..1000 {
            pipe.push(&[0; 1000]);
            assert_eq!(pipe.read(&mut [0; 2000]).unwrap(), 1000);
        }
        assert!(pipe.arrived.capacity() < 10_000);
    }

    #[test]
    fn bytes_without_plain_text_are_counted() {
        let mut pipe = Pipe::default();
        pipe.push(&[0; 10]);
        assert_eq!(pipe.fruitless(), 0, "not taken yet");
        pipe.read_exact(&mut [0; 4]).unwrap();
        pipe.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(pipe.fruitless(), 7);
        pipe.note_plain_text();
        pipe.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(pipe.fruitless(), 3);
    }

    #[test]
    fn all_written_bytes_leave_at_once() {
        let mut pipe = Pipe::default();
        assert_eq!(pipe.take_leaving(), None);
        pipe.write_all(b"ab").unwrap();
        pipe.write_all(b"c").unwrap();
        assert_eq!(pipe.leaving(), 3);
        assert_eq!(pipe.take_leaving().unwrap(), b"abc");
        assert_eq!(pipe.take_leaving(), None);
    }
}
