//! The relevant part of a HAR file's entry.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::initiator::Initiator;
use super::limits::LONGEST;
use super::value::{Scalar, time};
use crate::page::{Protocol, Timings};

/// An entry. Fields that [HAR 1.2](http://www.softwareishard.com/blog/har-12-spec/) demands may be
/// missing, but are of their types; of `_fields`, which are everyone's own, anything is taken.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) pageref: Option<String>,
    #[serde(default)]
    pub(super) started_date_time: Scalar,
    time: Option<f64>,
    pub(super) request: Option<Request>,
    pub(super) response: Option<Response>,
    timings: Option<RawTimings>,
    #[serde(rename = "serverIPAddress")]
    pub(super) address: Option<String>,
    #[serde(default)]
    connection: Scalar,
    /// Chromium since 2023; there `connection` is the port.
    #[serde(rename = "_connectionId", default)]
    own_connection: Scalar,
    #[serde(rename = "_initiator", default)]
    pub(super) initiator: Initiator,
    #[serde(rename = "_priority", default)]
    pub(super) priority: Scalar,
    /// Our recorder and WebPageTest.
    #[serde(rename = "_renderBlocking", default)]
    render_blocking: Scalar,
    #[serde(rename = "_resourceType", default)]
    pub(super) resource_type: Scalar,
    #[serde(rename = "_fromCache", default)]
    pub(super) from_cache: Scalar,
    /// Our recorder.
    #[serde(rename = "_fromEarlyHints", default)]
    pub(super) from_early_hints: Scalar,
    /// Safari: "Network Load", "Disk Cache" and the like.
    #[serde(rename = "_fetchType", default)]
    pub(super) fetch_type: Scalar,
    /// WebPageTest and sitespeed.io.
    #[serde(rename = "_was_pushed", default)]
    pub(super) was_pushed: Scalar,
    /// Chromium before 2020.
    #[serde(rename = "_error", default)]
    error: Scalar,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) method: Option<String>,
    pub(super) url: Option<String>,
    #[serde(default)]
    headers: HeaderBytes,
    headers_size: Option<f64>,
    body_size: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response {
    status: Option<f64>,
    http_version: Option<String>,
    #[serde(default)]
    headers: HeaderBytes,
    pub(super) content: Option<Content>,
    #[serde(rename = "redirectURL")]
    pub(super) redirect_url: Option<String>,
    headers_size: Option<f64>,
    body_size: Option<f64>,
    #[serde(rename = "_transferSize", default)]
    transfer_size: Scalar,
    #[serde(rename = "_error", default)]
    error: Scalar,
    /// Playwright.
    #[serde(rename = "_failureText", default)]
    failure_text: Scalar,
    #[serde(rename = "_fetchedViaServiceWorker", default)]
    pub(super) via_service_worker: Scalar,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    size: Option<f64>,
    compression: Option<f64>,
    pub(super) mime_type: Option<String>,
}

/// Times in milliseconds; -1 or missing where a part does not apply.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct RawTimings {
    blocked: Option<f64>,
    dns: Option<f64>,
    connect: Option<f64>,
    ssl: Option<f64>,
    send: Option<f64>,
    wait: Option<f64>,
    receive: Option<f64>,
}

/// A page of a HAR file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawPage {
    #[serde(default)]
    pub(super) started_date_time: Scalar,
    #[serde(default)]
    pub(super) id: Scalar,
    #[serde(default)]
    pub(super) title: Scalar,
    pub(super) page_timings: Option<PageTimings>,
}

/// Times of a page's events since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Milestones {
    pub(super) content_loaded: Option<Duration>,
    pub(super) on_load: Option<Duration>,
    pub(super) largest_paint: Option<Duration>,
}

/// Milliseconds since the page's start; -1 or missing where it did not happen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageTimings {
    on_content_load: Option<f64>,
    on_load: Option<f64>,
    /// Our recorder and sitespeed.io.
    #[serde(rename = "_largestContentfulPaint", default)]
    largest_paint: Scalar,
}

/// Size of headers as HTTP/1.1 writes them; the headers themselves are not kept.
#[derive(Clone, Copy, Debug, Default)]
struct HeaderBytes(u64);

impl<'de> Deserialize<'de> for HeaderBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = HeaderBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of headers")
            }

            fn visit_unit<E: Error>(self) -> Result<HeaderBytes, E> {
                Ok(HeaderBytes(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<HeaderBytes, A::Error> {
                #[derive(Deserialize)]
                struct Header {
                    #[serde(default)]
                    name: Scalar,
                    #[serde(default)]
                    value: Scalar,
                }

                let mut bytes = 0_u64;
                while let Some(header) = list.next_element::<Header>()? {
                    let texts = [header.name.text(), header.value.text()];
                    let both: usize = texts.into_iter().flatten().map(str::len).sum();
                    // ": " and the end of the line.
                    bytes = bytes.saturating_add(both as u64 + 4);
                }
                Ok(HeaderBytes(bytes))
            }
        }

        deserializer.deserialize_any(List)
    }
}

