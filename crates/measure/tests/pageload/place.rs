//! A folder with files, and `headstart pageload` called in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::call::{Outcome, outcome};

/// A folder with files to read.
pub(crate) struct Place {
    dir: TempDir,
    /// Words behind `headstart pageload` in each call.
    command: &'static [&'static str],
}

impl Place {
    pub(crate) fn new(command: &'static [&'static str], files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        Self { dir, command }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::programs::LAB);
        command.arg("pageload").args(self.command).args(arguments);
        command.current_dir(self.dir.path()).env_clear().stdin(Stdio::null());
        command
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments).output().unwrap())
    }

    /// Returns its standard output when all is well.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.call(arguments);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        out
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.prints(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Returns its message when it prints nothing, and ends with this code.
    pub(crate) fn fails_as(&self, arguments: &[&str], code: i32) -> String {
        let (found, out, err) = self.call(arguments);
        assert_eq!((found, out.as_str()), (Some(code), ""), "{err}");
        assert!(err.starts_with("error: ") && err.contains("\nhint: "), "{err}");
        err
    }

    /// The same for wrong usage.
    pub(crate) fn fails_with_hint(&self, arguments: &[&str]) -> String {
        self.fails_as(arguments, 2)
    }

    /// Returns its message about wrong usage, where the error says all.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let (found, out, err) = self.call(arguments);
        assert_eq!((found, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.starts_with("error: "), "{err}");
        err
    }
}
