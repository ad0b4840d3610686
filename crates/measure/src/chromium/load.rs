//! One load of a page, from the navigation to its end.

use std::time::{Duration, Instant};

use headstart_pageload::devtools::Load;
use openssl::base64;
use serde_json::{Value, json};

use super::devtools::{Devtools, Message, Tab, Trouble, shown};
use super::process::Browser;

/// Silence after which a loaded page is complete (as in WebPageTest, and in the reader of HAR
/// files).
const QUIET: Duration = headstart_pageload::har::limits::QUIET;

/// Silence after which a page without a load event is over: some response never comes.
const STALLED: Duration = Duration::from_secs(10);

/// Documents of a page's own frame, one after the other without redirects by servers, at most.
const DOCUMENTS: usize = 10;

/// Longest that Chromium takes for what needs no network.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stacks of asynchronous calls that are recorded, as the reader takes them.
const STACKS: usize = headstart_pageload::har::limits::STACK_PARENTS;

/// Interval at which the end of a load is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Notes of a load at most: a page may open windows without end.
const NOTES: usize = 20;

/// A load, and its time limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'w> {
    pub(crate) url: &'w str,
    pub(crate) timeout: Duration,
    pub(crate) screenshot: bool,
}

#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) load: Load,
    /// Things out of the ordinary.
    pub(crate) notes: Vec<String>,
    /// PNG.
    pub(crate) screenshot: Option<Vec<u8>>,
}

/// Loads a page in the one tab that the browser has.
pub(crate) fn load(browser: &mut Browser, wanted: Wanted<'_>) -> Result<Loaded, Trouble> {
    let Browser { devtools, tab, .. } = browser;
    let tab = match tab {
        Some(tab) => Ok(tab),
        None => open_tab(devtools).map(|opened| tab.insert(opened)),
    };
    let loaded = tab.and_then(|tab| Following::begin(devtools, tab, wanted)?.until_it_ends());
    loaded.map_err(|trouble| browser.explain(trouble))
}

/// Leaves the page, and waits: what comes meanwhile is of no load.
pub(crate) fn leave(browser: &mut Browser, pause: Duration) -> Result<(), Trouble> {
    let Browser { devtools, tab, .. } = browser;
    let session = tab.as_ref().map(|tab| tab.session.as_str());
    let nowhere = json!({ "url": "about:blank" });
    let left = devtools.call(session, "Page.navigate", nowhere, Instant::now() + PATIENCE);
    let waited = left.and_then(|_| devtools.forget(Instant::now() + pause));
    waited.map_err(|trouble| browser.explain(trouble))
}

/// A load that goes on.
struct Following<'b> {
    devtools: &'b mut Devtools,
    wanted: Wanted<'b>,
    load: Load,
    tab: &'b Tab,
    navigation: u64,
    began: Instant,
    /// Time at which something last went over the wire.
    changed: Instant,
    notes: Vec<String>,
    is_download: bool,
}

impl<'b> Following<'b> {
    fn begin(
        devtools: &'b mut Devtools,
        tab: &'b Tab,
        wanted: Wanted<'b>,
    ) -> Result<Self, Trouble> {
        let load = Load::of_frame(tab.frame.clone());
        let to = json!({ "url": wanted.url });
        let navigation = devtools.ask(Some(&tab.session), "Page.navigate", to)?;
        let (began, notes) = (Instant::now(), Vec::new());
        Ok(Self {
            devtools,
            wanted,
            load,
            tab,
            navigation,
            began,
            changed: began,
            notes,
            is_download: false,
        })
    }

    fn until_it_ends(mut self) -> Result<Loaded, Trouble> {
        while !self.is_over()? {
            match self.devtools.next(Instant::now() + LOOK)? {
                Some(Message::Event { session, method, params }) => {
                    self.on_event(session.as_deref(), &method, &params)?;
                }
                Some(Message::Answer { id, result }) if id == self.navigation => {
                    self.on_navigated(result)?;
                }
                Some(Message::TooLarge) => {
                    self.note("passed over a message of Chromium that was too large".into());
                }
                Some(Message::Answer { .. }) | None => {}
            }
        }
        let (all, left_out) = (self.load.requests(), self.load.left_out());
        if left_out > 0 {
            self.note(format!("left out {left_out} of {all} requests: they were too many"));
        }
        let screenshot = self.wanted.screenshot.then(|| self.screenshot());
        let screenshot = match screenshot.transpose() {
            Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
            // The load is complete without it.
            Err(trouble) => {
                self.note(format!("there is no picture: {trouble}"));
                None
            }
            Ok(screenshot) => screenshot,
        };
        Ok(Loaded { load: self.load, notes: self.notes, screenshot })
    }

