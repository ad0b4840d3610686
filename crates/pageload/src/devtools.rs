//! HAR files of what Chromium says of a load by its DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>).
//!
//! A [`Load`] takes the events of all targets of a page, as JSON, in the order in which they come,
//! and gives a HAR file with initiators, connections, protocols, sizes on the wire and times, as
//! [`har`](crate::har) reads it. It has no clock and no socket. Other versions of Chromium say more
//! or less: what is not known is not looked at, what is missing is left out.
//!
//! ```
//! use headstart_pageload::devtools::Load;
//! use serde_json::json;
//!
//! let mut load = Load::default();
//! load.on_event("Network.requestWillBeSent", &json!({
//!     "requestId": "1", "timestamp": 10.0, "wallTime": 1.7e9, "type": "Document",
//!     "request": { "method": "GET", "url": "https://a.test/", "headers": {} },
//! }));
//! assert_eq!((load.requests(), load.outstanding()), (1, 1));
//! ```

mod entry;
mod headers;
mod timings;

use std::collections::HashMap;

use serde_json::{Value, json};

use self::entry::{Hop, size, text};
use self::timings::number;
pub use crate::har::limits::ENTRIES;

/// Maximum number of requests whose extra information is kept before the request itself is
/// reported.
const EARLY: usize = 1024;

/// Maximum bytes kept of all events of a load, approximately: the largest published pages have
/// 3,000 requests, and one with a long stack takes 80 kB.
const KEPT: usize = 256 << 20;

/// State of one load.
#[derive(Debug, Default)]
pub struct Load {
    hops: Vec<Hop>,
    /// Hops of each request: one, plus one for each redirect.
    of_id: HashMap<String, Vec<usize>>,
    /// Headers as they were on the wire, which are reported separately, before or after the
    /// request.
    extra: HashMap<String, Extra>,
    ended: usize,
    /// Requests beyond [`ENTRIES`] or [`KEPT`].
    left_out: usize,
    /// Approximate size of the events that something is kept of.
    kept: usize,
    main_frame: Option<String>,
    documents: usize,
    content_loaded: Option<f64>,
    loaded: Option<f64>,
    largest_paint: Option<f64>,
}

/// Extra events of one request, by hop.
#[derive(Debug, Default)]
struct Extra {
    requests: Vec<Value>,
    responses: Vec<Value>,
}

/// Facts for the HAR file that are not in the events.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Title of the page: its URL.
    pub title: String,
    /// Program and version.
    pub browser: (String, String),
    /// Program and version.
    pub creator: (String, String),
    /// Comment.
    pub comment: String,
}

impl Load {
    /// Records a load in which only documents of this frame are the page's own.
    pub fn of_frame(frame: String) -> Self {
        Self { main_frame: Some(frame), ..Self::default() }
    }

    /// Takes an event; returns true if something went over the wire.
    pub fn on_event(&mut self, method: &str, event: &Value) -> bool {
        match method {
            "Network.requestWillBeSent" => self.on_request(event),
            "Network.requestWillBeSentExtraInfo" => {
                self.on_extra(event, |extra| &mut extra.requests)
            }
            "Network.responseReceivedExtraInfo" => {
                self.on_extra(event, |extra| &mut extra.responses)
            }
            "Network.responseReceived" => {
                let has_room = self.has_room(size(event));
                self.on_hop(event, |hop| hop.on_response(event, has_room))
            }
            "Network.requestServedFromCache" => self.on_hop(event, Hop::on_memory_cache),
            "Network.dataReceived" => self.on_hop(event, |hop| hop.on_data(event)),
            "Network.resourceChangedPriority" => self.on_hop(event, |hop| hop.on_priority(event)),
            "Network.loadingFinished" | "Network.loadingFailed" => self.on_end(event),
            "Page.domContentEventFired" => set(&mut self.content_loaded, event),
            "Page.loadEventFired" => set(&mut self.loaded, event),
            "PerformanceTimeline.timelineEventAdded" => self.on_paint(event),
            _ => false,
        }
    }

    /// Returns the number of requests over the network so far, counting each redirect.
    pub fn requests(&self) -> usize {
        self.hops.len() + self.left_out
    }

    /// Returns the number of requests that are not in the file because there were too many, or they
    /// were too large.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the number of requests that have not ended.
    pub fn outstanding(&self) -> usize {
        self.hops.len() - self.ended
    }

    /// Returns true if 95 % of the requests have ended, which is when BLAST considers a page loaded
    /// (section 3.3).
    pub fn is_mostly_there(&self) -> bool {
        self.ended > 0 && self.ended * 100 >= self.hops.len() * 95
    }

    /// Returns true once the page's load event came.
    pub fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// Returns the number of documents that the page's frame has requested, not counting redirects
    /// by servers: more than one if the page navigates by itself.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Returns the time from the first request to the largest contentful paint, in ms, if there was
    /// one.
    pub fn largest_paint_ms(&self) -> Option<f64> {
        let wall = self.hops.first()?.wall_ms()?;
        self.largest_paint.map(|at| (at * 1e3 - wall).max(0.0))
    }

    /// Returns the number of responses that Early Hints (RFC 8297) brought: they were in the cache,
    /// or on their way, when the page requested them.
    pub fn hinted(&self) -> usize {
        let began = self.began_ms();
        self.hops.iter().filter(|hop| hop.is_hinted(began)).count()
    }

    /// Returns the start of the load, in ms since 1970.
    fn began_ms(&self) -> f64 {
        self.hops.first().and_then(Hop::wall_ms).unwrap_or_default()
    }

