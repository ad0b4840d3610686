//! Headers, without the credentials in them.

use serde_json::{Value, json};

/// Headers with credentials: their bytes count, but they are not written.
const SECRET: [&str; 5] =
    ["cookie", "set-cookie", "authorization", "proxy-authorization", "www-authenticate"];

/// Header fields of a request or response.
#[derive(Debug, Default)]
pub(super) struct Headers<'v> {
    fields: Vec<(&'v str, &'v str)>,
}

impl<'v> Headers<'v> {
    /// Reads them as they were on the wire if known, otherwise as the browser shows them.
    pub(super) fn from_event(extra: Option<&'v Value>, shown: &'v Value) -> Self {
        let mut objects = extra.into_iter().chain([shown]);
        let object = objects.find_map(|value| value.get("headers")?.as_object());
        let Some(object) = object else { return Self::default() };
        let mut fields = Vec::new();
        for (name, value) in object {
            // Repeated fields of one name share one text.
            let lines = value.as_str().unwrap_or_default().split('\n');
            fields.extend(lines.map(|line| (name.as_str(), line)));
        }
        Self { fields }
    }

    /// Returns their size as HTTP/1.1 writes them, with the empty line at the end.
    pub(super) fn bytes(&self) -> usize {
        // A colon, a space and the line's end.
        self.fields
            .iter()
            .map(|(name, value): &(&str, &str)| name.len() + value.len() + 4)
            .sum::<usize>()
            + 2
    }

    pub(super) fn value(&self, name: &str) -> Option<&'v str> {
        self.fields
            .iter()
            .find(|(other, _): &&(&str, &str)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    pub(super) fn json(&self) -> Value {
        self.fields
            .iter()
            .map(|(name, value): &(&str, &str)| {
                let is_secret = SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret));
                json!({ "name": name, "value": if is_secret { "" } else { *value } })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_count_and_are_not_written() {
        let value = json!({ "headers": { "Cookie": "a=b", "X": "1\n2" } });
        let headers = Headers::from_event(None, &value);
        assert_eq!(headers.bytes(), 6 + 3 + 4 + 2 * (1 + 1 + 4) + 2);
        let written = headers.json();
        assert_eq!(written[0], json!({ "name": "Cookie", "value": "" }));
        assert_eq!(written[2], json!({ "name": "X", "value": "2" }));
        assert_eq!(headers.value("x"), Some("1"));
        let extra = json!({ "headers": {} });
        assert_eq!(Headers::from_event(Some(&extra), &value).bytes(), 2);
    }
}
