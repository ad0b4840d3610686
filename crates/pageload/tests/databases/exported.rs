//! What databases are written out as.

use headstart_pageload::db::export::{Extension, LINK_BYTES, Links, SpeculationRules};
use headstart_pageload::db::{Database, Hop, Kind, PageEntry, Parts, Prefetch, Redirect, Target};
use headstart_proto::UnixSeconds;
use serde_json::json;

use super::made::{example, page_entry};

fn target(url: &str) -> Target {
    url.parse().unwrap()
}

#[test]
fn links_of_a_page() {
    let database = example();
    let links = Links::of(database.page(&target("https://www.example.com/")).unwrap());
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
    let url = |number| target(&format!("https://b.test/{number}{path}"));
    page.prefetch =
        (0..10).map(|number| Prefetch { target: url(number), kind: Kind::Image }).collect();
    let links = Links::of(&page);
    let bytes: usize = links.links.iter().map(String::len).sum();
    assert!(bytes <= LINK_BYTES && links.links.len() == LINK_BYTES / 550 && links.left_out == 3);
}

#[test]
fn speculation_rules_of_an_origin() {
    let pages = ["https://a.test/", "https://a.test/news?today", "https://b.test/"].map(page_entry);
    let database = Database::new(UnixSeconds(1), Parts::ALL, pages.into(), [].into()).unwrap();
    let rules = SpeculationRules::of(&database, &target("https://a.test/x").origin);
    let expected = json!({"prefetch": [
        {"source": "list", "eagerness": "moderate", "urls": ["/", "/news?today"]}
    ]});
    assert_eq!(serde_json::to_value(&rules).unwrap(), expected);
    let none = SpeculationRules::of(&database, &target("https://c.test/").origin);
    assert_eq!(serde_json::to_value(&none).unwrap(), json!({"prefetch": []}));
}

/// `//b.test/x` on a page of a.test is a URL of b.test.
#[test]
fn paths_that_look_like_hosts_are_written_whole() {
    let mut page = page_entry("https://a.test//b.test/x");
    let style = "https://a.test//b.test/y.css";
    page.prefetch = vec![Prefetch { target: target(style), kind: Kind::Style }];
    assert_eq!(Links::of(&page).links, [format!("<{style}>; rel=preload; as=style")]);
    let database = Database::new(UnixSeconds(1), Parts::ALL, vec![page], [].into()).unwrap();
    let rules = SpeculationRules::of(&database, &target("https://a.test/").origin);
    assert_eq!(rules.prefetch[0].urls, ["https://a.test//b.test/x"]);
}

#[test]
fn an_extension_gets_rules_and_lists() {
    let permanent = serde_json::to_value(Extension::of(&example(), false)).unwrap();
    let rule = json!({
        "id": 1,
        "priority": 1,
        "action": {"type": "redirect", "redirect": {"url": "https://static.example.com/new.js"}},
        "condition": {
            "urlFilter": "|https://www.example.com/old.js|",
            "isUrlFilterCaseSensitive": true,
            "requestMethods": ["get"],
            "resourceTypes": ["sub_frame", "stylesheet", "script", "image", "font", "xmlhttprequest", "media", "other"],
        },
    });
    assert_eq!(permanent["rules"], json!([rule]));
    assert_eq!(
        permanent["http2"],
        json!(["fonts.example.net", "other.example", "www.example.com"])
    );
    assert_eq!(permanent["http3"], json!(["fonts.example.net"]));
    assert_eq!(permanent["databases"], json!(["redirect", "server", "http2", "prefetch"]));
    let news = &permanent["pages"]["https://news.example.org/today"];
    let preconnect =
        json!([{"origin": "https://fonts.example.net", "anonymous": true, "connections": 1}]);
    assert_eq!(*news, json!({"preconnect": preconnect, "prefetch": []}));
    // The http server of an https page stays where it is.
    let home = &permanent["pages"]["https://www.example.com/"]["preconnect"];
    let origins: Vec<_> = home.as_array().unwrap().iter().map(|of| &of["origin"]).collect();
    let expected =
        ["https://static.example.com", "https://www.example.com", "https://fonts.example.net"];
    assert_eq!(origins, expected);
    let all = Extension::of(&example(), true);
    let to_document = all.rules.iter().find(|rule| rule.condition.resource_types == ["main_frame"]);
    assert_eq!(to_document.unwrap().action.redirect.url, "https://www.example.com/");
    assert_eq!(all.rules.len(), 2);
}

#[test]
fn what_no_rule_can_say_is_counted() {
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
    let extension = Extension::of(&database, false);
    assert_eq!((extension.rules.len(), extension.rules_left_out), (1, 2));
}