    /// Returns the load as a HAR file; requests that have not ended are marked as aborted.
    pub fn har(&self, about: &About) -> Value {
        let began = self.hops.first().map_or(0.0, Hop::issued);
        let now = self.hops.iter().map(Hop::last_sign).fold(began, f64::max);
        let mut order: Vec<usize> = (0..self.hops.len()).collect();
        order.sort_by(|one, other| {
            self.hops[*one].issued().total_cmp(&self.hops[*other].issued()).then(one.cmp(other))
        });
        // One relation of the two clocks for all: the wall clock may be set in between.
        let wall = self.hops.first().and_then(Hop::wall_offset).unwrap_or_default();
        let entries: Vec<Value> = order
            .into_iter()
            .map(|at| {
                let (request, response) = self.extra_of(at);
                self.hops[at].entry(wall, self.began_ms(), now, request, response)
            })
            .collect();
        let [content_loaded, loaded] = [self.content_loaded, self.loaded]
            .map(|at| at.map_or(-1.0, |at| timings::ms(at - began)));
        let started = entry::wall_time(began + wall);
        let mut page_timings = json!({ "onContentLoad": content_loaded, "onLoad": loaded });
        if let Some(paint) = self.largest_paint_ms() {
            page_timings["_largestContentfulPaint"] = timings::rounded(paint).into();
        }
        let [creator, browser] = [&about.creator, &about.browser]
            .map(|(name, version)| json!({ "name": name, "version": version }));
        json!({ "log": {
            "version": "1.2",
            "creator": creator,
            "browser": browser,
            "comment": about.comment,
            "pages": [{
                "id": entry::PAGE, "title": about.title, "startedDateTime": started,
                "pageTimings": page_timings,
            }],
            "entries": entries,
        } })
    }

    fn on_request(&mut self, event: &Value) -> bool {
        let Some(id) = text(event, "requestId") else { return false };
        let is_redirected = event.get("redirectResponse").is_some_and(Value::is_object);
        if is_redirected {
            let has_room = event.get("redirectResponse").is_some_and(|of| self.has_room(size(of)));
            self.on_hop(event, |hop| hop.on_redirect(event, has_room));
            self.count_ends(id);
        }
        let Some(mut hop) = Hop::new(event) else { return false };
        if self.hops.len() >= ENTRIES || !self.has_room(hop.size()) {
            self.left_out += 1;
            return true;
        }
        let is_main =
            self.main_frame.is_some() && text(event, "frameId") == self.main_frame.as_deref();
        if hop.is_document() && is_main && !is_redirected {
            self.documents += 1;
        }
        let hops = self.of_id.entry(id.to_owned()).or_default();
        hop.number = hops.len();
        hops.push(self.hops.len());
        self.hops.push(hop);
        true
    }

    fn on_extra(&mut self, event: &Value, list: fn(&mut Extra) -> &mut Vec<Value>) -> bool {
        let Some(id) = text(event, "requestId") else { return false };
        let is_known = self.extra.len() < ENTRIES + EARLY || self.extra.contains_key(id);
        if is_known && self.has_room(size(event)) {
            list(self.extra.entry(id.to_owned()).or_default()).push(event.clone());
        }
        false
    }

    /// Counts this many more bytes; returns true if they may be kept.
    fn has_room(&mut self, bytes: usize) -> bool {
        let all = self.kept.saturating_add(bytes);
        let has_room = all <= KEPT;
        if has_room {
            self.kept = all;
        }
        has_room
    }

    /// Returns the last hop of a request.
    fn on_hop(&mut self, event: &Value, of: impl FnOnce(&mut Hop)) -> bool {
        let hops = text(event, "requestId").and_then(|id| self.of_id.get(id));
        match hops.and_then(|hops| hops.last()).and_then(|at| self.hops.get_mut(*at)) {
            Some(hop) => {
                of(hop);
                true
            }
            None => false,
        }
    }

    fn on_end(&mut self, event: &Value) -> bool {
        let known = self.on_hop(event, |hop| hop.on_end(event));
        if let Some(id) = text(event, "requestId") {
            self.count_ends(id);
        }
        known
    }

    fn count_ends(&mut self, id: &str) {
        let hops = self.of_id.get(id).and_then(|hops| hops.last());
        if let Some(hop) = hops.and_then(|at| self.hops.get_mut(*at)) {
            self.ended += usize::from(hop.take_end());
        }
    }

    fn on_paint(&mut self, event: &Value) -> bool {
        let event = event.get("event").unwrap_or(&Value::Null);
        let of_main =
            self.main_frame.is_none() || text(event, "frameId") == self.main_frame.as_deref();
        if text(event, "type") == Some("largest-contentful-paint") && of_main {
            let paint = event.get("lcpDetails").and_then(|details| number(details, "renderTime"));
            self.largest_paint =
                paint.filter(|at| *at > 0.0).or(number(event, "time")).or(self.largest_paint);
        }
        false
    }

    /// Returns the extra events of a hop: each hop that announces some has one, in their order.
    fn extra_of(&self, at: usize) -> (Option<&Value>, Option<&Value>) {
        let Some(hop) = self.hops.get(at) else { return (None, None) };
        let Some(extra) = self.extra.get(hop.id()) else { return (None, None) };
        let of_id = self.of_id.get(hop.id()).map_or(&[][..], Vec::as_slice);
        let before = of_id.iter().take(hop.number);
        let before = before.filter(|at| self.hops.get(**at).is_some_and(Hop::has_extra)).count();
        match hop.has_extra() {
            true => (extra.requests.get(before), extra.responses.get(before)),
            false => (None, None),
        }
    }
}

/// Sets a moment; returns false, as nothing went over the wire.
fn set(moment: &mut Option<f64>, event: &Value) -> bool {
    *moment = number(event, "timestamp").or(*moment);
    false
}

#[cfg(test)]
mod tests;
