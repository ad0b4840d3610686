//! System calls that no library here offers safely: bpf(2) on pinned objects, socket options,
//! tun devices, and descriptors that tokio waits on.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_long, c_short};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Commands of bpf(2): `enum bpf_cmd` of linux/bpf.h.
mod command {
    use std::ffi::c_long;

    pub(super) const MAP_LOOKUP: c_long = 1;
    pub(super) const MAP_UPDATE: c_long = 2;
    pub(super) const MAP_DELETE: c_long = 3;
    pub(super) const PIN: c_long = 6;
    pub(super) const GET: c_long = 7;
    pub(super) const TEST_RUN: c_long = 10;
    pub(super) const INFO: c_long = 15;
    pub(super) const MAP_LOOKUP_BATCH: c_long = 24;
    pub(super) const LINK_CREATE: c_long = 28;
    pub(super) const LINK_DETACH: c_long = 34;
}

/// `BPF_F_RDONLY` of linux/bpf.h.
const READ_ONLY: u32 = 1 << 3;

/// `BPF_MAP_TYPE_HASH`.
const HASH: u32 = 1;

/// Map types that have a value for each processor: `BPF_MAP_TYPE_PERCPU_HASH`, `_ARRAY`,
/// `_LRU_PERCPU_HASH`, `_CGROUP_STORAGE`.
const PER_PROCESSOR: [u32; 4] = [5, 6, 10, 21];

/// Largest key or value of a map that is opened here; ours have at most 144 bytes.
const SIZE_MAX: u32 = 4096;

/// Entries read from a map by one system call: 64 kB of the largest map here.
const BATCH: u32 = 4096;

/// Bytes that a packet may grow by in a test run; ours keep their length.
const HEADROOM: usize = 256;

/// Calls bpf(2).
///
/// # Safety
/// `attributes` must be the kernel's structure for `command`, without padding, and the memory that
/// it points to must be live and as large as it says.
unsafe fn bpf<T>(command: c_long, attributes: &mut T) -> io::Result<c_int> {
    let attributes: *mut T = attributes;
    // SAFETY: the caller's duty, stated above; the size is that of the structure.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls bpf(2) for a command that returns a new file descriptor.
///
/// # Safety
/// As for [`bpf`], and the command must return a new file descriptor.
unsafe fn bpf_fd<T>(command: c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's duty.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made it, and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn fd_number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// Converts a pointer for the kernel.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn path_text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[repr(C)]
struct ObjectAttributes {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Access to a pin; the kernel checks the file's mode for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// Opens the object pinned at `path`.
pub(crate) fn open_pin(path: &Path, access: Access) -> io::Result<OwnedFd> {
    let path = path_text(path)?;
    let flags = if access == Access::Read { READ_ONLY } else { 0 };
    let mut attributes = ObjectAttributes { path: address(path.as_ptr()), fd: 0, flags };
    // SAFETY: the path lives until the call returns.
    unsafe { bpf_fd(command::GET, &mut attributes) }
}

/// Pins a map, program or link at `path`, which must not exist, in a BPF file system.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_text(path)?;
    let mut attributes =
        ObjectAttributes { path: address(path.as_ptr()), fd: fd_number(object), flags: 0 };
    // SAFETY: the path lives until the call returns.
    unsafe { bpf(command::PIN, &mut attributes) }.map(drop)
}

#[repr(C)]
struct InfoAttributes {
    fd: u32,
    length: u32,
    info: u64,
}

/// Returns the first words of the kernel's information on an object; unknown ones are zero.
fn info<const WORDS: usize>(object: BorrowedFd<'_>) -> io::Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    let mut attributes = InfoAttributes {
        fd: fd_number(object),
        length: length(size_of_val(&words))?,
        info: address(words.as_mut_ptr().cast_const()),
    };
    // SAFETY: `words` is as long as stated, and any bytes are integers.
    unsafe { bpf(command::INFO, &mut attributes) }?;
    Ok(words)
}

/// A map in the kernel, opened by its pin.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    kind: u32,
    id: u32,
    key: usize,
    /// Bytes of a value, for all processors together if each has one.
    value: usize,
}

#[repr(C)]
struct ElementAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct BatchAttributes {
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Some entries of a map.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Keys, one behind the other.
    pub(crate) keys: Vec<u8>,
    /// Values, in the same order.
    pub(crate) values: Vec<u8>,
    /// Position of the next batch; `None` at the end.
    pub(crate) next: Option<u32>,
}

impl Map {
    pub(crate) fn open(path: &Path, access: Access) -> io::Result<Self> {
        let fd = open_pin(path, access)?;
        // struct bpf_map_info: type, id, key_size, value_size, max_entries.
        let [kind, id, key, value, _] = info(fd.as_fd())?;
        if key > SIZE_MAX || value > SIZE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let value = value as usize;
        let value = if PER_PROCESSOR.contains(&kind) {
            // The kernel pads each to eight bytes.
            value.next_multiple_of(8) * processors()?
        } else {
            value
        };
        Ok(Self { fd, kind, id, key: key as usize, value })
    }

