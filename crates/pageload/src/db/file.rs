//! A database as a file: header, checksum, signature, compressed columns (docs/databases.md).

use std::fmt;
use std::io::Read;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use headstart_proto::UnixSeconds;
use sha2::{Digest, Sha256};

use super::database::{Database, Parts};
use super::layout::{self, LayoutError};
use super::limits::{BODY_BYTES, FILE_BYTES, WINDOW_LOG};

/// First bytes of every file. The first byte is not text, and the line ends reveal damage by
/// transfers in text mode.
pub const MAGIC: [u8; 8] = *b"\x89HSDB\r\n\x1a";

/// Version of the format.
pub const VERSION: u8 = 1;

/// Bytes before the compressed columns.
pub const HEADER_BYTES: usize = 132;

/// A kind of file that has this header.
pub(super) struct Form {
    /// First bytes.
    pub(super) magic: [u8; 8],
    /// Prefix of the signed bytes, so that a signature made for another purpose is not valid here.
    pub(super) context: &'static [u8],
}

const DATABASE: Form = Form { magic: MAGIC, context: b"headstart page database\0" };

/// Compression level: files are made once and read often; level 22 would take twice the time and
/// save one percent.
const LEVEL: i32 = 19;

/// Bytes of the header that the checksum covers, besides the compressed columns.
const CHECKED: usize = 28;

/// Bytes of the header that the signature covers: all before it except the key's id, which only
/// says which key to try.
const SIGNED: usize = 60;

/// The secret key that signs files. Debug output does not show it.
pub struct SecretKey(SigningKey);

/// Key that verifies signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Id of a public key: the first bytes of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId(pub [u8; 8]);

/// Header of a file, read before the rest is decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// When it was made.
    pub created: UnixSeconds,
    /// Databases in the file.
    pub parts: Parts,
    /// Bytes of the columns.
    pub body_bytes: usize,
    /// Bytes of the columns, compressed.
    pub compressed_bytes: usize,
    /// Key that the file claims to be signed with.
    pub key: Option<KeyId>,
    checksum: [u8; 32],
    signature: [u8; 64],
    signed: [u8; SIGNED],
}

impl SecretKey {
    /// Reads a key of 32 random bytes (RFC 8032 section 5.1.5).
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }

    /// Returns the public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }
}

impl PublicKey {
    /// Reads a key of 32 bytes, as RFC 8032 section 5.1.2 writes them.
    ///
    /// # Errors
    /// They are no point of the curve, or one that anybody could sign for.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, NoKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| NoKey)?;
        if key.is_weak() { Err(NoKey) } else { Ok(Self(key)) }
    }

    /// Returns the key's 32 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Returns the key's id in files.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let hash: [u8; 32] = Sha256::digest(self.to_bytes()).into();
        let mut id = [0; 8];
        id.copy_from_slice(&hash[..8]);
        KeyId(id)
    }
}

/// Writes a database; without a key it is not signed, and no fetch takes it.
///
/// # Errors
/// It is larger than files may be.
pub fn write(database: &Database, key: Option<&SecretKey>) -> Result<Vec<u8>, FileError> {
    seal(&layout::write(database), database.created(), database.parts(), key)
}

/// Makes a file of columns, whatever they contain.
pub(super) fn seal(
    body: &[u8],
    created: UnixSeconds,
    parts: Parts,
    key: Option<&SecretKey>,
) -> Result<Vec<u8>, FileError> {
    let compressed = zstd::bulk::compress(body, LEVEL).map_err(|_| FileError::Compression)?;
    frame(&DATABASE, body.len(), &compressed, created, parts, key)
}

/// Makes a file of columns that are already compressed.
pub(super) fn frame(
    form: &Form,
    body_bytes: usize,
    compressed: &[u8],
    created: UnixSeconds,
    parts: Parts,
    key: Option<&SecretKey>,
) -> Result<Vec<u8>, FileError> {
    if body_bytes > BODY_BYTES || HEADER_BYTES + compressed.len() > FILE_BYTES {
        return Err(FileError::TooLarge);
    }
    let mut file = Vec::with_capacity(HEADER_BYTES + compressed.len());
    file.extend(form.magic);
    file.extend([VERSION, parts_number(parts), 0, 0]);
    file.extend(created.0.to_be_bytes());
    for length in [body_bytes, compressed.len()] {
        file.extend(u32::try_from(length).map_err(|_| FileError::TooLarge)?.to_be_bytes());
    }
    file.extend(checksum(&file, compressed));
    match key {
        Some(key) => {
            let signature = key.0.sign(&signed(form, &file));
            file.extend(key.public().id().0);
            file.extend(signature.to_bytes());
        }
        None => file.resize(HEADER_BYTES, 0),
    }
    file.extend(compressed);
    Ok(file)
}

