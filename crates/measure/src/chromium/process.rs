//! Chromium: found, started with a profile of its own, and ended with all that it has started.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use headstart_emulation::Node;
use rustix::process::{Pid, Signal, geteuid, kill_process_group, test_kill_process_group};
use serde_json::{Value, json};

use super::devtools::{Devtools, Tab, Trouble};
use crate::interrupt::Interrupt;
use headstart::base::failure::Failure;

/// Names of Chromium, and of browsers made of it.
const NAMES: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
];

/// The oldest that tells when the head of a response began (`receiveHeadersStart`).
const OLDEST: u32 = 115;

/// The one that all this was tried with.
const TRIED: u32 = 156;

/// Longest that Chromium takes to start: a second where nothing else runs.
const START: Duration = Duration::from_secs(30);

/// Longest that it takes to end by itself, with its cache written.
const END: Duration = Duration::from_secs(20);

/// Longest that the kernel takes to end what was killed.
const KILLED: Duration = Duration::from_secs(2);

/// Interval at which its end is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// Last lines of standard error that are kept, to say why Chromium ended.
const TAIL: usize = 8;

/// Bytes of a line of them.
const LINE_MAX: u64 = 4 << 10;

/// Makes standard input and output what Chromium takes for its pipes (3 and 4), then becomes
/// Chromium.
const PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

const NO_EXTENSIONS: &str = "--disable-extensions";

/// No window, no history, nothing that others have installed, and nothing asked for but the page.
const ARGUMENTS: [&str; 26] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--no-service-autorun",
    "--disable-background-networking",
    // Otherwise it asks these all the same, if not this port, which it takes nothing from (discard,
    // RFC 863).
    "--component-updater=url-source=http://127.0.0.1:9/",
    "--gaia-url=http://127.0.0.1:9/",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-default-apps",
    "--disable-domain-reliability",
    NO_EXTENSIONS,
    // The address field is a page, too, and exists without a window.
    "--disable-features=MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,\
     PreloadTopChromeWebUI,Translate,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,WebUIOmniboxPopup",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--hide-scrollbars",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--window-size=1366,900",
];

/// Lets extensions be installed over DevTools; without it, there are none at all.
pub(crate) const DEBUG_EXTENSIONS: &str = "--enable-unsafe-extension-debugging";

/// Settings of Chromium's start.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) program: PathBuf,
    /// Beside those that are always there.
    pub(crate) arguments: Vec<String>,
    pub(crate) interrupt: Interrupt,
}

/// A running Chromium. All of it is killed when dropped; and it ends by itself when this process
/// does.
#[derive(Debug)]
pub(crate) struct Browser {
    child: Child,
    pub(crate) devtools: Devtools,
    /// Once a page was loaded.
    pub(crate) tab: Option<Tab>,
    /// Such as `Chrome/156.0.8078.79`.
    pub(crate) version: String,
    tail: Tail,
    /// Ends with the last that writes there.
    tail_reader: JoinHandle<()>,
}

type Tail = Arc<Mutex<VecDeque<String>>>;

