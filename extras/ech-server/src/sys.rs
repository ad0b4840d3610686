//! OpenSSL 4.0, as far as this program needs it. No Rust binding knows this version yet.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_ulong, c_void};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// `OSSL_HPKE_SUITE` of openssl/hpke.h.
#[repr(C)]
struct HpkeSuite {
    kem: u16,
    kdf: u16,
    aead: u16,
}

/// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM (RFC 9180 section 7): what RFC 9849 section
/// 9 makes mandatory.
const HPKE: HpkeSuite = HpkeSuite { kem: 0x0020, kdf: 0x0001, aead: 0x0001 };

/// `OSSL_ECH_RFC9849_VERSION`, `OSSL_ECHSTORE_LAST`, `OSSL_ECH_FOR_RETRY` and
/// `SSL_ECH_STATUS_SUCCESS` of openssl/ech.h.
const ECH_VERSION: u16 = 0xfe0d;
const LAST: c_int = -1;
const FOR_RETRY: c_int = 1;
const ECH_SUCCESS: c_int = 1;

/// From openssl/ssl.h and openssl/prov_ssl.h.
const FILETYPE_PEM: c_int = 1;
const CTRL_SET_GROUPS_LIST: c_int = 92;
const CTRL_SET_MIN_PROTO_VERSION: c_int = 123;
const TLS1_3: c_long = 0x0304;
const ERROR_SYSCALL: c_int = 5;
const ERROR_ZERO_RETURN: c_int = 6;
const READ_EARLY_DATA_SUCCESS: c_int = 1;
const READ_EARLY_DATA_FINISH: c_int = 2;

/// Early data of one connection that tickets allow, in bytes, as with the other servers of the lab.
const EARLY_DATA_MAX: u32 = 16 * 1024;

/// `BIO_CTRL_INFO` of openssl/bio.h, which `BIO_get_mem_data` is.
const BIO_CTRL_INFO: c_int = 3;

/// The one cipher of all suites of the lab.
const CIPHER: &CStr = c"TLS_AES_128_GCM_SHA256";

/// Longest text of an error; OpenSSL asks for 256 bytes.
const ERROR_MAX: usize = 256;

