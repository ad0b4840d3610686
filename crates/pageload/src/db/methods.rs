//! Which requests of a HAR file were no GET.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::target::Target;
use crate::har::stream::{self, BYTE_ORDER_MARK, Log, StreamError};

/// URLs that a HAR file has requests for with other methods than GET.
///
/// Apart from [`har::read`](crate::har::read): what a page costs does not depend on methods, but whether it may be
/// asked for ahead of time does.
#[derive(Debug, Default)]
pub struct Methods {
    pub(super) unsafe_targets: HashSet<Target>,
}

impl Methods {
    /// Reads a file that [`har::read`](crate::har::read) has read.
    ///
    /// # Errors
    /// It cannot be read, or is another one now.
    pub fn read(input: impl Read) -> io::Result<Self> {
        let mut input = BufReader::new(input);
        // A file has more than three bytes, and a buffer room for them.
        if input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        let mut methods = Self::default();
        match stream::read(input, &mut methods) {
            Ok(()) => Ok(methods),
            Err(StreamError::Io(error)) => Err(error),
            Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "no HAR file any more")),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    request: Option<Request>,
}

#[derive(Debug, Deserialize)]
struct Request {
    method: Option<String>,
    url: Option<String>,
}

impl Log for Methods {
    type Entry = Entry;
    type Page = IgnoredAny;

    fn on_entry(&mut self, entry: Entry) {
        let Some(Request { method, url: Some(url) }) = entry.request else { return };
        if method.is_none_or(|method| !method.eq_ignore_ascii_case("GET")) {
            self.unsafe_targets.extend(url.parse::<Target>().ok());
        }
    }

    fn on_page(&mut self, _: IgnoredAny) {}
}
