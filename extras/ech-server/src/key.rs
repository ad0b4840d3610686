//! The file with key and configuration, as OpenSSL writes it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::{Failure, sys};

/// Where the ECHConfigList is in PEM form, in base64.
const BEGIN: &str = "-----BEGIN ECHCONFIG-----";
const END: &str = "-----END ECHCONFIG-----";

/// Reads `file`, and makes it for the outer name where it is missing. Servers that are given the
/// same file have the same key, whichever was first.
pub(crate) fn obtain(file: &Path, outer_name: &str) -> Result<Vec<u8>, Failure> {
    let unusable = |error: io::Error| format!("cannot use {}: {error}", file.display());
    if !file.exists() {
        let pem = sys::new_ech_pem(outer_name)?;
        store(file, &pem).map_err(unusable)?;
    }
    Ok(fs::read(file).map_err(unusable)?)
}

/// Stores a file. With a key in it, nobody else may read it: so it is with temporary files.
fn store(file: &Path, pem: &[u8]) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut new = tempfile::NamedTempFile::new_in(parent.unwrap_or(Path::new(".")))?;
    new.write_all(pem)?;
    match new.persist_noclobber(file) {
        // Another server was faster: its file stands.
        Err(_) if file.exists() => Ok(()),
        Err(error) => Err(error.error),
        Ok(_) => Ok(()),
    }
}

/// The ECHConfigList in base64, on one line.
pub(crate) fn config_list(pem: &[u8]) -> Option<String> {
    let text = str::from_utf8(pem).ok()?;
    let (_, rest) = text.split_once(BEGIN)?;
    let (list, _) = rest.split_once(END)?;
    Some(list.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_makes_it_and_the_others_find_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ech.pem");
        let first = obtain(&file, "public.test").unwrap();
        assert_eq!(obtain(&file, "public.test").unwrap(), first);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
        let list = config_list(&first).unwrap();
        // Base64 of the length of some 60 bytes, and then of version 0xfe0d (RFC 9849 section 4).
        assert!(list.starts_with("AD") && list[3..].starts_with("+DQ"), "{list}");
        assert!((60..200).contains(&list.len()), "{list}");
        assert_eq!(config_list(b"something else"), None);
    }
}