unsafe extern "C" {
    fn OpenSSL_version(kind: c_int) -> *const c_char;
    fn ERR_get_error() -> c_ulong;
    fn ERR_clear_error();
    fn ERR_error_string_n(code: c_ulong, room: *mut c_char, length: usize);
    fn CRYPTO_free(memory: *mut c_void, file: *const c_char, line: c_int);

    fn BIO_s_mem() -> *const c_void;
    fn BIO_new(method: *const c_void) -> *mut c_void;
    fn BIO_new_mem_buf(bytes: *const c_void, length: c_int) -> *mut c_void;
    fn BIO_ctrl(bio: *mut c_void, what: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn BIO_free(bio: *mut c_void) -> c_int;

    fn OSSL_ECHSTORE_new(library: *mut c_void, properties: *const c_char) -> *mut c_void;
    fn OSSL_ECHSTORE_free(store: *mut c_void);
    fn OSSL_ECHSTORE_new_config(
        store: *mut c_void,
        version: u16,
        name_max: u8,
        public_name: *const c_char,
        suite: HpkeSuite,
    ) -> c_int;
    fn OSSL_ECHSTORE_write_pem(store: *mut c_void, index: c_int, out: *mut c_void) -> c_int;
    fn OSSL_ECHSTORE_read_pem(store: *mut c_void, bio: *mut c_void, for_retry: c_int) -> c_int;
    fn SSL_CTX_set1_echstore(context: *mut c_void, store: *mut c_void) -> c_int;
    fn SSL_ech_get1_status(
        ssl: *mut c_void,
        inner: *mut *mut c_char,
        outer: *mut *mut c_char,
    ) -> c_int;

    fn TLS_server_method() -> *const c_void;
    fn SSL_CTX_new(method: *const c_void) -> *mut c_void;
    fn SSL_CTX_free(context: *mut c_void);
    fn SSL_CTX_ctrl(
        context: *mut c_void,
        what: c_int,
        number: c_long,
        pointer: *mut c_void,
    ) -> c_long;
    fn SSL_CTX_set_max_early_data(context: *mut c_void, bytes: u32) -> c_int;
    fn SSL_CTX_set_ciphersuites(context: *mut c_void, list: *const c_char) -> c_int;
    fn SSL_CTX_use_certificate_chain_file(context: *mut c_void, file: *const c_char) -> c_int;
    fn SSL_CTX_use_PrivateKey_file(context: *mut c_void, file: *const c_char, kind: c_int)
    -> c_int;

    fn SSL_new(context: *mut c_void) -> *mut c_void;
    fn SSL_free(ssl: *mut c_void);
    fn SSL_set_fd(ssl: *mut c_void, fd: c_int) -> c_int;
    fn SSL_accept(ssl: *mut c_void) -> c_int;
    fn SSL_read_ex(ssl: *mut c_void, room: *mut c_void, length: usize, read: *mut usize) -> c_int;
    fn SSL_write_ex(
        ssl: *mut c_void,
        bytes: *const c_void,
        length: usize,
        written: *mut usize,
    ) -> c_int;
    fn SSL_read_early_data(
        ssl: *mut c_void,
        room: *mut c_void,
        length: usize,
        read: *mut usize,
    ) -> c_int;
    fn SSL_write_early_data(
        ssl: *mut c_void,
        bytes: *const c_void,
        length: usize,
        written: *mut usize,
    ) -> c_int;
    fn SSL_shutdown(ssl: *mut c_void) -> c_int;
    fn SSL_get_error(ssl: *const c_void, returned: c_int) -> c_int;
}

/// Returns the version of OpenSSL.
pub(crate) fn version() -> String {
    // SAFETY: for kind 0, OPENSSL_VERSION, it is a text in static memory.
    unsafe { CStr::from_ptr(OpenSSL_version(0)) }.to_string_lossy().into_owned()
}

/// The settings of all connections.
#[derive(Debug)]
pub(crate) struct Context {
    raw: NonNull<c_void>,
    takes_early_data: bool,
}

// SAFETY: a context counts its references atomically, and here it is only changed by exclusive
// reference, before connections are made of it from several threads (openssl-threads(7)).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// TLS 1.3 with these files, one group and one cipher.
    pub(crate) fn new(certificate: &Path, key: &Path, group: &str) -> io::Result<Self> {
        // SAFETY: the method is static.
        let raw = made(unsafe { SSL_CTX_new(TLS_server_method()) })?;
        let context = Self { raw, takes_early_data: false };
        let raw = context.raw.as_ptr();
        let (certificate, key) = (file_name(certificate)?, file_name(key)?);
        let group = CString::new(group)?;
        // SAFETY: the context is valid, and OpenSSL copies the texts, each of which ends in a null
        // byte.
        unsafe {
            worked(
                SSL_CTX_ctrl(raw, CTRL_SET_MIN_PROTO_VERSION, TLS1_3, ptr::null_mut()) > 0,
                "TLS 1.3",
            )?;
            let groups = group.as_ptr().cast_mut().cast();
            worked(SSL_CTX_ctrl(raw, CTRL_SET_GROUPS_LIST, 0, groups) > 0, "group")?;
            worked(SSL_CTX_set_ciphersuites(raw, CIPHER.as_ptr()) > 0, "cipher")?;
            worked(
                SSL_CTX_use_certificate_chain_file(raw, certificate.as_ptr()) > 0,
                "certificate",
            )?;
            worked(SSL_CTX_use_PrivateKey_file(raw, key.as_ptr(), FILETYPE_PEM) > 0, "key")?;
        }
        Ok(context)
    }

    /// Takes Encrypted ClientHello for the key in `pem`.
    pub(crate) fn set_ech(&mut self, pem: &[u8]) -> io::Result<()> {
        let (store, text) = (Store::new()?, Bio::from_bytes(pem)?);
        // SAFETY: all three are valid; the context takes a reference of its own to what is in the
        // store.
        unsafe {
            worked(
                OSSL_ECHSTORE_read_pem(store.0.as_ptr(), text.0.as_ptr(), FOR_RETRY) > 0,
                "ECH file",
            )?;
            worked(SSL_CTX_set1_echstore(self.raw.as_ptr(), store.0.as_ptr()) > 0, "ECH")
        }
    }

    /// Takes early data with the tickets that it hands out. OpenSSL then keeps the sessions, and
    /// takes each ticket once.
    pub(crate) fn take_early_data(&mut self) -> io::Result<()> {
        // SAFETY: the context is valid.
        let set = unsafe { SSL_CTX_set_max_early_data(self.raw.as_ptr(), EARLY_DATA_MAX) };
        self.takes_early_data = true;
        worked(set > 0, "early data")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is valid, and this reference is not used again.
        unsafe { SSL_CTX_free(self.raw.as_ptr()) }
    }
}

