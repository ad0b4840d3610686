//! The token of the port of loopback, where the kernel checks no permissions.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use openssl::base64::decode_block;
use openssl::memcmp;
use openssl::rand::rand_bytes;
use openssl::sha::sha256;
use zeroize::Zeroizing;

use crate::base::failure::Failure;

/// Random bytes of a token that is made: nobody guesses it.
const TOKEN_BYTES: usize = 32;

/// Characters of a token: with fewer somebody might guess it, with more it is some other file.
const TOKEN_LEN: std::ops::RangeInclusive<usize> = 16..=256;

/// Secret that a client of the port has to show; as a hash, since no more is needed.
pub(super) struct Token([u8; 32]);

impl Token {
    /// Reads the token in the file at `path`, or makes one if there is no file.
    ///
    /// # Errors
    /// A file that others may read, or that holds something else.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let said = match File::open(path) {
            Ok(file) => read(&file, path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(|error| unusable(path, &error))?
            }
            Err(error) => return Err(unusable(path, &error)),
        };
        Self::new(said.trim()).ok_or_else(|| {
            Failure::usage(format!("{} holds no token", path.display()))
                .hint("a token has 16 to 256 letters and digits; remove the file, and one is made")
        })
    }

    fn new(text: &str) -> Option<Self> {
        let is_token =
            TOKEN_LEN.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        is_token.then(|| Self(sha256(text.as_bytes())))
    }

    /// Returns true if a request shows it. In a time that does not tell how much of it was right.
    pub(super) fn is_shown(&self, fields: &HeaderMap) -> bool {
        let values = [PROXY_AUTHORIZATION, AUTHORIZATION];
        let mut values = values.iter().flat_map(|name| fields.get_all(name));
        values.any(|value| {
            let shown = value.to_str().ok().and_then(shown);
            shown.is_some_and(|shown| memcmp::eq(&sha256(&shown), &self.0))
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The token of `Bearer TOKEN`, or of `Basic` with it as password (RFC 7617).
fn shown(value: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Zeroizing::new(rest.trim().as_bytes().to_vec()));
    }
    let basic = scheme.eq_ignore_ascii_case("basic").then(|| decode_block(rest).ok())??;
    let basic = Zeroizing::new(basic);
    let colon = basic.iter().position(|byte| *byte == b':')?;
    basic.get(colon + 1..).map(|password| Zeroizing::new(password.to_vec()))
}

fn read(file: &File, path: &Path) -> Result<Zeroizing<String>, Failure> {
    let mode = file.metadata().map_err(|error| unusable(path, &error))?.mode();
    if mode & 0o077 != 0 {
        let open = format!("{} is open to other users (mode {:04o})", path.display(), mode & 0o777);
        return Err(Failure::usage(open).hint(format!("chmod 600 {}", path.display())));
    }
    // The line end, and one byte over the limit, which shows that there are too many.
    let most = TOKEN_LEN.end() + 2;
    // Allocated at its final length, so that growing leaves no copy behind.
    let mut text = Zeroizing::new(String::with_capacity(most));
    file.take(u64::try_from(most).unwrap_or(u64::MAX))
        .read_to_string(&mut text)
        .map_err(|error| unusable(path, &error))?;
    Ok(text)
}

fn make(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut random = Zeroizing::new([0_u8; TOKEN_BYTES]);
    rand_bytes(&mut *random)?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    let text = Zeroizing::new(digits.collect::<String>());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    Ok(text)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot use the token in {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use openssl::base64::encode_block;

    use super::*;

    fn fields(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(PROXY_AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_token_is_shown_as_bearer_or_as_password() {
        let token = Token::new("0123456789abcdef").unwrap();
        let basic = |text: &str| format!("Basic {}", encode_block(text.as_bytes()));
        assert!(token.is_shown(&fields("Bearer 0123456789abcdef")));
        assert!(token.is_shown(&fields("bearer 0123456789abcdef")));
        assert!(token.is_shown(&fields(&basic("x:0123456789abcdef"))));
        assert!(token.is_shown(&fields(&basic(":0123456789abcdef"))));
        for wrong in [
            "Bearer 0123456789abcdeF".to_owned(),
            "Bearer ".to_owned(),
            "0123456789abcdef".to_owned(),
            "Digest 0123456789abcdef".to_owned(),
            "Basic !".to_owned(),
            basic("0123456789abcdef"),
            basic("0123456789abcdef:x"),
        ] {
            assert!(!token.is_shown(&fields(&wrong)), "{wrong}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
    }

    #[test]
    fn a_file_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        Token::open(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = Token::open(&path).unwrap();
        assert!(again.is_shown(&fields(&format!("Bearer {}", text.trim()))));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Token::open(&path).unwrap_err().to_string();
        assert!(refused.contains("(mode 0640)\nhint: chmod 600 "), "{refused}");
    }

    #[test]
    fn lengths_at_the_limit_and_one_over() {
        for (length, good) in [(15, false), (16, true), (256, true), (257, false)] {
            assert_eq!(Token::new(&"x".repeat(length)).is_some(), good, "{length}");
        }
        assert!(Token::new("with a space 123456").is_none());
    }
}
