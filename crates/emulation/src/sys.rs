//! System calls without a safe wrapper.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// Moves the calling thread into new namespaces.
///
/// Never asks for `FILES`, the one flag that can make another thread's descriptors invalid.
pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    if flags.contains(UnshareFlags::FILES) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the only stated danger is `FILES`, refused above.
    unsafe { unshare_unsafe(flags) }
}

/// Makes a command run in a network namespace and die with the thread that spawns it.
///
/// `inherited` stays open in the new process, under the same number.
pub(crate) fn run_in(
    command: &mut Command,
    namespace: Arc<OwnedFd>,
    inherited: Option<Arc<OwnedFd>>,
) {
    let parent = rustix::process::getpid();
    // SAFETY: the function makes system calls only and does not allocate, so it is safe between
    // fork and exec.
    unsafe {
        command.pre_exec(move || Ok(enter(parent, &namespace, inherited.as_deref())?));
    }
}

/// Interrupts the program (SIGINT) when the thread that spawns it ends, however it ends; again if
/// other threads of that process end later.
pub fn interrupt_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: the function makes system calls only and does not allocate, so it is safe between
    // fork and exec.
    unsafe {
        command.pre_exec(move || Ok(end_with(parent, Signal::INT)?));
    }
}

/// Has this process get a signal when the thread of `parent` that made it ends.
fn end_with(parent: Pid, signal: Signal) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(signal))?;
    // The parent may have died before the line above took effect.
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH) }
}

/// Moves a new process into a namespace; it dies with the thread of `parent` that made it.
fn enter(parent: Pid, namespace: &OwnedFd, inherited: Option<&OwnedFd>) -> Result<(), Errno> {
    end_with(parent, Signal::KILL)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    match inherited {
        Some(inherited) => rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty()),
        None => Ok(()),
    }
}

/// Does `work` in the new process just before the program starts.
///
/// `work` must only make system calls: no allocation, no locks, no panic.
pub(crate) fn before_exec(command: &mut Command, work: impl Fn() + Send + Sync + 'static) {
    // SAFETY: the closure makes system calls only (the caller's duty, stated above).
    unsafe {
        command.pre_exec(move || {
            work();
            Ok(())
        });
    }
}

/// Runs `work` in a child process and returns its error, or `None` if it succeeded.
///
/// `work` must only make system calls: no allocation, no locks, no panic.
pub(crate) fn try_in_child(work: impl FnOnce() -> Result<(), Errno>) -> io::Result<Option<Errno>> {
    // SAFETY: the child makes system calls only (the caller's duty, stated above) and leaves by
    // `_exit`.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = work().map_or_else(Errno::raw_os_error, |()| 0);
            // SAFETY: `_exit` ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        child => {
            let code = exit_code_of(child)?;
            Ok((code != 0).then(|| Errno::from_raw_os_error(code)))
        }
    }
}

fn exit_code_of(child: libc::pid_t) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes of an exit status.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFEXITED(status) { Ok(libc::WEXITSTATUS(status)) } else { Ok(libc::EPERM) }
}

/// Gives the calling thread real-time priority; fails without `CAP_SYS_NICE`.
pub(crate) fn set_realtime_priority(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 names the calling thread, and the parameters live until the call returns.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })
}

/// Opens a non-blocking packet socket for whole Ethernet frames on an interface.
///
/// It receives no outgoing frames, neither its own nor those of others. Each received frame carries
/// the kernel's receive time.
pub(crate) fn packet_socket(interface: u32) -> io::Result<Socket> {
    // Protocol 0 receives nothing until `bind` names interface and protocol together.
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.set_nonblocking(true)?;
    set_flag(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
    set_flag(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING)?;
    socket.bind(&interface_address(interface)?)?;
    Ok(socket)
}

fn interface_address(interface: u32) -> io::Result<SockAddr> {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a sockaddr_ll is smaller than the storage, whose alignment suits every socket
    // address.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::AFNOSUPPORT)?;
    address.sll_protocol =
        u16::try_from(libc::ETH_P_ALL).map_err(|_| Errno::PROTONOSUPPORT)?.to_be();
    address.sll_ifindex = i32::try_from(interface).map_err(|_| Errno::NODEV)?;
    let length =
        libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the first `length` bytes are an initialised sockaddr_ll.
    Ok(unsafe { SockAddr::new(storage, length) })
}

fn set_flag(socket: &Socket, level: i32, name: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the option is an int, and `length` is its size.
    checked(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), length)
    })
}

