//! Clients and servers as programs: lines in, lines of JSON out.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use headstart_openers::{Arm, ClientOptions, ServerOptions, Suite, Trial, run_client, run_server};
use serde_json::Value;

/// Gives its lines one by one, and ends when the sender is dropped.
struct Orders(mpsc::Receiver<String>, Vec<u8>);

impl Read for Orders {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            let Ok(line) = self.0.recv() else { return Ok(0) };
            self.1 = format!("{line}\n").into_bytes();
        }
        let count = self.1.as_slice().read(buffer)?;
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
    let ((orders, obeyed), (text, answers)) = (mpsc::channel(), mpsc::channel());
    (orders, Orders(obeyed, Vec::new()), Answers(text, Vec::new()), answers)
}

#[test]
fn a_client_and_a_server_talk_until_their_input_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::TLS13_RESUMED, Suite::P256);

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
    for (order, resumed) in
        [("open 1000", false), ("open 1000", true), ("forget", false), ("open 1000", false)]
    {
        orders.send(order.to_owned()).unwrap();
        let answer = trials.recv().unwrap();
        match order {
            "forget" => assert_eq!(answer["forgot"], true),
            _ => assert_eq!(serde_json::from_value::<Trial>(answer).unwrap().resumed, resumed),
        }
    }
    orders.send("close".to_owned()).unwrap();
    assert!(trials.recv().unwrap()["error"].as_str().unwrap().contains("no such order"));

    orders.send("load 100 2 100".to_owned()).unwrap();
    let mut last = trials.recv().unwrap();
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

/// As [`Answers`], but its reader pauses after the first byte.
struct Late(Answers, Option<Duration>);

impl Write for Late {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if !self.0.1.is_empty()
            && let Some(away) = self.1.take()
        {
            thread::sleep(away);
        }
        self.0.flush()
    }
}

#[test]
fn a_load_does_not_wait_for_whoever_reads_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::TLS13, Suite::P256);
    let (server_orders, input, output, answers) = wires();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = ServerOptions::new(arm, suite, listen, directory.path());
    let server = thread::spawn(move || run_server(server, input, output));
    let to = answers.recv().unwrap()["listen"].as_str().unwrap().parse().unwrap();

    let (orders, input, output, trials) = wires();
    // Longer than the load lasts.
    let output = Late(output, Some(Duration::from_millis(3500)));
    let options = ClientOptions::new(arm, suite, to, directory.path());
    let client = thread::spawn(move || run_client(options, input, output));
    orders.send("load 100 1 3000".to_owned()).unwrap();
    let lines: Vec<Value> = trials.iter().take_while(|line| line["done"] != true).collect();
    assert!(lines.len() > 1, "one connection, then only waiting");
    assert!(lines.iter().all(|line| line["ok"] == true), "{lines:?}");

    drop(orders);
    client.join().unwrap().unwrap();
    drop(server_orders);
    server.join().unwrap().unwrap();
}

/// Nobody reads any more.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_client_that_nobody_listens_to_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::TLS13, Suite::P256);
    let (_server_orders, input, output, answers) = wires();
    let server = ServerOptions::new(arm, suite, "127.0.0.1:0".parse().unwrap(), directory.path());
    thread::spawn(move || run_server(server, input, output));
    let to = answers.recv().unwrap()["listen"].as_str().unwrap().parse().unwrap();

    let (orders, input, _, _) = wires();
    let options = ClientOptions::new(arm, suite, to, directory.path());
    orders.send("forget".to_owned()).unwrap();
    drop(orders);
    let error = run_client(options, input, Gone).unwrap_err().to_string();
    assert!(error.contains("cannot write an answer: broken pipe"), "{error}");
}
