//! `headstart lab`, `pageload` and `demo` where the program that they run is missing or wrong.

use std::fs;
use std::process::Command;

use crate::call::{Outcome, outcome};

/// Calls `headstart` in a folder of its own, whose only companion is `lab`.
///
/// No file that is to be run is open for writing in this process: a child that another test forks
/// meanwhile would hold it open, and the kernel runs no such file.
fn call_beside(lab: Option<(&str, &str)>, arguments: &[&str]) -> (String, Outcome) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Two folders deep: programs are looked for in the folder above, too.
    let bin = folder.path().join("usr/bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("headstart");
    fs::hard_link(env!("CARGO_BIN_EXE_headstart"), &program).unwrap();
    let file = bin.join("headstart-lab").display().to_string();
    if let Some((text, mode)) = lab {
        let write = "printf %s \"$1\" >\"$2\" && chmod \"$3\" \"$2\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh", text, &file, mode]).status().unwrap();
        assert!(written.success());
    }
    let output = Command::new(&program).args(arguments).env_clear().env("PATH", &bin).output();
    (file, outcome(output.unwrap()))
}

#[test]
fn a_missing_lab_is_one_error_with_the_way_to_get_it() {
    for command in ["lab", "pageload", "demo"] {
        let (_, (code, out, err)) = call_beside(None, &[command, "--json"]);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert_eq!(
            err,
            format!(
                "error: `headstart {command}` needs headstart-lab, which is not there\n\
                 hint: build it with `cargo build --release --bin headstart-lab`, and put it \
                 beside headstart or on the PATH\n"
            )
        );
    }
}

#[test]
fn a_lab_that_is_not_executable_is_named() {
    let (file, (code, out, err)) = call_beside(Some(("#!/bin/sh\n", "644")), &["lab", "list"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.starts_with(&format!("error: cannot run {file}: Permission denied")), "{err}");
    assert!(err.ends_with(&format!("hint: make it executable: chmod +x {file}\n")), "{err}");
}

#[test]
fn the_lab_is_given_the_version_and_all_words_as_they_are() {
    let script = "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 1\n";
    let words = ["pageload", "plan", "--help", "-x", "two words", "--"];
    let (_, (code, out, err)) = call_beside(Some((script, "755")), &words);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let version = concat!("--called-by=", env!("CARGO_PKG_VERSION"));
    let given: Vec<_> = out.lines().collect();
    assert_eq!(given, [&[version], words.as_slice()].concat());
}
