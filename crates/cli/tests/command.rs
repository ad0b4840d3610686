//! The program as it is called: exit code, standard output, standard error.

use std::process::{Command, Output};

fn headstart(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(arguments)
        .env_clear()
        .output()
        .expect("the program runs")
}

/// Exit code, standard output and standard error.
fn call(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = headstart(arguments);
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn without_arguments_it_explains_itself() {
    let (code, out, err) = call(&[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(
        err.starts_with("Opens TLS connections in one round trip\n"),
        "{err}"
    );
    assert!(err.contains("\nUsage: headstart <COMMAND>\n"), "{err}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (code, out, err) = call(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        out.contains("Exit codes: 0 done; 1 negative answer"),
        "{out}"
    );
    let version = concat!("headstart ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(call(&["-V"]), (Some(0), version.into(), String::new()));
}

#[test]
fn an_unknown_flag_or_command_is_named_with_a_way_out() {
    let failure = |arguments: &[&str]| {
        let (code, out, err) = call(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        err
    };
    assert_eq!(
        failure(&["--verbos"]),
        "error: unexpected argument '--verbos' found\n\
         hint: a similar argument exists: '--version'\n"
    );
    assert_eq!(
        failure(&["completion", "bash"]),
        "error: unrecognized subcommand 'completion'\n\
         hint: a similar subcommand exists: 'completions'\n"
    );
    assert_eq!(
        failure(&["completions", "4dos"]),
        "error: invalid value '4dos' for '<SHELL>'\n  \
         [possible values: bash, elvish, fish, powershell, zsh]\n\
         hint: `headstart completions --help` explains the options\n"
    );
    assert_eq!(
        failure(&["completions"]),
        "error: the following required arguments were not provided:\n  <SHELL>\n\
         hint: `headstart completions --help` explains the options\n"
    );
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, err) = call(&["completions", shell]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{shell}");
        assert!(out.contains("completions"), "{shell}: {out}");
    }
}

#[test]
fn manual_pages() {
    let (code, out, err) = call(&["man"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains(".TH headstart 1"), "{out}");
    let (code, out, _) = call(&["man", "completions"]);
    assert_eq!(code, Some(0));
    assert!(out.contains(".TH headstart-completions 1"), "{out}");
    assert_eq!(
        call(&["man", "nothing"]),
        (
            Some(2),
            String::new(),
            "error: no command 'nothing'\nhint: `headstart --help` lists the commands\n".into()
        )
    );
}

#[test]
fn manual_pages_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(
        call(&["man", "--dir", path]),
        (Some(0), String::new(), String::new())
    );
    for page in ["headstart.1", "headstart-completions.1", "headstart-man.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    let (code, _, err) = call(&["man", "--dir", "/nowhere"]);
    assert_eq!(code, Some(2));
    assert!(
        err.starts_with("error: cannot write /nowhere/headstart.1: No such file"),
        "{err}"
    );
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let shell = format!(
        "'{}' completions bash | head -c 1",
        env!("CARGO_BIN_EXE_headstart")
    );
    let script = format!("set -o pipefail; {shell}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}