    fn is_over(&mut self) -> Result<bool, Trouble> {
        let quiet = self.changed.elapsed();
        let mostly = self.load.is_mostly_there();
        if mostly && self.load.is_loaded() && quiet >= QUIET {
            return Ok(true);
        }
        let (all, left) = (self.load.requests(), self.load.outstanding());
        if mostly && quiet >= STALLED {
            self.note(format!("no load event: {left} of {all} requests did not end"));
            return Ok(true);
        }
        if self.began.elapsed() < self.wanted.timeout {
            return Ok(false);
        }
        let timeout = self.wanted.timeout;
        if mostly {
            self.note(format!(
                "not at rest within {timeout:.0?}: {left} of {all} requests did not end"
            ));
            return Ok(true);
        }
        let ended = all - left;
        Err(Trouble::Page(format!(
            "not loaded within {timeout:.0?}: {ended} of {all} requests ended"
        )))
    }

    fn on_event(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: &Value,
    ) -> Result<(), Trouble> {
        let is_own = session == Some(self.tab.session.as_str());
        match method {
            "Target.attachedToTarget" => return self.on_attached(params),
            "Target.detachedFromTarget" if text(params, "sessionId") == self.tab.session => {
                return Err(Trouble::Page("the page closed itself".into()));
            }
            "Inspector.targetCrashed" if is_own => {
                return Err(Trouble::Page("the page's process crashed".into()));
            }
            "Inspector.targetCrashed" => self.note("a frame's process crashed".into()),
            "Page.javascriptDialogOpening" => {
                // Leaving the page is allowed, nothing else is.
                let accept = json!({ "accept": text(params, "type") == "beforeunload" });
                self.note(format!("closed a dialog ({})", text(params, "type")));
                self.devtools.ask(session, "Page.handleJavaScriptDialog", accept)?;
            }
            "Browser.downloadWillBegin" => {
                self.is_download |=
                    text(params, "url") == self.wanted.url || self.load.requests() <= 1;
                self.note(format!("refused a download ({})", text(params, "url")));
            }
            // Events of frames do not count for the page.
            "Page.loadEventFired" | "Page.domContentEventFired" if !is_own => {}
            _ => {
                if self.load.on_event(method, params) {
                    self.changed = Instant::now();
                }
            }
        }
        match self.load.documents() {
            more if more > DOCUMENTS => {
                Err(Trouble::Page(format!("leads to one document after another: {more} so far")))
            }
            _ => Ok(()),
        }
    }

    /// Frames of other sites and workers have sessions of their own; further tabs are closed.
    fn on_attached(&mut self, params: &Value) -> Result<(), Trouble> {
        let target = params.get("targetInfo").unwrap_or(&Value::Null);
        let session = text(params, "sessionId");
        if text(target, "type") == "page" && text(target, "targetId") != self.tab.target {
            self.note("closed a window that the page had opened".into());
            // It may share the page's process, which stops while it waits.
            self.devtools.ask(Some(session), "Runtime.runIfWaitingForDebugger", json!({}))?;
            let id = json!({ "targetId": text(target, "targetId") });
            self.devtools.ask(None, "Target.closeTarget", id)?;
            return Ok(());
        }
        prepare(self.devtools, session)
    }

    fn on_navigated(&mut self, result: Result<Value, String>) -> Result<(), Trouble> {
        let answer = match result {
            Ok(answer) => answer,
            Err(why) => return Err(Trouble::Page(format!("cannot be loaded: {}", shown(&why)))),
        };
        match text(&answer, "errorText") {
            "" => Ok(()),
            _ if self.is_download => Err(Trouble::Page("is a download, and no page".into())),
            error => Err(Trouble::Page(reason(error))),
        }
    }

    fn screenshot(&mut self) -> Result<Vec<u8>, Trouble> {
        let png = json!({ "format": "png" });
        let session = Some(self.tab.session.as_str());
        let until = Instant::now() + PATIENCE;
        let answer = self.devtools.call(session, "Page.captureScreenshot", png, until)?;
        base64::decode_block(text(&answer, "data"))
            .map_err(|_| Trouble::Browser("made no picture".into()))
    }

