//! First bytes of files.

/// Returns the program that unpacks a compressed file with this beginning.
pub(crate) fn unpacked_by(head: &[u8]) -> Option<&'static str> {
    let magics: [(&[u8], &str); 4] = [
        (b"\x1f\x8b", "zcat"),
        (b"\x28\xb5\x2f\xfd", "zstdcat"),
        (b"\xfd7zXZ", "xzcat"),
        (b"BZh", "bzcat"),
    ];
    magics.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, program)| *program)
}
