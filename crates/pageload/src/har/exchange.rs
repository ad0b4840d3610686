//! The kept parts of an entry, and reasons why some are not resources.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use url::Url;

use super::entry::{Entry, Response};
use super::initiator::{Initiator, InitiatorKind, UrlKey};
use super::limits::{CONNECTION_MAX, HOST_MAX, URL_MAX};
use super::value::{address, cut, unix_time};
use crate::page::{Protocol, Reason, Timings};

/// Purpose of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A page or a frame in it.
    Document,
    /// Style sheets.
    Style,
    /// Scripts, including WebAssembly.
    Script,
    /// Data that scripts request: `fetch` and XMLHttpRequest.
    Data,
    /// Images.
    Image,
    /// Fonts.
    Font,
    /// Audio and video.
    Media,
    /// Anything else, or unknown.
    #[default]
    Other,
}

impl Kind {
    /// Returns true if such a response can cause requests.
    #[must_use]
    pub(crate) fn may_ask(self) -> bool {
        !matches!(self, Self::Image | Self::Font | Self::Media)
    }

    /// Returns the kind by Chromium's name for it, otherwise by the content type.
    fn from_types(resource_type: &str, mime_type: &str) -> Self {
        match resource_type {
            "document" => Self::Document,
            "stylesheet" => Self::Style,
            "script" => Self::Script,
            "xhr" | "fetch" => Self::Data,
            "image" => Self::Image,
            "font" => Self::Font,
            "media" => Self::Media,
            _ => Self::of_content(&mime_type.to_ascii_lowercase()),
        }
    }

    fn of_content(mime_type: &str) -> Self {
        let mime_type = mime_type.split(';').next().unwrap_or_default().trim();
        match mime_type {
            "text/html" | "application/xhtml+xml" => Self::Document,
            "text/css" => Self::Style,
            "application/wasm" => Self::Script,
            "application/font-woff" | "application/vnd.ms-fontobject" => Self::Font,
            _ if mime_type.ends_with("javascript") || mime_type.ends_with("ecmascript") => {
                Self::Script
            }
            _ if mime_type.ends_with("json") => Self::Data,
            _ => match mime_type.split('/').next() {
                Some("image") => Self::Image,
                Some("font") => Self::Font,
                Some("audio" | "video") => Self::Media,
                _ => Self::Other,
            },
        }
    }
}

/// Priority that Chromium gave a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names say it
pub enum Priority {
    VeryLow,
    Low,
    Medium,
    High,
    VeryHigh,
}

impl Priority {
    fn from_name(text: &str) -> Option<Self> {
        let all = [Self::VeryLow, Self::Low, Self::Medium, Self::High, Self::VeryHigh];
        all.into_iter().find(|priority| text.eq_ignore_ascii_case(&format!("{priority:?}")))
    }
}

/// The kept parts of an entry with a URL and a time.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// URL, cut to the limit.
    pub(super) url: String,
    pub(super) key: UrlKey,
    /// Target of a redirect.
    pub(super) location: Option<UrlKey>,
    pub(super) origin: Origin,
    pub(super) protocol: Protocol,
    pub(super) address: Option<IpAddr>,
    /// Connection, as the file names it.
    pub(super) connection: Option<String>,
    pub(super) status: u16,
    pub(super) kind: Kind,
    /// True if the browser marks it as the document of a page or a frame.
    pub(super) is_document: bool,
    pub(super) priority: Option<Priority>,
    /// True if the page waits for it before it shows what follows.
    pub(super) blocks_rendering: bool,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    pub(super) initiator: Initiator,
    /// True if Early Hints named it before the page did: its times are those of the cache.
    pub(super) is_hinted: bool,
    /// Times since 1970; later since the [`begin`](Exchange::begin) of a page.
    pub(super) timings: Timings,
    /// Reason why it is not a resource. It may have caused requests all the same.
    pub(super) ignored: Option<Reason>,
}

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl Exchange {
    /// # Errors
    /// It cannot have asked for others, and is no resource, for this reason.
    pub(super) fn from_entry(entry: &Entry) -> Result<Self, Reason> {
        let request = entry.request.as_ref().ok_or(Reason::Malformed)?;
        let text = request.url.as_deref().ok_or(Reason::Malformed)?;
        let url = Url::parse(text).map_err(|_| Reason::Url)?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            "ws" | "wss" => return Err(Reason::WebSocket),
            _ => return Err(Reason::NotFetched),
        };
        let response = entry.response.as_ref();
        let status = response.map_or(0, Response::status);
        if status == 101 || entry.resource_type.text() == Some("websocket") {
            return Err(Reason::WebSocket);
        }
        let started = entry.started_date_time.text().and_then(unix_time).ok_or(Reason::Times)?;
        let host = url.host_str().filter(|host| (1..=HOST_MAX).contains(&host.len()));
        let port = url.port_or_known_default();
        let (Some(host), Some(port)) = (host, port) else { return Err(Reason::Url) };
        let timings = entry.timings();
        let redirect = response.and_then(|response| response.redirect_url.as_deref());
        let redirect = redirect.filter(|to| !to.is_empty() && (300..400).contains(&status));
        let mime_type =
            response.and_then(|response| response.content.as_ref()?.mime_type.as_deref());
        let kind = Kind::from_types(
            entry.resource_type.text().unwrap_or_default(),
            mime_type.unwrap_or_default(),
        );
        let priority = entry.priority.text().and_then(Priority::from_name);
        let by_parser = entry.initiator.kind == InitiatorKind::Parser;
        Ok(Self {
            key: UrlKey::from_url(&url),
            location: redirect.and_then(|to| url.join(to).ok()).map(|to| UrlKey::from_url(&to)),
            origin: Origin { host: host.to_owned(), port, tls },
            protocol: response.map_or(Protocol::Http1, Response::protocol),
            address: entry.address.as_deref().and_then(address),
            connection: entry.connection(port).filter(|name| name.len() <= CONNECTION_MAX),
            status,
            kind,
            is_document: entry.resource_type.text() == Some("document"),
            priority,
            blocks_rendering: entry
                .blocks_rendering()
                .unwrap_or_else(|| by_parser && has_blocking_priority(kind, priority)),
            request_bytes: request.bytes(),
            response_bytes: response.map_or(0, Response::bytes),
            initiator: entry.initiator.clone(),
            is_hinted: entry.from_early_hints.is_set(),
            ignored: reason(entry, status).or(timings.is_none().then_some(Reason::Times)),
            timings: Timings { started, ..timings.unwrap_or_default() },
            url: cut(without_fragment(url), URL_MAX),
        })
    }

    pub(super) fn is_redirect(&self) -> bool {
        (300..400).contains(&self.status) && self.status != 304
    }

    /// Returns true if it could have caused requests.
    pub(super) fn may_ask(&self) -> bool {
        let came = !matches!(self.ignored, Some(Reason::Aborted | Reason::Blocked));
        came && self.kind.may_ask() && !self.is_redirect()
    }

    /// Returns true if it is a preflight of another request (Fetch, section 4.8).
    pub(super) fn is_preflight(&self) -> bool {
        self.initiator.kind == InitiatorKind::Preflight
    }

    pub(super) fn started(&self) -> Duration {
        self.timings.started
    }

    pub(super) fn first(&self) -> Duration {
        self.timings.end().saturating_sub(self.timings.receive)
    }

    pub(super) fn end(&self) -> Duration {
        self.timings.end()
    }
}