/// A new key and its configuration, as text: a store that has just made a key does not decrypt with
/// it, one that has read it does.
pub(crate) fn new_ech_pem(outer_name: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(outer_name)?;
    let (store, text) = (Store::new()?, Bio::new()?);
    let raw = store.0.as_ptr();
    // SAFETY: all are valid, and the name is copied. With 0, nothing is said of the length of inner
    // names.
    unsafe {
        worked(
            OSSL_ECHSTORE_new_config(raw, ECH_VERSION, 0, name.as_ptr(), HPKE) > 0,
            "outer name",
        )?;
        worked(OSSL_ECHSTORE_write_pem(raw, LAST, text.0.as_ptr()) > 0, "new ECH key")?;
    }
    text.content()
}

/// Names that a client has shown to everybody, and that it has encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) inner: String,
    pub(crate) outer: String,
}

/// TLS over a socket that blocks. Reading brings early data first, where it is taken, and what is
/// written before its end leaves before the client's Finished.
pub(crate) struct Connection {
    ssl: NonNull<c_void>,
    /// Open as long as `ssl`, which has its descriptor.
    tcp: TcpStream,
    /// True until early data has ended and the handshake with it.
    is_early: bool,
}

impl Connection {
    /// After the handshake, or before it where early data is taken.
    pub(crate) fn accept(context: &Context, tcp: TcpStream) -> io::Result<Self> {
        // SAFETY: the context is valid, and the connection takes a reference of its own.
        let ssl = made(unsafe { SSL_new(context.raw.as_ptr()) })?;
        let mut connection = Self { ssl, tcp, is_early: context.takes_early_data };
        let raw = connection.ssl.as_ptr();
        // SAFETY: the connection is valid, and the descriptor is open as long as it is there:
        // dropping frees the connection, which does not close it, before the socket.
        unsafe { worked(SSL_set_fd(raw, connection.tcp.as_raw_fd()) > 0, "socket")? };
        if !connection.is_early {
            connection.end_handshake()?;
        }
        Ok(connection)
    }

    fn end_handshake(&mut self) -> io::Result<()> {
        // SAFETY: the connection is valid.
        let returned = unsafe {
            ERR_clear_error();
            SSL_accept(self.ssl.as_ptr())
        };
        self.is_early = false;
        if returned <= 0 { Err(self.error(returned)) } else { Ok(()) }
    }

    /// Returns early data; none once it has ended, and then the handshake has, too.
    fn read_early(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let mut count = 0;
        // SAFETY: the connection is valid, and at most the length of `room` is written there.
        let returned = unsafe {
            ERR_clear_error();
            let (room, length) = (room.as_mut_ptr().cast(), room.len());
            SSL_read_early_data(self.ssl.as_ptr(), room, length, &raw mut count)
        };
        match returned {
            READ_EARLY_DATA_SUCCESS => Ok(Some(count)),
            READ_EARLY_DATA_FINISH => self.end_handshake().map(|()| None),
            _ => Err(self.error(returned)),
        }
    }

    /// The names, if the ClientHello was encrypted and could be read.
    pub(crate) fn ech_names(&mut self) -> io::Result<Names> {
        let (mut inner, mut outer) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the connection is valid, and both pointers are there to be written.
        let status =
            unsafe { SSL_ech_get1_status(self.ssl.as_ptr(), &raw mut inner, &raw mut outer) };
        let names = Names { inner: taken(inner), outer: taken(outer) };
        match status {
            ECH_SUCCESS => Ok(names),
            _ => Err(io::Error::other(format!("no Encrypted ClientHello: status {status}"))),
        }
    }