    /// Returns true if both are the same map.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns the value of a key; `None` if there is none.
    pub(crate) fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.value];
        let mut attributes = self.element(key, value.as_mut_ptr().cast_const())?;
        // SAFETY: key and value are as long as this map's.
        match unsafe { bpf(command::MAP_LOOKUP, &mut attributes) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.len() != self.value {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attributes = self.element(key, value.as_ptr())?;
        // SAFETY: key and value are as long as this map's; the kernel only reads them.
        unsafe { bpf(command::MAP_UPDATE, &mut attributes) }.map(drop)
    }

    /// Removes a key; returns true if it was there.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let mut attributes = self.element(key, ptr::null())?;
        // SAFETY: the key is as long as this map's.
        match unsafe { bpf(command::MAP_DELETE, &mut attributes) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns up to [`BATCH`] entries of a hash map, starting at a position.
    ///
    /// Entries that are added or removed between batches may or may not be included.
    pub(crate) fn batch(&self, from: Option<u32>) -> io::Result<Batch> {
        // In other kinds of map, a position is as long as a key.
        if self.kind != HASH {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let count = BATCH as usize;
        let (mut keys, mut values) = (vec![0; count * self.key], vec![0; count * self.value]);
        let mut next = 0_u32;
        let mut attributes = BatchAttributes {
            from: from.as_ref().map_or(0, |from| address(from)),
            next: address((&raw mut next).cast_const()),
            keys: address(keys.as_mut_ptr().cast_const()),
            values: address(values.as_mut_ptr().cast_const()),
            count: BATCH,
            map: fd_number(self.fd.as_fd()),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: keys and values have room for `count` of each; a position in a hash map is one
        // word.
        let read = unsafe { bpf(command::MAP_LOOKUP_BATCH, &mut attributes) };
        let is_last = match read {
            Ok(_) => false,
            // The kernel returns the last batch with this error.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        let count = attributes.count.min(BATCH) as usize;
        keys.truncate(count * self.key);
        values.truncate(count * self.value);
        Ok(Batch { keys, values, next: (!is_last).then_some(next) })
    }

    fn element(&self, key: &[u8], value: *const u8) -> io::Result<ElementAttributes> {
        if key.len() != self.key {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(ElementAttributes {
            map: fd_number(self.fd.as_fd()),
            padding: 0,
            key: address(key.as_ptr()),
            value: address(value),
            flags: 0,
        })
    }
}

/// Returns the number of processors that may come online, which is the number of values in an entry
/// of a per-processor map.
fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // Ranges such as 0-3,8; the highest number is the last.
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Result of running a program on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// Return value: `TC_ACT_UNSPEC` is -1, `TC_ACT_SHOT` 2 (linux/pkt_cls.h).
    pub verdict: i32,
    /// The packet as the program left it.
    pub packet: Vec<u8>,
    /// Average time of one run.
    pub time: Duration,
}

/// A program that is loaded and pinned.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

#[derive(Default)]
#[repr(C)]
struct TestAttributes {
    program: u32,
    verdict: u32,
    length_in: u32,
    length_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_length_in: u32,
    context_length_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
    batch: u32,
    padding: u32,
}

impl Program {
    /// Opens the program that is pinned at `path`.
    ///
    /// # Errors
    /// Errors of bpf(2): `EPERM` without CAP_BPF, `ENOENT` if there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: open_pin(path, Access::ReadWrite)? })
    }

    /// Runs the program on a frame without sending any (`BPF_PROG_TEST_RUN`), `repeat` times on the
    /// same frame.
    ///
    /// The frame begins with an Ethernet header as the kernel sees it, of at least 14 bytes.
    ///
    /// # Errors
    /// Errors of bpf(2): `EPERM` without CAP_BPF and CAP_NET_ADMIN, `EINVAL` for frames that are
    /// too short.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        let mut packet = vec![0; frame.len() + HEADROOM];
        let mut attributes = TestAttributes {
            program: fd_number(self.fd.as_fd()),
            length_in: length(frame.len())?,
            length_out: length(packet.len())?,
            data_in: address(frame.as_ptr()),
            data_out: address(packet.as_mut_ptr().cast_const()),
            repeat,
            ..TestAttributes::default()
        };
        // SAFETY: both buffers live until the call returns and are as long as stated.
        unsafe { bpf(command::TEST_RUN, &mut attributes) }?;
        packet.truncate(attributes.length_out as usize);
        let time = Duration::from_nanos(attributes.duration.into());
        Ok(TestRun { verdict: attributes.verdict.cast_signed(), packet, time })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Attachment point of a program: `enum bpf_attach_type` of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hook {
    SockOps = 3,
    GetSockOpt = 21,
    SetSockOpt = 22,
    TcxIngress = 46,
}

#[repr(C)]
struct LinkAttributes {
    program: u32,
    target: u32,
    hook: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

/// Attaches a program to a cgroup, beside other programs. The link ends when its last handle and
/// pin are gone.
pub(crate) fn link_to_cgroup(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    hook: Hook,
) -> io::Result<OwnedFd> {
    link(program, fd_number(cgroup), hook)
}

/// Attaches a program to the ingress of an interface behind existing ones. Needs Linux 6.6; else
/// `EINVAL`.
pub(crate) fn link_to_interface(program: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    link(program, index, Hook::TcxIngress)
}

fn link(program: BorrowedFd<'_>, target: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut attributes = LinkAttributes {
        program: fd_number(program),
        target,
        hook: hook as u32,
        flags: 0,
        relative: 0,
        padding: 0,
        revision: 0,
    };
    // SAFETY: the structure has no pointers.
    unsafe { bpf_fd(command::LINK_CREATE, &mut attributes) }
}

#[repr(C)]
struct DetachAttributes {
    link: u32,
}

/// Detaches the link pinned at `path` immediately; removing only its pin would end it later.
///
/// Needs Linux 5.9, and 6.6 for interfaces; `EINVAL` if the pin is not a link.
pub(crate) fn detach_link(path: &Path) -> io::Result<()> {
    let link = open_pin(path, Access::ReadWrite)?;
    let mut attributes = DetachAttributes { link: fd_number(link.as_fd()) };
    // SAFETY: the structure has no pointers; the kernel reads zeros beyond its end.
    unsafe { bpf(command::LINK_DETACH, &mut attributes) }.map(drop)
}

/// Object that a link is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The cgroup whose directory has this inode number.
    Cgroup(u64),
    /// Index of the interface; 0 once it is removed.
    Interface(u32),
    /// Something else.
    Other,
}

/// Returns the target of the link pinned at `path`.
pub(crate) fn link_target(path: &Path) -> io::Result<Target> {
    const CGROUP: u32 = 3;
    const TCX: u32 = 11;
    let fd = open_pin(path, Access::ReadWrite)?;
    // struct bpf_link_info: type, id, prog_id, and at byte 16 data that depend on the type.
    let [kind, _, _, _, low, high] = info(fd.as_fd())?;
    Ok(match kind {
        CGROUP => Target::Cgroup(u64::from(high) << 32 | u64::from(low)),
        TCX => Target::Interface(low),
        _ => Target::Other,
    })
}

/// Lets tokio wait until `socket` can be read. Must be called within a tokio runtime.
pub(crate) fn readable(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open until it is dropped, and always the same descriptor.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// Sets a socket option whose value is an int.
pub(crate) fn set_number(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_option(socket.as_fd(), level, name, &value.to_ne_bytes())
}

/// Sets a socket option of any level.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the value lives until the call returns and is as long as stated.
    checked(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length)
    })
}

/// Reads a socket option of any level; returns its length in bytes.
pub(crate) fn option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut length =
        libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let buffer = value.as_mut_ptr().cast();
    // SAFETY: `buffer` has room for as many bytes as `length` says.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, buffer, &raw mut length) })?;
    Ok(length as usize)
}

