//! Finds the requests of a HAR file that are not GETs that anybody could make.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::target::Target;
use crate::har::stream::{self, BYTE_ORDER_MARK, Log, StreamError};

/// URLs that a HAR file has requests for with other methods than GET, or with authorization (RFC
/// 9110 section 11.6.2): these are of one user.
///
/// Apart from [`har::read`](crate::har::read): what a page costs does not depend on methods, but
/// whether it may be asked for ahead of time does.
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
    headers: Option<Vec<Header>>,
}

#[derive(Debug, Deserialize)]
struct Header {
    name: Option<Value>,
}

impl Request {
    fn is_plain_get(&self) -> bool {
        self.method.as_ref().is_some_and(|method| method.eq_ignore_ascii_case("GET"))
            && !self.headers.iter().flatten().any(|header: &Header| {
                let name = header.name.as_ref().and_then(Value::as_str);
                name.is_some_and(|name| name.eq_ignore_ascii_case("authorization"))
            })
    }
}

impl Log for Methods {
    type Entry = Entry;
    type Page = IgnoredAny;

    fn on_entry(&mut self, entry: Entry) {
        let Some(request) = entry.request.filter(|request| !request.is_plain_get()) else { return };
        let target = request.url.and_then(|url| url.parse::<Target>().ok());
        self.unsafe_targets.extend(target);
    }

    fn on_page(&mut self, _: IgnoredAny) {}
}
