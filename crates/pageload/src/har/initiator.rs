//! Initiator of a request, as Chromium tells it in `_initiator` (DevTools protocol,
//! `Network.Initiator`).

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use url::Url;

use super::limits::{STACK_PARENTS, STACK_SCRIPTS};
use super::value::Scalar;

/// Initiator of a request; empty where the file does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Initiator {
    pub(super) kind: InitiatorKind,
    /// URLs that the request waited for, each once: the initiator first, then the scripts that
    /// called it.
    pub(super) urls: Vec<UrlKey>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InitiatorKind {
    /// The user or the browser itself, or unknown.
    #[default]
    Other,
    /// The parser of a document or style sheet, or its preload scanner.
    Parser,
    /// A script.
    Script,
    /// The request that needed a CORS preflight.
    Preflight,
    /// The server, which pushed it.
    Push,
}

/// Hash of a URL without its fragment, for comparisons. It has 64 bits: two URLs collide once in
/// 10^10 files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UrlKey(u64);

impl UrlKey {
    pub(super) fn from_url(url: &Url) -> Self {
        let text = url.as_str();
        let end = text.find('#').unwrap_or(text.len());
        let mut hasher = DefaultHasher::new();
        text.get(..end).hash(&mut hasher);
        Self(hasher.finish())
    }

    fn parse(text: &str) -> Option<Self> {
        Url::parse(text).ok().map(|url| Self::from_url(&url))
    }
}

impl Initiator {
    fn push(&mut self, url: &str) {
        if self.urls.len() < STACK_SCRIPTS
            && let Some(key) = UrlKey::parse(url)
            && !self.urls.contains(&key)
        {
            self.urls.push(key);
        }
    }
}

fn kind(text: &str) -> InitiatorKind {
    match text {
        "parser" | "preload" => InitiatorKind::Parser,
        "script" => InitiatorKind::Script,
        "preflight" => InitiatorKind::Preflight,
        "push" => InitiatorKind::Push,
        _ => InitiatorKind::Other,
    }
}

/// Visits values that say nothing about an initiator: programs use such fields as they like, which
/// is no reason to refuse a file.
macro_rules! says_nothing {
    ($($of:ident),*) => { $(says_nothing!(@ $of);)* };
    (@ bool) => { says_nothing!(@ visit_bool bool); };
    (@ u64) => { says_nothing!(@ visit_u64 u64); };
    (@ i64) => { says_nothing!(@ visit_i64 i64); };
    (@ f64) => { says_nothing!(@ visit_f64 f64); };
    (@ str) => { says_nothing!(@ visit_str &str); };
    (@ unit) => {
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@ map) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@ $visit:ident $of:ty) => {
        fn $visit<E: Error>(self, _: $of) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

/// An object in Chromium's files, a URL in others; anything else says nothing.
impl<'de> Deserialize<'de> for Initiator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Initiator;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an initiator")
            }

            fn visit_str<E: Error>(self, url: &str) -> Result<Initiator, E> {
                let mut initiator =
                    Initiator { kind: InitiatorKind::Parser, ..Initiator::default() };
                initiator.push(url);
                Ok(initiator)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Initiator, A::Error> {
                let mut initiator = Initiator::default();
                let mut stack = Initiator::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "type" => {
                            let value: Scalar = map.next_value()?;
                            initiator.kind = kind(value.text().unwrap_or_default());
                        }
                        "url" => {
                            let value: Scalar = map.next_value()?;
                            initiator.push(value.text().unwrap_or_default());
                        }
                        "stack" => map.next_value_seed(Stack { urls: &mut stack, parents: 0 })?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                for key in stack.urls {
                    if !initiator.urls.contains(&key) && initiator.urls.len() < STACK_SCRIPTS {
                        initiator.urls.push(key);
                    }
                }
                Ok(initiator)
            }

            says_nothing!(bool, u64, i64, f64, unit, seq);
        }

        deserializer.deserialize_any(Any)
    }
}

/// A `Runtime.StackTrace`: frames, the innermost first, and the parent stack of asynchronous calls.
struct Stack<'a> {
    urls: &'a mut Initiator,
    parents: usize,
}

