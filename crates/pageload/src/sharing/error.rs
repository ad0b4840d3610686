//! Reasons why a file could not be used, with hints.

use std::fmt;
use std::io;

use super::limits::{CAPTURE_BLOCK, HAR_BYTES, HAR_DEPTH, INTERFACES, LINE_MAX, PREFIXES};

/// Reason why a recording could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// It is neither a capture nor a HAR file.
    Unrecognized,
    /// The file is compressed; this program unpacks it.
    Compressed(&'static str),
    /// The capture contradicts its own lengths.
    Malformed {
        /// Offset of the block or packet, in bytes.
        at: u64,
    },
    /// A block or packet exceeds [`CAPTURE_BLOCK`], or claims to.
    TooLarge {
        /// Its offset in bytes.
        at: u64,
    },
    /// A section has more than [`INTERFACES`] interfaces.
    Interfaces,
    /// The HAR file exceeds [`HAR_BYTES`].
    HarTooLarge,
    /// The HAR file nests more than [`HAR_DEPTH`] lists and objects.
    HarTooDeep,
    /// The file is not JSON, or not a HAR file.
    Har(serde_json::Error),
}

impl ReadError {
    /// Returns advice on how to fix it: one line.
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) => "name a file that you may read, or - for standard input".into(),
            Self::Empty => {
                "the capture was not written yet; stop tcpdump, or give it -U, and try again".into()
            }
            Self::Unrecognized => {
                "name a pcap or pcapng file, or a HAR file as browsers save it".into()
            }
            Self::Compressed(program) => {
                format!("unpack it on the way: {program} FILE | headstart pageload sharing -")
            }
            Self::Malformed { .. } | Self::TooLarge { .. } => {
                "the file is damaged there; `editcap -r` or `tcpdump -r FILE -w OTHER` saves what \
                    is before it"
                    .into()
            }
            Self::Interfaces => "the file is damaged, or split it by interface".into(),
            Self::HarTooLarge => "save it without content, or in parts".into(),
            Self::Har(error) if error.is_eof() => "the file is cut off; save it again".into(),
            Self::HarTooDeep | Self::Har(_) => "save it again from the browser's network panel: \
                \"Save all as HAR\""
                .into(),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("it is empty"),
            Self::Unrecognized => f.write_str("it is neither a packet capture nor a HAR file"),
            Self::Compressed(_) => f.write_str("it is compressed"),
            Self::Malformed { at } => {
                write!(f, "what begins at byte {at} contradicts its own lengths")
            }
            Self::TooLarge { at } => {
                let most = CAPTURE_BLOCK >> 20;
                write!(f, "what begins at byte {at} says that it has more than {most} MiB")
            }
            Self::Interfaces => write!(f, "it has more than {INTERFACES} interfaces"),
            Self::HarTooLarge => write!(f, "it has more than {} MiB", HAR_BYTES >> 20),
            Self::HarTooDeep => {
                write!(f, "it has more than {HAR_DEPTH} lists and objects within each other")
            }
            Self::Har(error) => write!(f, "it is not the JSON of a HAR file: {error}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Har(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reason why a table of autonomous systems could not be read.
#[derive(Debug)]
pub enum AsError {
    /// The file could not be read.
    Io(io::Error),
    /// The file is compressed; this program unpacks it.
    Compressed(&'static str),
    /// The file has no prefixes.
    Empty,
    /// A line has an unknown form.
    Line {
        /// Its number, from 1.
        number: u64,
        /// Beginning of the line.
        text: String,
    },
    /// A line exceeds [`LINE_MAX`].
    LongLine(u64),
    /// There are more than [`PREFIXES`] prefixes.
    TooMany,
}

impl AsError {
    /// Returns advice on how to fix it: one line.
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) => "name a file that you may read".into(),
            Self::Compressed(program) => format!("unpack it first: {program} FILE > OTHER"),
            Self::TooMany => "name a table of the internet's routes, which has fewer".into(),
            Self::Empty | Self::Line { .. } | Self::LongLine(_) => {
                "a line is PREFIX,AS or ADDRESS<tab>LENGTH<tab>AS (RouteViews pfx2as) or \
                    FIRST<tab>LAST<tab>AS (iptoasn)"
                    .into()
            }
        }
    }
}

impl fmt::Display for AsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Compressed(_) => f.write_str("it is compressed"),
            Self::Empty => f.write_str("there is no prefix in it"),
            Self::Line { number, text } => {
                write!(f, "line {number} is no prefix with an AS: {text:?}")
            }
            Self::LongLine(number) => write!(f, "line {number} has more than {LINE_MAX} bytes"),
            Self::TooMany => write!(f, "it has more than {PREFIXES} prefixes"),
        }
    }
}

impl std::error::Error for AsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for AsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
