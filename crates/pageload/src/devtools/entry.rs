//! One request and its response: an entry of a HAR file.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use url::Url;

use super::headers::Headers;
use super::timings::{Timings, ms, number};

/// Name of the only page of a file.
pub(super) const PAGE: &str = "page_1";

/// Maximum bytes of a URL that are kept; readers cut there, too.
const URL_MAX: usize = crate::har::limits::HAR_STRING;

/// A request, or its continuation after a redirect.
#[derive(Debug, Default)]
pub(super) struct Hop {
    id: String,
    /// Number among the hops of one request, from 0.
    pub(super) number: usize,
    request: Value,
    initiator: Value,
    kind: String,
    priority: Option<String>,
    /// As WebPageTest writes it.
    render_blocking: Option<String>,
    issued: f64,
    wall: Option<f64>,
    response: Option<Value>,
    has_extra: Option<bool>,
    /// Bytes of the response's content, decoded.
    content_bytes: f64,
    /// Bytes on the wire so far, as reported piece by piece.
    encoded_bytes: f64,
    /// Bytes on the wire in total, header and content.
    transferred: Option<f64>,
    from_memory: bool,
    end: Option<f64>,
    error: Option<String>,
    last_sign: f64,
    end_is_counted: bool,
}

impl Hop {
    /// Reads a request over the network; `None` for `data:`, `blob:` and the like.
    pub(super) fn new(event: &Value) -> Option<Self> {
        let request = event.get("request")?;
        let url = text(request, "url")?;
        if !url.starts_with("http://") && !url.starts_with("https://") || url.len() > URL_MAX {
            return None;
        }
        let issued = number(event, "timestamp")?;
        let mut initiator = event.get("initiator").cloned().unwrap_or_default();
        cut(&mut initiator);
        Some(Self {
            id: text(event, "requestId")?.to_owned(),
            request: request.clone(),
            initiator,
            kind: text(event, "type").unwrap_or_default().to_owned(),
            priority: text(request, "initialPriority").map(str::to_owned),
            render_blocking: text(event, "renderBlockingBehavior").map(snake_case),
            issued,
            wall: number(event, "wallTime"),
            last_sign: issued,
            ..Self::default()
        })
    }