/// Returns the path of Chromium.
pub(crate) fn find(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return match is_program(path) {
            true => Ok(path.clone()),
            false => Err(Failure::usage(format!("{} is no program", path.display()))
                .hint("give --browser the path of Chromium, such as /usr/bin/chromium")),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let mut places =
        NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    places.find(|path| is_program(path)).ok_or_else(|| {
        Failure::usage("there is no Chromium on this machine")
            .hint("install it (Debian: apt install chromium), or name it with --browser")
    })
}

fn is_program(path: &Path) -> bool {
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

impl Browser {
    /// Starts Chromium on this machine, or on a node of a lab, with the profile of a folder.
    pub(crate) fn start(
        settings: &Settings,
        node: Option<&Node>,
        profile: &Path,
    ) -> Result<Self, Trouble> {
        let mut command = match node {
            Some(node) => node.command("sh"),
            None => Command::new("sh"),
        };
        let has_extensions = settings.arguments.iter().any(|other| other == DEBUG_EXTENSIONS);
        let usual = ARGUMENTS.iter().filter(|one| !has_extensions || **one != NO_EXTENSIONS);
        command.args(["-c", PIPES]).arg(&settings.program).args(usual);
        command.arg(format!("--user-data-dir={}", profile.display()));
        if is_root() {
            command.arg("--no-sandbox");
        }
        command.args(&settings.arguments).arg("about:blank");
        // Files that it keeps beside its profile are deleted with it.
        command
            .env("HOME", profile)
            .env("TMPDIR", profile)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // So that all of it can be ended at once, and Ctrl-C is for the recorder, which then does
        // so.
        command.process_group(0);
        let spawned = match node {
            Some(node) => node.spawn(command),
            None => command.spawn(),
        };
        let mut child =
            spawned.map_err(|error| Trouble::Browser(format!("cannot be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(stderr)) = pipes else {
            return Err(Trouble::Browser("has no pipes".into()));
        };
        let tail = Tail::default();
        let kept = Arc::clone(&tail);
        let tail_reader = thread::spawn(move || keep_tail(stderr, &kept));
        let devtools = Devtools::new(to, from, settings.interrupt.clone());
        let (tab, version) = (None, String::new());
        let mut browser = Self { child, devtools, tab, version, tail, tail_reader };
        browser.version = browser.begin().map_err(|trouble| browser.explain(trouble))?;
        Ok(browser)
    }

    /// The version, once Chromium is there.
    fn begin(&mut self) -> Result<String, Trouble> {
        let until = Instant::now() + START;
        let version = self.devtools.call(None, "Browser.getVersion", json!({}), until)?;
        let version = version.get("product").and_then(Value::as_str).unwrap_or("unknown");
        match major(version) {
            Some(major) if major < OLDEST => Err(Trouble::Browser(format!(
                "is version {major}, and {OLDEST} is the oldest that can be used"
            ))),
            _ => Ok(version.to_owned()),
        }
    }

    /// Lets it exit by itself, so that its cache is on disk.
    pub(crate) fn close(mut self) -> Result<(), Trouble> {
        self.devtools.ask(None, "Browser.close", json!({}))?;
        let until = Instant::now() + END;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Ok(());
            }
            // Further output is ignored, but the user may interrupt.
            match self.devtools.forget(Instant::now() + LOOK) {
                Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
                Err(_) => thread::sleep(LOOK),
                Ok(()) => {}
            }
        }
        Err(Trouble::Browser(format!("did not end within {END:.0?}")))
    }

    /// Adds its last words, if it ended.
    pub(crate) fn explain(&mut self, trouble: Trouble) -> Trouble {
        let Trouble::Browser(text) = trouble else { return trouble };
        let until = Instant::now() + Duration::from_millis(500);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(LOOK),
                _ => break None,
            }
        };
        while status.is_some() && !self.tail_reader.is_finished() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        match status {
            None => Trouble::Browser(text),
            Some(status) if tail.is_empty() => Trouble::Browser(format!("{text} ({status})")),
            Some(status) => {
                let output = tail.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
                Trouble::Browser(format!("{text} ({status}); its last words: {output}"))
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // If this fails, it has already exited.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let until = Instant::now() + KILLED;
        // All processes that use the profile's folder must exit before it is deleted.
        while Instant::now() < until {
            let is_there = matches!(self.child.try_wait(), Ok(None))
                || group.is_some_and(|group| test_kill_process_group(group).is_ok());
            if !is_there {
                break;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Returns true if Chromium refuses to start with its sandbox.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Returns a warning about a version that this was not tried with.
pub(crate) fn doubt(version: &str) -> Option<String> {
    let major = major(version).filter(|major| *major != TRIED)?;
    Some(format!("this was tried with Chromium {TRIED}, and this one is {major}"))
}

fn major(version: &str) -> Option<u32> {
    version.split_once('/')?.1.split('.').next()?.parse().ok()
}

fn keep_tail(stderr: impl Read, tail: &Tail) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told() {
        assert_eq!(major("Chrome/156.0.8078.79"), Some(156));
        assert_eq!(major("HeadlessChrome/98.0"), Some(98));
        assert_eq!(major("unknown"), None);
        assert_eq!(doubt("Chrome/156.0"), None);
        assert!(doubt("Chrome/161.0").unwrap().contains("161"));
        assert_eq!(doubt("unknown"), None);
    }
}
