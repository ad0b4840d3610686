//! Servers whose configuration is understood: how their lines move to another port and back.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::up::listener::Listener;

/// Comment before the old text of a line that was edited.
const MARK: &str = "# headstart up: ";

/// Comment of a line that was edited, and stays until the edge runs.
const STAYS: &str = "# headstart up";

/// Addresses of a server that listens everywhere, before a colon and the port.
const ANYWHERE: [&str; 6] = ["", "*:", "0.0.0.0:", "[::]:", ":", ":::"];

/// Settings of nginx that stand in the moved line, so that they may stand nowhere else.
const CLASHES: [&str; 3] = ["real_ip_header", "set_real_ip_from", "port_in_redirect"];

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    Haproxy,
    Apache,
    Caddy,
    Other,
}

/// A file with other lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Edit {
    /// The text with which the server listens at both places.
    pub(super) fn both(&self) -> String {
        let lines = self.text.split_inclusive('\n').map(|line| match split(line) {
            Some((indent, old)) => {
                format!("{indent}{} {STAYS}\n{line}", old.trim_end_matches('\n'))
            }
            None => line.to_owned(),
        });
        lines.collect()
    }

    /// The new lines, for people, each with the old one in its comment.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| line.contains(MARK)).map(str::trim)
    }
}

impl Kind {
    pub(super) fn from_program(name: &str) -> Self {
        match name {
            "nginx" => Self::Nginx,
            "haproxy" => Self::Haproxy,
            "apache2" | "httpd" => Self::Apache,
            "caddy" => Self::Caddy,
            _ => Self::Other,
        }
    }

    /// The lines that move such a server by hand, and tell it clients' addresses.
    pub(super) fn by_hand(self, server: SocketAddr) -> String {
        let port = server.port();
        match self {
            Self::Nginx => moved_nginx(server, &["ssl"]),
            Self::Haproxy => moved_haproxy(server, &["ssl", "crt", "FILE"]),
            Self::Apache => format!(
                "Listen {server} https; <VirtualHost *:{port}>; RemoteIPProxyProtocol On \
                 (a2enmod remoteip)"
            ),
            Self::Caddy => format!(
                "of version 2.7 and later: {{ https_port {port}; default_bind {}; servers {{ \
                 listener_wrappers {{ proxy_protocol {{ allow 127.0.0.1/32 }}; tls }} }} }}, each \
                 on its own line",
                server.ip()
            ),
            Self::Other => format!("listen on {server}, and expect a PROXY protocol header"),
        }
    }

    /// The command that checks the configuration, program first.
    pub(super) fn check(self, listener: &Listener) -> Result<Vec<String>, String> {
        let program = listener.program.display().to_string();
        match self {
            Self::Nginx => Ok(vec![program, "-q".into(), "-t".into()]),
            Self::Haproxy => {
                let files = haproxy_arguments(&listener.arguments);
                let files = files.iter().flat_map(|file| ["-f".to_owned(), file.clone()]);
                Ok([program, "-q".into(), "-c".into()].into_iter().chain(files).collect())
            }
            _ => Err("it is no server whose configuration is known here".into()),
        }
    }

    /// Edits of all files that have the server listen on `port`.
    ///
    /// # Errors
    /// Words for the user: why it has to be moved by hand.
    pub(super) fn edits(
        self,
        listener: &Listener,
        port: u16,
        server: SocketAddr,
    ) -> Result<Vec<Edit>, String> {
        let mut edits = Vec::new();
        for path in self.files(listener)? {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let moved = self.moved(&text, port, server);
            if let Some(text) = moved.map_err(|why| format!("{}, {why}", path.display()))? {
                edits.push(Edit { path, text });
            }
        }
        if edits.is_empty() {
            return Err(format!("no line of its configuration has it listen on port {port}"));
        }
        Ok(edits)
    }

    /// All files of the configuration, links followed, each once.
    fn files(self, listener: &Listener) -> Result<BTreeSet<PathBuf>, String> {
        let named: Vec<PathBuf> = match self {
            Self::Nginx => nginx_files(&listener.program)?,
            _ => {
                let named = haproxy_arguments(&listener.arguments).into_iter().map(PathBuf::from);
                named.flat_map(|path| entries(&path).unwrap_or_else(|| vec![path])).collect()
            }
        };
        let whole = named.iter().map(|path| {
            path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
        });
        whole.collect()
    }