/// Reads a database that one of `keys` has signed.
///
/// The signature is checked before anything is decompressed.
///
/// # Errors
/// The file is damaged, of another version, too large, not signed, or not by one of them.
pub fn read(file: &[u8], keys: &[PublicKey]) -> Result<Database, FileError> {
    let header = Header::read(file)?;
    header.verify(keys)?;
    read_checked(&header, file)
}

/// Reads a database whoever made it, for its maker's eyes.
///
/// # Errors
/// The file is damaged, of another version, or too large.
pub fn read_unverified(file: &[u8]) -> Result<Database, FileError> {
    read_checked(&Header::read(file)?, file)
}

impl Header {
    /// Reads the beginning of a file: its first [`HEADER_BYTES`] will do.
    ///
    /// # Errors
    /// It is no database, or one of another version, or too large.
    pub fn read(file: &[u8]) -> Result<Self, FileError> {
        let mut rest = file;
        if take(&mut rest)? != MAGIC {
            return Err(FileError::Magic);
        }
        let [version, parts, reserved @ ..] = take::<4>(&mut rest)?;
        if version != VERSION {
            return Err(FileError::Version(version));
        }
        let parts = parts_of(parts).ok_or(FileError::Reserved)?;
        if reserved != [0; 2] {
            return Err(FileError::Reserved);
        }
        let created = UnixSeconds(u64::from_be_bytes(take(&mut rest)?));
        let body_bytes = length(take(&mut rest)?, BODY_BYTES)?;
        let compressed_bytes = length(take(&mut rest)?, FILE_BYTES - HEADER_BYTES)?;
        let checksum = take(&mut rest)?;
        let key = take(&mut rest)?;
        let signature = take(&mut rest)?;
        let is_signed = key != [0; 8] || signature != [0; 64];
        let key = is_signed.then_some(KeyId(key));
        let signed = take(&mut &*file)?;
        Ok(Self { created, parts, body_bytes, compressed_bytes, key, checksum, signature, signed })
    }

    /// Checks that one of `keys` signed it. Whether the rest of the file belongs to it, the
    /// checksum tells.
    ///
    /// # Errors
    /// It is not signed, or not by one of them.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<(), FileError> {
        let id = self.key.ok_or(FileError::Unsigned)?;
        let signature = Signature::from_bytes(&self.signature);
        let message = signed(&DATABASE, &self.signed);
        let mut of_name = keys.iter().filter(|key| key.id() == id).peekable();
        if of_name.peek().is_none() {
            return Err(FileError::Key(id));
        }
        if of_name.any(|key: &PublicKey| key.0.verify_strict(&message, &signature).is_ok()) {
            Ok(())
        } else {
            Err(FileError::Signature)
        }
    }

    /// Returns true if the checksum matches the rest of the file.
    pub(super) fn is_of(&self, file: &[u8]) -> bool {
        checked(self, file).is_ok()
    }
}

fn read_checked(header: &Header, file: &[u8]) -> Result<Database, FileError> {
    let compressed = checked(header, file)?;
    let body = decompress(compressed, header.body_bytes)?;
    layout::read(&body, header.created, header.parts).map_err(FileError::Layout)
}

/// Returns the part of the file that belongs to the header.
fn checked<'f>(header: &Header, file: &'f [u8]) -> Result<&'f [u8], FileError> {
    let compressed = file.get(HEADER_BYTES..).ok_or(FileError::Truncated)?;
    if compressed.len() < header.compressed_bytes {
        return Err(FileError::Truncated);
    }
    if compressed.len() > header.compressed_bytes {
        return Err(FileError::Trailing);
    }
    if checksum(&header.signed[..CHECKED], compressed) != header.checksum {
        return Err(FileError::Checksum);
    }
    Ok(compressed)
}

