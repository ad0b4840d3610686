//! The token of the loopback port, as a file and as a key.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rand::rand_bytes;
use openssl::sign::Signer;
use zeroize::Zeroizing;

use crate::base::failure::Failure;
use crate::base::files;

/// Random bytes of a token that is made: nobody guesses it.
const TOKEN_BYTES: usize = 32;

/// Characters of a token: 32 hexadecimal digits are 128 bits, and whoever connects to the port can
/// try guesses at a proof without being noticed; with more than the limit it is some other file.
const TOKEN_LEN: std::ops::RangeInclusive<usize> = 32..=256;

/// Secret that both ends of a connection to the port prove to each other.
pub(super) struct Token(Zeroizing<Vec<u8>>);

impl Token {
    /// Reads the token in the file at `path`, or makes one if there is no file.
    ///
    /// # Errors
    /// A file that others may read, or that holds something else.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let token = match File::open(path) {
            Ok(file) => read(&file, path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(|error| unusable(path, &error))?
            }
            Err(error) => return Err(unusable(path, &error)),
        };
        Self::new(token.trim()).ok_or_else(|| {
            Failure::usage(format!("{} holds no token", path.display()))
                .hint("a token has 32 to 256 letters and digits; remove the file, and one is made")
        })
    }

    pub(super) fn new(text: &str) -> Option<Self> {
        let is_token =
            TOKEN_LEN.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        is_token.then(|| Self(Zeroizing::new(text.as_bytes().to_vec())))
    }

    /// Returns the HMAC-SHA256 of `message` by this token.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn mac(&self, message: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        let key = PKey::hmac(&self.0)?;
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        signer.update(message)?;
        signer.sign_to_vec()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn read(file: &File, path: &Path) -> Result<Zeroizing<String>, Failure> {
    let found = file.metadata().map_err(|error| unusable(path, &error))?;
    files::check_owner(&found).map_err(|fault| fault.failure(path))?;
    let mode = found.mode();
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

/// Makes a token, and its file at once with all that is in it: clients may read it at any time.
fn make(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut random = Zeroizing::new([0_u8; TOKEN_BYTES]);
    rand_bytes(&mut *random)?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    let text = Zeroizing::new(digits.collect::<String>());
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // With mode 600.
    let mut file = tempfile::Builder::new()
        .prefix(".headstart-token-")
        .tempfile_in(parent.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(text)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot use the token in {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        Token::open(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = Token::open(&path).unwrap();
        assert_eq!(*again.0, text.trim().as_bytes());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Token::open(&path).unwrap_err().to_string();
        assert!(refused.contains("(mode 0640)\nhint: chmod 600 "), "{refused}");
    }

    #[test]
    fn the_token_of_another_user_is_not_taken() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        Token::open(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(54_321), None).unwrap();
        let refused = Token::open(&path).unwrap_err().to_string();
        assert!(refused.contains("it belongs to another user (uid 54321)\nhint: "), "{refused}");
    }

    #[test]
    fn lengths_at_the_limit_and_one_over() {
        for (length, good) in [(31, false), (32, true), (256, true), (257, false)] {
            assert_eq!(Token::new(&"x".repeat(length)).is_some(), good, "{length}");
        }
        assert!(Token::new("with a space 0123456789abcdef0123").is_none());
    }
}
