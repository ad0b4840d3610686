//! Closing a connection after a last answer.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Time that a refused client may take to read its answer and close.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Bytes taken from a refused client before it is cut off: what it may have sent ahead of the
/// answer, a few flights of TLS.
const DRAIN_BYTES: usize = 64 * 1024;

/// Closes a connection so that the client can still read the answer: closing with unread bytes
/// would send a reset, which may overtake it. Takes a second and 64 KiB at most.
///
/// # Errors
/// The connection has failed.
pub async fn close_after_drain(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let closed = timeout(DRAIN_TIME, async {
        stream.shutdown().await?;
        // The answer has been sent, whatever happens now.
        let _ = discard(&mut stream).await;
        Ok(())
    });
    closed.await.unwrap_or(Ok(()))
}

async fn discard(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
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
