//! Scripts that ask for the next resources, and the data that they get.

use std::fmt::Write;

use super::content::words;
use super::description::{Site, SiteKind};

/// Asks for what is in `next`. Data names what follows it in turn. What is seen goes into the page,
/// whether its body has begun or not.
///
/// By XMLHttpRequest: of pictures that a callback of fetch() inserts, Chromium says that the
/// document asked for them.
const LOADER: &str = r#"  function put(element) {
    (document.body || document.documentElement).appendChild(element);
  }
  function make(name, attribute, url) {
    var element = document.createElement(name);
    element[attribute] = url;
    put(element);
    return element;
  }
  function get(url) {
    var request = new XMLHttpRequest();
    request.open("GET", url);
    request.onload = function () { all(JSON.parse(request.responseText)); };
    request.send();
  }
  function go(kind, url) {
    if (kind === "script") make("script", "src", url);
    else if (kind === "style") make("link", "href", url).rel = "stylesheet";
    else if (kind === "image") make("img", "src", url).alt = "";
    else if (kind === "frame") make("iframe", "src", url).title = kind;
    else if (kind === "font") new FontFace("next", "url(" + url + ")").load();
    else get(url);
  }
  function all(list) { list.next.forEach(function (one) { go(one[0], one[1]); }); }
"#;

pub(super) fn script(site: &Site, resource: usize, lang: &str) -> String {
    let id = site.resources().get(resource).map_or("", |one| one.id.as_str());
    let next = next(site, resource, lang);
    let mut text = format!("// {}: {id}\n", site.title());
    if next != "[]" {
        let _ = write!(text, "(function () {{\n{LOADER}  all({{ next: {next} }});\n}})();\n");
    }
    text
}

/// Returns data that names the next resource, padded to this many bytes.
pub(super) fn data(site: &Site, resource: usize, lang: &str, bytes: usize) -> String {
    let head = format!("{{\"next\":{},\"text\":\"", next(site, resource, lang));
    let rest = bytes.saturating_sub(head.len() + 2);
    format!("{head}{}\"}}", words(&format!("{resource}"), rest))
}

/// Returns a comment of this many bytes; spaces where that is too few for one.
pub(super) fn comment(open: &str, close: &str, name: &str, bytes: usize) -> String {
    match bytes.checked_sub(open.len() + close.len()) {
        Some(room) => format!("{open}{}{close}", words(name, room)),
        None => " ".repeat(bytes),
    }
}

/// A list of kinds and URLs, the same as JSON and in scripts.
fn next(site: &Site, resource: usize, lang: &str) -> String {
    let all: Vec<String> = site
        .children(resource)
        .into_iter()
        .map(|child: usize| {
            let kind = match site.resources().get(child).map(|one| one.kind) {
                Some(SiteKind::Style) => "style",
                Some(SiteKind::Script) => "script",
                Some(SiteKind::Font) => "font",
                Some(SiteKind::Image) => "image",
                Some(SiteKind::Document) => "frame",
                Some(SiteKind::Data) | None => "data",
            };
            format!("[\"{kind}\",\"{}\"]", site.url_of(child).replace("{lang}", lang))
        })
        .collect();
    format!("[{}]", all.join(","))
}
