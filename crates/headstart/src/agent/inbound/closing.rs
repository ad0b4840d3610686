//! Closing the connection of a refused client.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time that a refused client may take to read its answer and close.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Bytes taken from a refused client before it is cut off: what it may have sent ahead of the
/// answer, a few flights of TLS.
const DRAIN_BYTES: usize = 64 * 1024;

/// Closes a connection so that the client can still read the answer: closing with unread bytes
/// would send a reset, which may overtake it.
pub(super) async fn close_after_drain(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    // The answer has been sent, whatever happens now.
    let _ = timeout(DRAIN_TIME, discard(&mut stream)).await;
    Ok(())
}

async fn discard(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let mut left = DRAIN_BYTES;
    while left > 0 {
        match stream.read(&mut buffer).await? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}