impl PageTimings {
    /// Returns `DOMContentLoaded`, the load event and the largest paint, where they happened.
    pub(super) fn milestones(&self) -> Milestones {
        let happened = |ms: Option<f64>| ms.filter(|ms| *ms > 0.0).map(|ms| time(Some(ms)));
        Milestones {
            content_loaded: happened(self.on_content_load),
            on_load: happened(self.on_load),
            largest_paint: happened(self.largest_paint.number()),
        }
    }
}

impl Entry {
    /// Returns the name of the connection; Firefox gives the server's port instead, which names
    /// none.
    pub(super) fn connection(&self, port: u16) -> Option<String> {
        self.own_connection
            .name()
            .or_else(|| self.connection.name().filter(|id| *id != port.to_string()))
    }

    /// Returns true if the page waits for it before it shows what follows, where recorded.
    pub(super) fn blocks_rendering(&self) -> Option<bool> {
        let text = self.render_blocking.text()?;
        Some(["blocking", "in_body_parser_blocking"].contains(&text))
    }

    /// Returns the text of an error, if there was one.
    pub(super) fn error(&self) -> Option<&str> {
        let response = self.response.as_ref();
        let of_response = response.and_then(|response| response.error.text());
        let failure = response.and_then(|response| response.failure_text.text());
        of_response.or(failure).or(self.error.text())
    }

    /// Returns the timings without the start; `None` if a required part is missing or makes no
    /// sense.
    pub(super) fn timings(&self) -> Option<Timings> {
        let raw = self.timings?;
        let ssl = time(raw.ssl);
        let timings = Timings {
            started: Duration::ZERO,
            queued: time(raw.blocked),
            dns: time(raw.dns),
            connect: match raw.connect_excludes_ssl(self.time) {
                true => time(raw.connect),
                false => time(raw.connect).saturating_sub(ssl),
            },
            tls: ssl,
            // Programs that do not know it say 0, or -1.
            send: time(raw.send),
            wait: demanded(raw.wait)?,
            receive: demanded(raw.receive)?,
        };
        (timings.end() <= LONGEST).then_some(timings)
    }
}

/// Returns a time that every entry has. Slightly negative values come from rounding.
fn demanded(ms: Option<f64>) -> Option<Duration> {
    ms.filter(|ms| *ms > -1.0).map(|ms| time(Some(ms)))
}

impl RawTimings {
    /// Returns true if `connect` excludes `ssl`, as in Firefox; by the specification it includes
    /// it. The sum of all parts decides.
    fn connect_excludes_ssl(&self, total: Option<f64>) -> bool {
        let parts =
            [self.connect, self.ssl, self.blocked, self.dns, self.send, self.wait, self.receive];
        let [connect, ssl, others @ ..] =
            parts.map(|ms| ms.filter(|ms| *ms > 0.0).unwrap_or_default());
        let including = others.into_iter().sum::<f64>() + connect;
        match total {
            // Half a millisecond more than either rounds to.
            _ if ssl > connect + 0.5 => true,
            Some(total) if total > 0.0 => {
                (total - including).abs() > (total - including - ssl).abs()
            }
            _ => false,
        }
    }
}

impl Request {
    /// Returns the size with header; as HTTP/1.1 writes it where the file does not tell more.
    pub(super) fn bytes(&self) -> u64 {
        let line =
            self.method.as_deref().map_or(0, str::len) + self.url.as_deref().map_or(0, str::len);
        let written = self.headers.0.saturating_add(line as u64);
        let header = count(self.headers_size).unwrap_or(written);
        header.saturating_add(count(self.body_size).unwrap_or_default())
    }
}

impl Response {
    pub(super) fn status(&self) -> u16 {
        count(self.status).and_then(|status| u16::try_from(status).ok()).unwrap_or_default()
    }

    pub(super) fn protocol(&self) -> Protocol {
        let version = self.http_version.as_deref().unwrap_or_default().to_ascii_lowercase();
        if version.contains("quic") || begins_with_any(&version, &["h3", "http/3"]) {
            Protocol::Http3
        } else if begins_with_any(&version, &["h2", "http/2", "spdy"]) {
            Protocol::Http2
        } else {
            Protocol::Http1
        }
    }

    /// Returns the bytes on the wire, if the file has them.
    pub(super) fn transferred(&self) -> Option<u64> {
        count(self.transfer_size.number())
    }

