//! TLS on both ends, which is the runner's own: OpenSSL, over blocking sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headstart_openers::{early_data_accepted, fill, self_signed, set_session};
use openssl::error::ErrorStack;
use openssl::sha::sha256;
use openssl::ssl::{
    Ssl, SslContext, SslMethod, SslSession, SslSessionCacheMode, SslStream, SslVerifyMode,
    SslVersion,
};
use openssl::x509::store::X509StoreBuilder;

use super::case::{Exchange, Tls};

pub(super) const NAME: &str = "interop.example";

/// Time without a byte after which either end gives up.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Certificates in a large flight, some 400 bytes each: more than UDP may carry.
const CHAIN: usize = 60;

/// Names of ALPN in a large ClientHello, 14 bytes each: some four datagrams.
const PROTOCOLS: usize = 280;

const EARLY_DATA_MAX: u32 = 16 * 1024;

/// Longest request line.
const LINE_MAX: u64 = 32;

/// Byte by which the client lets the server break the connection off.
const GO: [u8; 1] = [0];

/// The two ends' contexts.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) client: SslContext,
    pub(super) server: SslContext,
    session: Arc<Mutex<Option<SslSession>>>,
}

/// Facts about a connection that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) version: Option<SslVersion>,
    pub(super) early_data: bool,
}

impl Ends {
    pub(super) fn new(tls: Tls) -> Result<Self, String> {
        let (certificate, key) = self_signed(NAME).map_err(|error| error.to_string())?;
        let session = Arc::<Mutex<_>>::default();
        let build = || -> Result<_, ErrorStack> {
            let mut server = SslContext::builder(SslMethod::tls_server())?;
            server.set_certificate(&certificate)?;
            server.set_private_key(&key)?;
            server.set_session_id_context(b"interop")?;
            let mut client = SslContext::builder(SslMethod::tls_client())?;
            let mut trusted = X509StoreBuilder::new()?;
            trusted.add_cert(certificate.clone())?;
            client.set_cert_store(trusted.build());
            client.set_verify(SslVerifyMode::PEER);
            client.set_session_cache_mode(
                SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL,
            );
            let kept = Arc::clone(&session);
            client.set_new_session_callback(move |_, session| {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            });
            match tls {
                Tls::Usual => {}
                Tls::LargeHello => client.set_alpn_protos(&protocols())?,
                Tls::LargeFlight => {
                    for _ in 0..CHAIN {
                        server.add_extra_chain_cert(certificate.clone())?;
                    }
                }
                Tls::Tls12 => server.set_max_proto_version(Some(SslVersion::TLS1_2))?,
                Tls::HelloRetry => {
                    client.set_groups_list("X25519:P-384")?;
                    server.set_groups_list("P-384")?;
                }
                Tls::EarlyData => {
                    client.set_min_proto_version(Some(SslVersion::TLS1_3))?;
                    server.set_max_early_data(EARLY_DATA_MAX)?;
                }
            }
            Ok((client.build(), server.build()))
        };
        let (client, server) = build().map_err(|error| error.to_string())?;
        Ok(Self { client, server, session })
    }

    /// Runs TLS and the exchange over `tcp`, and checks what comes.
    ///
    /// # Errors
    /// The connection failed or broke when it should not have, or bytes are wrong.
    pub(super) fn request(
        &self,
        tcp: TcpStream,
        tls: Tls,
        exchange: Exchange,
    ) -> Result<Facts, String> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let session = session.filter(|_| tls == Tls::EarlyData);
        let mut stream = self.handshake(tcp, session.as_ref(), &line(exchange))?;
        let early = early_data_accepted(stream.ssl());
        let facts = Facts { version: stream.ssl().version2(), early_data: early };
        if !early {
            stream.write_all(&line(exchange)).map_err(|error| format!("a write: {error}"))?;
        }
        self::exchange(&mut stream, exchange)?;
        // OpenSSL forgets the session of a connection that was not closed in order.
        let _ = stream.shutdown();
        Ok(facts)
    }

    fn handshake(
        &self,
        tcp: TcpStream,
        session: Option<&SslSession>,
        early: &[u8],
    ) -> Result<SslStream<TcpStream>, String> {
        let prepare = || -> Result<_, ErrorStack> {
            let mut ssl = Ssl::new(&self.client)?;
            ssl.set_hostname(NAME)?;
            ssl.param_mut().set_host(NAME)?;
            if let Some(session) = session {
                set_session(&mut ssl, session)?;
            }
            ssl.set_connect_state();
            SslStream::new(ssl, tcp)
        };
        let mut stream = prepare().map_err(|error| error.to_string())?;
        if session.is_some() {
            stream.write_early_data(early).map_err(|error| format!("early data: {error}"))?;
        }
        stream.connect().map_err(|error| format!("the handshake: {error}"))?;
        Ok(stream)
    }

    /// Serves one connection.
    ///
    /// # Errors
    /// The connection failed, or its client says what no client of the runner says.
    pub(super) fn serve(&self, tcp: TcpStream) -> io::Result<()> {
        set_timeouts(&tcp)?;
        let mut stream = SslStream::new(Ssl::new(&self.server)?, tcp)?;
        let mut early = Vec::new();
        let mut buffer = [0; 512];
        loop {
            match stream.read_early_data(&mut buffer).map_err(io::Error::other)? {
                0 => break,
                count => early.extend(buffer.iter().take(count)),
            }
        }
        stream.accept().map_err(io::Error::other)?;
        respond(&mut stream, &early)
    }
}

