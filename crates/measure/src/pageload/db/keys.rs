//! Signing keys, as OpenSSL and others write them: PEM, PKCS #8 and SubjectPublicKeyInfo (RFC
//! 8410).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use headstart_pageload::db::{PublicKey, SecretKey};
use openssl::pkey::PKey;
use zeroize::Zeroizing;

use super::file;
use headstart::base::failure::Failure;

/// Bytes of a key file: one key has about 120.
const PEM_BYTES: u64 = 16 << 10;

/// Writes a new key, and its public key beside it.
pub(super) fn generate(file: &Path) -> Result<(), Failure> {
    let (secret, public) = PKey::generate_ed25519()
        .and_then(|key| {
            let secret = Zeroizing::new(key.private_key_to_pem_pkcs8()?);
            Ok((secret, key.public_key_to_pem()?))
        })
        .map_err(|error| Failure::usage(format!("cannot use OpenSSL: {error}")))?;
    let beside = file::beside(file, ".pub");
    // The public one first: a secret key without it is useless.
    create(&beside, 0o644, &public)?;
    create(file, 0o600, &secret).inspect_err(|_| {
        // It was just made, and nothing uses it.
        let _ = fs::remove_file(&beside);
    })
}

fn create(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.inspect_err(|_| {
            // A partial key would only block the next attempt.
            let _ = fs::remove_file(path);
        })
    });
    written.map_err(|error| {
        Failure::usage(format!("cannot write {}: {error}", path.display())).hint(
            "keys are never overwritten; name a file that does not exist, where you may write",
        )
    })
}

/// Reads what to sign with.
pub(super) fn secret(file: &Path) -> Result<SecretKey, Failure> {
    let pem = Zeroizing::new(read(file)?);
    let key = PKey::private_key_from_pem(&pem).and_then(|key| key.raw_private_key());
    let bytes = key.map(Zeroizing::new).map_err(|_| no_key(file, "secret"))?;
    let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| no_key(file, "secret"))?;
    Ok(SecretKey::from_bytes(bytes))
}

/// Reads what signatures are checked with.
pub(super) fn public(files: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    files.iter().map(|file| one_public(file)).collect()
}

fn one_public(file: &Path) -> Result<PublicKey, Failure> {
    let key = PKey::public_key_from_pem(&read(file)?).and_then(|key| key.raw_public_key());
    let bytes = key.map_err(|_| no_key(file, "public"))?;
    let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| no_key(file, "public"))?;
    PublicKey::from_bytes(bytes).map_err(|_| no_key(file, "public"))
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    use io::Read as _;
    let mut bytes = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(PEM_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::usage(format!("cannot read {}: {error}", file.display()))
            .hint("name a key that `headstart pageload db keygen` made, and that you may read")),
    }
}

fn no_key(file: &Path, kind: &str) -> Failure {
    Failure::usage(format!("{} is no {kind} Ed25519 key in PEM", file.display())).hint(
        "`headstart pageload db keygen FILE` makes a secret key FILE and a public key FILE.pub",
    )
}