    /// Returns the size with header. Where the file lacks the bytes on the wire, that is the
    /// compressed content, and the header as HTTP/1.1 writes it.
    pub(super) fn bytes(&self) -> u64 {
        if let Some(bytes) = self.transferred().filter(|bytes| *bytes > 0) {
            return bytes;
        }
        let header = count(self.headers_size).unwrap_or(self.headers.0);
        let body = count(self.body_size).unwrap_or_else(|| self.content_bytes());
        header.saturating_add(body)
    }

    fn content_bytes(&self) -> u64 {
        let Some(content) = &self.content else { return 0 };
        let saved = count(content.compression).unwrap_or_default();
        count(content.size).unwrap_or_default().saturating_sub(saved)
    }

    /// Returns true if there is content, but none of it was transferred: it was cached.
    pub(super) fn came_from_nowhere(&self) -> bool {
        let content = self.content.as_ref().and_then(|content| count(content.size));
        content.is_some_and(|bytes| bytes > 0) && count(self.body_size) == Some(0)
    }
}

fn begins_with_any(text: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// Returns a number of bytes; `None` if it is -1, which means unknown.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
fn count(number: Option<f64>) -> Option<u64> {
    // More than 2^53 bytes are no response.
    number.filter(|number| (0.0..9e15).contains(number)).map(|number| number as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn entry(value: &Value) -> Entry {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn response(value: &Value) -> Response {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn connecting_with_and_without_tls() {
        let timings = json!({
            "blocked": 1, "dns": 2, "connect": 50, "ssl": 30, "send": 0, "wait": 20, "receive": 7,
        });
        for (total, connect, why) in [
            (json!(80), 20, "as the specification says"),
            (json!(110), 50, "as Firefox does"),
            (json!(null), 20, "without a total"),
        ] {
            let timings = entry(&json!({ "time": total, "timings": timings })).timings().unwrap();
            assert_eq!((timings.connect, timings.tls), (ms(connect), ms(30)), "{why}");
        }
        let more = json!({ "timings": { "connect": 10, "ssl": 30, "wait": 0, "receive": 0 } });
        assert_eq!(entry(&more).timings().unwrap().connect, ms(10));
    }

    #[test]
    fn times_have_to_make_sense() {
        for whole in [
            json!({ "wait": 1, "receive": 1 }),
            json!({ "wait": -0.4, "receive": 0, "send": -1, "dns": -1 }),
        ] {
            assert!(entry(&json!({ "timings": whole })).timings().is_some(), "{whole}");
        }
        for without in [
            json!(null),
            json!({}),
            json!({ "wait": 1 }),
            json!({ "wait": -1, "receive": 1 }),
            json!({ "wait": 1, "receive": -1 }),
            json!({ "wait": 9e7, "receive": 1 }),
        ] {
            assert_eq!(entry(&json!({ "timings": without })).timings(), None, "{without}");
        }
    }

    #[test]
    fn sizes_by_what_the_file_says() {
        let headers = json!([{ "name": "a", "value": "bc" }, { "name": "d", "value": null }]);
        let compressed = json!({ "size": 90, "compression": 40 });
        let overdone = json!({ "size": 90, "compression": 100 });
        for (value, bytes) in [
            (json!({ "_transferSize": 500, "headersSize": 10, "bodySize": 20 }), 500),
            (json!({ "headersSize": 10, "bodySize": 20 }), 30),
            (json!({ "headersSize": -1, "headers": headers, "bodySize": 20 }), 32),
            (json!({ "headersSize": 0, "bodySize": -1, "content": compressed }), 50),
            (json!({ "bodySize": -1, "content": overdone }), 0),
            (json!({ "bodySize": 1e300, "headersSize": -5 }), 0),
        ] {
            assert_eq!(response(&value).bytes(), bytes, "{value}");
        }
    }

    #[test]
    fn versions_of_http() {
        for (names, protocol) in [
            (&["h3", "h3-29", "HTTP/3", "http/2+quic/46"][..], Protocol::Http3),
            (&["h2", "HTTP/2", "http/2.0"], Protocol::Http2),
            (&["HTTP/1.1", "http/1.0", "", "unknown"], Protocol::Http1),
        ] {
            for name in names {
                let response = response(&json!({ "httpVersion": name }));
                assert_eq!(response.protocol(), protocol, "{name}");
            }
        }
    }

    #[test]
    fn connections_by_name_and_not_by_port() {
        for (value, name) in [
            (json!({ "connection": "443", "_connectionId": "12" }), Some("12")),
            (json!({ "connection": 12 }), Some("12")),
            (json!({ "connection": "443" }), None),
            (json!({ "connection": "" }), None),
        ] {
            assert_eq!(entry(&value).connection(443).as_deref(), name, "{value}");
        }
    }
}
