//! Where options come from: flags, environment, file, defaults, and what is said when one of
//! them is wrong.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use headstart::agent::options::AgentOptions;
use headstart::base::logging::LogFormat;
use headstart::base::settings::{Invocation, Stop};
use headstart::dns_record::options::DnsRecordOptions;
use headstart::doctor::options::DoctorOptions;
use headstart::edge::options::{CertificateFiles, EdgeOptions};
use headstart::get::options::GetOptions;
use headstart_net::OpeningPolicy;
use tempfile::TempDir;

/// The program with the commands whose options are tested here.
fn program() -> Command {
    Command::new("headstart")
        .subcommand(EdgeOptions::augment_args(Command::new("edge")))
        .subcommand(AgentOptions::augment_args(Command::new("agent")))
        .subcommand(GetOptions::augment_args(Command::new("get")))
        .subcommand(DoctorOptions::augment_args(Command::new("doctor")))
        .subcommand(DnsRecordOptions::augment_args(Command::new("dns-record")))
}

fn call(arguments: &[&str]) -> Invocation {
    let argv = ["headstart"].iter().chain(arguments).map(OsString::from);
    Invocation::new(program(), argv)
}

fn load<T: FromArgMatches>(arguments: &[&str]) -> T {
    call(arguments).load().unwrap_or_else(|stop| panic!("{}", words(stop)))
}

fn fails(arguments: &[&str]) -> String {
    match call(arguments).load::<EdgeOptions>() {
        Ok(options) => panic!("{options:?}"),
        Err(stop) => words(stop),
    }
}

fn words(stop: Stop) -> String {
    match stop {
        Stop::Failure(failure) => failure.to_string(),
        Stop::Answer(answer) => answer.to_string(),
    }
}

#[test]
fn spares_are_off_unless_asked_for() {
    for (words, spares) in [
        (&[][..], 0),
        (&["--spares", "off"], 0),
        (&["--spares", "auto"], 64),
        (&["--spares", "1"], 1),
        (&["--spares", "1024"], 1024),
    ] {
        let options: AgentOptions = load(&[&["agent"], words].concat());
        assert_eq!(options.spares.0, spares, "{words:?}");
    }
    for wrong in ["1025", "-1", "on", ""] {
        let wrong = format!("--spares={wrong}");
        assert!(call(&["agent", &wrong]).load::<AgentOptions>().is_err(), "{wrong}");
    }
}

struct File {
    path: PathBuf,
    _dir: TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headstart.toml");
        fs::write(&path, text).unwrap();
        Self { path, _dir: dir }
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Returns the message about a file with this text, without the path that begins it.
    fn said_of(text: &str) -> String {
        let file = Self::new(text);
        let output = fails(&["edge", "--config", file.name()]);
        output.replace(&format!("{}: ", file.name()), "")
    }
}

#[test]
fn the_definitions_are_consistent() {
    program().debug_assert();
    call(&[]).command().clone().debug_assert();
}

#[test]
fn defaults() {
    let edge: EdgeOptions = load(&["edge"]);
    let listen: Vec<_> = edge.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["0.0.0.0:443", "[::]:443"]);
    assert_eq!(edge.idle_timeout, Duration::from_secs(600));
    assert_eq!((edge.total_timeout, edge.workers, edge.proxy_protocol), (None, None, false));
    let agent: AgentOptions = load(&["agent"]);
    assert_eq!(agent.opening, OpeningPolicy::Auto);
    assert!(agent.listen().is_ok());
    assert!(agent.is_tls_port(443) && agent.is_tls_port(993) && !agent.is_tls_port(25));
}

#[test]
fn flags() {
    let edge: EdgeOptions = load(&[
        "edge",
        "--listen",
        "127.0.0.1:1,[::1]:2",
        "--listen=127.0.0.1:3",
        "--proxy-protocol",
        "--proxy-protocol-from=192.0.2.1,2001:db8::/32",
        "--origin",
        "*.a.example=o:1",
        "--origin",
        "[::1]:8443",
        "--idle-timeout",
        "1m 30s",
        "--log-format",
        "json",
    ]);
    assert_eq!(edge.listen.len(), 3);
    assert!(edge.proxy_protocol);
    let balancers: Vec<_> = edge.proxy_protocol_from.iter().map(ToString::to_string).collect();
    assert_eq!(balancers, ["192.0.2.1/32", "2001:db8::/32"]);
    assert_eq!(edge.idle_timeout, Duration::from_secs(90));
    assert_eq!(edge.log.log_format, LogFormat::Json);
    let origins = edge.origins().unwrap();
    assert_eq!(origins.find(Some("x.a.example")).unwrap().to_string(), "o:1");
    assert_eq!(origins.find(Some("b.example")).unwrap().to_string(), "[::1]:8443");
    let edge: EdgeOptions = load(&["edge", "--proxy-protocol=false", "--origin", "o:1"]);
    assert!(!edge.proxy_protocol);
}

