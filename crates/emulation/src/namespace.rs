use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::sys;

/// A network namespace without a name.
///
/// It lives as long as this handle, a copy of it, a thread or a process in it; nothing is left
/// behind when the process is killed.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<OwnedFd>,
}

impl Namespace {
    /// A new, empty namespace; needs `CAP_SYS_ADMIN`, see [`privilege`](crate::privilege).
    pub fn new() -> io::Result<Namespace> {
        let file = in_new_thread(|| {
            sys::unshare(UnshareFlags::NEWNET)?;
            sys::own_network_namespace()
        })??;
        Ok(Namespace { file: Arc::new(file) })
    }

    /// Moves the calling thread, and threads it starts later, into the namespace for good.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Does `work` in the namespace, in a thread of its own, and waits for it; a panic of `work`
    /// goes on here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_new_thread(|| self.enter().map(|()| work()))?
    }

    /// Starts a thread in the namespace.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<thread::JoinHandle<io::Result<T>>> {
        let namespace = self.clone();
        thread::Builder::new().spawn(move || namespace.enter().map(|()| work()))
    }

    /// A command that will run in the namespace.
    ///
    /// Its process is killed when the *thread* that spawned it ends, so spawn it from one that
    /// lives long enough, or with [`Node::spawn`](crate::Node::spawn).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::run_in(&mut command, Arc::clone(&self.file), None);
        command
    }

    /// A command that will run in the namespace and can open `other` under the path returned with
    /// it.
    pub(crate) fn command_with(&self, program: &str, other: &Namespace) -> (Command, String) {
        let mut command = Command::new(program);
        sys::run_in(&mut command, Arc::clone(&self.file), Some(Arc::clone(&other.file)));
        (command, sys::inherited_path(&other.file))
    }
}

fn in_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
