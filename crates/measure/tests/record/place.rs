//! A folder of its own, and the recorder called in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex};

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use headstart_testkit::until;

/// Tests with a browser at a time: half of the time they wait, and more would only be slower.
const BROWSERS: usize = 4;

/// Tests that have a browser now.
static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The turn of a test that has a browser.
pub(crate) struct Turn(());

/// A turn, once there is one, if tests with a real browser are to run; says so if not.
pub(crate) fn browser() -> Option<Turn> {
    if std::env::var_os("HEADSTART_TEST_BROWSER").is_none() {
        eprintln!("skipped: HEADSTART_TEST_BROWSER=1 runs it, with Chromium");
        return None;
    }
    let mut turns = TURNS.0.lock().unwrap();
    while *turns >= BROWSERS {
        turns = TURNS.1.wait(turns).unwrap();
    }
    *turns += 1;
    Some(Turn(()))
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap() -= 1;
        TURNS.1.notify_one();
    }
}

/// Recordings go to `out` in it, and what programs need for a while to `tmp`.
pub(crate) struct Place {
    dir: TempDir,
}

/// End of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.arm(Command::new(crate::programs::LAB), arguments)
    }

    /// A command that is to be the recorder, wherever it runs.
    pub(crate) fn arm(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(["pageload", "record", "--out"]).arg(self.path("out")).args(arguments);
        command.env("TMPDIR", self.path("tmp")).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Outcome {
        self.outcome(self.command(arguments).output().unwrap())
    }

    /// Checks the end of a call, of which nothing is to be left.
    pub(crate) fn outcome(&self, output: Output) -> Outcome {
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let ended = Outcome { code: output.status.code(), out, err };
        self.is_clean();
        ended
    }

    /// Returns its JSON when all is well.
    pub(crate) fn records(&self, arguments: &[&str]) -> Value {
        let output = self.call(&[arguments, &["--json"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.out).unwrap()
    }

    /// No process is left that was told of this folder, and nothing but whole recordings.
    pub(crate) fn is_clean(&self) {
        until("the end of all that was started", || self.processes().is_empty());
        assert_eq!(names(&self.path("tmp")), [""; 0], "profiles go with their browsers");
        assert!(
            names(&self.path("out")).iter().all(|name: &String| {
                [".har", ".csv", ".png"].iter().any(|end| name.ends_with(end))
                    && !name.starts_with('.')
            }),
            "{:?}",
            names(&self.path("out"))
        );
    }

    /// Command lines of processes with this folder in them.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.all().into_iter().map(|(_, line)| line).collect()
    }

    /// Returns the processes with such command lines.
    pub(crate) fn pids(&self, is_meant: impl Fn(&str) -> bool) -> Vec<Pid> {
        self.all().into_iter().filter(|(_, line)| is_meant(line)).map(|(pid, _)| pid).collect()
    }

    fn all(&self) -> Vec<(Pid, String)> {
        let own = self.path("tmp").display().to_string();
        let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = all.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            let bytes = fs::read(entry.path().join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&bytes).replace('\0', " ")))
        });
        lines.filter(|(_, line)| line.contains(&own)).collect()
    }

    pub(crate) fn recordings(&self) -> Vec<PathBuf> {
        let folder = self.path("out");
        let all = names(&folder).into_iter().filter(|name| name.ends_with(".har"));
        all.map(|name| folder.join(name)).collect()
    }
}

/// In their order; none of a folder that is not there.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Outcome {
    /// It failed, and says this.
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(words), "{words}: {self:?}");
    }
}
