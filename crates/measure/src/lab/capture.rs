//! Packet captures of the clients of a stage.

use std::path::{Path, PathBuf};

use headstart_emulation::Capture;

use super::plan::Stage;
use super::topology::Topology;
use crate::network;
use headstart::base::failure::Failure;

/// Bytes of one file at most. A stage of a hundred trials an arm has some 10 MB.
const FILE_MAX: u64 = 256 << 20;

/// Captures that go on.
#[derive(Debug)]
pub(crate) struct Captures {
    folder: PathBuf,
    running: Vec<(String, Capture)>,
}

impl Captures {
    /// Begins to capture what each client sends and receives, into one file of `folder` for each.
    pub(crate) fn begin(
        folder: &Path,
        stage: &Stage,
        topology: &Topology,
    ) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for node in topology.clients() {
            let name = format!("{}-{}.pcapng", stage.file_name(), node.name());
            let capture = topology.lab.capture(node.name(), folder.join(&name), FILE_MAX);
            running.push((name, capture.map_err(|error| network::not_built(&error))?));
        }
        Ok(Self { folder: folder.to_owned(), running })
    }

    /// Ends them, and warns of files that lack packets; those that lack none.
    pub(crate) fn finish(self, warn: impl Fn(&str)) -> Result<Vec<PathBuf>, Failure> {
        let mut whole = Vec::new();
        for (name, capture) in self.running {
            let captured = capture
                .finish()
                .map_err(|error| Failure::usage(format!("cannot write {name}: {error}")))?;
            if captured.full || captured.dropped > 0 {
                let why = if captured.full { "it is full" } else { "the disk is slow" };
                warn(&format!("warning: {name} lacks packets: {why}"));
            } else {
                whole.push(self.folder.join(name));
            }
        }
        Ok(whole)
    }
}
