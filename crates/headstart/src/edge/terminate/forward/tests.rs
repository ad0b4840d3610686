use hyper::Request;

use super::*;

const HOP: Hop<'_> = Hop { client: None, certificate: None, early: false, server_name: None };

fn head(version: Version, uri: &str, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().version(version).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns the request that the origin at `o:1` gets.
fn pass(head: request::Parts, hop: Hop<'_>) -> Result<request::Parts, Refusal> {
    pass_with(head, false, hop)
}

fn pass_with(
    head: request::Parts,
    has_body: bool,
    hop: Hop<'_>,
) -> Result<request::Parts, Refusal> {
    let authority = authority(&head, &hop)?;
    let claims = Claims::new(vec![HeaderName::from_static("x-internal")]);
    request(head, has_body, &authority, &uri::Authority::from_static("o:1"), &hop, &claims)
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.iter();
    let mut lines: Vec<_> =
        lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[test]
fn an_origin_is_told_who_asks_and_how() {
    let headers = [("host", "www.example.com"), ("x", "y")];
    let [four, six] = ["::ffff:192.0.2.1", "2001:db8::1"].map(|client| {
        let hop = Hop { client: Some(client.parse().unwrap()), ..HOP };
        pass(head(Version::HTTP_11, "/a?b", &headers), hop).unwrap()
    });
    assert_eq!(
        lines(&four.headers),
        [
            "forwarded: for=192.0.2.1;proto=https",
            "host: www.example.com",
            "via: 1.1 headstart",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-proto: https",
            "x: y",
        ]
    );
    assert_eq!((four.uri.to_string(), four.version), ("http://o:1/a?b".into(), Version::HTTP_11));
    assert_eq!(six.headers["forwarded"], "for=\"[2001:db8::1]\";proto=https");
    assert_eq!(six.headers["x-forwarded-for"], "2001:db8::1");
}

#[test]
fn an_address_that_is_not_proven_is_not_told() {
    let get = head(Version::HTTP_11, "/", &[("host", "h")]);
    let passed = pass(get, Hop { early: true, ..HOP }).unwrap();
    assert_eq!(passed.headers["forwarded"], "for=unknown;proto=https");
    assert_eq!(passed.headers["x-forwarded-for"], "unknown");
    assert_eq!(passed.headers["early-data"], "1");
}

#[test]
fn early_data_of_a_proxy_before_us_stays_known() {
    let own = [("host", "h"), ("early-data", "0"), ("early-data", "1")];
    for early in [false, true] {
        let passed = pass(head(Version::HTTP_11, "/", &own), Hop { early, ..HOP }).unwrap();
        let values: Vec<_> = passed.headers.get_all("early-data").iter().collect();
        assert_eq!(values, ["1"], "and in no other words");
    }
}

#[test]
fn what_clients_claim_is_dropped() {
    let claims = [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-forwarded-user",
        "x-real-ip",
        "x_forwarded_for",
        "X_Real-IP",
        "Proxy",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Client-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "Content_Length",
        "Transfer_Encoding",
        "Early_Data",
        "HTTP2_Settings",
        "Content.Length",
        "x.forwarded.for",
        "X.Real_IP",
        "Proxy-Client-IP",
        "WL-Proxy-Client-IP",
        "X-Envoy-External-Address",
        "X-Azure-ClientIP",
        "X-Host",
        "X-Scheme",
        "Front-End-Https",
        "X-Internal",
        "x_internal",
        "x.internal",
    ];
    let claims = claims.map(|name| (name, "192.0.2.66"));
    let headers = [&claims[..], &[("host", "h")]].concat();
    let passed = pass(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
    assert!(!lines(&passed.headers).join("\n").contains("192.0.2.66"));
    assert_eq!(passed.headers.len(), 5);
}

#[test]
fn what_belongs_to_the_connection_stays_there() {
    let headers = [
        ("host", "h"),
        ("connection", "close, X-Secret"),
        ("connection", "te"),
        ("x-secret", "s"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("expect", "100-continue"),
        ("upgrade", "websocket"),
        ("trailer", "x"),
        ("x", "y"),
    ];
    let passed = pass(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
    let names: Vec<_> = lines(&passed.headers)
        .iter()
        .filter_map(|line| line.split(':').next().map(str::to_owned))
        .collect();
    assert_eq!(names, ["forwarded", "host", "via", "x-forwarded-for", "x-forwarded-proto", "x"]);
}

#[test]
fn an_upgrade_is_asked_for_only_by_http_1_1() {
    let headers = [("host", "h"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    let upgraded = pass(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
    assert_eq!(upgraded.headers["connection"], "upgrade");
    assert_eq!(upgraded.headers["upgrade"], "websocket");
    let old = pass(head(Version::HTTP_10, "/", &headers), HOP).unwrap();
    assert!(!old.headers.contains_key("upgrade") && !old.headers.contains_key("connection"));
}

#[test]
fn no_version_of_http_is_upgraded_to() {
    for protocol in ["h2c", "websocket, H2C", "HTTP/2.0"] {
        let headers = [("host", "h"), ("connection", "upgrade"), ("upgrade", protocol)];
        let passed = pass(head(Version::HTTP_11, "/", &headers), HOP).unwrap();
        assert!(!passed.headers.contains_key("upgrade"), "{protocol}");
    }
}

fn head_of_response(headers: &[(&str, &str)]) -> response::Parts {
    let mut response = hyper::Response::builder();
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

/// Returns the fields by which the origin finds the end of a request of `method` with these
/// headers.
fn delimiters(
    method: Method,
    headers: &[(&str, &str)],
    has_body: bool,
) -> Result<Vec<String>, &'static str> {
    let mut head = head(Version::HTTP_11, "/", &[&[("host", "h")][..], headers].concat());
    head.method = method;
    let passed = pass_with(head, has_body, HOP).map_err(|refusal| refusal.why)?;
    Ok(lines(&passed.headers)
        .into_iter()
        .filter(|line: &String| line.starts_with("content-l") || line.starts_with("transfer"))
        .collect())
}

#[test]
fn a_request_has_one_end() {
    let (chunked, five) = (("transfer-encoding", "chunked"), ("content-length", "5"));
    for (method, headers, has_body, expected) in [
        (Method::GET, &[][..], false, &[][..]),
        (Method::DELETE, &[], false, &[]),
        (Method::POST, &[], false, &["content-length: 0"]),
        (Method::POST, &[five], true, &["content-length: 5"]),
        (Method::POST, &[five, five], true, &["content-length: 5"]),
        (Method::POST, &[("content-length", "5, 5")], true, &["content-length: 5"]),
        (Method::POST, &[("content-length", "05")], true, &["content-length: 5"]),
        (Method::POST, &[five, ("connection", "content-length")], true, &["content-length: 5"]),
        (Method::POST, &[chunked, five], true, &["transfer-encoding: chunked"]),
        (Method::POST, &[five, chunked], true, &["transfer-encoding: chunked"]),
        (Method::POST, &[("transfer-encoding", "Chunked")], true, &["transfer-encoding: chunked"]),
        // HTTP/2 needs neither.
        (Method::POST, &[], true, &["transfer-encoding: chunked"]),
        (Method::GET, &[], true, &["transfer-encoding: chunked"]),
        (Method::GET, &[five], true, &["content-length: 5"]),
        // Nothing follows, whatever was announced.
        (Method::GET, &[five], false, &["content-length: 0"]),
    ] {
        let found = delimiters(method.clone(), headers, has_body).unwrap();
        assert_eq!(found, expected, "{method} {headers:?}");
    }
    for lengths in [&["5", "6"][..], &["5, 6"], &["+5"], &["0x5"], &["5 5"], &[""], &["5", ""]] {
        let headers: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
        let found = delimiters(Method::POST, &headers, true);
        assert_eq!(found, Err("more than one length"), "{lengths:?}");
    }
}

#[test]
fn http_2_becomes_http_1_1() {
    let headers = [("cookie", "a=1"), ("cookie", "b=2")];
    let passed = pass(head(Version::HTTP_2, "https://www.example.com/x", &headers), HOP).unwrap();
    assert_eq!(passed.headers["host"], "www.example.com");
    assert_eq!(passed.headers["cookie"], "a=1; b=2");
    assert_eq!(passed.headers["via"], "2 headstart");
    assert_eq!(passed.uri.path(), "/x");
}

#[test]
fn an_absolute_form_goes_before_host() {
    let get = head(Version::HTTP_11, "http://a.example/x", &[("host", "b.example")]);
    assert_eq!(pass(get, HOP).unwrap().headers["host"], "a.example");
}

/// Returns the reason why the request is refused.
fn refused(version: Version, uri: &str, headers: &[(&str, &str)]) -> &'static str {
    pass(head(version, uri, headers), HOP).unwrap_err().why
}

#[test]
fn a_request_without_one_host_is_refused() {
    assert_eq!(refused(Version::HTTP_11, "/", &[]), "no host");
    assert_eq!(refused(Version::HTTP_10, "/", &[]), "no host");
    let two = [("host", "a"), ("host", "b")];
    assert_eq!(refused(Version::HTTP_11, "/", &two), "more than one Host");
    assert_eq!(refused(Version::HTTP_11, "/", &[("host", "a b")]), "Host is no host");
    assert_eq!(refused(Version::HTTP_11, "/", &[("host", "u@a")]), "a user in the host");
    let other = [("host", "b.example")];
    assert_eq!(
        refused(Version::HTTP_2, "https://a.example/", &other),
        "Host and :authority differ"
    );
    // The authority form does not name the requested host.
    let bare = head(Version::HTTP_11, "a.example:443", &[("host", "a.example")]);
    assert_eq!(pass(bare, HOP).unwrap_err().why, "no path");
    let named = Hop { server_name: Some("n.example"), ..HOP };
    let old = pass(head(Version::HTTP_10, "/", &[]), named).unwrap();
    assert_eq!(old.headers["host"], "n.example");
}

#[test]
fn connect_is_for_proxies() {
    let mut connect = head(Version::HTTP_2, "https://a.example:443/", &[]);
    connect.method = Method::CONNECT;
    assert_eq!(pass(connect, HOP).unwrap_err().status, StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn a_response_that_never_has_a_body_has_no_length() {
    for status in [StatusCode::NO_CONTENT, StatusCode::SWITCHING_PROTOCOLS] {
        let mut head = head_of_response(&[("content-length", "3")]);
        head.status = status;
        response(&mut head, false, true).unwrap();
        assert!(head.headers.is_empty(), "{status}");
    }
}

#[test]
fn the_asterisk_form_stays() {
    let mut options = head(Version::HTTP_11, "*", &[("host", "h")]);
    options.method = Method::OPTIONS;
    assert_eq!(pass(options, HOP).unwrap().uri.path(), "*");
}

#[test]
fn a_response_has_one_length_or_none() {
    for (headers, expected) in [
        (&[("content-length", "3")][..], "content-length: 3"),
        (&[("content-length", "3"), ("content-length", "3")], "content-length: 3"),
        (&[("content-length", "3, 3")], "content-length: 3"),
        // As for HEAD, where no body tells which one is right.
        (&[("content-length", "3"), ("content-length", "4")], ""),
        (&[("content-length", "3"), ("transfer-encoding", "chunked")], ""),
    ] {
        let mut head = head_of_response(headers);
        response(&mut head, false, true).unwrap();
        assert_eq!(lines(&head.headers).join("\n"), expected, "{headers:?}");
    }
}

/// It would pass as plain text, which it is not.
#[test]
fn transfer_codings_are_chunked_or_refused() {
    for codings in [&["gzip, chunked"][..], &["gzip"], &["chunked, chunked"], &["gzip", "chunked"]]
    {
        let headers: Vec<_> = codings.iter().map(|coding| ("transfer-encoding", *coding)).collect();
        let refused = pass_with(
            head(Version::HTTP_11, "/", &[&[("host", "h")][..], &headers[..]].concat()),
            true,
            HOP,
        );
        assert_eq!(refused.unwrap_err().status, StatusCode::NOT_IMPLEMENTED, "{codings:?}");
        let mut head = head_of_response(&headers);
        assert_eq!(response(&mut head, false, true), Err(UnknownCoding), "{codings:?}");
    }
}

#[test]
fn a_response_keeps_end_to_end_fields() {
    let builder = hyper::Response::builder()
        .version(Version::HTTP_10)
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("keep-alive", "timeout=5")
        .header("upgrade", "h2c")
        .header("content-length", "3");
    let mut head = builder.body(()).unwrap().into_parts().0;
    response(&mut head, false, true).unwrap();
    assert_eq!(
        (lines(&head.headers).join("\n"), head.version),
        ("content-length: 3".into(), Version::HTTP_11)
    );
}

#[test]
fn trailers_are_announced_to_those_who_get_them() {
    let request = head(Version::HTTP_11, "/", &[("te", "trailers")]);
    assert!(takes_trailers(Version::HTTP_11, &request.headers));
    assert!(!takes_trailers(Version::HTTP_10, &request.headers));
    assert!(!takes_trailers(Version::HTTP_11, &HeaderMap::new()));
    assert!(takes_trailers(Version::HTTP_2, &HeaderMap::new()));
    for (trailers, headers, expected) in [
        (true, &[("trailer", "x-sum")][..], "trailer: x-sum"),
        (false, &[("trailer", "x-sum")], ""),
        (true, &[("trailer", "x-sum"), ("content-length", "3")], "content-length: 3"),
    ] {
        let mut head = head_of_response(headers);
        response(&mut head, false, trailers).unwrap();
        assert_eq!(lines(&head.headers).join("\n"), expected);
    }
}

/// Returns the status of a request with `lines` short fields and one of `bytes`.
fn status_of_size(lines: usize, bytes: usize) -> Option<u16> {
    let mut headers = HeaderMap::new();
    for _ in 0..lines {
        headers.append("x", HeaderValue::from_static("y"));
    }
    headers.append("z", HeaderValue::from_bytes(&vec![b'z'; bytes]).unwrap());
    let refused = check_size(&Method::GET, &Uri::from_static("/"), &headers).err();
    refused.map(|refusal| refusal.status.as_u16())
}

#[test]
fn a_head_has_so_many_lines_and_bytes() {
    assert_eq!((status_of_size(98, 1), status_of_size(99, 1)), (None, Some(431)));
    let most = HEAD_MAX - "GET/z".len() - 4;
    assert_eq!((status_of_size(0, most), status_of_size(0, most + 1)), (None, Some(431)));
    // Pieces of a cookie are one line.
    let mut headers = HeaderMap::new();
    for _ in 0..200 {
        headers.append(COOKIE, HeaderValue::from_static("a=b"));
    }
    assert!(check_size(&Method::GET, &Uri::from_static("/"), &headers).is_ok());
}
