//! Finds the file system of a directory, from mountinfo (proc_pid_mountinfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Returns the first mounted cgroup2 hierarchy.
pub(super) fn cgroup2() -> Option<PathBuf> {
    let text = fs::read_to_string(MOUNTS).ok()?;
    mounts(&text).find(|(_, kind)| *kind == "cgroup2").map(|(point, _)| point)
}

/// Returns true if a directory, or its nearest existing ancestor, is in a file system of this kind.
///
/// Assumes that it is if that cannot be determined: later operations will show.
pub(super) fn is_in(directory: &Path, kind: &str) -> bool {
    let existing = directory.ancestors().find_map(|path| path.canonicalize().ok());
    match (fs::read_to_string(MOUNTS), existing) {
        (Ok(text), Some(directory)) => kind_of(&text, &directory) == Some(kind),
        _ => true,
    }
}

/// Returns the kind of the file system that holds an absolute path.
fn kind_of<'a>(text: &'a str, path: &Path) -> Option<&'a str> {
    let around = mounts(text).filter(|(point, _)| path.starts_with(point));
    // Of mounts at the same point the last hides the others; max_by_key returns the last.
    around.max_by_key(|(point, _)| point.components().count()).map(|(_, kind)| kind)
}

/// Yields each mount point with the kind of its file system.
fn mounts(text: &str) -> impl Iterator<Item = (PathBuf, &str)> {
    text.lines().filter_map(|line| {
        // Optional fields end with a dash.
        let (pins, source) = line.split_once(" - ")?;
        let point = pins.split(' ').nth(4)?;
        Some((PathBuf::from(unescaped(point)), source.split(' ').next()?))
    })
}

/// Decodes the three octal digits that stand for blanks and backslashes in paths.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
        22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        26 22 0:22 / /sys rw,nosuid - sysfs sysfs rw\n\
        30 26 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 none rw\n\
        32 26 0:28 / /sys/fs/bpf rw master:3 shared:9 - bpf bpf rw,mode=700\n\
        33 22 0:29 / /run/a\\040place rw - bpf bpf rw\n";

    #[test]
    fn the_nearest_mount_above_counts() {
        for (path, kind) in [
            ("/sys/fs/bpf/headstart", "bpf"),
            ("/sys/fs/bpf", "bpf"),
            ("/sys/fs/bpfx", "sysfs"),
            ("/run/a place/x", "bpf"),
            ("/run", "ext4"),
            ("/sys/fs/cgroup/unified/system.slice", "cgroup2"),
        ] {
            assert_eq!(kind_of(HYBRID, Path::new(path)), Some(kind), "{path}");
        }
    }

    #[test]
    fn a_mount_hides_an_earlier_one_at_the_same_place() {
        let text = "1 0 0:1 / / rw - ext4 a rw\n\
                    2 1 0:2 / /p rw - bpf b rw\n\
                    3 2 0:3 / /p rw - tmpfs c rw\n";
        assert_eq!(kind_of(text, Path::new("/p/q")), Some("tmpfs"));
    }

    #[test]
    fn cgroup2_of_a_hybrid_hierarchy_is_found() {
        let found = mounts(HYBRID).find(|(_, kind)| *kind == "cgroup2");
        assert_eq!(found.unwrap().0, Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mounts("nonsense\n\n").count(), 0);
    }
}
