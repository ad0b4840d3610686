use std::io::{Chain, Cursor, Read};

use super::capture::{self, End, PCAP_MAGICS, PCAPNG_MAGIC};
use super::connection::Findings;
use super::error::ReadError;
use super::flow_table::FlowTable;
use super::har;
use super::limits::Limits;
use super::packet::Packet;
use super::report::{Recording, RecordingKind, Report};
use super::systems::AsTable;
use crate::har::stream::BYTE_ORDER_MARK;
use crate::input::unpacked_by;

/// Number of first bytes that tell the kind of a file.
const HEAD: u64 = 512;

/// Reads recordings, then [reports](Self::report) what sharing sessions would have saved.
#[derive(Debug)]
pub struct Audit {
    limits: Limits,
    flows: FlowTable,
    found: Findings,
    recordings: Vec<Recording>,
}

impl Default for Audit {
    fn default() -> Self {
        Self::new()
    }
}

impl Audit {
    /// Starts an audit.
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// Starts an audit within these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        let (flows, found) = (FlowTable::new(limits), Findings::default());
        Self { limits, flows, found, recordings: Vec::new() }
    }

    /// Reads a recording to its end, whatever kind it is; `name` is what the report calls it.
    ///
    /// Connections may go on in the next one, as in captures that were written in several files.
    ///
    /// # Errors
    /// It is not a recording, or a damaged one. A capture that merely ends within a packet is no
    /// error: [`Recording::is_cut_short`] says so.
    pub fn read(&mut self, name: &str, mut input: impl Read) -> Result<&Recording, ReadError> {
        let mut head = Vec::new();
        input.by_ref().take(HEAD).read_to_end(&mut head)?;
        let kind = kind(&head)?;
        let (packets, connections) = (self.found.seen.packets, self.found.connections.len());
        let end = self.read_as(kind, Cursor::new(head).chain(input))?;
        self.recordings.push(Recording {
            name: name.to_owned(),
            kind,
            packets: self.found.seen.packets - packets,
            connections: (self.found.connections.len() - connections) as u64,
            is_cut_short: end == End::Within,
        });
        self.recordings.last().ok_or(ReadError::Empty)
    }

    /// Ends the audit. With a table, connections are grouped by autonomous system and name where
    /// servers share sessions, else by name alone.
    pub fn report(mut self, systems: Option<&AsTable>) -> Report {
        self.flows.finish(&mut self.found);
        Report::new(self.found, self.recordings, systems)
    }

    fn on_frame(&mut self, frame: &capture::Frame<'_>) {
        let packet = Packet::read(frame.link, frame.bytes);
        self.flows.on_packet(frame.at, &packet, &mut self.found);
    }

    fn read_as(
        &mut self,
        kind: RecordingKind,
        mut input: Chain<Cursor<Vec<u8>>, impl Read>,
    ) -> Result<End, ReadError> {
        match kind {
            RecordingKind::Pcap => capture::pcap(input, |frame| self.on_frame(&frame)),
            RecordingKind::Pcapng => capture::pcapng(input, |frame| self.on_frame(&frame)),
            RecordingKind::Har => {
                let (head, _) = input.get_mut();
                if head.get_ref().starts_with(BYTE_ORDER_MARK) {
                    head.set_position(BYTE_ORDER_MARK.len() as u64);
                }
                har::read(input, &mut self.found, &self.limits).map(|()| End::Whole)
            }
        }
    }
}

/// Returns the kind by the first bytes; file names tell little.
fn kind(head: &[u8]) -> Result<RecordingKind, ReadError> {
    if head.is_empty() {
        return Err(ReadError::Empty);
    }
    if head.starts_with(&PCAPNG_MAGIC) {
        return Ok(RecordingKind::Pcapng);
    }
    if PCAP_MAGICS.iter().any(|magic| head.starts_with(magic)) {
        return Ok(RecordingKind::Pcap);
    }
    if let Some(program) = unpacked_by(head) {
        return Err(ReadError::Compressed(program));
    }
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    match text.trim_ascii_start().first() {
        Some(b'{') => Ok(RecordingKind::Har),
        _ => Err(ReadError::Unrecognized),
    }
}