#[test]
fn the_file_goes_before_defaults_and_flags_before_the_file() {
    let file = File::new(
        "[edge]\n\
         listen = [\"127.0.0.1:1\", \"[::1]:1\"]\n\
         origin = \"file:1\"\n\
         proxy-protocol = true\n\
         max-connections = 7\n\
         idle-timeout = \"7s\"\n\
         log = \"debug,hyper=warn\"\n\
         [agent]\n\
         edge = [\"a.example=192.0.2.1:443,fop=1\", \"b.example=192.0.2.2:443\"]\n",
    );
    let config = ["--config", file.name()];
    let edge: EdgeOptions =
        load(&["edge", config[0], config[1], "--idle-timeout", "8s", "--origin=flag:1"]);
    assert_eq!(edge.listen.len(), 2);
    assert_eq!(edge.max_connections.get(), 7);
    assert_eq!(edge.idle_timeout, Duration::from_secs(8));
    assert_eq!(edge.origins().unwrap().find(None).unwrap().address.host, "flag");
    assert_eq!(edge.log.log.as_deref(), Some("debug,hyper=warn"));
    assert!(edge.proxy_protocol);
    let edge: EdgeOptions = load(&["edge", config[0], config[1], "--proxy-protocol=false"]);
    assert!(!edge.proxy_protocol);
    let agent: AgentOptions = load(&["agent", config[0], config[1]]);
    let edges = agent.edges().unwrap();
    let edge =
        |name| edges.find(Some(name)).map(|edge| (edge.address.host.as_str(), edge.advert.fop));
    assert_eq!(edge("a.example"), Some(("192.0.2.1", true)));
    assert_eq!(edge("b.example"), Some(("192.0.2.2", false)));
}

/// Returns true if this process was started by [`in_child`]: the tests named child_... do nothing
/// else.
fn is_child() -> bool {
    std::env::var_os("HEADSTART_EDGE_IDLE_TIMEOUT").is_some()
}

/// Runs the test `name` of this module in a process of its own, with variables set for it.
fn in_child(name: &str, variables: &[(&str, &str)]) {
    let output = process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("options::{name}"), "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn the_environment_goes_before_the_file_and_after_flags() {
    in_child(
        "child_with_good_environment",
        &[
            ("HEADSTART_EDGE_IDLE_TIMEOUT", "9s"),
            ("HEADSTART_EDGE_LISTEN", "127.0.0.1:1,127.0.0.1:2"),
            ("HEADSTART_EDGE_PROXY_PROTOCOL", "true"),
            ("HEADSTART_LOG", "trace"),
        ],
    );
    in_child("child_with_bad_environment", &[("HEADSTART_EDGE_IDLE_TIMEOUT", "soon")]);
}

#[test]
fn child_with_good_environment() {
    if !is_child() {
        return;
    }
    let file =
        File::new("[edge]\nidle-timeout = \"7s\"\nlisten = \"127.0.0.1:9\"\nudp-workers = 3\n");
    let edge: EdgeOptions = load(&["edge", "--config", file.name()]);
    assert_eq!(edge.idle_timeout, Duration::from_secs(9));
    assert_eq!(edge.listen.len(), 2);
    assert_eq!(edge.udp_workers.get(), 3);
    assert!(edge.proxy_protocol);
    assert_eq!(edge.log.log.as_deref(), Some("trace"));
    let edge: EdgeOptions = load(&["edge", "--config", file.name(), "--idle-timeout", "8s"]);
    assert_eq!(edge.idle_timeout, Duration::from_secs(8));
}

#[test]
fn child_with_bad_environment() {
    if !is_child() {
        return;
    }
    let text = fails(&["edge"]);
    let (message, hint) = text.split_once("\nhint: ").unwrap();
    assert!(
        message.starts_with("error: invalid value 'soon' for '--idle-timeout <TIME>'"),
        "{text}"
    );
    let variable = "the value comes from the environment variable HEADSTART_EDGE_IDLE_TIMEOUT";
    assert_eq!(hint, variable);
}

#[test]
fn a_reload_reads_the_file_again() {
    let file = File::new("[edge]\norigin = \"first:1\"\n");
    let invocation = call(&["edge", "--config", file.name()]);
    for host in ["first", "second"] {
        fs::write(&file.path, format!("[edge]\norigin = \"{host}:1\"\n")).unwrap();
        let edge: EdgeOptions = invocation.load().unwrap();
        assert_eq!(edge.origin[0].server.address.host, host);
    }
    fs::write(&file.path, "[edge\n").unwrap();
    assert!(invocation.load::<EdgeOptions>().is_err());
}