    /// The text with all lines for `port` moved; none if there are none.
    fn moved(self, text: &str, port: u16, server: SocketAddr) -> Result<Option<String>, String> {
        let mut out = String::new();
        let (mut is_moved, mut any) = (false, false);
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let words = line.split('#').next().unwrap_or_default().trim();
            if self.begins_section(words) {
                is_moved = false;
            }
            let found = self.arguments(words, port);
            let found = found.map_err(|why| format!("line {}: {why}", number + 1))?;
            let Some(arguments) = found else {
                out.push_str(line);
                continue;
            };
            let old = line.trim_start();
            out.push_str(&line[..line.len() - old.len()]);
            // A section that listens on IPv4 and on IPv6 has two lines, and needs one.
            if !is_moved {
                out.push_str(&match self {
                    Self::Nginx => moved_nginx(server, &arguments),
                    _ => moved_haproxy(server, &arguments),
                });
                out.push(' ');
            }
            out.push_str(MARK);
            out.push_str(old);
            (is_moved, any) = (true, true);
        }
        Ok(any.then_some(out))
    }

    fn begins_section(self, words: &str) -> bool {
        let first = words.split([' ', '\t', '{']).next().unwrap_or_default();
        match self {
            Self::Nginx => first == "server" && words.ends_with('{') || words == "server",
            _ => ["frontend", "listen"].contains(&first),
        }
    }

    /// Arguments behind the address of a line by which the server listens on `port` everywhere.
    fn arguments(self, line: &str, port: u16) -> Result<Option<Vec<&str>>, String> {
        let (directive, line) = match self {
            Self::Nginx => {
                if let Some(clash) = CLASHES.iter().find(|clash| line.starts_with(**clash)) {
                    return Err(format!("{clash} is set"));
                }
                ("listen", line.strip_suffix(';').unwrap_or(line))
            }
            _ => ("bind", line),
        };
        let port = port.to_string();
        let names_port = |word: &str| {
            let word = word.trim_end_matches(';');
            word == port || word.strip_suffix(&port).is_some_and(|before| before.ends_with(':'))
        };
        let mut words = line.split_whitespace();
        let is_first = words.next() == Some(directive);
        let address = words.next().filter(|_| is_first).unwrap_or_default();
        let is_alone = is_first
            && match self {
                Self::Nginx => !line.contains([';', '{']),
                _ => !address.contains(','),
            };
        if !is_alone {
            let mut words = line.split_whitespace();
            let listens = words.any(|word| word == directive)
                && words.any(|word| word.split(',').any(names_port));
            return if listens {
                Err(format!("{directive} has no line of its own"))
            } else {
                Ok(None)
            };
        }
        if !names_port(address) {
            return Ok(None);
        }
        if !ANYWHERE.contains(&&address[..address.len() - port.len()]) {
            return Err(format!("{address} is one address of several"));
        }
        let words: Vec<_> = words.collect();
        for (word, why) in [
            ("quic", "HTTP/3 has the UDP port (docs/edge.md, HTTP/3 on the same port)"),
            ("proxy_protocol", "a balancer is before the server"),
            ("accept-proxy", "a balancer is before the server"),
        ] {
            if words.contains(&word) {
                return Err(why.into());
            }
        }
        Ok(Some(words))
    }
}

/// Gives the lines that were edited their old text; returns nothing if there are none.
pub(super) fn restored(text: &str) -> Option<String> {
    text.contains(MARK).then(|| {
        let lines = text.split_inclusive('\n').map(|line| match split(line) {
            Some((indent, old)) => format!("{indent}{old}"),
            None if line.trim_end_matches('\n').ends_with(STAYS) => String::new(),
            None => line.to_owned(),
        });
        lines.collect()
    })
}

/// Returns the indentation of a line that was edited, and its old text.
fn split(line: &str) -> Option<(&str, &str)> {
    let (new, old) = line.split_once(MARK)?;
    Some((&new[..new.len() - new.trim_start().len()], old))
}

/// Returns the new directives as one line, so that undoing replaces one line. Redirects leave out
/// the port, since clients use another one.
fn moved_nginx(server: SocketAddr, arguments: &[&str]) -> String {
    let kept = kept(arguments, &["reuseport", "ipv6only=on", "ipv6only=off"]);
    format!(
        "listen {server}{kept} proxy_protocol; set_real_ip_from {}; real_ip_header proxy_protocol; \
         port_in_redirect off;",
        server.ip()
    )
}

fn moved_haproxy(server: SocketAddr, arguments: &[&str]) -> String {
    format!("bind {server} accept-proxy{}", kept(arguments, &["v4v6", "v6only"]))
}

fn kept(arguments: &[&str], dropped: &[&str]) -> String {
    let kept = arguments.iter().filter(|argument| !dropped.contains(argument));
    kept.map(|argument| format!(" {argument}")).collect()
}

fn nginx_files(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new(program).arg("-T").output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err("nginx rejects its configuration (nginx -t)".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| {
        line.strip_prefix("# configuration file ")?.strip_suffix(':').map(PathBuf::from)
    });
    Ok(names.collect())
}

/// The arguments of -f.
fn haproxy_arguments(arguments: &[String]) -> Vec<String> {
    let pairs = arguments.iter().zip(arguments.iter().skip(1));
    pairs.filter(|(option, _)| *option == "-f").map(|(_, file)| file.clone()).collect()
}