/// Returns true if Chromium gives this priority to what the parser waits for: style sheets for all
/// media, and scripts of the head that are neither `async` nor `defer`.
fn has_blocking_priority(kind: Kind, priority: Option<Priority>) -> bool {
    match kind {
        Kind::Style => priority == Some(Priority::VeryHigh),
        Kind::Script => priority == Some(Priority::High),
        _ => false,
    }
}

fn without_fragment(mut url: Url) -> String {
    url.set_fragment(None);
    url.into()
}

/// Returns the reason why it did not come over the network in the ordinary way.
fn reason(entry: &Entry, status: u16) -> Option<Reason> {
    let error = entry.error().map(str::to_ascii_uppercase);
    let fetched = entry.fetch_type.text().unwrap_or_default();
    let response = entry.response.as_ref();
    if entry.was_pushed.is_set() || entry.initiator.kind == InitiatorKind::Push {
        Some(Reason::Pushed)
    } else if response.is_some_and(|response| response.via_service_worker.is_set())
        || fetched == "Service Worker"
    {
        Some(Reason::ServiceWorker)
    } else if error.as_ref().is_some_and(|error| error.contains("BLOCKED")) {
        Some(Reason::Blocked)
    } else if entry.from_cache.is_set() || fetched.ends_with("Cache") {
        Some(Reason::Cached)
    } else if error.is_some() || status == 0 {
        Some(Reason::Aborted)
    } else if entry.address.as_deref().is_none_or(str::is_empty) && response.is_some_and(was_there)
    {
        Some(Reason::Cached)
    } else {
        None
    }
}

/// Returns true if it has no address because nothing was transferred: that is what cached responses
/// and the browser's own redirects to HTTPS look like in Chromium's files, and cached responses in
/// Firefox's.
fn was_there(response: &Response) -> bool {
    response.transferred() == Some(0) || response.came_from_nowhere()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kinds_by_name_and_by_content() {
        assert_eq!(Kind::from_types("stylesheet", "text/html"), Kind::Style);
        for (mime_type, kind) in [
            ("text/html; charset=utf-8", Kind::Document),
            ("TEXT/CSS", Kind::Style),
            ("application/x-javascript", Kind::Script),
            ("text/javascript", Kind::Script),
            ("application/ld+json", Kind::Data),
            ("image/svg+xml", Kind::Image),
            ("font/woff2", Kind::Font),
            ("video/mp4", Kind::Media),
            ("x-unknown", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::from_types("other", mime_type), kind, "{mime_type}");
        }
    }

    #[test]
    fn priorities_have_names() {
        assert_eq!(Priority::from_name("VeryHigh"), Some(Priority::VeryHigh));
        assert_eq!(Priority::from_name("low"), Some(Priority::Low));
        assert_eq!(Priority::from_name("highest"), None);
    }
}
