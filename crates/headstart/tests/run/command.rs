//! `headstart run`: the environment, exit codes, hints.

use std::path::Path;

use crate::library::library;
use crate::program::headstart_run;

fn ended(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = headstart_run(Path::new("/run/none")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_environment_leads_through_the_agent() {
    let library = library().to_str().unwrap();
    let (code, out, err) = ended(&["--preload", library, "--context", "work", "--", "env"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        "https_proxy=http://127.0.0.1:1080",
        "ALL_PROXY=socks5h://127.0.0.1:1080",
        "HEADSTART_SOCKET=/run/none",
        "HEADSTART_CONTEXT=work",
        &format!("LD_PRELOAD={library}"),
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    let (_, out, _) = ended(&["--preload", "", "--proxy", "", "--", "env"]);
    assert!(!out.contains("LD_PRELOAD") && !out.to_lowercase().contains("_proxy="), "{out}");
}

#[test]
fn where_no_socket_is_named_that_is_said() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).args(["run", "--", "env"]);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success() && err.contains("--socket PATH names it"), "{err}");
    assert!(out.contains("https_proxy=") && !out.contains("LD_PRELOAD"), "{out}");
}

#[test]
fn exit_codes_are_the_programs_or_say_why_it_did_not_run() {
    let of = |command: &[&str]| ended(&[&["--preload", "", "--"], command].concat());
    assert_eq!(of(&["sh", "-c", "exit 7"]).0, Some(7));
    let (code, _, err) = of(&["/nonexistent"]);
    assert!(code == Some(127) && err.contains("\nhint: "), "{err}");
    let (code, _, err) = of(&["/etc/passwd"]);
    assert!(code == Some(126) && err.contains("\nhint: "), "{err}");
    for wrong in [
        &["--proxy", "nowhere", "--", "true"][..],
        &["--preload", "/nonexistent", "--", "true"],
        &[],
    ] {
        let (code, _, err) = ended(wrong);
        assert_eq!(code, Some(2), "{err}");
    }
}