    /// Returns its approximate size in memory.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + size(&self.request) + size(&self.initiator)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) const fn issued(&self) -> f64 {
        self.issued
    }

    pub(super) const fn last_sign(&self) -> f64 {
        self.last_sign
    }

    pub(super) fn is_document(&self) -> bool {
        self.kind == "Document"
    }

    /// Returns the time of the request, in ms since 1970.
    pub(super) fn wall_ms(&self) -> Option<f64> {
        self.wall.map(|wall| wall * 1e3)
    }

    /// Returns the offset between the browser's monotonic clock and the time since 1970.
    pub(super) fn wall_offset(&self) -> Option<f64> {
        self.wall.map(|wall| wall - self.issued)
    }

    /// Returns true if its headers come in extra events. Requests without a response do not say.
    pub(super) fn has_extra(&self) -> bool {
        self.has_extra.unwrap_or(true)
    }

    /// Takes the response. Without `has_room`, keeps only that there was one.
    pub(super) fn on_response(&mut self, event: &Value, has_room: bool) {
        self.response = event.get("response").filter(|_| has_room).cloned();
        self.has_extra = event.get("hasExtraInfo").and_then(Value::as_bool);
        if let Some(kind) = text(event, "type") {
            self.kind = kind.to_owned();
        }
        self.sign(event);
    }

    /// Ends with a redirect, which the event of the next hop reports. Without `has_room`, keeps
    /// only that there was one.
    pub(super) fn on_redirect(&mut self, event: &Value, has_room: bool) {
        self.response = event.get("redirectResponse").filter(|_| has_room).cloned();
        self.has_extra = event.get("redirectHasExtraInfo").and_then(Value::as_bool);
        self.transferred = self.response.as_ref().and_then(|one| number(one, "encodedDataLength"));
        self.sign(event);
        self.end = Some(self.last_sign);
    }

    pub(super) fn on_memory_cache(&mut self) {
        self.from_memory = true;
    }

    pub(super) fn on_data(&mut self, event: &Value) {
        self.content_bytes += number(event, "dataLength").unwrap_or_default();
        self.encoded_bytes += number(event, "encodedDataLength").unwrap_or_default();
        self.sign(event);
    }

    pub(super) fn on_priority(&mut self, event: &Value) {
        self.priority = text(event, "newPriority").map(str::to_owned).or(self.priority.take());
    }

    pub(super) fn on_end(&mut self, event: &Value) {
        self.sign(event);
        self.end = Some(self.last_sign);
        self.transferred = number(event, "encodedDataLength").or(self.transferred);
        if let Some(error) = text(event, "errorText") {
            let blocked = text(event, "blockedReason").map(|why| format!(" (blocked: {why})"));
            let error = if error.is_empty() { "net::ERR_FAILED" } else { error };
            self.error = Some(error.to_owned() + &blocked.unwrap_or_default());
        }
    }

    /// Returns true once it has ended.
    pub(super) fn take_end(&mut self) -> bool {
        self.end.is_some() && !std::mem::replace(&mut self.end_is_counted, true)
    }

    fn sign(&mut self, event: &Value) {
        self.last_sign = number(event, "timestamp").unwrap_or_default().max(self.last_sign);
    }

    /// Returns the entry of a HAR file. `wall` converts the browser's monotonic times to times
    /// since 1970; what has not ended by `now` counts as aborted. `began` is the start of the load,
    /// in ms since 1970.
    pub(super) fn entry(
        &self,
        wall: f64,
        began: f64,
        now: f64,
        request_extra: Option<&Value>,
        response_extra: Option<&Value>,
    ) -> Value {
        let timings = self.timings(now);
        let hinted = self.is_hinted(began);
        let mut entry = json!({
            "pageref": PAGE,
            "startedDateTime": wall_time(self.issued + wall),
            "time": timings.total(),
            "request": self.request_json(request_extra),
            "response": self.response_json(response_extra, hinted),
            "cache": {},
            "timings": timings.json(),
            "_initiator": self.initiator,
            "_resourceType": resource_type(&self.kind),
        });
        if let Some(priority) = &self.priority {
            entry["_priority"] = json!(priority);
        }
        if let Some(blocking) = &self.render_blocking {
            entry["_renderBlocking"] = json!(blocking);
        }
        if hinted {
            entry["_fromEarlyHints"] = json!(true);
        } else if let Some(cache) = self.cache() {
            entry["_fromCache"] = json!(cache);
        }
        let response = self.response.as_ref().unwrap_or(&Value::Null);
        if let Some(address) = text(response, "remoteIPAddress") {
            entry["serverIPAddress"] = json!(address.trim_matches(['[', ']']));
        }
        // 0 is that of answers out of a cache.
        if let Some(id) = number(response, "connectionId").filter(|id| *id > 0.0) {
            let id = format!("{id}");
            entry["connection"] = json!(id);
            entry["_connectionId"] = json!(id);
        }
        entry
    }

    fn timings(&self, now: f64) -> Timings {
        let timing = self.response.as_ref().and_then(|response| response.get("timing"));
        Timings::new(self.issued, timing, self.end.unwrap_or(now))
    }

    fn cache(&self) -> Option<&'static str> {
        let response = self.response.as_ref()?;
        if self.from_memory {
            return Some("memory");
        }
        [("fromDiskCache", "disk"), ("fromPrefetchCache", "prefetch")]
            .into_iter()
            .find(|(key, _)| response.get(key).and_then(Value::as_bool) == Some(true))
            .map(|(_, cache)| cache)
    }

    /// Returns true if Early Hints (RFC 8297) named the resource, and the browser requested it
    /// before the page did: it went over the wire in this load, which began at `began` (ms since
    /// 1970), though the page found it in the cache. A resource cached earlier has an older
    /// response.
    pub(super) fn is_hinted(&self, began: f64) -> bool {
        let Some(response) = &self.response else { return false };
        let named = response.get("fromEarlyHints").and_then(Value::as_bool) == Some(true);
        named && number(response, "responseTime").is_some_and(|at| at >= began)
    }

    fn request_json(&self, extra: Option<&Value>) -> Value {
        let url = text(&self.request, "url").unwrap_or_default();
        let method = text(&self.request, "method").unwrap_or_default();
        let headers = Headers::from_event(extra, &self.request);
        let query = Url::parse(url).ok().map(|url| {
            let pairs = url.query_pairs();
            pairs.map(|(name, value)| json!({ "name": name, "value": value })).collect::<Vec<_>>()
        });
        let posted = text(&self.request, "postData").map_or(0, str::len);
        json!({
            "method": method,
            "url": url,
            "httpVersion": self.http_version(),
            "headers": headers.json(),
            "queryString": query.unwrap_or_default(),
            "cookies": [],
            "headersSize": headers.bytes() + method.len() + url.len() + REQUEST_LINE,
            "bodySize": posted,
        })
    }

    fn response_json(&self, extra: Option<&Value>, hinted: bool) -> Value {
        let response = self.response.as_ref().unwrap_or(&Value::Null);
        let headers = Headers::from_event(extra, response);
        let status = extra.and_then(|extra| number(extra, "statusCode"));
        let status = status.or(number(response, "status")).unwrap_or_default();
        let is_redirect = (300.0..400.0).contains(&status);
        let to = headers.value("location").filter(|_| is_redirect).unwrap_or_default();
        let mut json = Map::new();
        json.insert("status".into(), json!(whole(status)));
        json.insert("statusText".into(), json!(text(response, "statusText").unwrap_or_default()));
        json.insert("httpVersion".into(), json!(self.http_version()));
        json.insert("headers".into(), headers.json());
        json.insert("cookies".into(), json!([]));
        let mime_type = text(response, "mimeType").unwrap_or_default();
        let content = json!({ "size": whole(self.content_bytes), "mimeType": mime_type });
        json.insert("content".into(), content);
        json.insert("redirectURL".into(), json!(to));
        json.insert("headersSize".into(), json!(-1));
        // HTTP/2 tells only the size of header and content together.
        let is_cached = !hinted && self.cache().is_some();
        let transferred = match self.transferred() {
            _ if is_cached => 0,
            // The way out of the cache carries no more than the content.
            bytes if hinted => bytes.max(self.length(&headers)),
            bytes => bytes,
        };
        json.insert("bodySize".into(), json!(if is_cached { 0 } else { -1 }));
        json.insert("_transferSize".into(), json!(transferred));
        if let Some(error) = &self.error {
            json.insert("_error".into(), json!(error));
        } else if self.end.is_none() {
            json.insert("_error".into(), json!("net::ERR_ABORTED (not ended when the load was)"));
        }
        if response.get("fromServiceWorker").and_then(Value::as_bool) == Some(true) {
            json.insert("_fetchedViaServiceWorker".into(), json!(true));
        }
        Value::Object(json)
    }

    fn transferred(&self) -> i64 {
        let response = self.response.as_ref();
        let header = response.and_then(|one| number(one, "encodedDataLength")).unwrap_or_default();
        whole(self.transferred.unwrap_or(header + self.encoded_bytes))
    }

    /// Returns the length of the content on the wire if known, otherwise decoded.
    fn length(&self, headers: &Headers<'_>) -> i64 {
        let told = headers.value("content-length").and_then(|text| text.parse().ok());
        told.unwrap_or_else(|| whole(self.content_bytes))
    }

    fn http_version(&self) -> &str {
        let response = self.response.as_ref();
        response.and_then(|response| text(response, "protocol")).unwrap_or_default()
    }
}

