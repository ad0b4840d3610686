//! Length of a server's first flight, measured in a handshake without a network.

use std::io::{self, Read, Write};

use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};

use crate::arm::Suite;
use crate::error::PeerError;
use crate::identity::Identity;
use crate::tls::{self, Tls};

/// Bytes in a server's flight that can be asked for at most: clients of OpenSSL take 100 kB of
/// certificates.
pub const FLIGHT_MAX: usize = 64 * 1024;

/// Bytes from the server's first record to its Finished.
pub(crate) fn measure(suite: Suite, identity: &Identity, name: &str) -> Result<usize, PeerError> {
    let roots = identity.root().cloned().into_iter().collect();
    let ssl = Tls::client(suite, roots, name, false)?.connection()?.ssl;
    let mut client = SslStream::new(ssl, Memory::default())?;
    let server = tls::server(suite, identity, false)?;
    let mut server = SslStream::new(Ssl::new(&server)?, Memory::default())?;
    step(client.connect()).map_err(|error| failed(&error))?;
    server.get_mut().to_read = std::mem::take(&mut client.get_mut().written);
    step(server.accept()).map_err(|error| failed(&error))?;
    let flight = std::mem::take(&mut server.get_mut().written);
    let length = flight.len();
    client.get_mut().to_read = flight;
    client.connect().map_err(|error| failed(&error))?;
    Ok(length)
}

/// Each side goes on until it has to read.
pub(crate) fn step(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.code() != ErrorCode::WANT_READ => Err(error),
        _ => Ok(()),
    }
}

fn failed(error: &Error) -> PeerError {
    PeerError::new(format!("a handshake with the server's own certificate failed: {error}"))
}

/// One side's end of a wire.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) to_read: Vec<u8>,
    pub(crate) written: Vec<u8>,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.to_read.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.to_read.as_slice().read(buffer)?;
        self.to_read.drain(..count);
        Ok(count)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(suite: Suite, wanted: Option<usize>) -> usize {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::obtain(directory.path(), suite, "peer.test", wanted).unwrap();
        measure(suite, &identity, "peer.test").unwrap()
    }

    #[test]
    fn flights_have_the_size_of_their_suite() {
        // One ECDSA certificate; ML-KEM-768's ciphertext of 1,088 bytes and 32 instead of 65 of a
        // curve; ML-DSA-44's key of 1,312 and two signatures of 2,420; three RSA certificates with
        // 256 bytes each for key and signature. Signatures of ECDSA differ by some bytes in length.
        let sizes = Suite::ALL.map(|suite| flight(suite, None));
        let [p256, hybrid, post_quantum, rsa] = sizes;
        assert!((500..1000).contains(&p256), "{sizes:?}");
        assert!((1047..=1063).contains(&(hybrid - p256)), "{sizes:?}");
        assert!((7000..8000).contains(&post_quantum), "{sizes:?}");
        assert!((2500..4000).contains(&rsa), "{sizes:?}");
    }

    #[test]
    fn padding_makes_flights_of_the_length_asked_for() {
        for suite in Suite::ALL {
            for wanted in [9_000, 20_000, 40_000] {
                let made = flight(suite, Some(wanted));
                assert!(made.abs_diff(wanted) <= 16, "{suite}: {made} instead of {wanted}");
            }
        }
    }
}
