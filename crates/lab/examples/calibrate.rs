//! Measures how far a lab's round trips are from what was asked.
//!
//! `cargo run --release -p headstart-lab --example calibrate`, as root or where user namespaces are allowed. Prints,
//! for each round trip asked, the excess that a UDP echo and a TCP connect see, in microseconds. The excess contains
//! both kernels and the waking of the echoing thread, which the line for 0 ms shows alone.

use std::error::Error;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use headstart_lab::{Host, Lab, Node, Privilege, enter_user_namespace, privilege};

/// Round trips asked, in ms, and how many of each are measured.
const ROUND_TRIPS: [(u64, usize); 4] = [(0, 500), (5, 300), (50, 100), (150, 40)];

fn main() -> Result<(), Box<dyn Error>> {
    match privilege() {
        Privilege::Root => {}
        Privilege::UserNamespace => enter_user_namespace()?,
        Privilege::None(refusal) => {
            return Err(format!("{refusal}; hint: {}", refusal.hint()).into());
        }
    }
    println!(
        "{:>6} {:>5} {:>4}  {:>8} {:>8} {:>8}   forwarder late p50/p99/max",
        "asked", "probe", "n", "p50", "p99", "max"
    );
    for (millis, count) in ROUND_TRIPS {
        let asked = Duration::from_millis(millis);
        let start = Instant::now();
        let lab = Lab::build(vec![Host::new("client").delay(asked / 2), Host::new("server")])?;
        eprintln!("built in {} ms", start.elapsed().as_millis());
        let (client, server) = (&lab.nodes()[0], &lab.nodes()[1]);
        let udp = excess(asked, udp_round_trips(client, server, count)?);
        let tcp = excess(asked, tcp_round_trips(client, server, count)?);
        let counters = lab.counters();
        for (probe, excess) in [("udp", udp), ("tcp", tcp)] {
            print!(
                "{millis:>4}ms {probe:>5} {count:>4}  {:>8} {:>8} {:>8}",
                at(&excess, 50),
                at(&excess, 99),
                at(&excess, 100)
            );
            let late = counters.lateness;
            println!(
                "   {}/{}/{}",
                late.p50.as_micros(),
                late.p99.as_micros(),
                late.max.as_micros()
            );
        }
        assert!(
            counters.ports.iter().all(|port| port.missed == 0 && port.refused == 0),
            "{counters:?}"
        );
    }
    Ok(())
}

fn udp_round_trips(
    client: &Node,
    server: &Node,
    count: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let address = server.ipv4().ok_or("no IPv4")?;
    let echo = server.run(|| UdpSocket::bind((address, 0)))??;
    let socket = client.run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
    socket.connect(echo.local_addr()?)?;
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        for _ in 0..count {
            let (length, from) = echo.recv_from(&mut buffer)?;
            echo.send_to(&buffer[..length], from)?;
        }
        Ok::<(), std::io::Error>(())
    });
    let round_trip = || {
        let start = Instant::now();
        socket.send(b"ping")?;
        socket.recv(&mut [0; 64])?;
        Ok(start.elapsed())
    };
    (0..count).map(|_| round_trip()).collect()
}

fn tcp_round_trips(
    client: &Node,
    server: &Node,
    count: usize,
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let address = (server.ipv4().ok_or("no IPv4")?, 0);
    let listener = server.run(|| TcpListener::bind(address))??;
    let address = listener.local_addr()?;
    // Connections are established by the kernel; accepting only keeps the queue short.
    std::thread::spawn(move || listener.incoming().take(count).for_each(drop));
    let round_trip = || {
        let start = Instant::now();
        TcpStream::connect(address)?;
        Ok(start.elapsed())
    };
    client
        .run(|| (0..count).map(|_| round_trip()).collect::<std::io::Result<Vec<_>>>())?
        .map_err(Into::into)
}

/// Microseconds above what was asked, sorted.
fn excess(asked: Duration, round_trips: Vec<Duration>) -> Vec<i128> {
    let micros = |duration: Duration| i128::try_from(duration.as_micros()).unwrap_or(i128::MAX);
    let mut excess: Vec<_> =
        round_trips.into_iter().map(|seen| micros(seen) - micros(asked)).collect();
    excess.sort_unstable();
    excess
}

/// The value that this share of all is not above (nearest rank).
fn at(sorted: &[i128], percent: usize) -> i128 {
    sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)]
}