/// Bytes of a request line besides method and URL: two spaces, the version and the line end.
const REQUEST_LINE: usize = 12;

pub(super) fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

/// Returns the approximate size of a value in memory.
pub(super) fn size(value: &Value) -> usize {
    let more = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + more
}

/// Cuts texts to the length that readers use: each stack frame of a script in a `data:` URL repeats
/// the whole script.
/// Writes words that begin with capitals as words with `_` between them.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > URL_MAX => {
            text.truncate(text.floor_char_boundary(URL_MAX));
            text.shrink_to_fit();
        }
        Value::Array(list) => list.iter_mut().for_each(cut),
        Value::Object(object) => object.values_mut().for_each(cut),
        _ => {}
    }
}

#[allow(clippy::cast_possible_truncation)] // within what a float has exactly
fn whole(number: f64) -> i64 {
    number.clamp(0.0, 9e15) as i64
}

/// Formats seconds since 1970 by RFC 3339, to the microsecond.
// The clamp keeps the number within what either cast holds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn wall_time(seconds: f64) -> String {
    // Until the year 2255: a float cannot tell later microseconds apart.
    let micros = (seconds * 1e6).round().clamp(0.0, 9e15) as u64;
    humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(micros)).to_string()
}

/// Returns the resource type as Chromium's own HAR files name it.
fn resource_type(kind: &str) -> String {
    match kind {
        "CSPViolationReport" => "csp-violation-report".into(),
        "SignedExchange" => "signed-exchange".into(),
        "" => "other".into(),
        _ => kind.to_ascii_lowercase(),
    }
}

impl Timings {
    fn json(&self) -> Value {
        let [blocked, dns, connect, ssl] =
            [self.blocked, self.dns, self.connect, self.ssl].map(|part| part.map_or(-1.0, ms));
        json!({
            "blocked": blocked, "dns": dns, "connect": connect, "ssl": ssl,
            "send": ms(self.send), "wait": ms(self.wait), "receive": ms(self.receive),
        })
    }
}
