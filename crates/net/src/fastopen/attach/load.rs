//! Loads the committed objects into the kernel.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::programs::{CgroupSockopt, Program, ProgramError, ProgramFd, SchedClassifier, SockOps};
use aya::{Ebpf, EbpfLoader};
use rustix::thread::{CapabilitySet, capabilities};

use super::error::AttachError;
use super::pin_dir::PinDir;
use crate::fastopen::layout::SPENT;

/// Client object, built by `bpf/build.sh` and compared by CI.
static CLIENT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/client.bpf.o"));
static CAREFUL: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/careful.bpf.o"));
static SERVER: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/server.bpf.o"));

/// Oldest kernel for the client: TCP header options from sock_ops.
const CLIENT_NEEDS: &str = "Linux 5.10";
/// Oldest kernel for the server: bpf_ktime_get_boot_ns.
const SERVER_NEEDS: &str = "Linux 5.8";

/// Oldest kernel for Careful Resume: bpf_setsockopt from programs of setsockopt.
const CAREFUL_NEEDS: &str = "Linux 5.15";

/// Bytes kept of a verifier's log: the error is at its end.
const SAID_MAX: usize = 800;

/// An object whose maps are in the kernel until this is dropped, unless they are pinned.
pub(super) struct Loaded {
    ebpf: Ebpf,
    needs: &'static str,
}

impl Loaded {
    pub(super) fn client() -> Result<Self, AttachError> {
        privileged()?;
        let ebpf = EbpfLoader::new().load(CLIENT).map_err(refused(CLIENT_NEEDS))?;
        Ok(Self { ebpf, needs: CLIENT_NEEDS })
    }

    pub(super) fn careful() -> Result<Self, AttachError> {
        privileged()?;
        let ebpf = EbpfLoader::new().load(CAREFUL).map_err(refused(CAREFUL_NEEDS))?;
        Ok(Self { ebpf, needs: CAREFUL_NEEDS })
    }

    /// Loads the server's object with room for `spent` used cookies in each generation.
    pub(super) fn server(spent: u32) -> Result<Self, AttachError> {
        privileged()?;
        let mut loader = EbpfLoader::new();
        for map in SPENT {
            loader.map_max_entries(map, spent);
        }
        let ebpf = loader.load(SERVER).map_err(refused(SERVER_NEEDS))?;
        Ok(Self { ebpf, needs: SERVER_NEEDS })
    }

    pub(super) fn pin_map(&self, name: &str, pins: &PinDir) -> Result<(), AttachError> {
        let map = self.ebpf.map(name).ok_or_else(|| self.lacks(name))?;
        map.pin(pins.path(name)).map_err(refused(self.needs))
    }

    pub(super) fn sock_ops(&mut self, name: &str) -> Result<OwnedFd, AttachError> {
        let needs = self.needs;
        let program: &mut SockOps = self.program(name)?;
        program.load().map_err(refused(needs))?;
        handle(program.fd(), needs)
    }

    pub(super) fn sock_opt(&mut self, name: &str) -> Result<OwnedFd, AttachError> {
        let needs = self.needs;
        let program: &mut CgroupSockopt = self.program(name)?;
        program.load().map_err(refused(needs))?;
        handle(program.fd(), needs)
    }

    pub(super) fn classifier(&mut self, name: &str) -> Result<OwnedFd, AttachError> {
        let needs = self.needs;
        let program: &mut SchedClassifier = self.program(name)?;
        program.load().map_err(refused(needs))?;
        handle(program.fd(), needs)
    }

    fn program<'a, P>(&'a mut self, name: &str) -> Result<&'a mut P, AttachError>
    where
        P: 'a,
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
    {
        let (needs, lacks) = (self.needs, self.lacks(name));
        let program = self.ebpf.program_mut(name).ok_or(lacks)?;
        program.try_into().map_err(refused(needs))
    }

    /// Returns the error for a committed object without an expected part.
    fn lacks(&self, name: &str) -> AttachError {
        AttachError::Refused { needs: self.needs, message: format!("the object has no '{name}'") }
    }
}

fn handle(
    fd: Result<&ProgramFd, ProgramError>,
    needs: &'static str,
) -> Result<OwnedFd, AttachError> {
    let fd = fd.map_err(refused(needs))?;
    fd.as_fd().try_clone_to_owned().map_err(AttachError::system("keeping a program"))
}

/// Checks the privilege first: without BTF, which needs privilege, the kernel's error would
/// mislead.
fn privileged() -> Result<(), AttachError> {
    let effective = capabilities(None).map_err(|_| AttachError::Privilege)?.effective;
    let may = effective.contains(CapabilitySet::NET_ADMIN)
        && effective.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    if may { Ok(()) } else { Err(AttachError::Privilege) }
}

/// Converts the kernel's error for a map or program. `EPERM` is about privilege (the verifier
/// returns `EACCES`).
fn refused<E: Error + 'static>(needs: &'static str) -> impl FnOnce(E) -> AttachError {
    move |error| {
        let first: &(dyn Error + 'static) = &error;
        let causes = std::iter::successors(Some(first), |error| (*error).source());
        let mut system = causes.clone().filter_map(|error| error.downcast_ref::<io::Error>());
        if system.any(|error| error.raw_os_error() == Some(libc::EPERM)) {
            return AttachError::Privilege;
        }
        let mut message: Vec<_> = causes.map(ToString::to_string).collect();
        // An error that only wraps another repeats its text.
        message.dedup();
        AttachError::Refused { needs, message: end_of(message.join(": ")) }
    }
}

fn end_of(text: String) -> String {
    let start = text.len().saturating_sub(SAID_MAX);
    match text.char_indices().map(|(pins, _)| pins).find(|pins| *pins >= start) {
        Some(start) if start > 0 => format!("...{}", text.get(start..).unwrap_or_default()),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as aya reports it.
    #[derive(Debug)]
    struct Outer(io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("loading")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_kernels_message_is_shown() {
        let refused = refused("Linux 99.0");
        let error = refused(Outer(io::Error::from_raw_os_error(libc::EINVAL)));
        let text = error.to_string();
        assert!(text.contains("refused the program: loading: Invalid argument"), "{text}");
        let hint = error.hint();
        assert!(hint.starts_with("Linux 99.0 or newer is needed; this is Linux "), "{hint}");
    }

    #[test]
    fn a_lack_of_privilege_has_its_own_error() {
        let error = refused(CLIENT_NEEDS)(Outer(io::Error::from_raw_os_error(libc::EPERM)));
        assert!(matches!(error, AttachError::Privilege), "{error}");
    }

    #[test]
    fn the_end_of_a_long_message_is_kept() {
        assert_eq!(end_of("short".into()), "short");
        let text = end_of(format!("{}é{}", "x".repeat(50), "y".repeat(SAID_MAX - 1)));
        assert_eq!(text, format!("...{}", "y".repeat(SAID_MAX - 1)));
    }
}
