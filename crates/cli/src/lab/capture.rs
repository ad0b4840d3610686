//! Packet captures of the clients of a stage.

use std::path::Path;

use headstart_lab::Capture;

use super::plan::Stage;
use super::topology::Topology;
use crate::demo;
use crate::failure::Failure;

/// Bytes of one file at most. A stage of a hundred trials an arm has some 10 MB.
const FILE_MAX: u64 = 256 << 20;

/// Captures that go on.
#[derive(Debug)]
pub(crate) struct Captures(Vec<(String, Capture)>);

impl Captures {
    /// Begins to capture what each client sends and receives, into one file of `folder` for each.
    pub(crate) fn begin(
        folder: &Path,
        stage: &Stage,
        topology: &Topology,
    ) -> Result<Self, Failure> {
        let mut captures = Vec::new();
        for node in topology.clients() {
            let name = format!("{}-{}.pcapng", stage.file_name(), node.name());
            let capture = topology.lab.capture(node.name(), folder.join(&name), FILE_MAX);
            captures.push((name, capture.map_err(|error| demo::not_built(&error))?));
        }
        Ok(Self(captures))
    }

    /// Ends them, and warns of files that lack packets.
    pub(crate) fn finish(self, warn: impl Fn(&str)) -> Result<(), Failure> {
        for (name, capture) in self.0 {
            let captured = capture
                .finish()
                .map_err(|error| Failure::usage(format!("cannot write {name}: {error}")))?;
            if captured.full || captured.dropped > 0 {
                let why = if captured.full { "it is full" } else { "the disk is slow" };
                warn(&format!("warning: {name} lacks packets: {why}"));
            }
        }
        Ok(())
    }
}
