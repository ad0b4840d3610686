//! Chromium for measurements: loads one after the other, and what a user may do between them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use headstart_emulation::Node;
use headstart_pageload::devtools::About;
use headstart_pageload::har::Recording;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::BrowserTls;
use super::devtools::{Trouble, shown};
use super::load::{self, Loaded, Wanted, text};
use super::process::{Browser, DEBUG_EXTENSIONS, Settings};
use super::tls;
use crate::interrupt::Interrupt;
use crate::recordings;

/// Longest that it takes to leave a page, with all connections closed, and to install an extension,
/// with its database loaded.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest that an extension is asked: what it says is no part of a load.
const ASKED: Duration = Duration::from_secs(10);

/// Interval at which one of its own pages is asked whether it is ready.
const LOOK: Duration = Duration::from_millis(20);

/// Time for the browser's work after it has answered a command: closing connections takes
/// some milliseconds.
const SETTLE: Duration = Duration::from_millis(200);

/// Third-party cookies as Chromium has them by itself. Debian's blocks them, and keeps connections
/// apart for that; what servers are connected to ahead could not be used then.
const PREFERENCES: &str =
    r#"{"profile":{"block_third_party_cookies":false,"cookie_controls_mode":0}}"#;

/// Time in which a service worker that is awake must be found.
const NAP: Duration = Duration::from_secs(1);

/// Chromium's own page whose button closes all connections.
const SOCKETS: &str = "chrome://net-internals/#sockets";

/// Reason why there is no load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Chromium or the page, in words.
    Failed(String),
    Interrupted,
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Interrupted => Self::Interrupted,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Options of Chromium's start.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) interrupt: Interrupt,
    /// True if [`Session::install`] is to be called.
    pub(crate) extensions: bool,
    /// Other than by itself.
    pub(crate) tls: Vec<BrowserTls>,
    /// Connections at a time through a proxy, if not Chromium's own number (32).
    pub(crate) per_proxy: Option<u8>,
}

/// Observation of a load.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) recording: Recording,
    /// The file that it was read from.
    pub(crate) har: Vec<u8>,
    pub(crate) largest_paint_ms: Option<f64>,
    /// Responses that Early Hints brought.
    pub(crate) hinted: usize,
    /// Things out of the ordinary.
    pub(crate) notes: Vec<String>,
}

/// A running Chromium with a profile that goes with it.
#[derive(Debug)]
pub(crate) struct Session {
    // Dropped first, because it uses the folder.
    browser: Browser,
    _profile: TempDir,
}

impl Session {
    pub(crate) fn start(start: &Start, node: &Node) -> Result<Self, Stopped> {
        let profile = tempfile::Builder::new().prefix("headstart-").tempdir();
        let profile = profile.map_err(|error| {
            Stopped::Failed(format!("cannot make a folder for Chromium's profile: {error}"))
        })?;
        prefer(profile.path()).map_err(|error| {
            Stopped::Failed(format!("cannot write Chromium's preferences: {error}"))
        })?;
        let Start { program, arguments, interrupt, extensions, tls, per_proxy } = start.clone();
        tls::settle(profile.path(), &tls, per_proxy).map_err(|error| {
            Stopped::Failed(format!("cannot write Chromium's settings: {error}"))
        })?;
        let more = extensions.then(|| DEBUG_EXTENSIONS.to_owned());
        let arguments = arguments.into_iter().chain(tls::arguments(&tls)).chain(more).collect();
        let settings = Settings { program, arguments, interrupt };
        let browser = Browser::start(&settings, Some(node), profile.path())?;
        Ok(Self { browser, _profile: profile })
    }

    /// Such as `Chrome/156.0.8078.79`.
    pub(crate) fn version(&self) -> &str {
        &self.browser.version
    }

    /// Loads a page in the one tab that there is.
    pub(crate) fn load(&mut self, url: &str, timeout: Duration) -> Result<Seen, Stopped> {
        let wanted = Wanted { url, timeout, screenshot: false };
        let Loaded { load, notes, .. } = load::load(&mut self.browser, wanted)?;
        let (program, number) = self.version().split_once('/').unwrap_or((self.version(), ""));
        let about = About {
            title: url.to_owned(),
            browser: (program.to_owned(), number.to_owned()),
            creator: ("headstart".into(), env!("CARGO_PKG_VERSION").into()),
            comment: notes.join("; "),
        };
        let har = load.har(&about).to_string().into_bytes();
        let recording = recordings::only_one(&har)
            .map_err(|why| Stopped::Failed(format!("there is no page to record: {why}")))?;
        let (largest_paint_ms, hinted) = (load.largest_paint_ms(), load.hinted());
        Ok(Seen { recording, har, largest_paint_ms, hinted, notes })
    }

    /// Leaves the page, empties the cache and closes all connections. Cookies and TLS sessions
    /// stay.
    pub(crate) fn leave(&mut self) -> Result<(), Stopped> {
        let left = self.leave_page(Instant::now() + PATIENCE);
        Ok(left.map_err(|trouble| self.browser.explain(trouble))?)
    }

