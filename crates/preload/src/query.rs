use std::fmt::Write;

/// Query of a connection to the agent: everything that two connections must have in common to share
/// a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) server: String,
    /// Protocols of ALPN in wire format.
    pub(crate) alpn: Vec<u8>,
    pub(crate) settings: String,
    pub(crate) context: Option<String>,
}

impl Query {
    /// Returns the path of a request, with `more` parameters.
    pub(crate) fn path(&self, more: &str) -> String {
        let mut path = String::from("/ticket?server=");
        encode(&mut path, self.server.as_bytes());
        path.push_str("&alpn=");
        encode(&mut path, &self.alpn);
        path.push_str("&settings=");
        encode(&mut path, self.settings.as_bytes());
        if let Some(context) = &self.context {
            path.push_str("&context=");
            encode(&mut path, context.as_bytes());
        }
        path.push_str(more);
        path
    }
}

fn encode(path: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(path, "%{byte:02X}"); // writing to a string never fails
    }
}

/// Answer of the agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Milliseconds since the session's last full handshake.
    pub(crate) age: u64,
    /// Stamp of the agent's store, to be returned with the tickets of this connection.
    pub(crate) opened: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Parses an answer; `None` if it is incomplete or malformed.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
        let body = bytes.get(end + 4..)?;
        let length = field(head, "content-length");
        let length = length.map_or(Some(0), |length| length.parse::<usize>().ok())?;
        Some(Self {
            status: head.split(' ').nth(1)?.parse().ok()?,
            age: field(head, "headstart-age").and_then(|age| age.parse().ok()).unwrap_or(0),
            opened: field(head, "headstart-opened").unwrap_or_default().to_owned(),
            body: body.get(..length)?.to_vec(),
        })
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let query = Query {
            server: "a&b".into(),
            alpn: vec![2, b'h', b'2'],
            context: Some("\u{e9}".into()),
            ..Query::default()
        };
        assert_eq!(
            query.path("&x=1"),
            "/ticket?server=%61%26%62&alpn=%02%68%32&settings=&context=%C3%A9&x=1"
        );
    }

    #[test]
    fn incomplete_answers_are_rejected() {
        let text = b"HTTP/1.1 200 OK\r\nheadstart-age: 7\r\nHeadstart-Opened: a-1\r\n\
                     content-length: 3\r\n\r\nabc";
        let answer = Answer::read(text).unwrap();
        assert_eq!(
            (answer.status, answer.age, answer.opened.as_str(), &answer.body[..]),
            (200, 7, "a-1", &b"abc"[..])
        );
        for end in 0..text.len() {
            assert_eq!(Answer::read(&text[..end]), None, "{end}");
        }
    }
}
