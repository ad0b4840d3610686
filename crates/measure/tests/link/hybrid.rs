//! X25519MLKEM768 at both ends: a ClientHello of two datagrams, and a chain of certificates that
//! takes several answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use openssl::ssl::{SslAcceptor, SslMethod};

use crate::client;
use crate::daemon::Daemon;
use crate::figures::{SAVED_MIN, judged, median, millis, round_trips};
use crate::net::{Net, ms};
use crate::{nginx, origin};

const GROUPS: &str = "X25519MLKEM768";

/// Copies of the certificate in the chain: with the handshake's own 2 kB, a flight of about 6 kB.
const CHAIN: usize = 8;

pub(crate) fn hybrid_key_exchange() {
    let rtt = ms(50);
    let net = Net::new(rtt);
    let acceptor = Arc::new(acceptor(&net));
    let _served = origin::serve(net.server(), "127.0.0.1:8443".parse().unwrap(), move |tcp| {
        answer(&acceptor, tcp)
    });
    let edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let name = format!("--edge=*.four.test={}", net.edge4());
    let plain = Daemon::agent(&net, 1081, &[&name, "--opening", "plain"]);
    let turbo = Daemon::agent(&net, 1082, &[&name]);
    let tls = client::tls(&net, GROUPS);
    judged(
        || {
            let mut times = [vec![], vec![]];
            for round in 0..=9 {
                for (port, times) in [1081, 1082].into_iter().zip(&mut times) {
                    let got = client::on(net.client(), || {
                        client::fetch(&tls, port, "www.four.test", "/")
                    });
                    let (opening, body) = got.unwrap();
                    assert!(body == nginx::content(nginx::SMALL), "other bytes");
                    // The first shows how many answers the server's flight takes.
                    times.extend((round > 0).then_some(opening));
                }
            }
            let [plain, turbo] = times.each_ref().map(|times| median(times));
            println!(
                "  plain {:.2} ms, turbo {:.2} ms at {:.0} ms",
                millis(plain),
                millis(turbo),
                millis(rtt)
            );
            [plain, turbo]
        },
        |[plain, turbo]| {
            let [plain, turbo] = [plain, turbo].map(|time| round_trips(*time, rtt));
            let good = plain - turbo >= SAVED_MIN && plain >= 1.9;
            if good {
                Ok(())
            } else {
                Err(format!("plain {plain:.3} RTT, TurboTLS {turbo:.3} RTT"))
            }
        },
    );
    // Ten at least; one or another may have been late.
    assert!(turbo.saved() >= 6, "first flights over UDP: {}", turbo.saved());
    assert_eq!(plain.saved(), 0);
    let answers = edge.count("headstart_udp_datagrams_total", &["to_client", "outcome=\"sent\""]);
    // Six kilobytes are five answers of 1232 bytes, and one acknowledges.
    assert!(answers >= 5 * turbo.saved(), "{answers} datagrams for {} flights", turbo.saved());
}

fn acceptor(net: &Net) -> SslAcceptor {
    let (cert, key) = nginx::certificate(net);
    let mut tls = SslAcceptor::mozilla_modern_v5(SslMethod::tls_server()).unwrap();
    tls.set_certificate(&cert).unwrap();
    tls.set_private_key(&key).unwrap();
    for _ in 0..CHAIN {
        tls.add_extra_chain_cert(cert.clone()).unwrap();
    }
    tls.set_groups_list(GROUPS).unwrap();
    tls.build()
}

fn answer(tls: &SslAcceptor, tcp: TcpStream) {
    let Ok(mut stream) = tls.accept(tcp) else { return };
    let mut request = [0; 1024];
    let _ = stream.read(&mut request);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", nginx::SMALL);
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&nginx::content(nginx::SMALL));
    let _ = stream.shutdown();
    let _ = stream.get_ref().shutdown(std::net::Shutdown::Write);
    let _ = stream.get_mut().read(&mut request);
}
