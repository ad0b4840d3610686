//! Raw data of a run, the samples and packet captures, which are kept compressed with zstd.
//!
//! A run writes them as they are, so that an interrupted one leaves what it has, and compresses
//! them at its end. Older results hold them uncompressed, and are read the same way.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use zstd::stream::{copy_encode, read::Decoder};

/// Name of a compressed file, after that of its content.
const EXTENSION: &str = "zst";

/// Level of zstd: 19 takes fifty times as long and leaves a sixth less (samples of turbotls-table).
const LEVEL: i32 = 9;

/// Largest content that is read: twice the largest capture of a run, four times a million samples.
/// It bounds what a small file can unpack to; what lies beyond is missing as from a torn file.
const CONTENT_MAX: u64 = 512 << 20;

/// The file that holds the content of `plain` compressed.
pub(crate) fn compressed(plain: &Path) -> PathBuf {
    plain.with_added_extension(EXTENSION)
}

/// Compresses a file; the result takes its place.
pub(crate) fn compress(plain: &Path) -> io::Result<()> {
    let file = File::create(compressed(plain))?;
    copy_encode(File::open(plain)?, &file, LEVEL)?;
    file.sync_all()?;
    fs::remove_file(plain)
}

/// Compresses every file of a folder with this extension; a missing folder has none.
pub(crate) fn compress_all(folder: &Path, extension: &str) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|own| own == extension) {
            compress(&path)?;
        }
    }
    Ok(())
}

/// Opens the content of `plain`, compressed or as it is.
pub(crate) fn open(plain: &Path) -> io::Result<Box<dyn Read>> {
    match File::open(compressed(plain)) {
        Ok(file) => Ok(Box::new(Decoder::new(file)?.take(CONTENT_MAX))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Box::new(File::open(plain)?.take(CONTENT_MAX)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(plain: &Path) -> io::Result<String> {
        let mut text = String::new();
        open(plain)?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn files_of_one_kind_are_compressed_in_place_and_read_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let [capture, cases] = ["a.pcapng", "a-cases.json"].map(|name| dir.path().join(name));
        let text = "the same again, ".repeat(1000);
        for file in [&capture, &cases] {
            fs::write(file, &text).unwrap();
            assert_eq!(content(file).unwrap(), text, "as it is");
        }
        compress_all(dir.path(), "pcapng").unwrap();
        assert!(!capture.exists() && cases.exists() && !compressed(&cases).exists());
        assert!(fs::metadata(compressed(&capture)).unwrap().len() < 100);
        assert_eq!(content(&capture).unwrap(), text);
        compress_all(&dir.path().join("none"), "pcapng").unwrap();
    }

    #[test]
    fn torn_and_missing_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("samples.csv");
        assert_eq!(content(&file).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&file, "experiment,arm\n").unwrap();
        compress(&file).unwrap();
        let whole = fs::read(compressed(&file)).unwrap();
        for end in 1..whole.len() {
            fs::write(compressed(&file), &whole[..end]).unwrap();
            assert!(content(&file).is_err(), "{end}");
        }
    }
}