    /// Says that nothing follows, and does not wait for the client to say so, but for its Finished.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        let mut room = [0; 1024];
        while self.is_early {
            self.read_early(&mut room)?;
        }
        // SAFETY: the connection is valid, and its handshake is over.
        let returned = unsafe { SSL_shutdown(self.ssl.as_ptr()) };
        if returned < 0 { Err(self.error(returned)) } else { Ok(()) }
    }

    /// Returns the error of the last call, which must have been on this thread.
    fn error(&self, returned: c_int) -> io::Error {
        let system = io::Error::last_os_error();
        // SAFETY: the connection is valid; the function only reads it and this thread's errors.
        match unsafe { SSL_get_error(self.ssl.as_ptr(), returned) } {
            ERROR_ZERO_RETURN => io::ErrorKind::UnexpectedEof.into(),
            ERROR_SYSCALL => system,
            _ => last_error(),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.is_early
            && let Some(count) = self.read_early(room)?
        {
            return Ok(count);
        }
        let mut count = 0;
        // SAFETY: the connection is valid, and at most the length of `room` is written there.
        let returned = unsafe {
            ERR_clear_error();
            let (room, length) = (room.as_mut_ptr().cast(), room.len());
            SSL_read_ex(self.ssl.as_ptr(), room, length, &raw mut count)
        };
        if returned > 0 { Ok(count) } else { Err(self.error(returned)) }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut count = 0;
        // SAFETY: the connection is valid, and `bytes` is only read.
        let returned = unsafe {
            ERR_clear_error();
            let (bytes, length) = (bytes.as_ptr().cast(), bytes.len());
            let write = if self.is_early { SSL_write_early_data } else { SSL_write_ex };
            write(self.ssl.as_ptr(), bytes, length, &raw mut count)
        };
        if returned > 0 { Ok(count) } else { Err(self.error(returned)) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is valid and not used again.
        unsafe { SSL_free(self.ssl.as_ptr()) }
    }
}

/// Keys and configurations.
struct Store(NonNull<c_void>);

impl Store {
    fn new() -> io::Result<Self> {
        // SAFETY: null stands for the default library context and no properties.
        made(unsafe { OSSL_ECHSTORE_new(ptr::null_mut(), ptr::null()) }).map(Self)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: it is valid and not used again.
        unsafe { OSSL_ECHSTORE_free(self.0.as_ptr()) }
    }
}

/// Bytes in memory, as OpenSSL reads and writes them.
struct Bio<'b>(NonNull<c_void>, std::marker::PhantomData<&'b [u8]>);

impl<'b> Bio<'b> {
    fn new() -> io::Result<Self> {
        // SAFETY: the method is static.
        let bio = made(unsafe { BIO_new(BIO_s_mem()) })?;
        Ok(Self(bio, std::marker::PhantomData))
    }

    fn from_bytes(bytes: &'b [u8]) -> io::Result<Self> {
        let length = c_int::try_from(bytes.len()).map_err(io::Error::other)?;
        // SAFETY: the bytes live longer than what is made of them, which only reads them.
        let bio = made(unsafe { BIO_new_mem_buf(bytes.as_ptr().cast(), length) })?;
        Ok(Self(bio, std::marker::PhantomData))
    }

    /// Returns the bytes written.
    fn content(&self) -> io::Result<Vec<u8>> {
        let mut start: *const u8 = ptr::null();
        // SAFETY: for this call the pointer is one to a pointer, which is written.
        let length =
            unsafe { BIO_ctrl(self.0.as_ptr(), BIO_CTRL_INFO, 0, (&raw mut start).cast()) };
        let length = usize::try_from(length).map_err(io::Error::other)?;
        worked(!start.is_null(), "new ECH key")?;
        // SAFETY: there are so many bytes, which stay until the next call.
        Ok(unsafe { std::slice::from_raw_parts(start, length) }.to_vec())
    }
}

impl Drop for Bio<'_> {
    fn drop(&mut self) {
        // SAFETY: it is valid and not used again.
        unsafe { BIO_free(self.0.as_ptr()) };
    }
}

/// Text that OpenSSL gave away; empty if it is null.
fn taken(text: *mut c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it ends in a null byte, and it is freed here once, with the function that
    // OPENSSL_free is.
    unsafe {
        let own = CStr::from_ptr(text).to_string_lossy().into_owned();
        CRYPTO_free(text.cast(), ptr::null(), 0);
        own
    }
}

fn file_name(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn made(pointer: *mut c_void) -> io::Result<NonNull<c_void>> {
    NonNull::new(pointer).ok_or_else(last_error)
}

/// Or the error says that it was with `what`.
fn worked(did: bool, what: &str) -> io::Result<()> {
    if did { Ok(()) } else { Err(io::Error::other(format!("{what}: {}", last_error()))) }
}

/// The first error of this thread that nobody has asked for.
fn last_error() -> io::Error {
    // SAFETY: it only reads and changes this thread's errors.
    let code = unsafe { ERR_get_error() };
    if code == 0 {
        return io::Error::other("OpenSSL refused it");
    }
    let mut room = [0; ERROR_MAX];
    // SAFETY: the room is as long as is said; a null byte ends what is written there.
    let text = unsafe {
        ERR_error_string_n(code, room.as_mut_ptr().cast(), room.len());
        CStr::from_bytes_until_nul(&room)
    };
    let text = text.map(CStr::to_string_lossy).unwrap_or_default();
    io::Error::other(format!("OpenSSL: {text}"))
}
