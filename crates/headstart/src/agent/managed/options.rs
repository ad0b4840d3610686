//! Options of `headstart agent` about managed TLS.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::base::failure::Failure;

/// Bytes of the name of a client certificate at most: it is a word on command lines and in
/// requests.
const NAME_MAX: usize = 64;

/// Where programs have the agent speak TLS for them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Managed TLS")]
pub struct ManagedOptions {
    /// Unix socket on which programs have the agent speak TLS for them
    ///
    /// They share sessions, by user and by what they call their context, and never see one:
    /// docs/managed.md is its specification. A socket that a dead process left is replaced.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Permissions of --socket, in octal: users that may write may use it
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    pub socket_mode: u32,

    /// Group of --socket, by name or number [default: that of the agent]
    #[arg(long, value_name = "GROUP", value_parser = group)]
    pub socket_group: Option<u32>,

    /// The same on a port of loopback, for clients without Unix sockets
    #[arg(long, value_name = "ADDR:PORT")]
    pub managed_listen: Option<SocketAddr>,

    /// File with the token that the agent and clients of --managed-listen prove to each other
    ///
    /// Made if it is not there. Who can read it can use the port, and pass for the agent there.
    #[arg(long, value_name = "FILE")]
    pub managed_token: Option<PathBuf>,

    /// Certificate that programs may have the agent show; may be given several times
    ///
    /// PEM with the certificate, its chain and its key. The owner of the file may use it, and
    /// nobody else may be able to read it. Connections with it share sessions with each other
    /// alone.
    #[arg(long, value_name = "NAME=FILE", value_delimiter = ',')]
    pub client_certificate: Vec<ClientCertificate>,
}

impl ManagedOptions {
    /// The port of loopback and the file of its token.
    ///
    /// # Errors
    /// One of the two options alone, or a port that other machines could reach.
    pub fn port(&self) -> Result<Option<(SocketAddr, &PathBuf)>, Failure> {
        match (self.managed_listen, &self.managed_token) {
            (None, None) => Ok(None),
            (Some(at), Some(_)) if !at.ip().to_canonical().is_loopback() => Err(Failure::usage(
                format!("{at} is reachable by other machines, which could read and spend sessions"),
            )
            .hint("listen on 127.0.0.1 or [::1]: --managed-listen 127.0.0.1:1081")),
            (Some(at), Some(token)) => Ok(Some((at, token))),
            (Some(_), None) => Err(Failure::usage("--managed-listen needs a token")
                .hint("say in which file: --managed-token FILE; it is made if it is not there")),
            (None, Some(_)) => Err(Failure::usage("--managed-token without a port to use it on")
                .hint("say which: --managed-listen 127.0.0.1:1081")),
        }
    }
}

/// A certificate of this machine's user, by the name that programs call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Name by which programs ask for it.
    pub name: String,
    /// Certificate, chain and key, in PEM form.
    pub file: PathBuf,
}

impl FromStr for ClientCertificate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) =
            text.split_once('=').ok_or("write NAME=FILE, for example work=/etc/work.pem")?;
        let is_word = (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte));
        if !is_word {
            return Err(format!("'{name}' is not a name of letters, digits and -_.@"));
        }
        if file.is_empty() {
            return Err(format!("there is no file after '{name}='"));
        }
        Ok(Self { name: name.to_owned(), file: file.into() })
    }
}

impl fmt::Display for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.file.display())
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode from 0 to 777; write for example 660".into()),
    }
}

/// A group by number, or by its name in /etc/group.
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let file = fs::read_to_string("/etc/group").unwrap_or_default();
    number_of(&file, text).ok_or_else(|| {
        format!("/etc/group has no group '{text}'; those of directories go by number")
    })
}

/// The number of a group in the form of group(5).
fn number_of(file: &str, name: &str) -> Option<u32> {
    let mut rows = file.lines().map(|line| line.split(':'));
    rows.find_map(|mut row| (row.next() == Some(name)).then(|| row.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_by_number_or_name() {
        let file = "root:x:0:\nusers:x:100:alice,bob\nbroken\n";
        assert_eq!(number_of(file, "users"), Some(100));
        assert_eq!(number_of(file, "broken"), None);
        assert_eq!(number_of(file, "nobody"), None);
        assert_eq!(group("4711"), Ok(4711));
        assert!(group("no such group").is_err());
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("660"), Ok(0o660));
        for wrong in ["8", "1777", "rw", ""] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn certificates_have_a_name_and_a_file() {
        let certificate: ClientCertificate = "work=/a=b.pem".parse().unwrap();
        assert_eq!((certificate.name.as_str(), certificate.file), ("work", "/a=b.pem".into()));
        for wrong in ["work", "=/a.pem", "work=", "wo rk=/a.pem"] {
            assert!(wrong.parse::<ClientCertificate>().is_err(), "{wrong}");
        }
    }
}
