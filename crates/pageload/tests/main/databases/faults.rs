//! Files that are damaged, signed by others, or made to do harm.

use headstart_pageload::db::{
    FileError, HEADER_BYTES, Header, PublicKey, SecretKey, limits, read, read_unverified, write,
};
use proptest::prelude::*;

use super::made::{database, example, unsigned};

fn key(number: u8) -> SecretKey {
    SecretKey::from_bytes(&[number; 32])
}

fn signed() -> Vec<u8> {
    write(&example(), Some(&key(1))).unwrap()
}

fn why(file: &[u8]) -> FileError {
    read(file, &[key(1).public()]).unwrap_err()
}

#[test]
fn only_what_a_known_key_signed_is_taken() {
    let file = signed();
    assert!(read(&file, &[key(2).public(), key(1).public()]).is_ok());
    assert_eq!(read(&file, &[key(2).public()]), Err(FileError::Key(key(1).public().id())));
    assert_eq!(read(&file, &[]), Err(FileError::Key(key(1).public().id())));
    assert_eq!(why(&write(&example(), None).unwrap()), FileError::Unsigned);
    // The name of one key and the signature of another.
    let mut other = write(&example(), Some(&key(2))).unwrap();
    other[60..68].copy_from_slice(&key(1).public().id().0);
    assert_eq!(why(&other), FileError::Signature);
}

#[test]
fn no_byte_can_be_changed() {
    let file = signed();
    for place in 0..file.len() {
        for bit in [0x01, 0x80] {
            let mut changed = file.clone();
            changed[place] ^= bit;
            let error = why(&changed);
            let expected = match place {
                0..8 => matches!(error, FileError::Magic),
                8 => matches!(error, FileError::Version(_)),
                10..12 => error == FileError::Reserved,
                60..68 => matches!(error, FileError::Key(_)),
                HEADER_BYTES.. => error == FileError::Checksum,
                _ => matches!(
                    error,
                    FileError::Signature | FileError::Reserved | FileError::TooLarge
                ),
            };
            assert!(expected, "byte {place}: {error:?}");
        }
    }
}

#[test]
fn files_have_their_length() {
    let file = signed();
    for length in 0..file.len() {
        assert_eq!(why(&file[..length]), FileError::Truncated, "{length}");
    }
    assert_eq!(why(&[&file[..], &[0]].concat()), FileError::Trailing);
}

#[test]
fn oversized_claims_are_refused_by_the_header() {
    for (place, limit) in [(20, limits::BODY_BYTES), (24, limits::FILE_BYTES - HEADER_BYTES)] {
        for (length, error) in [(limit, None), (limit + 1, Some(FileError::TooLarge))] {
            let mut file = signed();
            file[place..place + 4].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            assert_eq!(Header::read(&file).err(), error, "{place}: {length}");
        }
    }
}

#[test]
fn keys_that_anybody_could_sign_for_are_none() {
    assert!(PublicKey::from_bytes(&key(1).public().to_bytes()).is_ok());
    // The neutral element, of order one.
    let mut weak = [0; 32];
    weak[0] = 1;
    assert!(PublicKey::from_bytes(&weak).is_err());
}

/// A file of these columns, with the right lengths and checksum, and no signature.
fn sealed(body: &[u8], parts: u8) -> Vec<u8> {
    let compressed = zstd::bulk::compress(body, 1).unwrap();
    unsigned(&compressed, body.len(), parts)
}

fn body(file: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(&file[HEADER_BYTES..], 1 << 20).unwrap()
}

#[test]
fn a_body_of_another_length_is_refused() {
    let columns = body(&signed());
    assert_eq!(read_unverified(&sealed(&columns, 15)).unwrap().pages(), example().pages());
    let compressed = zstd::bulk::compress(&columns, 1).unwrap();
    for length in [columns.len() - 1, columns.len() + 1] {
        let file = unsigned(&compressed, length, 15);
        assert_eq!(read_unverified(&file), Err(FileError::Compression));
    }
    let twice = [&compressed[..], &compressed].concat();
    for (compressed, length) in [(&twice[..], columns.len()), (b"no zstd", 7)] {
        let file = unsigned(compressed, length, 15);
        assert_eq!(read_unverified(&file), Err(FileError::Compression));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Columns that were changed, or are noise, say something or are refused; nothing else happens.
    #[test]
    fn changed_columns_do_no_harm(
        database in database(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        parts in 0u8..16,
    ) {
        let mut columns = body(&write(&database, None).unwrap());
        for (place, byte) in changes {
            let place = place.index(columns.len());
            columns[place] = byte;
        }
        check(&columns, parts);
    }

    #[test]
    fn noise_does_no_harm(columns in prop::collection::vec(any::<u8>(), 0..200), parts in 0u8..16) {
        check(&columns, parts);
    }

    #[test]
    fn changed_files_do_no_harm(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut file = signed();
        let place = place.index(file.len());
        file[place] = byte;
        // Whatever it is, it is not taken as something else.
        if let Ok(database) = read_unverified(&file) {
            prop_assert_eq!(database, example());
        }
    }
}

/// Checks that what is read can be written and read again.
fn check(columns: &[u8], parts: u8) {
    if let Ok(database) = read_unverified(&sealed(columns, parts)) {
        let again = write(&database, None).unwrap();
        assert_eq!(read_unverified(&again), Ok(database));
    }
}
