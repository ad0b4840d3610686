//! Packet captures of the clients of a stage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headstart_lab::Node;

use super::interrupt::Interrupt;
use super::plan::Stage;
use super::process::{Broken, Program};
use super::topology::Topology;

/// Packets in one file at most: 300 MB of full-size ones. A stage of a hundred trials an arm has some ten thousand.
const PACKETS_MAX: &str = "200000";

/// Interface of a node.
const INTERFACE: &str = "w0";

/// Header of a capture file: when it is there, packets are captured.
const HEADER: u64 = 24;

/// How long tcpdump may take to begin.
const BEGIN: Duration = Duration::from_secs(10);

/// Captures that go on; they end with this value.
#[derive(Debug)]
pub(crate) struct Captures {
    _programs: Vec<Program>,
}

impl Captures {
    /// Begins to capture what each client sends and receives, into one file of `folder` for each.
    pub(crate) fn begin(
        folder: &Path,
        stage: &Stage,
        topology: &Topology,
        interrupt: &Interrupt,
    ) -> Result<Self, Broken> {
        let begin = |node: &Node| {
            let file = folder.join(format!("{}-{}.pcap", stage.file_name(), node.name()));
            capture(node, file, interrupt)
        };
        Ok(Self { _programs: topology.clients().map(begin).collect::<Result<_, _>>()? })
    }
}

fn capture(node: &Node, file: PathBuf, interrupt: &Interrupt) -> Result<Program, Broken> {
    let mut command = node.command("tcpdump");
    // Nanoseconds; each packet written at once, so that the file is whole whenever it ends; and as this
    // user, who may write there.
    command.args(["-i", INTERFACE, "--nano", "-U", "-n", "-c", PACKETS_MAX, "-Z", "root", "-w"]);
    command.arg(&file);
    let mut program = Program::start(node, "tcpdump", command)?;
    let until = Instant::now() + BEGIN;
    while std::fs::metadata(&file).map_or(0, |found| found.len()) < HEADER {
        program.check()?;
        if interrupt.is_set() {
            return Err(Broken::Interrupted);
        }
        if Instant::now() > until {
            return Err(program.nonsense("nothing"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(program)
}