#[test]
fn an_empty_file_changes_nothing() {
    let file = File::new("");
    let edge: EdgeOptions = load(&["edge", "--config", file.name()]);
    assert_eq!(edge.udp_workers.get(), 1);
}

#[test]
fn wrong_files_are_explained() {
    assert_eq!(
        File::said_of("[edge]\nidle-timout = \"5s\"\n"),
        "error: unknown key 'idle-timout' in [edge]\nhint: did you mean 'idle-timeout'?"
    );
    assert_eq!(
        File::said_of("[edge]\nidle_timeout = \"5s\"\n"),
        "error: unknown key 'idle_timeout' in [edge]\nhint: did you mean 'idle-timeout'?"
    );
    assert_eq!(
        File::said_of("[edge]\nzzz = 1\n"),
        "error: unknown key 'zzz' in [edge]\n\
         hint: keys are the options of `headstart edge --help` without the dashes; a newer \
         headstart than this one (0.1.0) may have more"
    );
    assert_eq!(
        File::said_of("idle-timeout = \"5s\"\n"),
        "error: unknown table 'idle-timeout'\n\
         hint: put options in the table of their command: [edge], [agent]"
    );
    assert_eq!(
        File::said_of("[edge]\nconfig = \"other.toml\"\n").lines().next(),
        Some("error: unknown key 'config' in [edge]")
    );
    assert_eq!(File::said_of("edge = 1\n"), "error: 'edge' is not a table");
    assert_eq!(
        File::said_of("[edge]\nudp-workers = [1, 2]\n"),
        "error: 'udp-workers' takes one value, not a list"
    );
    assert_eq!(
        File::said_of("[edge.udp-workers]\nx = 1\n"),
        "error: 'udp-workers' takes a string, number or boolean"
    );
    let not_toml = File::said_of("[edge]\nudp-workers =\n");
    assert!(not_toml.contains("is not TOML: TOML parse error at line 2, column"), "{not_toml}");
    let secret = File::said_of("[agent]\nupstream = \"socks5://user:hunter2@proxy.test:1080\n");
    assert!(secret.contains("is not TOML: TOML parse error at line 2, column"), "{secret}");
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn wrong_values_in_a_file_are_explained_as_on_the_command_line() {
    for (line, words) in [
        (
            "idle-timeout = 5",
            "error: invalid value '5' for '--idle-timeout <TIME>': time unit needed",
        ),
        ("idle-timeout = \"soon\"", "error: invalid value 'soon' for '--idle-timeout <TIME>'"),
        ("listen = \"443\"", "error: invalid value '443' for '--listen <ADDR:PORT>'"),
        ("proxy-protocol = \"yes\"", "error: invalid value 'yes' for '--proxy-protocol[=<BOOL>]'"),
        (
            "origin = [\"o:1\", \"o\"]",
            "error: invalid value 'o' for '--origin <[NAME=]ORIGIN>': a port is missing",
        ),
        ("workers = 0", "error: invalid value '0' for '--workers <N>'"),
    ] {
        let text = File::said_of(&format!("[edge]\n{line}\n"));
        assert!(text.starts_with(words), "{text}");
    }
}

#[test]
fn a_value_in_a_file_that_looks_like_a_flag_is_a_value() {
    let text = File::said_of("[edge]\nlisten = \"--proxy-protocol\"\n");
    assert!(text.starts_with("error: invalid value '--proxy-protocol' for '--listen"), "{text}");
}

#[test]
fn a_missing_file_is_named() {
    assert_eq!(
        fails(&["edge", "--config", "/nowhere/headstart.toml"]),
        "error: cannot read /nowhere/headstart.toml: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_that_others_may_change_is_refused_and_so_is_a_password_that_they_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("headstart.toml");
    let password = "[agent]\nupstream = \"socks5://user:secret@127.0.0.1:1\"\n";
    for (text, mode, words) in [
        ("[agent]\n", 0o666, "others may write to it (mode 0666)\nhint: chmod go-w "),
        ("[agent]\n", 0o620, "others may write to it (mode 0620)"),
        (password, 0o644, "a secret that others may read (mode 0644)\nhint: chmod 600 "),
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let output = fails(&["agent", "--config", path.to_str().unwrap()]);
        assert!(output.contains(words) && !output.contains("secret@"), "{mode:o}: {output}");
    }
    for (text, mode) in [("[agent]\n", 0o644), (password, 0o640)] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        load::<AgentOptions>(&["agent", "--config", path.to_str().unwrap()]);
    }
}

#[test]
fn wrong_flags_are_explained() {
    for (flag, words) in [
        ("--lsten=127.0.0.1:1", "\nhint: a similar argument exists: '--listen'"),
        ("--listen=localhost", "invalid value 'localhost' for '--listen <ADDR:PORT>'"),
        ("--idle-timeout=5", "time unit needed, for example 5sec or 5ms"),
        ("--origin=[::1:443", "an IPv6 address is written in brackets"),
        ("--origin=a_b*=o:1", "is not a server name"),
    ] {
        let text = fails(&["edge", flag]);
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn missing_and_conflicting_options_are_refused() {
    let edge: EdgeOptions = load(&["edge"]);
    let text = edge.origins().unwrap_err().to_string();
    assert!(text.contains("\nhint: say where the TLS server is"), "{text}");
    let edge: EdgeOptions = load(&["edge", "--origin=a:1", "--origin=b:1"]);
    assert!(edge.origins().unwrap_err().to_string().contains("two origins without a name"));
    let edge: EdgeOptions = load(&["edge", "--origin=n.example=a:1", "--origin=N.example=b:1"]);
    assert!(edge.origins().unwrap_err().to_string().contains("two origins for n.example"));
    let agent: AgentOptions = load(&["agent", "--edge=n.example=a:1", "--edge=n.example=b:1"]);
    assert!(agent.edges().unwrap_err().to_string().contains("two edges for n.example"));
}

fn certificates(flags: &[&str]) -> Result<Vec<CertificateFiles>, String> {
    let edge: EdgeOptions = load(&[&["edge"], flags].concat());
    edge.certificates().map_err(|failure| failure.to_string())
}

#[test]
fn an_edge_that_speaks_tls_needs_a_certificate_and_its_key() {
    assert_eq!(certificates(&["--origin=o:1"]), Ok(vec![]));
    let message = certificates(&["--origin=o:1,n.example=http://o:1"]).unwrap_err();
    assert!(
        message.starts_with("error: no certificate to serve n.example=http://o:1 with"),
        "{message}"
    );
    assert!(message.contains("\nhint: give one with --cert FILE --key FILE"), "{message}");
    let message = certificates(&["--origin=tcp://o:1", "--cert=a,b", "--key=c"]).unwrap_err();
    assert!(message.starts_with("error: 2 times --cert and 1 times --key"), "{message}");
    let files = certificates(&["--origin=tcp://o:1", "--cert=a", "--cert=b", "--key=c,d"]).unwrap();
    let shown: Vec<_> = files
        .iter()
        .map(|files| format!("{} {}", files.chain.display(), files.key.display()))
        .collect();
    assert_eq!(shown, ["a c", "b d"]);
    let files = certificates(&["--origin=http://o", "--cert=both.pem"]).unwrap();
    assert_eq!(files[0].chain, files[0].key);
    for flag in ["--cert=a", "--key=a", "--keys=a", "--early-data-requests=safe", "--fast-open"] {
        let message = certificates(&["--origin=o:1", flag]).unwrap_err();
        let option = flag.split('=').next().unwrap();
        assert!(
            message.starts_with(&format!("error: {option} is given, but all origins")),
            "{message}"
        );
        assert!(message.contains("\nhint: so that the edge speaks TLS, write"), "{message}");
    }
}

#[test]
fn an_open_proxy_must_be_wanted() {
    for address in ["0.0.0.0:1080", "[::]:1080", "192.0.2.1:1080", "[::ffff:192.0.2.1]:1080"] {
        let agent: AgentOptions = load(&["agent", "--listen", address]);
        let text = agent.listen().unwrap_err().to_string();
        assert!(text.contains("--allow-remote"), "{text}");
        let agent: AgentOptions = load(&["agent", "--listen", address, "--allow-remote"]);
        assert!(agent.listen().is_ok());
    }
    let agent: AgentOptions = load(&["agent", "--listen", "127.9.9.9:1,[::ffff:127.0.0.1]:1"]);
    assert!(agent.listen().is_ok());
}

#[test]
fn urls_are_https_or_http() {
    load::<GetOptions>(&["get", "https://www.example.com/a?b"]);
    for (url, reason) in [
        ("ftp://www.example.com/", "only https and http are"),
        ("www.example.com", "write the scheme too: https://www.example.com"),
        ("https://", "invalid value"),
        ("not a url", "invalid value"),
    ] {
        let message = words(call(&["get", url]).load::<GetOptions>().unwrap_err());
        assert!(message.contains(reason), "{message}");
    }
}
