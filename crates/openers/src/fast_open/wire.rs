use headstart_tls::{Conn, Progress, Read, TlsError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes read at a time: a whole TLS record.
const READ: usize = 16 * 1024;

/// A connection of headstart's engine over TCP. One side speaks at a time, as in one request and
/// its answer.
pub(crate) struct Wire {
    conn: Conn,
    tcp: TcpStream,
    ended: bool,
    ciphertext: Vec<u8>,
    plain: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(conn: Conn, tcp: TcpStream) -> Self {
        let [ciphertext, plain] = [vec![0; READ], vec![0; READ]];
        Self { conn, tcp, ended: false, ciphertext, plain }
    }

    pub(crate) const fn conn_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }

    /// Brings the handshake as far as it goes without the application: to early data, or to its
    /// end.
    pub(crate) async fn handshake(&mut self) -> Result<Progress, String> {
        loop {
            match self.conn.handshake().map_err(|error| spoken(&error))? {
                Progress::Wait => self.fill().await?,
                further => return Ok(further),
            }
        }
    }

    /// The next bytes of the peer's application; none at the end.
    pub(crate) async fn read(&mut self) -> Result<Option<&[u8]>, String> {
        let count = loop {
            match self.read_now()? {
                Read::Wait => self.fill().await?,
                Read::Bytes(count) => break count,
                Read::End => return Ok(None),
            }
        };
        Ok(self.plain.get(..count))
    }

    /// Bytes of the peer's application that are here already.
    pub(crate) fn poll_read(&mut self) -> Result<Option<&[u8]>, String> {
        match self.read_now()? {
            Read::Bytes(count) => Ok(self.plain.get(..count)),
            Read::Wait | Read::End => Ok(None),
        }
    }

    fn read_now(&mut self) -> Result<Read, String> {
        self.conn.read(&mut self.plain).map_err(|error| spoken(&error))
    }

    /// Hands bytes to TLS; they leave with what is sent next, at the latest with
    /// [`flush`](Self::flush).
    pub(crate) async fn write(&mut self, mut left: &[u8]) -> Result<(), String> {
        while !left.is_empty() {
            let count = self.conn.write(left).map_err(|error| spoken(&error))?;
            left = left.get(count..).unwrap_or_default();
            if count == 0 && self.flush().await? == 0 {
                self.fill().await?;
            }
        }
        Ok(())
    }

    /// Sends what TLS has to send; how much that was.
    pub(crate) async fn flush(&mut self) -> Result<usize, String> {
        let bytes = drain(&mut self.conn);
        self.send(&bytes).await?;
        Ok(bytes.len())
    }

    /// Sends bytes of TLS that were taken from it before there was a connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.tcp.write_all(bytes).await.map_err(|error| broke(&error))
    }

    /// Waits for bytes of the peer, or for their end, once everything is sent.
    pub(crate) async fn fill(&mut self) -> Result<(), String> {
        self.flush().await?;
        if self.ended {
            return Err("the connection broke: it ended".into());
        }
        match self.tcp.read(&mut self.ciphertext).await.map_err(|error| broke(&error))? {
            0 => {
                self.ended = true;
                self.conn.handle_end();
            }
            count => self.conn.handle_bytes(self.ciphertext.get(..count).unwrap_or_default()),
        }
        Ok(())
    }

    /// Says that nothing more comes.
    pub(crate) async fn close(&mut self) -> Result<(), String> {
        self.conn.close();
        self.flush().await?;
        self.tcp.shutdown().await.map_err(|error| broke(&error))
    }
}

/// Everything that TLS has to send now.
pub(crate) fn drain(conn: &mut Conn) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = conn.poll_bytes() {
        all.extend_from_slice(&bytes);
    }
    all
}

pub(crate) fn spoken(error: &TlsError) -> String {
    format!("TLS: {error}")
}

fn broke(error: &std::io::Error) -> String {
    format!("the connection broke: {error}")
}