/// Files that HAProxy reads of a directory.
fn entries(path: &Path) -> Option<Vec<PathBuf>> {
    let files = fs::read_dir(path).ok()?.flatten().map(|file| file.path());
    Some(files.filter(|file| file.extension().is_some_and(|ending| ending == "cfg")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "\
server {
\tlisten 80;
\tlisten 443 ssl http2 default_server reuseport;
    listen [::]:443 ssl http2 ipv6only=on; # both
    # listen 443 ssl;
    listen 8443;
}
server {
    listen 443 ssl;
}";

    fn server() -> SocketAddr {
        "127.0.0.1:8443".parse().unwrap()
    }

    fn refusal(kind: Kind, text: &str) -> String {
        kind.moved(text, 443, server()).unwrap_err()
    }

    #[test]
    fn nginx_listens_once_in_each_server_behind_the_edge() {
        let moved = Kind::Nginx.moved(SITES, 443, server()).unwrap().unwrap();
        let rest = "set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol; \
                    port_in_redirect off;";
        let expected = format!(
            "server {{
\tlisten 80;
\tlisten 127.0.0.1:8443 ssl http2 default_server proxy_protocol; {rest} \
             # headstart up: listen 443 ssl http2 default_server reuseport;
    # headstart up: listen [::]:443 ssl http2 ipv6only=on; # both
    # listen 443 ssl;
    listen 8443;
}}
server {{
    listen 127.0.0.1:8443 ssl proxy_protocol; {rest} # headstart up: listen 443 ssl;
}}"
        );
        assert_eq!(moved, expected);
        assert_eq!(restored(&moved).unwrap(), SITES);
    }

    #[test]
    fn other_changes_survive_the_way_back() {
        let moved = Kind::Nginx.moved(SITES, 443, server()).unwrap().unwrap();
        let changed = moved.replace("listen 80;", "listen 81;");
        assert_eq!(restored(&changed).unwrap(), SITES.replace("listen 80;", "listen 81;"));
        assert_eq!(restored(SITES), None);
    }

    #[test]
    fn while_the_edge_starts_the_server_listens_at_both_places() {
        let text = Kind::Nginx.moved(SITES, 443, server()).unwrap().unwrap();
        let both = Edit { path: PathBuf::new(), text: text.clone() }.both();
        let listens = |text: &str, at: &str| {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            lines.filter(|line| line.contains(at)).count()
        };
        assert_eq!((listens(SITES, "listen 443 ssl"), listens(&text, "listen 443 ssl")), (2, 0));
        assert_eq!(listens(&both, "listen 443 ssl"), 2);
        assert_eq!(listens(&both, "listen 127.0.0.1:8443 ssl"), 2);
        // SITES has no newline at its end.
        assert_eq!(restored(&both).unwrap(), SITES);
    }

    #[test]
    fn haproxy_listens_once_in_each_frontend_behind_the_edge() {
        let text = "\
frontend a
  bind :443 ssl crt /a.pem alpn h2,http/1.1
  bind :::443 v6only ssl crt /a.pem
listen b
  bind *:443 ssl crt /b.pem
  bind :80
";
        let moved = Kind::Haproxy.moved(text, 443, server()).unwrap().unwrap();
        let new: Vec<_> = moved.lines().filter(|line| line.contains("accept-proxy")).collect();
        assert_eq!(
            new,
            [
                "  bind 127.0.0.1:8443 accept-proxy ssl crt /a.pem alpn h2,http/1.1 \
             # headstart up: bind :443 ssl crt /a.pem alpn h2,http/1.1",
                "  bind 127.0.0.1:8443 accept-proxy ssl crt /b.pem \
             # headstart up: bind *:443 ssl crt /b.pem",
            ]
        );
        assert_eq!(restored(&moved).unwrap(), text);
    }

    #[test]
    fn lines_that_are_not_understood_are_left_to_people() {
        for (kind, line, why) in [
            (Kind::Nginx, "listen 192.0.2.1:443 ssl;", "one address of several"),
            (Kind::Nginx, "server { listen 443 ssl; }", "no line of its own"),
            (Kind::Nginx, "listen 443 ssl; root /srv;", "no line of its own"),
            (Kind::Nginx, "listen 443 quic;", "HTTP/3"),
            (Kind::Nginx, "listen 443 ssl proxy_protocol;", "balancer"),
            (Kind::Nginx, "real_ip_header X-Forwarded-For;", "real_ip_header is set"),
            (Kind::Haproxy, "bind :443,:8443 ssl", "no line of its own"),
            (Kind::Haproxy, "bind quic4@:443 ssl", "one address of several"),
        ] {
            let text = format!("events {{}}\n  {line}\n");
            let found = refusal(kind, &text);
            assert!(found.starts_with("line 2: ") && found.contains(why), "{line}: {found}");
        }
        for line in ["listen 80;", "listen 1443;", "listen unix:/443;", "# listen 443 ssl;"] {
            assert_eq!(Kind::Nginx.moved(line, 443, server()).unwrap(), None, "{line}");
        }
    }
}
