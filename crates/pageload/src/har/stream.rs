//! Reads HAR files entry by entry: what is not needed takes no memory.

use std::fmt;
use std::io::{self, BufReader, Read};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};

use super::bounded_json::BoundedJson;
use super::limits::HAR_BYTES;

/// UTF-8's byte order mark, with which some programs begin HAR files.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Receives the contents of a file.
pub(crate) trait Log {
    /// A member of `entries`.
    type Entry: DeserializeOwned;
    /// Takes a member of `pages`, which may come before or after the entries, or not at all.
    type Page: DeserializeOwned;

    fn on_entry(&mut self, entry: Self::Entry);
    fn on_page(&mut self, page: Self::Page);
}

/// Reason why a file could not be read to its end.
#[derive(Debug)]
pub(crate) enum StreamError {
    Io(io::Error),
    /// The file exceeds [`HAR_BYTES`].
    TooLarge,
    /// The file nests more than [`HAR_DEPTH`](super::limits::HAR_DEPTH) lists and objects.
    TooDeep,
    /// The file is not JSON, or not a HAR file.
    Json {
        error: serde_json::Error,
        /// Number of the entry that it is in, from 0.
        entry: Option<u64>,
    },
}

/// Reads a file to its end; a byte order mark has to be gone.
pub(crate) fn read(input: impl Read, log: &mut impl Log) -> Result<(), StreamError> {
    let mut input = BufReader::new(BoundedJson::new(input.take(HAR_BYTES)));
    let mut json = serde_json::Deserializer::from_reader(&mut input);
    let mut state = State { log, entry: None };
    let file = Object { key: "log", inner: Members(&mut state) };
    let read = file.deserialize(&mut json).and_then(|()| json.end());
    let entry = state.entry;
    drop(json);
    let text = input.get_ref();
    match read {
        Ok(()) => Ok(()),
        Err(_) if text.is_too_deep => Err(StreamError::TooDeep),
        Err(_) if text.input.limit() == 0 => Err(StreamError::TooLarge),
        Err(error) if error.is_io() => Err(StreamError::Io(error.into())),
        Err(error) => Err(StreamError::Json { error, entry }),
    }
}

struct State<'a, L> {
    log: &'a mut L,
    /// Number of the entry that is being read.
    entry: Option<u64>,
}

/// An object of which only one key matters, which is required.
struct Object<S> {
    key: &'static str,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Object<S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Object<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with \"{}\"", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inner = Some(self.inner);
        while let Some(key) = map.next_key::<String>()? {
            match inner.take_if(|_| key == self.key) {
                Some(inner) => map.next_value_seed(inner)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match inner {
            None => Ok(()),
            Some(_) => Err(A::Error::missing_field(self.key)),
        }
    }
}

/// The object `log`.
struct Members<'a, 'b, L>(&'a mut State<'b, L>);

impl<'de, L: Log> DeserializeSeed<'de> for Members<'_, '_, L> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, L: Log> Visitor<'de> for Members<'_, '_, L> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"entries\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut pages, mut entries) = (false, false);
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" && !entries {
                entries = true;
                map.next_value_seed(Entries(self.0))?;
            } else if key == "pages" && !pages {
                pages = true;
                map.next_value_seed(Pages(self.0.log))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if entries { Ok(()) } else { Err(A::Error::missing_field("entries")) }
    }
}

/// The entries, read one after another and not kept.
struct Entries<'a, 'b, L>(&'a mut State<'b, L>);

impl<'de, L: Log> DeserializeSeed<'de> for Entries<'_, '_, L> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, L: Log> Visitor<'de> for Entries<'_, '_, L> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for number in 0.. {
            self.0.entry = Some(number);
            let Some(entry) = list.next_element::<L::Entry>()? else { break };
            self.0.log.on_entry(entry);
        }
        self.0.entry = None;
        Ok(())
    }
}

/// The pages, or null.
struct Pages<'a, L>(&'a mut L);

impl<'de, L: Log> DeserializeSeed<'de> for Pages<'_, L> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, L: Log> Visitor<'de> for Pages<'_, L> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pages")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(page) = list.next_element::<L::Page>()? {
            self.0.on_page(page);
        }
        Ok(())
    }
}