    fn note(&mut self, note: String) {
        // It may contain text from the page.
        let note = shown(&note);
        if self.notes.len() < NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// The tab that Chromium starts with, made ready to tell what it loads.
fn open_tab(devtools: &mut Devtools) -> Result<Tab, Trouble> {
    let until = Instant::now() + PATIENCE;
    let denied = json!({ "behavior": "deny", "eventsEnabled": true });
    devtools.call(None, "Browser.setDownloadBehavior", denied, until)?;
    let (target, session) = first_tab(devtools, until)?;
    prepare(devtools, &session)?;
    let paints = json!({ "eventTypes": ["largest-contentful-paint"] });
    devtools.ask(Some(&session), "PerformanceTimeline.enable", paints)?;
    devtools.call(Some(&session), "Page.enable", json!({}), until)?;
    let tree = devtools.call(Some(&session), "Page.getFrameTree", json!({}), until)?;
    let frame = tree.pointer("/frameTree/frame/id").and_then(Value::as_str);
    let frame = frame.unwrap_or(&target).to_owned();
    Ok(Tab { target, session, frame })
}

/// Its target and its session.
fn first_tab(devtools: &mut Devtools, until: Instant) -> Result<(String, String), Trouble> {
    // Chromium's user interface has targets as well, which belong to no page.
    let attach = json!({
        "autoAttach": true,
        "waitForDebuggerOnStart": true,
        "flatten": true,
        "filter": [{ "type": "page" }],
    });
    devtools.ask(None, "Target.setAutoAttach", attach)?;
    loop {
        match devtools.next(until)? {
            Some(Message::Event { method, params, .. }) if method == "Target.attachedToTarget" => {
                let target = params.get("targetInfo").unwrap_or(&Value::Null);
                if text(target, "type") == "page" {
                    let target = text(target, "targetId").to_owned();
                    return Ok((target, text(&params, "sessionId").to_owned()));
                }
            }
            Some(_) => {}
            None => return Err(Trouble::Browser(format!("has no tab after {PATIENCE:.0?}"))),
        }
    }
}

/// Has a target tell what it loads, and go on; what it does not know of this it refuses, which is
/// no harm.
fn prepare(devtools: &mut Devtools, session: &str) -> Result<(), Trouble> {
    let attach = json!({ "autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true });
    let depth = json!({ "maxDepth": STACKS });
    // Contents are not needed, so the browser need not keep them.
    let network =
        json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0 });
    let session = Some(session);
    devtools.ask(session, "Network.enable", network)?;
    // Stack traces of timers and promises need the debugger, which must not pause anything.
    devtools.ask(session, "Debugger.enable", json!({}))?;
    devtools.ask(session, "Debugger.setSkipAllPauses", json!({ "skip": true }))?;
    devtools.ask(session, "Debugger.setAsyncCallStackDepth", depth)?;
    devtools.ask(session, "Target.setAutoAttach", attach)?;
    devtools.ask(session, "Runtime.runIfWaitingForDebugger", json!({}))?;
    Ok(())
}

/// Returns the meaning of Chromium's error of a navigation.
fn reason(error: &str) -> String {
    let why = match error {
        "net::ERR_NAME_NOT_RESOLVED" => "its name has no address",
        "net::ERR_CONNECTION_REFUSED" => "its server refuses connections",
        "net::ERR_CONNECTION_TIMED_OUT" | "net::ERR_TIMED_OUT" => "its server does not answer",
        "net::ERR_CONNECTION_RESET" | "net::ERR_CONNECTION_CLOSED" | "net::ERR_EMPTY_RESPONSE" => {
            "its server ends connections without an answer"
        }
        "net::ERR_TOO_MANY_REDIRECTS" => "it redirects in circles",
        "net::ERR_ABORTED" => "there is no page: a download, or an answer without content",
        "net::ERR_PROXY_CONNECTION_FAILED" => "the proxy cannot be reached",
        "net::ERR_SOCKS_CONNECTION_FAILED" | "net::ERR_SOCKS_CONNECTION_HOST_UNREACHABLE" => {
            "the proxy cannot reach its server"
        }
        "net::ERR_TUNNEL_CONNECTION_FAILED" => "the proxy makes no tunnel to its server",
        _ if error.starts_with("net::ERR_CERT_") => {
            "its certificate is wrong (--trust names an authority, --insecure takes any)"
        }
        _ if error.starts_with("net::ERR_SSL_") => "there is no TLS with its server",
        _ => "Chromium cannot load it",
    };
    format!("{why} ({})", shown(error))
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_chromium_are_explained() {
        for (error, words) in [
            ("net::ERR_CERT_AUTHORITY_INVALID", "--trust"),
            ("net::ERR_TOO_MANY_REDIRECTS", "in circles"),
            ("net::ERR_ELSE", "cannot load it (net::ERR_ELSE)"),
        ] {
            assert!(reason(error).contains(words), "{}", reason(error));
        }
    }
}
