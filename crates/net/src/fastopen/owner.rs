//! Finds users who could replace the pins in a directory, and so obtain the keys: its owner,
//! and anyone who may write to it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Mode bits that let others write; even so, entries belong to the user who made them.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Returns the directory that another user could change, of all pins or of one side's; `None` if
/// both are safe. Root does not count as another user.
pub(super) fn foreign(dir: &Path, side: &str) -> io::Result<Option<PathBuf>> {
    let above = fs::symlink_metadata(dir)?;
    let closed = above.mode() & OTHERS_WRITE == 0 || above.mode() & STICKY != 0;
    if !(is_ours(&above) && closed) {
        return Ok(Some(dir.to_owned()));
    }
    let pins = dir.join(side);
    let own = fs::symlink_metadata(&pins)?;
    let closed = own.mode() & OTHERS_WRITE == 0;
    Ok((!(is_ours(&own) && closed)).then_some(pins))
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

    fn set(dir: &Path, mode: u32) {
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nobody_else_may_write() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let pins = dir.join("server");
        fs::create_dir(&pins).unwrap();
        for (above, own, expected) in [
            (0o711, 0o711, None),
            (0o700, 0o755, None),
            // The default mode of a BPF file system.
            (0o1777, 0o711, None),
            (0o777, 0o711, Some(dir)),
            (0o770, 0o711, Some(dir)),
            (0o711, 0o731, Some(&pins)),
            (0o711, 0o1777, Some(&pins)),
        ] {
            set(dir, above);
            set(&pins, own);
            let found = foreign(dir, "server").unwrap();
            assert_eq!(found.as_deref(), expected, "{above:o} {own:o}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("real"), place.path().join("link"));
        fs::create_dir_all(real.join("server")).unwrap();
        symlink(&real, &link).unwrap();
        symlink(real.join("server"), real.join("client")).unwrap();
        assert_eq!(foreign(&real, "server").unwrap(), None);
        assert_eq!(foreign(&link, "server").unwrap(), Some(link));
        assert_eq!(foreign(&real, "client").unwrap(), Some(real.join("client")));
        assert_eq!(foreign(&real, "none").unwrap_err().kind(), io::ErrorKind::NotFound);
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
        assert_eq!(foreign(place.path(), "server").unwrap(), Some(pins));
        std::os::unix::fs::chown(place.path(), Some(65534), None).unwrap();
        assert_eq!(foreign(place.path(), "server").unwrap().as_deref(), Some(place.path()));
    }
}