    fn leave_page(&mut self, until: Instant) -> Result<(), Trouble> {
        // This ends the TLS sessions of the previous load, so that each load starts alike.
        let stop = json!({ "autoAttach": false, "waitForDebuggerOnStart": false, "flatten": true });
        self.call(None, "Target.setAutoAttach", stop, until)?;
        self.browser.tab = None;
        let page = self.targets("page", until)?.into_iter().next();
        let page = page.ok_or_else(|| Trouble::Browser("has no tab any more".into()))?;
        let session = self.attach(&page, until)?;
        self.call(Some(&session), "Page.navigate", json!({ "url": "about:blank" }), until)?;
        self.call(Some(&session), "Network.clearBrowserCache", json!({}), until)?;
        self.close_connections(until)?;
        self.detach(&session, until)?;
        self.browser.devtools.forget_until_quiet(SETTLE, until)
    }

    fn close_connections(&mut self, until: Instant) -> Result<(), Trouble> {
        let made = self.call(None, "Target.createTarget", json!({ "url": SOCKETS }), until)?;
        let target = text(&made, "targetId");
        let session = self.attach(target, until)?;
        let is_ready = "document.readyState === 'complete' && typeof chrome.send === 'function'";
        while self.evaluate(&session, is_ready, until)? != json!(true) {
            if Instant::now() > until {
                return Err(Trouble::Browser(format!("does not show {SOCKETS}")));
            }
            thread::sleep(LOOK);
        }
        self.evaluate(&session, "chrome.send('flushSocketPools')", until)?;
        thread::sleep(SETTLE);
        self.call(None, "Target.closeTarget", json!({ "targetId": target }), until).map(drop)
    }

    /// Installs an unpacked extension, waits for its service worker and has it evaluate a promise;
    /// what that is fulfilled with.
    pub(crate) fn install(&mut self, folder: &Path, promise: &str) -> Result<Value, Stopped> {
        let done = self.install_and_evaluate(folder, promise);
        Ok(done.map_err(|trouble| self.browser.explain(trouble))?)
    }

    fn install_and_evaluate(&mut self, folder: &Path, promise: &str) -> Result<Value, Trouble> {
        let until = Instant::now() + PATIENCE;
        self.call(None, "Extensions.loadUnpacked", json!({ "path": folder }), until)?;
        self.in_worker(promise, PATIENCE, until)
    }

    /// Evaluates a promise in the service worker of the one extension; returns its value.
    /// None if it does not, or sleeps: Chromium ends service workers that have nothing to do.
    pub(crate) fn ask_extension(&mut self, promise: &str) -> Option<Value> {
        self.in_worker(promise, NAP, Instant::now() + ASKED).ok()
    }

    /// The worker is waited for no longer than `patience`.
    fn in_worker(
        &mut self,
        promise: &str,
        patience: Duration,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let session = self.worker(patience, until)?;
        let value = self.evaluate(&session, promise, until)?;
        self.detach(&session, until)?;
        self.browser.devtools.forget_until_quiet(SETTLE, until)?;
        Ok(value)
    }

    /// A session with the service worker, once it has started.
    fn worker(&mut self, patience: Duration, until: Instant) -> Result<String, Trouble> {
        let started = Instant::now() + patience;
        loop {
            if let Some(worker) = self.targets("service_worker", until)?.into_iter().next() {
                let session = self.attach(&worker, until)?;
                if self.evaluate(&session, "!!self.headstart", until)? == json!(true) {
                    return Ok(session);
                }
                self.detach(&session, until)?;
            }
            if Instant::now() > started {
                return Err(Trouble::Browser("starts no service worker of the extension".into()));
            }
            thread::sleep(LOOK);
        }
    }

    /// The value of an expression, awaited if it is a promise.
    fn evaluate(
        &mut self,
        session: &str,
        expression: &str,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let what = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call(Some(session), "Runtime.evaluate", what, until)?;
        match answer.get("exceptionDetails") {
            None => Ok(answer.pointer("/result/value").cloned().unwrap_or_default()),
            Some(details) => {
                let why = details.pointer("/exception/description").or(details.get("text"));
                let why = shown(why.and_then(Value::as_str).unwrap_or("no reason"));
                Err(Trouble::Browser(format!("refuses {expression}: {why}")))
            }
        }
    }

    fn targets(&mut self, kind: &str, until: Instant) -> Result<Vec<String>, Trouble> {
        let answer = self.call(None, "Target.getTargets", json!({}), until)?;
        let all = answer.get("targetInfos").and_then(Value::as_array);
        let of_kind = all.into_iter().flatten().filter(|target| {
            // Its user interface consists of pages, too.
            text(target, "type") == kind && !text(target, "url").starts_with("chrome://")
        });
        Ok(of_kind.map(|target| text(target, "targetId").to_owned()).collect())
    }

    fn attach(&mut self, target: &str, until: Instant) -> Result<String, Trouble> {
        let to = json!({ "targetId": target, "flatten": true });
        let answer = self.call(None, "Target.attachToTarget", to, until)?;
        Ok(text(&answer, "sessionId").to_owned())
    }

    fn detach(&mut self, session: &str, until: Instant) -> Result<(), Trouble> {
        let from = json!({ "sessionId": session });
        self.call(None, "Target.detachFromTarget", from, until).map(drop)
    }

    fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
        until: Instant,
    ) -> Result<Value, Trouble> {
        self.browser.devtools.call(session, method, params, until)
    }
}

/// Writes the preferences of a profile that Chromium has not had yet.
fn prefer(profile: &Path) -> io::Result<()> {
    let folder = profile.join("Default");
    fs::create_dir(&folder)?;
    fs::write(folder.join("Preferences"), PREFERENCES)
}