/// Receives one frame: its length and the kernel's receive time since 1970, if it gave one.
pub(crate) fn receive(socket: &Socket, frame: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    // Room for one control message with a timespec (32 bytes), aligned as a cmsghdr must be.
    let mut control = [0_u64; 8];
    let mut buffer = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
    // SAFETY: all zeros is a valid msghdr: no buffers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut buffer;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: every pointer in `message` names a live buffer of the stated length.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok((length, receive_time(&message)))
}

/// Returns the receive time from the control messages that the kernel wrote.
fn receive_time(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: `message` was filled by recvmsg and its control buffer is still alive.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header inside the buffer.
    while let Some(header) = unsafe { control.as_ref() } {
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: this message's data is a timespec, which may be unaligned.
            let time: libc::timespec =
                unsafe { libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned() };
            return Some(Duration::new(
                u64::try_from(time.tv_sec).ok()?,
                u32::try_from(time.tv_nsec).ok()?,
            ));
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    None
}

/// Returns the number of frames dropped since the last call because the socket's queue was full.
pub(crate) fn take_missed(socket: &Socket) -> io::Result<u32> {
    let mut statistics = MaybeUninit::<libc::tpacket_stats>::zeroed();
    let mut length =
        libc::socklen_t::try_from(size_of::<libc::tpacket_stats>()).map_err(|_| Errno::INVAL)?;
    let value = statistics.as_mut_ptr().cast();
    // SAFETY: `value` has room for the option's value, of `length` bytes.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            value,
            &raw mut length,
        )
    })?;
    // SAFETY: zeroed above, and overwritten by the kernel with two integers.
    Ok(unsafe { statistics.assume_init() }.tp_drops)
}

/// Switches off an interface's checksum and segmentation offloads, so that captured frames are
/// as they would be on a real wire.
///
/// The numbers are `ETHTOOL_STXCSUM`, `_SSG`, `_STSO`, `_SGSO`, `_SGRO` and `_SRXCSUM` of
/// linux/ethtool.h.
pub(crate) fn switch_off_offloads(interface: &str) -> io::Result<()> {
    const REQUESTS: [u32; 6] = [0x17, 0x19, 0x1f, 0x24, 0x2c, 0x15];
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    REQUESTS.into_iter().try_for_each(|request| switch_off(&socket, interface, request))
}

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    request: u32,
    value: u32,
}

fn switch_off(socket: &Socket, interface: &str, request: u32) -> io::Result<()> {
    let mut value = EthtoolValue { request, value: 0 };
    let mut ifreq = interface_request(interface)?;
    ifreq.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: `ifreq` names the interface and a live ethtool_value, as SIOCETHTOOL wants.
    match checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ifreq) }) {
        // The device has no such offload.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// Returns true if an interface is up at both ends and passes packets.
pub(crate) fn is_running(interface: &str) -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut ifreq = interface_request(interface)?;
    // SAFETY: `ifreq` names the interface and has room for its flags, as SIOCGIFFLAGS wants.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut ifreq) })?;
    // SAFETY: the call above wrote this member.
    let flags = unsafe { ifreq.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_RUNNING != 0)
}

fn interface_request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid ifreq.
    let mut ifreq: libc::ifreq = unsafe { mem::zeroed() };
    if interface.len() >= ifreq.ifr_name.len() {
        return Err(Errno::NAMETOOLONG.into());
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    Ok(ifreq)
}

/// Returns the path by which a child process that inherits `file` can reopen it.
pub(crate) fn inherited_path(file: &impl AsRawFd) -> String {
    let number: RawFd = file.as_raw_fd();
    format!("/proc/self/fd/{number}")
}

/// Opens the network namespace of the calling thread.
pub(crate) fn own_network_namespace() -> io::Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
