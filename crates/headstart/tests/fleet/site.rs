//! A site of several edges.

use std::process::Command;
use std::sync::OnceLock;

use crate::client::{Client, NAME};
use crate::edge::Edge;
use crate::files::Files;
use crate::origin::Origin;
use crate::redis::Redis;

/// Edges with one certificate, one fleet's file and one origin.
pub(crate) struct Site {
    pub(crate) files: Files,
    pub(crate) origin: Origin,
    pub(crate) client: Client,
    fleet: OnceLock<String>,
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self {
            files: Files::new(),
            origin: Origin::start(),
            client: Client::new(),
            fleet: OnceLock::new(),
        };
        site.files.issue(NAME);
        site
    }

    /// Starts a Redis, makes keys for a new site there, and returns its URL, too.
    pub(crate) fn with_redis() -> (Redis, Self, String) {
        let (redis, site) = (Redis::start(), Self::new());
        let url = redis.url();
        site.make_keys(&url);
        (redis, site, url)
    }

    /// The fleet's file, made when it is first asked for.
    pub(crate) fn fleet(&self) -> &str {
        self.fleet.get_or_init(|| {
            let path = self.files.path("fleet");
            keys(&["new", "--fleet", &path]).ok();
            path
        })
    }

    /// Makes keys at `url`.
    pub(crate) fn make_keys(&self, url: &str) {
        keys(&["new", url, "--fleet", self.fleet()]).ok();
    }

    pub(crate) fn rotate(&self, url: &str) {
        keys(&["rotate", url, "--fleet", self.fleet()]).ok();
    }

    /// An edge with keys at `url`.
    pub(crate) fn edge(&self, url: &str, flags: &[&str]) -> Edge {
        let origin = format!("--origin={}", self.origin.http());
        let all = [&[origin.as_str(), "--keys", url, "--fleet", self.fleet()], flags].concat();
        Edge::start(&self.files, &[NAME], &all)
    }

    pub(crate) fn edges<const N: usize>(&self, url: &str, flags: &[&str]) -> [Edge; N] {
        std::array::from_fn(|_| self.edge(url, flags))
    }
}

/// Output of `headstart keys`.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }
}

pub(crate) fn keys(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let output = command.arg("keys").args(arguments).env_clear().output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let result = Outcome { code: output.status.code(), out, err };
    assert!(
        !format!("{}{}", result.out, result.err).contains(crate::redis::PASSWORD),
        "{}",
        result.err
    );
    result
}
