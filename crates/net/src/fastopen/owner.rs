//! Checks that no other user could replace the pins, and so obtain the keys: neither the owner of
//! their directory nor anyone who may write to it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bit that keeps such users from replacing entries that are not theirs.
const STICKY: u32 = 0o1000;

/// Returns a directory in which another user could replace pins: `dir`, which has those of both
/// sides, or its subdirectory for `side`. `None` if both are safe. Root does not count as
/// another user.
pub(super) fn foreign_directory(dir: &Path, side: &str) -> io::Result<Option<PathBuf>> {
    let metadata = fs::symlink_metadata(dir)?;
    let is_closed = metadata.mode() & OTHERS_WRITE == 0 || metadata.mode() & STICKY != 0;
    if !(is_ours(&metadata) && is_closed) {
        return Ok(Some(dir.to_owned()));
    }
    let pins = dir.join(side);
    let metadata = fs::symlink_metadata(&pins)?;
    let is_closed = metadata.mode() & OTHERS_WRITE == 0;
    Ok((!(is_ours(&metadata) && is_closed)).then_some(pins))
}

/// Returns true for a directory of root or of this user that is not a symbolic link.
fn is_ours(metadata: &Metadata) -> bool {
    metadata.is_dir() && [0, geteuid().as_raw()].contains(&metadata.uid())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(dir: &Path, mode: u32) {
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nobody_else_may_write() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let pins = dir.join("server");
        fs::create_dir(&pins).unwrap();
        for (dir_mode, pins_mode, expected) in [
            (0o711, 0o711, None),
            (0o700, 0o755, None),
            // The default mode of a BPF file system.
            (0o1777, 0o711, None),
            (0o777, 0o711, Some(dir)),
            (0o770, 0o711, Some(dir)),
            (0o711, 0o731, Some(&pins)),
            (0o711, 0o1777, Some(&pins)),
        ] {
            set_mode(dir, dir_mode);
            set_mode(&pins, pins_mode);
            let found = foreign_directory(dir, "server").unwrap();
            assert_eq!(found.as_deref(), expected, "{dir_mode:o} {pins_mode:o}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("real"), place.path().join("link"));
        fs::create_dir_all(real.join("server")).unwrap();
        symlink(&real, &link).unwrap();
        symlink(real.join("server"), real.join("client")).unwrap();
        assert_eq!(foreign_directory(&real, "server").unwrap(), None);
        assert_eq!(foreign_directory(&link, "server").unwrap(), Some(link));
        assert_eq!(foreign_directory(&real, "client").unwrap(), Some(real.join("client")));
        assert_eq!(foreign_directory(&real, "none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// Only root can give a directory away.
    #[test]
    fn a_directory_of_another_user() {
        if !geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let pins = place.path().join("server");
        fs::create_dir(&pins).unwrap();
        std::os::unix::fs::chown(&pins, Some(65534), None).unwrap();
        assert_eq!(foreign_directory(place.path(), "server").unwrap(), Some(pins));
        std::os::unix::fs::chown(place.path(), Some(65534), None).unwrap();
        let found = foreign_directory(place.path(), "server").unwrap();
        assert_eq!(found.as_deref(), Some(place.path()));
    }
}
