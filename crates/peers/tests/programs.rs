//! Clients and servers as programs: lines in, lines of JSON out.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread;

use headstart_peers::{Arm, ClientOptions, ServerOptions, Suite, Trial, run_client, run_server};
use serde_json::Value;

/// Gives its lines one by one, and ends when the sender is dropped.
struct Orders(mpsc::Receiver<String>, Vec<u8>);

impl Read for Orders {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            let Ok(line) = self.0.recv() else { return Ok(0) };
            self.1 = format!("{line}\n").into_bytes();
        }
        let count = self.1.as_slice().read(room)?;
        self.1.drain(..count);
        Ok(count)
    }
}

/// Sends each whole line on.
struct Answers(mpsc::Sender<Value>, Vec<u8>);

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        for line in self.1.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.0.send(serde_json::from_slice(line).unwrap()).unwrap();
        }
        self.1.clear();
        Ok(())
    }
}

fn wires() -> (mpsc::Sender<String>, Orders, Answers, mpsc::Receiver<Value>) {
    let ((orders, obeyed), (said, answers)) = (mpsc::channel(), mpsc::channel());
    (orders, Orders(obeyed, Vec::new()), Answers(said, Vec::new()), answers)
}

#[test]
fn a_client_and_a_server_talk_until_their_input_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::Tls13Resumed, Suite::P256);

    let (server_orders, input, output, answers) = wires();
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = ServerOptions::new(arm, suite, listen, directory.path());
    options.threads = 2;
    let server = thread::spawn(move || run_server(options, input, output));
    let ready = answers.recv().unwrap();
    assert_eq!(ready["ready"], true);
    assert!(ready["flight_bytes"].as_u64().unwrap() > 500);
    let to = ready["listen"].as_str().unwrap().parse().unwrap();
    server_orders.send("cpu".to_owned()).unwrap();
    assert!(answers.recv().unwrap()["cpu_ms"].as_f64().unwrap() > 0.0);

    let (orders, input, output, trials) = wires();
    let options = ClientOptions::new(arm, suite, to, directory.path());
    let client = thread::spawn(move || run_client(options, input, output));
    let tell = |order: &str| {
        orders.send(order.to_owned()).unwrap();
        trials.recv().unwrap()
    };
    let open = || serde_json::from_value::<Trial>(tell("open 1000")).unwrap();
    assert!(!open().resumed);
    assert!(open().resumed);
    assert_eq!(tell("forget")["forgot"], true);
    assert!(!open().resumed);
    assert!(tell("close")["error"].as_str().unwrap().contains("no such order"));

    let mut last = tell("load 100 2 100");
    let mut connections = 0;
    while last["done"] != true {
        assert_eq!(last["ok"], true, "{last}");
        connections += 1;
        last = trials.recv().unwrap();
    }
    assert_eq!(last["connections"], connections);
    assert!(last["ms"].as_f64().unwrap() >= 100.0 && last["cpu_ms"].as_f64().is_some());

    drop(orders);
    client.join().unwrap().unwrap();
    drop(server_orders);
    server.join().unwrap().unwrap();
}