/// Returns the hardware type of an interface (ARPHRD_ in linux/if_arp.h), using any socket.
pub(crate) fn hardware_type(socket: BorrowedFd<'_>, interface: &str) -> io::Result<u16> {
    let mut request = interface_request(interface)?;
    // SAFETY: `request` names an interface and has room for its address.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: the call above wrote this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Makes a tun device in the network namespace of this thread; it ends with the file.
///
/// # Errors
/// No `/dev/net/tun`, no CAP_NET_ADMIN, or another device of that name.
pub fn tun(name: &str) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = interface_request(name)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: `request` has the name and the flags, and is large enough for what the call writes.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(device)
}

/// Gives new connections to the listener with this index, from 0, in the group of those that share
/// an address by SO_REUSEPORT; those that it does not have are distributed as before, as are all
/// without an index.
///
/// # Errors
/// The socket is in no such group.
pub fn steer_connections(listener: BorrowedFd<'_>, index: Option<u32>) -> io::Result<()> {
    let level = libc::SOL_SOCKET;
    let Some(index) = index else {
        return set_number(listener, level, libc::SO_DETACH_REUSEPORT_BPF, 0);
    };
    let code = u16::try_from(libc::BPF_RET | libc::BPF_K).map_err(io::Error::other)?;
    let mut filter = libc::sock_filter { code, jt: 0, jf: 0, k: index };
    let program = libc::sock_fprog { len: 1, filter: &raw mut filter };
    let length = libc::socklen_t::try_from(size_of_val(&program)).map_err(io::Error::other)?;
    let name = libc::SO_ATTACH_REUSEPORT_CBPF;
    // SAFETY: the program has one instruction, which the kernel copies before the call returns.
    checked(unsafe {
        libc::setsockopt(listener.as_raw_fd(), level, name, (&raw const program).cast(), length)
    })
}

/// Names an interface, and nothing else.
fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

fn checked(result: c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