/// Decompresses columns; memory grows with the output, not with the size that the header claims.
fn decompress(compressed: &[u8], length: usize) -> Result<Vec<u8>, FileError> {
    let decoder = zstd::stream::read::Decoder::with_buffer(compressed);
    let mut decoder = decoder.map_err(|_| FileError::Compression)?.single_frame();
    decoder.window_log_max(WINDOW_LOG).map_err(|_| FileError::Compression)?;
    let mut body = Vec::new();
    let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
    let mut limited = decoder.take(most);
    limited.read_to_end(&mut body).map_err(|_| FileError::Compression)?;
    let is_whole = body.len() == length && limited.into_inner().finish().is_empty();
    if is_whole { Ok(body) } else { Err(FileError::Compression) }
}

fn checksum(header: &[u8], compressed: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(header).chain_update(compressed).finalize().into()
}

fn signed(form: &Form, header: &[u8]) -> Vec<u8> {
    [form.context, header].concat()
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], FileError> {
    let (taken, rest) = bytes.split_first_chunk::<N>().ok_or(FileError::Truncated)?;
    *bytes = rest;
    Ok(*taken)
}

fn length(bytes: [u8; 4], limit: usize) -> Result<usize, FileError> {
    let length = usize::try_from(u32::from_be_bytes(bytes)).map_err(|_| FileError::TooLarge)?;
    if length > limit { Err(FileError::TooLarge) } else { Ok(length) }
}

fn parts_number(parts: Parts) -> u8 {
    let Parts { redirect, server, http2, prefetch } = parts;
    u8::from(redirect) | u8::from(server) << 1 | u8::from(http2) << 2 | u8::from(prefetch) << 3
}

fn parts_of(number: u8) -> Option<Parts> {
    let [redirect, server, http2, prefetch] = [1, 2, 4, 8].map(|bit| number & bit != 0);
    (number < 16).then_some(Parts { redirect, server, http2, prefetch })
}

/// Reason why a file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The file is not a database.
    Magic,
    /// The file has this other version.
    Version(u8),
    /// The file uses something that this version does not know.
    Reserved,
    /// The file is cut off.
    Truncated,
    /// The file continues after its end.
    Trailing,
    /// The file exceeds [`FILE_BYTES`], or its columns exceed [`BODY_BYTES`].
    TooLarge,
    /// The checksum is wrong: the file is damaged.
    Checksum,
    /// The file is not signed.
    Unsigned,
    /// The file is signed with an unknown key.
    Key(KeyId),
    /// The signature does not belong to the key that the file names.
    Signature,
    /// The columns cannot be decompressed, or have another size than the header says.
    Compression,
    /// The columns are invalid.
    Layout(LayoutError),
}

impl FileError {
    /// Returns advice on how to fix it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Magic => "name a file that `headstart pageload db build` made",
            Self::Version(_) | Self::Reserved => {
                "it was made by another version of headstart; use that one, or build it again"
            }
            Self::Truncated | Self::Trailing | Self::Checksum => {
                "it is damaged; fetch or copy it again"
            }
            Self::TooLarge => "build it of fewer pages, or without prefetch",
            Self::Unsigned => "build it with --sign, or name no --key to look at it all the same",
            Self::Key(_) => "ask its maker for the public key, by a way that you trust",
            Self::Signature => "do not use it: somebody changed it, or signed it with another key",
            Self::Compression | Self::Layout(_) => {
                "it was not made by headstart as it is now; build it again"
            }
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a page database"),
            Self::Version(version) => write!(f, "version {version}, not {VERSION}"),
            Self::Reserved => f.write_str("something in its header that version 1 does not have"),
            Self::Truncated => f.write_str("it ends too soon"),
            Self::Trailing => f.write_str("there is something behind its end"),
            Self::TooLarge => {
                write!(f, "more than {FILE_BYTES} bytes, or {BODY_BYTES} uncompressed")
            }
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Unsigned => f.write_str("it is not signed"),
            Self::Key(id) => write!(f, "it is signed with the unknown key {id}"),
            Self::Signature => f.write_str("its signature is wrong"),
            Self::Compression => f.write_str("it cannot be decompressed to what it says"),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FileError {}

/// The bytes are not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoKey;

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no Ed25519 public key")
    }
}

impl std::error::Error for NoKey {}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public().id())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}
