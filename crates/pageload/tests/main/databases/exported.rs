//! Forms in which databases are exported.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use headstart_pageload::db::export::{
    EXTENSION_MAGIC, Extension, LINK_BYTES, Links, SpeculationRules,
};
use headstart_pageload::db::{
    Database, FileError, HEADER_BYTES, Hop, Kind, PageEntry, Parts, Prefetch, Redirect, SecretKey,
    read,
};
use headstart_proto::UnixSeconds;
use serde_json::json;

use super::made::{example, page_entry};
use super::pages::target;

#[test]
fn links_of_a_page() {
    let database = example();
    let links = Links::for_page(database.page(&target("https://www.example.com/")).unwrap());
    let expected = [
        "<https://static.example.com>; rel=preconnect",
        "<https://fonts.example.net>; rel=preconnect; crossorigin",
        "<https://static.example.com/a/main.css>; rel=preload; as=style",
        "<https://static.example.com/a/main.js?v=1>; rel=preload; as=script",
        "<https://fonts.example.net/f.woff2>; rel=preload; as=font; crossorigin",
    ];
    assert_eq!(links.links, expected);
    // The http server of an https page, and data of an unknown kind.
    assert_eq!(links.left_out, 2);
}

#[test]
fn links_have_bounds() {
    let path = "x".repeat(500);
    let mut page = page_entry("https://a.test/");
    page.prefetch = (0..10)
        .map(|number: u32| Prefetch {
            target: target(&format!("https://b.test/{number}{path}")),
            kind: Kind::Image,
        })
        .collect();
    let links = Links::for_page(&page);
    let bytes: usize = links.links.iter().map(String::len).sum();
    assert!(bytes <= LINK_BYTES && links.links.len() == LINK_BYTES / 550 && links.left_out == 3);
}

#[test]
fn speculation_rules_of_an_origin() {
    let pages = ["https://a.test/", "https://a.test/news?today", "https://b.test/"].map(page_entry);
    let database = Database::new(UnixSeconds(1), Parts::ALL, pages.into(), [].into()).unwrap();
    let rules = SpeculationRules::for_origin(&database, &target("https://a.test/x").origin);
    let expected = json!({"prefetch": [
        {"source": "list", "eagerness": "moderate", "urls": ["/", "/news?today"]}
    ]});
    assert_eq!(serde_json::to_value(&rules).unwrap(), expected);
    let none = SpeculationRules::for_origin(&database, &target("https://c.test/").origin);
    assert_eq!(serde_json::to_value(&none).unwrap(), json!({"prefetch": []}));
}

/// `//b.test/x` on a page of a.test is a URL of b.test.
#[test]
fn paths_that_look_like_hosts_are_written_whole() {
    let mut page = page_entry("https://a.test//b.test/x");
    let style = "https://a.test//b.test/y.css";
    page.prefetch = vec![Prefetch { target: target(style), kind: Kind::Style }];
    assert_eq!(Links::for_page(&page).links, [format!("<{style}>; rel=preload; as=style")]);
    let database = Database::new(UnixSeconds(1), Parts::ALL, vec![page], [].into()).unwrap();
    let rules = SpeculationRules::for_origin(&database, &target("https://a.test/").origin);
    assert_eq!(rules.prefetch[0].urls, ["https://a.test//b.test/x"]);
}

#[test]
fn an_extension_gets_redirects_and_connections() {
    let permanent = serde_json::to_value(Extension::from_database(&example(), false)).unwrap();
    assert_eq!(permanent["version"], 2);
    assert_eq!(permanent["databases"], json!(["redirect", "server"]));
    // One step to the document is temporary, and no other URL than of documents is for the
    // extension.
    assert_eq!(permanent["redirects"], json!([]));
    let news = &permanent["pages"]["https://news.example.org/today"];
    let expected =
        json!([{"origin": "https://fonts.example.net", "anonymous": true, "connections": 1}]);
    assert_eq!(*news, expected);
    // The http server of an https page stays where it is.
    let home = &permanent["pages"]["https://www.example.com/"];
    let origins: Vec<_> = home.as_array().unwrap().iter().map(|of| &of["origin"]).collect();
    let expected =
        ["https://static.example.com", "https://www.example.com", "https://fonts.example.net"];
    assert_eq!(origins, expected);
    let all = serde_json::to_value(Extension::from_database(&example(), true)).unwrap();
    let expected = json!([{"from": "http://example.com/", "to": "https://www.example.com/"}]);
    assert_eq!(all["redirects"], expected);
}

#[test]
fn inexpressible_entries_are_counted() {
    let hops = vec![Hop { to: target("https://a.test/"), permanent: true }];
    let redirect =
        |from: &str| Redirect { from: target(from), hops: hops.clone(), of_document: true };
    let redirects = vec![
        redirect("https://a.test/*"),
        redirect("https://a.test/b|c"),
        redirect("https://a.test/d"),
    ];
    let page = PageEntry { redirects, ..page_entry("https://a.test/") };
    let database = Database::new(UnixSeconds(1), Parts::ALL, vec![page], [].into()).unwrap();
    let extension = Extension::from_database(&database, false);
    assert_eq!((extension.redirects.len(), extension.redirects_left_out), (1, 2));
}

/// docs/vectors/extension_database.txt, which the extension's own tests read, too.
#[test]
fn a_file_for_the_extension_is_as_written_down() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vectors/extension_database.txt");
    let text = std::fs::read_to_string(path).unwrap_or_default().replace("\n    ", " ");
    let vectors: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(" = ")).collect();
    let key = SecretKey::from_bytes(&[0x5e; 32]);
    let file = Extension::write(&example(), true, &key).unwrap();
    assert_eq!(file[..8], EXTENSION_MAGIC);
    assert_eq!(hex(&key.public().to_bytes()), vectors["public"]);
    assert_eq!(hex(&file), vectors["file"]);
    // No database for `db fetch`, whoever signed it.
    assert_eq!(read(&file, &[key.public()]).unwrap_err(), FileError::Magic);
    let mut json = String::new();
    GzDecoder::new(&file[HEADER_BYTES..]).read_to_string(&mut json).unwrap();
    assert_eq!(json, serde_json::to_string(&Extension::from_database(&example(), true)).unwrap());
}

fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.chunks(32).map(|line| line.join(" ")).collect::<Vec<_>>().join(" ")
}
