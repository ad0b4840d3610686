//! Browsers that are none, played by scripts: these need no Chromium.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::place::Place;

const PAGE: &str = "http://127.0.0.1:9/";

/// A script that is called as Chromium is: commands come by descriptor 3, answers go to 4.
fn script(place: &Place, text: &str) -> String {
    let path = place.path("browser");
    // It knows the profile as Chromium does, so that it is found if it is left behind.
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

const VERSION: &str =
    r#"printf '{"id":1,"result":{"product":"Chrome/%s.0.1.2"}}\000' "$VERSION" >&4"#;

#[test]
fn without_chromium_the_hint_names_the_package() {
    let place = Place::new();
    let output = place.command(&["news"]).env("PATH", place.path("tmp")).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err.starts_with("error: there is no Chromium") && err.contains("apt install"), "{err}");
    place.call(&["news", "--browser", "nowhere"]).failed(2, "nowhere is no program");
}

#[test]
fn a_browser_that_ends_tells_its_last_words() {
    let place = Place::new();
    let browser = script(&place, "echo 'no display' >&2; exit 3");
    let report = place.call(&[PAGE, "--browser", &browser]);
    report.failed(1, "Chromium ended");
    report.failed(1, "no display");
}

#[test]
fn browser_text_cannot_control_the_terminal() {
    let place = Place::new();
    let ends = script(&place, r"printf 'no \033[31mdisplay\033]0;x\007\n' >&2; exit 3");
    let output = place.call(&[PAGE, "--browser", &ends]);
    output.failed(1, "no  [31mdisplay ]0;x");
    assert!(!output.err.contains(['\x1b', '\x07']), "{output:?}");
    let refusal = r#"{"id":2,"error":{"message":"no \u001b[31mway\u009b"}}"#;
    let refuses =
        format!("VERSION=156; {VERSION}; printf '%s\\000' '{refusal}' >&4; exec sleep 1000");
    let output = place.call(&[PAGE, "--browser", &script(&place, &refuses)]);
    output.failed(1, "refuses Browser.setDownloadBehavior: no  [31mway");
    assert!(!output.err.contains(['\x1b', '\u{9b}']), "{output:?}");
}

#[test]
fn a_proxy_with_a_login_is_refused() {
    let place = Place::new();
    for proxy in ["socks5://me:secret@127.0.0.1:9", "http://secret@127.0.0.1:9", "me:secret@a:1"] {
        let output = place.call(&[PAGE, "--proxy", proxy]);
        output.failed(2, "--proxy has a user or password");
        assert!(output.err.contains("hint: ") && !output.err.contains("secret"), "{output:?}");
    }
}

#[test]
fn a_browser_that_says_nonsense_is_ended() {
    let place = Place::new();
    let browser = script(&place, "printf 'hello\\000' >&4; exec sleep 1000");
    place.call(&[PAGE, "--browser", &browser]).failed(1, "Chromium ended");
}

#[test]
fn a_browser_that_hangs_is_ended_with_what_it_started() {
    let place = Place::new();
    let browser = script(&place, "sh -c 'sleep 1000 & wait' \"$@\" & wait");
    place.call(&[PAGE, "--browser", &browser]).failed(1, "gave no answer to Browser.getVersion");
}

#[test]
fn other_versions_are_refused_or_doubted() {
    let place = Place::new();
    let old = script(&place, &format!("VERSION=98; {VERSION}; exec sleep 1000"));
    place.call(&[PAGE, "--browser", &old]).failed(1, "is version 98");
    let new = script(&place, &format!("VERSION=999; {VERSION}; sleep 1; exit 7"));
    let report = place.call(&[PAGE, "--browser", &new]);
    report.failed(1, "and this one is 999");
    report.failed(1, "Chromium ended");
}
