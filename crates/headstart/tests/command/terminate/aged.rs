//! Early data, which no edge takes in its first 20 s: all that wait for that wait together.

use super::{early, raw, replay, turbo};
use crate::edge::Edge;
use crate::files::Files;
use crate::origin::Origin;

pub(crate) const NAME: &str = "www.example.com";
pub(crate) const RAW: &str = "raw.example.com";

type Check = fn(&Aged);

/// Each by its name. They use the same edges, one after the other.
const CHECKS: &[(&str, Check)] = &[
    ("safe requests are passed on at once, others wait", early::safe_at_once_and_others_wait),
    ("early data alone is counted", early::a_connection_of_early_data_alone_is_counted),
    ("an upgrade waits though its method is safe", early::an_upgrade_waits),
    ("the origin's 425 passes", early::an_origin_may_refuse),
    ("with `on` all are passed on at once", early::all_at_once),
    ("a raw origin gets early data with `on` alone", early::raw_bytes),
    ("the response to early data in datagrams comes in datagrams", turbo::served_in_datagrams),
    ("a flight over UDP is taken once, wherever it is repeated", turbo::taken_once),
    ("without --early-data it waits for TCP", turbo::not_before_tcp),
    ("a request comes once whatever is replayed", replay::once),
    ("a request comes once however often it is sent at once", replay::once_in_parallel),
];

/// Edges before one origin, with the same keys.
pub(crate) struct Aged {
    pub(crate) files: Files,
    pub(crate) origin: Origin,
    /// Takes early data of safe methods, over UDP too.
    pub(crate) safe: Edge,
    /// As `safe`, but without early data over UDP.
    pub(crate) safe_over_tcp: Edge,
    /// Takes all.
    pub(crate) on: Edge,
    /// Another one that takes all.
    pub(crate) other: Edge,
}

impl Aged {
    fn start() -> Self {
        let (files, origin) = (Files::new(), Origin::start());
        files.issue(NAME);
        files.issue(RAW);
        let raw = raw::line();
        let origins = format!("--origin={},{RAW}=tcp://{raw}", origin.http());
        let keys = files.keys("keys");
        let start = |flags: &[&str]| {
            let flags = [&[origins.as_str(), "--keys", &keys][..], flags].concat();
            Edge::start(&files, &[NAME, RAW], &flags)
        };
        let safe = start(&["--early-data-requests=safe", "--early-data"]);
        let safe_over_tcp = start(&["--early-data-requests=safe"]);
        let on = start(&["--early-data-requests=on"]);
        let other = start(&["--early-data-requests=on"]);
        Self { files, origin, safe, safe_over_tcp, on, other }
    }

    /// Edge that has just restarted with the same keys, accepts all early data, and serves the same
    /// origin.
    pub(crate) fn restarted(&self) -> Edge {
        let (origin, keys) = (format!("--origin={}", self.origin.http()), self.files.path("keys"));
        let flags = [origin.as_str(), "--keys", &keys, "--early-data-requests=on"];
        Edge::start(&self.files, &[NAME], &flags)
    }
}

#[test]
fn early_data_is_taken_at_once_and_once() {
    let aged = Aged::start();
    for (name, check) in CHECKS {
        println!("{name} ...");
        check(&aged);
    }
}