/// The client's part after the handshake and the request.
fn exchange(stream: &mut SslStream<TcpStream>, exchange: Exchange) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    match exchange {
        Exchange::Download(count) => check(stream, &content(count))?,
        Exchange::Upload(count) => {
            stream.write_all(&content(count)).map_err(failed)?;
            check(stream, &sha256(&content(count)))?;
        }
        Exchange::HalfClose(count) => {
            stream.shutdown().map_err(|error| error.to_string())?;
            stream.get_ref().shutdown(Shutdown::Write).map_err(failed)?;
            check(stream, &content(count))?;
        }
        Exchange::Reset(count) => {
            let mut buffer = content(count);
            stream.read_exact(&mut buffer).map_err(failed)?;
            same(&buffer, &content(count))?;
            stream.write_all(&GO).map_err(failed)?;
            return match stream.read(&mut buffer) {
                Ok(0) => Err("the reset came as an orderly end".into()),
                Ok(_) => Err("bytes came instead of a reset".into()),
                Err(_) => Ok(()),
            };
        }
    }
    Ok(())
}

/// Reads to the end, which must be an orderly one.
fn check(stream: &mut SslStream<TcpStream>, expected: &[u8]) -> Result<(), String> {
    let mut got = Vec::new();
    stream
        .read_to_end(&mut got)
        .map_err(|error| format!("after {} bytes of {}: {error}", got.len(), expected.len()))?;
    same(&got, expected)
}

/// Compares by checksum.
fn same(got: &[u8], expected: &[u8]) -> Result<(), String> {
    if sha256(got) == sha256(expected) {
        return Ok(());
    }
    Err(format!("{} bytes with another checksum, instead of {}", got.len(), expected.len()))
}

/// The request of an exchange: a letter and a number.
fn line(exchange: Exchange) -> Vec<u8> {
    let (letter, count) = match exchange {
        Exchange::Download(count) => ('d', count),
        Exchange::Upload(count) => ('u', count),
        Exchange::HalfClose(count) => ('h', count),
        Exchange::Reset(count) => ('r', count),
    };
    format!("{letter}{count}\n").into_bytes()
}

fn respond(stream: &mut SslStream<TcpStream>, early: &[u8]) -> io::Result<()> {
    let mut input = early.chain(&mut *stream);
    let mut line = Vec::new();
    // Not one byte more than the line: the rest is the exchange's.
    let mut byte = [0];
    for _ in 0..LINE_MAX {
        if input.read(&mut byte)? == 0 || byte == *b"\n" {
            break;
        }
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut letters = line.chars();
    let letter = letters.next();
    let count: u32 = letters.as_str().parse().map_err(io::Error::other)?;
    match letter {
        Some('d') => stream.write_all(&content(count))?,
        Some('u') => {
            let mut got = content(count);
            input.read_exact(&mut got)?;
            stream.write_all(&sha256(&got))?;
        }
        Some('h') => {
            io::copy(&mut input, &mut io::sink())?;
            stream.write_all(&content(count))?;
        }
        _ => {
            stream.write_all(&content(count))?;
            stream.read_exact(&mut [0; GO.len()])?;
            return socket2::SockRef::from(stream.get_ref()).set_linger(Some(Duration::ZERO));
        }
    }
    stream.shutdown().map_err(io::Error::other)?;
    stream.get_ref().shutdown(Shutdown::Write)?;
    io::copy(stream.get_mut(), &mut io::sink()).map(drop)
}

fn content(count: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(count).unwrap_or_default()];
    fill(0, &mut bytes);
    bytes
}

fn protocols() -> Vec<u8> {
    (0..PROTOCOLS).flat_map(|number| format!("\u{d}protocol-{number:04}").into_bytes()).collect()
}

pub(super) fn set_timeouts(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Without an implementation between.
    #[test]
    fn both_ends_agree_in_each_handshake_and_exchange() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for tls in [
            Tls::Usual,
            Tls::LargeHello,
            Tls::LargeFlight,
            Tls::Tls12,
            Tls::HelloRetry,
            Tls::EarlyData,
        ] {
            let ends = Ends::new(tls).unwrap();
            for exchange in [
                Exchange::Upload(100_000),
                Exchange::Download(100_000),
                Exchange::HalfClose(100_000),
                Exchange::Reset(100_000),
            ] {
                let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                set_timeouts(&tcp).unwrap();
                let (accepted, _) = listener.accept().unwrap();
                let served = ends.clone();
                let server = std::thread::spawn(move || served.serve(accepted));
                let facts = ends.request(tcp, tls, exchange).unwrap();
                server.join().unwrap().unwrap();
                let resumes = tls == Tls::EarlyData && !matches!(exchange, Exchange::Upload(_));
                assert_eq!(facts.early_data, resumes, "{tls:?}, {exchange:?}");
                let is_old = facts.version == Some(SslVersion::TLS1_2);
                assert_eq!(is_old, tls == Tls::Tls12, "{tls:?}");
            }
        }
    }

    #[test]
    fn one_changed_byte_is_found() {
        let mut got = content(100_000);
        assert_eq!(same(&got, &content(100_000)), Ok(()));
        got[77_777] ^= 1;
        assert!(same(&got, &content(100_000)).is_err());
        assert!(same(&content(99_999), &content(100_000)).is_err());
    }
}
