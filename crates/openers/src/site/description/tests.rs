use super::*;

fn parse(resources: &str) -> Result<Site, String> {
    let text = format!(
        "name = 'x'\ntitle = 'X'\nabout = ''\n[hosts]\na = {{ name = 'a.test', think = '5ms' \
            }}\n[resources]\n{resources}"
    );
    Site::parse(&text).map_err(|error| error.to_string())
}

#[test]
fn the_built_in_sites_match_the_published_means() {
    assert_eq!(Site::names(), ["news", "shop", "app"]);
    for (site, redirects) in built_in().into_iter().zip([0, 3, 0]) {
        let SiteShape { bytes, median_bytes, .. } = site.shape();
        assert!((2_050_000..=2_150_000).contains(&bytes), "{}: {bytes}", site.name);
        assert!((2_850..=3_150).contains(&median_bytes), "{}: {median_bytes}", site.name);
        let shape = SiteShape {
            resources: 104,
            hosts: 20,
            largest_host: 34,
            bytes,
            median_bytes,
            height: 15,
            redirects,
        };
        assert_eq!(site.shape(), shape, "{}", site.name);
    }
}

#[test]
fn no_two_sites_share_a_host() {
    let all = built_in();
    let names: HashSet<&str> =
        all.iter().flat_map(|site| site.hosts()).map(|host| host.name.as_str()).collect();
    assert_eq!(names.len(), all.iter().map(|site| site.hosts().len()).sum::<usize>());
    assert!(names.iter().all(|name| name.ends_with(".test")));
}

#[test]
fn counts_are_expanded_and_redirects_have_the_kind_of_their_target() {
    let site = parse(
        "z = { host = 'a', path = '/', bytes = 900 }\n\
         i = { from = 'z', host = 'a', path = '/{n}.png', count = 3, bytes = [100, 400] }\n\
         r = { from = 'z', host = 'a', path = '/r', redirect = 307 }\n\
         s = { from = 'r', host = 'a', path = '/s.js', bytes = 50, think = '1s' }",
    )
    .unwrap();
    let [first, second, third, redirect, script] = ["i-1", "i-2", "i-3", "r", "s"]
        .map(|id| site.resources().iter().find(|one| one.id == id).unwrap());
    assert_eq!([first.bytes, second.bytes, third.bytes], [100, 200, 400]);
    assert_eq!(second.path, "/2.png");
    assert_eq!((redirect.kind, redirect.bytes), (SiteKind::Script, 0));
    assert_eq!(redirect.think, Duration::from_millis(5));
    assert_eq!(script.think, Duration::from_secs(1));
    assert_eq!((site.url(), site.shape().height), ("https://a.test/".into(), 3));
    let kinds: Vec<_> = site.children(0).iter().map(|&at| site.resources()[at].kind).collect();
    assert_eq!(kinds[..2], [SiteKind::Script, SiteKind::Image], "in the order of pages");
}

#[test]
fn descriptions_that_no_browser_would_load_are_rejected() {
    let first = "z = { host = 'a', path = '/', bytes = 9 }\n";
    for (more, reason) in [
        ("y = { host = 'a', path = '/y.css', bytes = 1 }", "requested by no other"),
        ("y = { from = 'x', host = 'a', path = '/y.css' }", "unknown resource, or by itself"),
        ("y = { from = 'y', host = 'a', path = '/y.css' }", "unknown resource, or by itself"),
        ("y = { from = 'z', host = 'b', path = '/y.css' }", "on an unknown host"),
        ("y = { from = 'z', host = 'a', path = '/' }", "the same path as another"),
        ("y = { from = 'z', host = 'a', path = 'y.css' }", "an invalid path"),
        ("y = { from = 'z', host = 'a', path = '/\"y.css' }", "an invalid path"),
        ("y = { from = 'z', host = 'a', path = '/<y.css' }", "an invalid path"),
        ("y = { from = 'z', host = 'a', path = '/y?.css' }", "an invalid path"),
        ("y = { from = 'z', host = 'a', path = '/x/../y.css' }", "an invalid path"),
        ("'*/' = { from = 'z', host = 'a', path = '/y.css' }", "letters, digits"),
        ("y = { from = 'z', host = 'a', path = '/y', redirect = 302 }", "exactly one other"),
        ("y = { from = 'z', host = 'a', path = '/y.ttf' }", "cannot request"),
        ("y = { from = 'z', host = 'a', path = '/y', bytes = 300000000 }", "above 268"),
        ("y = { from = 'z', host = 'a', path = '/{lang}', bytes = 100000000 }", "above 268"),
        (
            "y = { from = 'z', host = 'a', path = '/y.json' }\n\
             x = { from = 'y', host = 'a', path = '/x.png' }",
            "y cannot request x",
        ),
        (
            "r = { from = 'z', host = 'a', path = '/r', redirect = 302 }\n\
             y = { from = 'r', host = 'a', path = '/y.json' }\n\
             x = { from = 'y', host = 'a', path = '/x.png' }",
            "y cannot request x",
        ),
        ("y = { from = 'z', host = 'a', path = '/{n}', count = 100000 }", "exceeds the limit"),
        ("y = { from = 'z', host = 'a', path = '/y', think = 'soon' }", "think"),
        ("y = { from = 'z', host = 'a', path = '/y', else = 1 }", "unknown field"),
    ] {
        let error = parse(&format!("{first}{more}")).unwrap_err();
        assert!(error.contains(reason), "{more}: {error}");
    }
    let no_document = parse("z = { host = 'a', path = '/z.png' }").unwrap_err();
    assert!(no_document.contains("not a document"), "{no_document}");
    assert!(parse("").unwrap_err().contains("no resources"));
}

#[test]
fn data_that_a_script_loads_may_request_more_even_after_a_redirect() {
    parse(
        "z = { host = 'a', path = '/', bytes = 9 }\n\
         s = { from = 'z', host = 'a', path = '/s.js' }\n\
         r = { from = 's', host = 'a', path = '/r', redirect = 302 }\n\
         y = { from = 'r', host = 'a', path = '/y.json' }\n\
         x = { from = 'y', host = 'a', path = '/x.json' }\n\
         w = { from = 'x', host = 'a', path = '/w.png' }",
    )
    .unwrap();
}

fn site(host: &str, title: &str) -> Result<Site, PeerError> {
    Site::parse(&format!(
        "name = 'x'\ntitle = '{title}'\nabout = ''\n[hosts]\na = {{ name = '{host}' }}\n\
         [resources]\nz = {{ host = 'a', path = '/', bytes = 9 }}"
    ))
}

#[test]
fn host_names_are_safe_as_file_names() {
    let label = "a".repeat(63);
    for valid in ["a", "x-1.test", &format!("{label}.test")] {
        site(valid, "X").unwrap();
    }
    let long = [label.as_str(); 4].join(".");
    for invalid in [
        "",
        "../../etc/x",
        "/etc/cron.d/x",
        "..",
        "a..test",
        "a.test.",
        "A.test",
        "a.test, MAP * b",
        "a_b.test",
        "\u{e4}.test",
        &format!("{label}a.test"),
        &long,
    ] {
        let error = site(invalid, "X").unwrap_err().to_string();
        assert!(error.contains("not a host name"), "{invalid}: {error}");
    }
    for title in ["<b>", "a & b", "a\tb"] {
        let error = site("a.test", title).unwrap_err().to_string();
        assert!(error.contains("title"), "{title}: {error}");
    }
}
