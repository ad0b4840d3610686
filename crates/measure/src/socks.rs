//! SOCKS5 (RFC 1928), as applications speak it with an agent.

use std::io::{self, Read, Write};

/// Asks for a connection to `name`, step by step.
pub(crate) fn connect(tcp: &mut (impl Read + Write), name: &str, port: u16) -> io::Result<()> {
    tcp.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    tcp.read_exact(&mut method)?;
    let length = u8::try_from(name.len()).map_err(io::Error::other)?;
    let request = [&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat();
    tcp.write_all(&request)?;
    let mut reply = [0; 10];
    tcp.read_exact(&mut reply)?;
    match reply {
        [5, 0, ..] => Ok(()),
        [_, code, ..] => Err(io::Error::other(format!("the agent's reply is {code}"))),
    }
}
