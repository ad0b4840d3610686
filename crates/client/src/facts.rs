//! Public facts of a connection.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::error::Error;
use crate::head::Head;

/// Facts that the agent tells of a connection. hyper's client puts them into the extensions of each
/// response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Opening of the connection: `plain`, `spare`, `turbo` or `fop`.
    pub opening: String,
    /// True if a session was resumed, which this program or another one left.
    pub resumed: bool,
    /// Outcome of the early data.
    pub early_data: EarlyData,
    /// Version of TLS, such as `TLS 1.3`.
    pub version: Option<String>,
    /// Cipher suite, by its name in the RFCs.
    pub cipher: Option<String>,
    /// Group of the key exchange, such as `X25519MLKEM768`.
    pub group: Option<String>,
    /// Application protocol, if one was negotiated.
    pub alpn: Option<String>,
    /// The server's own certificate (DER). For a resumed connection, that of the original full
    /// handshake.
    pub certificate: Option<Bytes>,
    /// Costs of the connection.
    pub ledger: Ledger,
}

/// Outcome of early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// It was not sent early.
    None,
    /// The server has it.
    Accepted,
    /// It was sent, and the server did not take it.
    Refused,
}

/// Times from the moment the agent read the request; `None` where not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ledger {
    /// The server's addresses were known.
    pub lookup: Option<Duration>,
    /// TCP was connected.
    pub tcp: Option<Duration>,
    /// The handshake was done.
    pub tls: Option<Duration>,
    /// Round-trip time of the network, a duration and not a moment.
    pub rtt: Option<Duration>,
}

impl Facts {
    /// # Errors
    /// The answer is not an agent's.
    pub(crate) fn read(head: &Head) -> Result<Self, Error> {
        let opening = text(head, "Headstart-Opening").ok_or(NO_AGENT)?;
        let resumed = match head.field("Headstart-Resumed") {
            Some("1") => true,
            Some("0") => false,
            _ => return Err(NO_AGENT),
        };
        Ok(Self {
            opening,
            resumed,
            early_data: head
                .field("Headstart-Early-Data")
                .map_or(Ok(EarlyData::None), early_data)?,
            version: text(head, "Headstart-Version"),
            cipher: text(head, "Headstart-Cipher"),
            group: text(head, "Headstart-Group"),
            alpn: text(head, "Headstart-ALPN"),
            certificate: head.field("Headstart-Certificate").map(certificate).transpose()?,
            ledger: head.field("Headstart-Ledger").map_or(Ok(Ledger::default()), Ledger::read)?,
        })
    }
}

const NO_AGENT: Error = Error::NotUnderstood("it says nothing about the connection");

fn text(head: &Head, name: &str) -> Option<String> {
    head.field(name).map(str::to_owned)
}

fn early_data(text: &str) -> Result<EarlyData, Error> {
    match text {
        "none" => Ok(EarlyData::None),
        "accepted" => Ok(EarlyData::Accepted),
        "refused" => Ok(EarlyData::Refused),
        _ => Err(Error::NotUnderstood("its early data has an unknown state")),
    }
}

fn certificate(text: &str) -> Result<Bytes, Error> {
    let der = STANDARD.decode(text);
    der.map(Bytes::from).map_err(|_| Error::NotUnderstood("its certificate is not base64"))
}

impl Ledger {
    /// Ignores moments that this version does not know.
    fn read(text: &str) -> Result<Self, Error> {
        let mut ledger = Self::default();
        for item in text.split(',') {
            let (name, value) = item.trim().split_once('=').unwrap_or((item, ""));
            let time = match name {
                "lookup" => &mut ledger.lookup,
                "tcp" => &mut ledger.tcp,
                "tls" => &mut ledger.tls,
                "rtt" => &mut ledger.rtt,
                _ => continue,
            };
            *time = Some(milliseconds(value)?);
        }
        Ok(ledger)
    }
}

fn milliseconds(text: &str) -> Result<Duration, Error> {
    let seconds = text.parse::<f64>().ok().map(|number| number / 1000.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or(Error::NotUnderstood("its ledger has no numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &str) -> Result<Facts, Error> {
        Facts::read(&Head::parse(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap())
    }

    const LEAST: &str = "headstart-opening: plain\r\nheadstart-resumed: 0\r\n";

    #[test]
    fn every_field_of_an_agent_is_read() {
        let facts = read(
            "Headstart-Opening: turbo\r\nHeadstart-Version: TLS 1.3\r\n\
             Headstart-Cipher: TLS_AES_256_GCM_SHA384\r\nHeadstart-Group: X25519MLKEM768\r\n\
             Headstart-ALPN: h2\r\nHeadstart-Resumed: 1\r\nHeadstart-Early-Data: accepted\r\n\
             Headstart-Certificate: AAEC\r\n\
             Headstart-Ledger: lookup=0.5, tls=31.0, new=x, rtt=29.5\r\n",
        );
        let facts = facts.unwrap();
        assert_eq!((facts.opening.as_str(), facts.resumed), ("turbo", true));
        assert_eq!(facts.early_data, EarlyData::Accepted);
        assert_eq!(facts.alpn.as_deref(), Some("h2"));
        assert_eq!(facts.certificate.as_deref(), Some(&[0, 1, 2][..]));
        let ledger = Ledger {
            lookup: Some(Duration::from_micros(500)),
            tcp: None,
            tls: Some(Duration::from_millis(31)),
            rtt: Some(Duration::from_micros(29_500)),
        };
        assert_eq!(facts.ledger, ledger);
    }

    #[test]
    fn omitted_fields_are_unknown() {
        let facts = read(LEAST).unwrap();
        assert_eq!((facts.early_data, &facts.alpn), (EarlyData::None, &None));
        assert_eq!((facts.certificate, facts.ledger), (None, Ledger::default()));
    }

    #[test]
    fn malformed_fields_are_rejected() {
        for field in [
            "headstart-early-data: yes",
            "headstart-certificate: *",
            "headstart-ledger: tls=x",
            "headstart-ledger: tls=-1",
            "headstart-ledger: tls=1e300",
        ] {
            let refused = read(&format!("{LEAST}{field}\r\n"));
            assert!(matches!(refused, Err(Error::NotUnderstood(_))), "{field}");
        }
        assert!(read("headstart-opening: plain\r\nheadstart-resumed: yes\r\n").is_err());
        assert!(read("headstart-resumed: 0\r\n").is_err());
    }
}
