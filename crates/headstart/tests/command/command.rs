//! The program as a process: exit code, standard output, standard error.

use std::process::Command;

use crate::call::call;

#[test]
fn without_arguments_it_explains_itself() {
    let (code, out, err) = call(&[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("Opens TLS connections in one round trip\n"), "{err}");
    assert!(err.contains("\nUsage: headstart <COMMAND>\n"), "{err}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (code, out, err) = call(&["--help"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("Exit codes: 0 done; 1 negative answer"), "{out}");
    let version = concat!("headstart ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(call(&["-V"]), (Some(0), version.into(), String::new()));
}

fn failure(arguments: &[&str]) -> String {
    let (code, out, err) = call(arguments);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    err
}

#[test]
fn an_unknown_flag_or_command_is_named_with_a_way_out() {
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
fn a_dns_record_is_one_line_and_its_warning_is_apart() {
    let (code, out, err) = call(&["dns-record", "WWW.example.com"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        out,
        "www.example.com. 300 IN HTTPS 1 . alpn=\"h2\" port=443 key65480=\"v=2,slots=6\"\n"
    );
    assert_eq!(
        err,
        "warning: an HTTPS record makes browsers use https: for every http: URL of this name \
         (RFC 9460 section 9.5); publish it only if all of the name works over https\n"
    );
    let (_, out, err) = call(&[
        "dns-record",
        "example.com",
        "--edge",
        "edge.example.net:8443",
        "--ttl",
        "60",
        "--alpn",
        "",
        "--slots",
        "10",
        "--early-data",
    ]);
    assert_eq!(
        out,
        "example.com. 60 IN HTTPS 1 edge.example.net. port=8443 key65480=\"v=2,slots=10,ed=1\"\n"
    );
    assert!(err.contains("warning: early data can be replayed"), "{err}");
    let (_, out, _) = call(&["dns-record", "example.com", "--fast-open"]);
    assert!(out.contains(" key65480=\"v=2,slots=6,fop=1\""), "{out}");
}

#[test]
fn a_dns_record_as_json() {
    let (code, out, _) = call(&["dns-record", "www.example.com", "--json", "--alpn", "h2,h3"]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(json["name"], "www.example.com");
    assert_eq!(json["port"], 443);
    assert_eq!(json["alpn"], serde_json::json!(["h2", "h3"]));
    assert_eq!(json["advert"], "v=2,slots=6");
    assert!(json["record"].as_str().is_some_and(|line| line.contains(" IN HTTPS 1 . ")));
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(1));
}

#[test]
fn wrong_dns_records_are_explained() {
    for (arguments, words) in [
        (&["dns-record", "a b"][..], "error: 'a b' is not a host name\nhint: write the name"),
        (&["dns-record", "192.0.2.1"], "error: '192.0.2.1' is not a host name\n"),
        (
            &["dns-record", "a.example", "--edge", "192.0.2.1:443"],
            "error: the edge is not a host name\n",
        ),
        (
            &["dns-record", "a.example", "--edge", "b.example"],
            "error: invalid value 'b.example' for '--edge",
        ),
        (
            &["dns-record", "a.example", "--edge", "b.example:0"],
            "error: invalid value 'b.example:0'",
        ),
        (
            &["dns-record", "a.example", "--slots", "15"],
            "error: invalid value '15' for '--slots <N>'",
        ),
        (
            &["dns-record", "a.example", "--ttl", "5m"],
            "error: invalid value '5m' for '--ttl <SECONDS>'",
        ),
        (&["dns-record", "a.example", "--alpn", "h 2"], "error: a protocol name needs escapes\n"),
    ] {
        let (code, out, err) = call(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.starts_with(words), "{err}");
        assert!(err.contains("\nhint: "), "{err}");
    }
}

#[test]
fn help_is_a_command_as_well() {
    let (code, out, err) = call(&["help", "keys", "rotate"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("Usage: headstart keys rotate [OPTIONS] <FILE|URL>"), "{out}");
}

#[test]
fn the_socket_may_stand_before_the_action() {
    let around = [
        ["sessions", "--socket", "/nowhere", "list"],
        ["sessions", "list", "--socket", "/nowhere"],
    ];
    let [before, behind] = around.map(|arguments| call(&arguments));
    assert_eq!(before, behind);
    assert!(before.2.contains("/nowhere"), "{before:?}");
}

#[test]
fn an_address_to_listen_on_is_one_of_ip() {
    for listen in [":443", "localhost:443"] {
        let (code, _, err) = call(&["edge", "--origin", "192.0.2.1:443", "--listen", listen]);
        assert_eq!(code, Some(2));
        assert!(
            err.starts_with(&format!(
                "error: invalid value '{listen}' for '--listen <ADDR:PORT>': an IP address and a \
                 port are needed, such as 127.0.0.1:443, or 0.0.0.0:443 and [::]:443 for all \
                 addresses\n"
            )),
            "{err}"
        );
    }
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
    let (code, out, _) = call(&["man", "keys", "rotate"]);
    assert_eq!(code, Some(0));
    assert!(out.contains(".TH headstart-keys-rotate 1"), "{out}");
    let usage = "\n.SH SYNOPSIS\nheadstart keys rotate [OPTIONS] <FILE|URL>\n.SH DESCRIPTION\n";
    assert!(out.contains(usage), "{out}");
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
    assert_eq!(call(&["man", "--dir", path]), (Some(0), String::new(), String::new()));
    // Each page that another names is there, down to the commands of commands.
    let mut named = vec!["headstart.1".to_owned()];
    while let Some(file) = named.pop() {
        let page = std::fs::read_to_string(dir.path().join(&file)).expect(&file);
        let below = page.split_once("\n.SH SUBCOMMANDS").map_or("", |(_, below)| below);
        let names = below.lines().filter_map(|line| line.strip_suffix("(1)"));
        named.extend(names.map(|name| format!("{}.1", name.replace('\\', ""))));
    }
    for page in ["headstart-man.1", "headstart-keys-rotate.1", "headstart-sessions-list.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    let (code, _, err) = call(&["man", "--dir", "/nowhere"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("error: cannot write /nowhere/headstart.1: No such file"), "{err}");
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let shell = format!("'{}' completions bash | head -c 1", env!("CARGO_BIN_EXE_headstart"));
    let script = format!("set -o pipefail; {shell}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
fn fast_open_where_nothing_is_attached() {
    let nowhere = ["--dir", "/nowhere/headstart"];
    let (code, out, err) = call(&[&["fastopen", "status"][..], &nowhere].concat());
    assert_eq!((code, err.as_str()), (Some(1), ""));
    assert_eq!(out, "client   not attached\nserver   not attached\n");
    let (code, out, _) =
        call(&[&["fastopen", "status", "server", "--json"][..], &nowhere].concat());
    assert_eq!((code, out.as_str()), (Some(1), "{\n  \"server\": null\n}\n"));
    let (code, out, err) = call(&[&["fastopen", "detach", "client"][..], &nowhere].concat());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "client: nothing was attached\n");
}

#[test]
fn careful_resume_where_nothing_is_attached() {
    let nowhere = ["--dir", "/nowhere/headstart"];
    for (action, code, words) in
        [("status", 1, "not attached\n"), ("detach", 0, "nothing was attached\n")]
    {
        let answer = call(&[&["careful-resume", action][..], &nowhere].concat());
        assert_eq!(answer, (Some(code), words.to_owned(), String::new()));
    }
}

#[test]
fn fast_open_options_are_checked() {
    for (arguments, words) in [
        (&["fastopen"][..], "Let connections open with data in the SYN"),
        (&["fastopen", "attach"], "Attach the programs of one side"),
        (&["fastopen", "attach", "server"], "error: the following required arguments"),
        (
            &["fastopen", "attach", "server", "--interface", "lo", "--port", "0"],
            "error: invalid value '0' for '--port <PORT>'",
        ),
        (
            &["fastopen", "attach", "server", "--interface", "lo", "--spent", "0"],
            "error: invalid value '0' for '--spent <N>'",
        ),
        (&["fastopen", "status", "both"], "error: invalid value 'both' for '[SIDE]'"),
        (
            &["fastopen", "detach", "client", "--interface", "lo"],
            "error: a client is attached to no interface\nhint: leave --interface out",
        ),
    ] {
        let (code, out, err) = call(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.starts_with(words), "{err}");
    }
}

#[test]
fn up_takes_one_name_and_the_agent_no_server() {
    assert_eq!(
        failure(&["up", "--name", "*.example.com"]),
        "error: invalid value '*.example.com' for '--name <HOST>': one name, without a wildcard\n\
         hint: `headstart up --help` explains the options\n"
    );
    let err = failure(&["up", "--agent", "--server", "127.0.0.1:8443"]);
    assert!(err.contains("'--agent' cannot be used with '--server <ADDR:PORT>'"), "{err}");
}