impl<'de> DeserializeSeed<'de> for Stack<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Stack<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stack of calls")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut outer = Initiator::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "callFrames" => map.next_value_seed(Frames(&mut *self.urls))?,
                "parent" if self.parents < STACK_PARENTS => {
                    let parents = self.parents + 1;
                    map.next_value_seed(Stack { urls: &mut outer, parents })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // The inner keys come first in any order.
        for key in outer.urls {
            if !self.urls.urls.contains(&key) && self.urls.urls.len() < STACK_SCRIPTS {
                self.urls.urls.push(key);
            }
        }
        Ok(())
    }

    says_nothing!(bool, u64, i64, f64, str, unit, seq);
}

struct Frames<'a>(&'a mut Initiator);

impl<'de> DeserializeSeed<'de> for Frames<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Frames<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of frames")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Frame(&mut *self.0))?.is_some() {}
        Ok(())
    }

    says_nothing!(bool, u64, i64, f64, str, unit, map);
}

/// A `Runtime.CallFrame`; only the URL of its script matters.
struct Frame<'a>(&'a mut Initiator);

impl<'de> DeserializeSeed<'de> for Frame<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Frame<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame of a stack")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "url" {
                let url: Scalar = map.next_value()?;
                self.0.push(url.text().unwrap_or_default());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    says_nothing!(bool, u64, i64, f64, str, unit, seq);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Initiator {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn keys(urls: &[&str]) -> Vec<UrlKey> {
        urls.iter().map(|url| UrlKey::parse(url).unwrap()).collect()
    }

    #[test]
    fn stacks_and_their_parents_are_read_from_the_inside() {
        let initiator = read(&json!({
            "type": "script",
            "stack": {
                "parent": {
                    "description": "setTimeout",
                    "callFrames": [
                        { "url": "https://a.test/outer.js" },
                        { "url": "https://a.test/inner.js" },
                    ],
                    "parent": { "callFrames": [{ "url": "https://a.test/first.js#x" }] },
                },
                "callFrames": [
                    { "url": "" },
                    "f", null, 7, [{ "url": "https://a.test/no.js" }],
                    { "functionName": "f", "url": "https://a.test/inner.js", "lineNumber": 1 },
                    { "url": "https://a.test/inner.js" },
                ],
            },
        }));
        assert_eq!(initiator.kind, InitiatorKind::Script);
        let urls =
            ["https://a.test/inner.js", "https://a.test/outer.js", "https://a.test/first.js"];
        assert_eq!(initiator.urls, keys(&urls));
    }

    #[test]
    fn empty_initiators_are_none() {
        for value in [json!(null), json!(7), json!(-7), json!(1.5), json!([1, [2]]), json!(true)] {
            assert_eq!(read(&value), Initiator::default());
        }
        assert_eq!(read(&json!({ "type": "other" })), Initiator::default());
        let script = Initiator { kind: InitiatorKind::Script, urls: Vec::new() };
        for stack in
            [json!("at f"), json!(7), json!([1]), json!({ "callFrames": "f", "parent": 1 })]
        {
            assert_eq!(read(&json!({ "type": "script", "stack": stack })), script);
        }
        let url = read(&json!("https://a.test/"));
        assert_eq!((url.kind, url.urls), (InitiatorKind::Parser, keys(&["https://a.test/"])));
    }

    #[test]
    fn stacks_are_bounded() {
        let frames: Vec<Value> =
            (0..100).map(|number| json!({ "url": format!("https://a.test/{number}") })).collect();
        let wide = read(&json!({ "type": "script", "stack": { "callFrames": frames } }));
        assert_eq!(wide.urls.len(), STACK_SCRIPTS);
        // As text: the library's own values do not nest so deeply.
        let depth = 10_000;
        let deep =
            format!("{{\"stack\": {}null{}}}", "{\"parent\": ".repeat(depth), "}".repeat(depth));
        let deep: Initiator = serde_json::from_str(&deep).unwrap();
        assert_eq!(deep, Initiator::default());
    }

    #[test]
    fn fragments_do_not_count() {
        assert_eq!(keys(&["https://A.test:443/#x"]), keys(&["https://a.test"]));
        assert_ne!(keys(&["https://a.test/?"]), keys(&["https://a.test/"]));
    }
}
