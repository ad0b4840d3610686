//! Clients and servers as programs: lines in, lines of JSON out.

use std::io::{BufReader, PipeReader, PipeWriter, Write, pipe};
use std::thread;
use std::time::Duration;

use headstart_openers::{Arm, ClientOptions, ServerOptions, Suite, Trial, run_client, run_server};
use serde_json::{Deserializer, Value};

/// Where orders go and where they are read; where answers go, and each of them.
fn wires() -> (PipeWriter, PipeReader, PipeWriter, impl Iterator<Item = Value>) {
    let ((input, orders), (answers, output)) = (pipe().unwrap(), pipe().unwrap());
    let answers = Deserializer::from_reader(BufReader::new(answers)).into_iter();
    (orders, input, output, answers.map(Result::unwrap))
}

#[test]
fn a_client_and_a_server_talk_until_their_input_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::TLS13_RESUMED, Suite::P256);

    let (mut server_orders, input, output, mut answers) = wires();
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = ServerOptions::new(arm, suite, listen, directory.path());
    options.threads = 2;
    let server = thread::spawn(move || run_server(options, input, output));
    let ready = answers.next().unwrap();
    assert_eq!(ready["ready"], true);
    assert!(ready["flight_bytes"].as_u64().unwrap() > 500);
    let to = ready["listen"].as_str().unwrap().parse().unwrap();
    writeln!(server_orders, "cpu").unwrap();
    assert!(answers.next().unwrap()["cpu_ms"].as_f64().unwrap() > 0.0);

    let (mut orders, input, output, mut trials) = wires();
    let options = ClientOptions::new(arm, suite, to, directory.path());
    let client = thread::spawn(move || run_client(options, input, output));
    for (order, resumed) in
        [("open 1000", false), ("open 1000", true), ("forget", false), ("open 1000", false)]
    {
        writeln!(orders, "{order}").unwrap();
        let answer = trials.next().unwrap();
        match order {
            "forget" => assert_eq!(answer["forgot"], true),
            _ => assert_eq!(serde_json::from_value::<Trial>(answer).unwrap().resumed, resumed),
        }
    }
    writeln!(orders, "close").unwrap();
    assert!(trials.next().unwrap()["error"].as_str().unwrap().contains("no such order"));

    writeln!(orders, "load 100 2 100").unwrap();
    let mut last = trials.next().unwrap();
    let mut connections = 0;
    while last["done"] != true {
        assert_eq!(last["ok"], true, "{last}");
        connections += 1;
        last = trials.next().unwrap();
    }
    assert_eq!(last["connections"], connections);
    assert!(last["ms"].as_f64().unwrap() >= 100.0 && last["cpu_ms"].as_f64().is_some());

    drop(orders);
    client.join().unwrap().unwrap();
    drop(server_orders);
    server.join().unwrap().unwrap();
}

/// The first byte waits for a reader that is away.
struct Late(PipeWriter, Option<Duration>);

impl Write for Late {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(away) = self.1.take() {
            thread::sleep(away);
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_load_does_not_wait_for_whoever_reads_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (arm, suite) = (Arm::TLS13, Suite::P256);
    let (server_orders, input, output, mut answers) = wires();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = ServerOptions::new(arm, suite, listen, directory.path());
    let server = thread::spawn(move || run_server(server, input, output));
    let to = answers.next().unwrap()["listen"].as_str().unwrap().parse().unwrap();

    let (mut orders, input, output, trials) = wires();
    // Longer than the load lasts.
    let output = Late(output, Some(Duration::from_millis(3500)));
    let options = ClientOptions::new(arm, suite, to, directory.path());
    let client = thread::spawn(move || run_client(options, input, output));
    writeln!(orders, "load 100 1 3000").unwrap();
    let lines: Vec<Value> = trials.take_while(|line| line["done"] != true).collect();
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
    let (_server_orders, input, output, mut answers) = wires();
    let server = ServerOptions::new(arm, suite, "127.0.0.1:0".parse().unwrap(), directory.path());
    thread::spawn(move || run_server(server, input, output));
    let to = answers.next().unwrap()["listen"].as_str().unwrap().parse().unwrap();

    let (mut orders, input, _, _) = wires();
    let options = ClientOptions::new(arm, suite, to, directory.path());
    writeln!(orders, "forget").unwrap();
    drop(orders);
    let error = run_client(options, input, Gone).unwrap_err().to_string();
    assert!(error.contains("cannot write an answer: broken pipe"), "{error}");
}
