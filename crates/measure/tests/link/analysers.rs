//! Programs that read captures see TLS and nothing else on our TCP connections.

use std::process::Command;

use crate::arms::{PLAIN, TURBO, agent};
use crate::curl::{Via, small, small_by_udp};
use crate::daemon::Daemon;
use crate::net::{Net, ms};
use crate::nginx::Nginx;

const HOST: &str = "www.four.test";
const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/headstart.lua");
/// Port of the agent whose clients go plain and take over what UDP began.
const HELD: u16 = 1083;

pub(crate) fn see_tls() {
    let net = Net::new(ms(40));
    let _nginx = Nginx::behind(&net);
    let edge = Daemon::edge(&net, 0, &["--origin", "127.0.0.1:8443"]);
    let _plain = agent(&net, PLAIN, "plain", &[]);
    let turbo = agent(&net, TURBO, "turbo", &[]);
    let _held = agent(&net, HELD, "turbo", &["--hold"]);
    let file = net.file("seen.pcapng");
    let capture = net.capture(&file);
    for port in [PLAIN, TURBO, HELD, TURBO] {
        small(&net, Via::Socks(port), HOST);
    }
    small_by_udp(&net, &turbo, Via::Socks(TURBO), HOST);
    assert_eq!(capture.finish().unwrap().dropped, 0);
    assert!(edge.count("headstart_joins_total", &["joined"]) > 0);
    assert!(edge.count("headstart_joins_total", &["attached"]) > 0);

    let path = file.to_str().unwrap();
    let dissector = format!("lua_script:{DISSECTOR}");
    let shark = |filter: &str, fields: &[&str]| {
        let fields = fields.iter().flat_map(|field| ["-e", field]);
        let command = ["-2", "-X", &dissector, "-r", path, "-Y", filter, "-T", "fields"];
        lines("tshark", command.into_iter().chain(fields))
    };
    let connections = shark("tcp.flags.syn == 1 && tcp.flags.ack == 0", &["tcp.stream"]);
    assert!(connections.len() >= 5, "{connections:?}");
    let hellos = shark("tls.handshake.type == 1", &["tcp.stream"]);
    let named = format!("tls.handshake.extensions_server_name == \"{HOST}\"");
    let mut names = shark(&named, &["tcp.stream"]);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), connections.len(), "a ClientHello in each: {hellos:?}");
    let strange = "tcp && (_ws.malformed || _ws.expert.severity == error)";
    assert_eq!(shark(strange, &["frame.number", "_ws.expert.message"]), [""; 0]);
    let unread = "tcp.len > 0 && !tls && !tcp.reassembled_in";
    assert_eq!(shark(unread, &["frame.number"]), [""; 0], "segments without TLS");

    for (kind, what) in [(8, "requests"), (9, "responses")] {
        let read = shark(&format!("headstart.type == {kind}"), &["headstart.seq"]);
        // On a busy machine some connections go on before a response is there.
        assert!(!read.is_empty(), "{what}: none is read");
    }
    let others = shark("udp.port == 443 && !headstart && !icmp", &["frame.number"]);
    assert_eq!(others, [""; 0], "datagrams that the dissector does not read");

    let flows = lines("ndpiReader", ["-i", path, "-v", "2"]);
    let flows: Vec<_> =
        flows.iter().filter(|line| line.contains("TCP ") && line.contains(" <-> ")).collect();
    let tls = flows.iter().filter(|line| line.contains("/TLS") && line.contains(HOST));
    assert_eq!((tls.count(), flows.len()), (connections.len(), connections.len()), "{flows:#?}");
}

fn lines<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; tools/install.sh"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
