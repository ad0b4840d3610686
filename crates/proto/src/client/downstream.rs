//! The server stream at the client: first from datagrams, then from TCP.

use alloc::vec::Vec;
use core::mem;

use crate::error::Misfit;
use crate::limits::{SERVER_BYTES, STREAM_BUFFER};
use crate::reassembly::Reassembly;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(super) struct Downstream {
    /// Bytes from datagrams; `None` once only TCP carries the stream.
    udp: Option<Reassembly>,
    /// True once bytes from datagrams may reach the application.
    open: bool,
    /// Bytes of the stream given to the application so far.
    released: usize,
    /// Offset in the stream of the next byte from TCP.
    tcp_offset: usize,
    to_app: Vec<u8>,
    /// True if the first bytes came over UDP; taken once by `take_first_source`.
    first_source: Option<bool>,
    finished: bool,
}

impl Downstream {
    pub(super) const fn new() -> Self {
        Self {
            udp: Some(Reassembly::new(SERVER_BYTES)),
            open: false,
            released: 0,
            tcp_offset: 0,
            to_app: Vec::new(),
            first_source: None,
            finished: false,
        }
    }

    /// Stores a piece from a datagram.
    pub(super) fn insert(&mut self, offset: u32, piece: &[u8]) -> Result<(), Misfit> {
        let Some(udp) = &mut self.udp else {
            return Ok(());
        };
        udp.insert(usize::try_from(offset).unwrap_or(usize::MAX), piece)?;
        self.release_prefix();
        Ok(())
    }

    /// Lets in-order bytes from datagrams reach the application from now on.
    pub(super) fn release(&mut self) {
        self.open = true;
        self.release_prefix();
    }

    /// Drops the bytes that have not reached the application: another stream replaces this one.
    pub(super) fn discard_unreleased(&mut self) {
        self.udp = None;
    }

    pub(super) fn tcp_starts_at(&mut self, offset: u32) {
        self.tcp_offset = usize::try_from(offset).unwrap_or(usize::MAX);
    }

    /// Appends bytes from TCP; the application may already have the first of them.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        // W-STREAM-1
        let known = self.released.saturating_sub(self.tcp_offset);
        self.tcp_offset = self.tcp_offset.saturating_add(bytes.len());
        let new = bytes.get(known..).unwrap_or_default();
        if !new.is_empty() {
            self.udp = None;
            self.to_app.extend_from_slice(new);
            self.count(new.len(), false);
        }
    }

    pub(super) const fn finish(&mut self) {
        self.finished = true;
    }

    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        Some(mem::take(&mut self.to_app)).filter(|bytes| !bytes.is_empty())
    }

    pub(super) const fn is_finished(&self) -> bool {
        self.finished && self.to_app.is_empty()
    }

    /// Returns the number of bytes given to the application, which commit the client to the
    /// session.
    pub(super) fn released(&self) -> u32 {
        u32::try_from(self.released).unwrap_or(u32::MAX)
    }

    /// Returns true if TCP alone carries the stream and nothing is queued.
    pub(super) const fn is_transparent(&self) -> bool {
        self.tcp_offset >= self.released && self.to_app.is_empty()
    }

    /// Returns true while TCP is open and the application keeps up.
    pub(super) const fn wants_more(&self) -> bool {
        !self.finished && self.to_app.len() < STREAM_BUFFER
    }

    /// Returns once whether the first bytes for the application came over UDP.
    pub(super) fn take_first_source(&mut self) -> Option<bool> {
        self.first_source.take()
    }

    fn release_prefix(&mut self) {
        let Some(udp) = self.udp.as_ref().filter(|_| self.open) else {
            return;
        };
        let new = udp.prefix().get(self.released..).unwrap_or_default();
        if !new.is_empty() {
            self.to_app.extend_from_slice(new);
            let count = new.len();
            self.count(count, true);
        }
    }

    fn count(&mut self, bytes: usize, udp: bool) {
        if self.released == 0 {
            self.first_source = Some(udp);
        }
        self.released = self.released.saturating_add(bytes);
    }
}
