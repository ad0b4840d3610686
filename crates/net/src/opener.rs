//! Connections while they open.

use std::fmt;
use std::io;
use std::task::Context;

use tokio::net::TcpStream;

use crate::report::Report;

/// A connection until TCP alone carries it.
pub(crate) trait Opener: fmt::Debug + Send {
    /// Returns the report so far.
    fn report(&self) -> &Report;
    /// Does everything that can be done now; call again when woken. Returns true on progress.
    ///
    /// # Errors
    /// The reason why there is no connection, or no longer one.
    fn poll_drive(&mut self, cx: &mut Context<'_>) -> io::Result<bool>;
    /// Accepts bytes from the application; returns how many.
    fn write(&mut self, bytes: &[u8]) -> usize;
    /// Notes that the application writes no more.
    fn finish(&mut self);
    /// Returns bytes for the application that TCP will not bring.
    fn poll_bytes(&mut self) -> Option<Vec<u8>>;
    /// Returns true if the server's stream ended before TCP alone carried it.
    fn is_read_finished(&self) -> bool;
    /// Returns true once there is a connection to the server.
    fn is_connected(&self) -> bool;
    /// Returns true once everything written has been given to TCP.
    fn is_flushed(&self) -> bool;
    /// Returns true once TCP alone carries the stream.
    fn is_transparent(&self) -> bool;
    /// Returns the connection, if it is transparent.
    fn into_tcp(self: Box<Self>) -> Option<(TcpStream, Report)>;
    /// Returns the report, for a connection that failed.
    fn into_report(self: Box<Self>) -> Report;
    /// Closes the connection with a reset, which the peer sees.
    fn reset(self: Box<Self>);
}
