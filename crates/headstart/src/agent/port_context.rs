//! Ports of contexts: for programs that cannot say themselves which is theirs.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use headstart_sessions::limits::LABEL_MAX;

/// An address to listen on, and the context of those who connect to it: `CONTEXT=ADDR:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortContext {
    /// Name of the context.
    pub context: String,
    /// Where to listen.
    pub address: SocketAddr,
}

impl FromStr for PortContext {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (context, address) = text
            .rsplit_once('=')
            .ok_or("write CONTEXT=ADDR:PORT, for example work=127.0.0.1:1081")?;
        if !(1..=LABEL_MAX).contains(&context.len()) || context.chars().any(char::is_control) {
            return Err(format!("a context has 1 to {LABEL_MAX} bytes without control characters"));
        }
        let address = address.parse().map_err(|_| {
            format!("'{address}' is not an address and a port; write for example 127.0.0.1:1081")
        })?;
        Ok(Self { context: context.to_owned(), address })
    }
}

impl fmt::Display for PortContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.context, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_ports() {
        for text in ["work=127.0.0.1:1081", "a=b=[::1]:1081"] {
            let parsed: PortContext = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let long = format!("{}=127.0.0.1:1", "x".repeat(LABEL_MAX + 1));
        for wrong in ["", "work", "=127.0.0.1:1", "work=1081", "a\n=127.0.0.1:1", &long] {
            assert!(wrong.parse::<PortContext>().is_err(), "{wrong}");
        }
        assert!(long[1..].parse::<PortContext>().is_ok());
    }
}
