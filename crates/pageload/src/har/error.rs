//! Reasons why a file is no page, with hints.

use std::fmt;
use std::io;

use super::limits::{HAR_BYTES, HAR_DEPTH};
use crate::page::{Ignored, PageError};

/// Reason why a HAR file could not be read.
#[derive(Debug)]
pub enum HarError {
    /// The file could not be read.
    Io(io::Error),
    /// The file is empty.
    NoBytes,
    /// The file is compressed; this program unpacks it.
    Compressed(&'static str),
    /// The file exceeds [`HAR_BYTES`].
    TooLarge,
    /// The file nests more than [`HAR_DEPTH`] lists and objects.
    TooDeep,
    /// The file is not JSON, not UTF-8, or not a HAR file.
    Json {
        /// Error with line and column; cut parts of long lines do not count.
        error: serde_json::Error,
        /// Number of the entry that it is in, from 0.
        entry: Option<u64>,
    },
    /// There are no entries.
    Empty,
    /// No entry is a resource.
    AllIgnored(Ignored),
    /// The resources do not form a page.
    Page(PageError),
}

impl HarError {
    /// Returns advice on how to fix it: one line.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) => "name a file that you may read, or - for standard input".into(),
            Self::Compressed(program) => format!("unpack it first: {program} FILE > OTHER"),
            Self::TooLarge => "save it without content, or in parts".into(),
            Self::Json { error, .. } if error.is_eof() => {
                "the file is cut off; save it again".into()
            }
            Self::NoBytes | Self::TooDeep | Self::Json { .. } => {
                "save it again from the browser's network panel: \"Save all as HAR\"".into()
            }
            Self::Page(_) => "record less of it".into(),
            Self::Empty | Self::AllIgnored(_) => {
                "open the network panel, turn its cache off, load the page, and save it again"
                    .into()
            }
        }
    }
}

impl fmt::Display for HarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoBytes => f.write_str("it is empty"),
            Self::Compressed(_) => f.write_str("it is compressed"),
            Self::TooLarge => write!(f, "it has more than {} MiB", HAR_BYTES >> 20),
            Self::TooDeep => {
                write!(f, "it has more than {HAR_DEPTH} lists and objects within each other")
            }
            Self::Json { error, entry: Some(entry) } => {
                write!(f, "it is not the JSON of a HAR file: entry {entry} (from 0): {error}")
            }
            Self::Json { error, entry: None } => {
                write!(f, "it is not the JSON of a HAR file: {error}")
            }
            Self::Empty => f.write_str("there is no request in it"),
            Self::AllIgnored(ignored) => {
                f.write_str("none of its requests is a resource of a page:")?;
                let mut between = " ";
                for (reason, count) in ignored.iter() {
                    write!(f, "{between}{count} {reason}")?;
                    between = ", ";
                }
                Ok(())
            }
            Self::Page(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Json { error, .. } => Some(error),
            Self::Page(error) => Some(error),
            _ => None,
        }
    }
}
