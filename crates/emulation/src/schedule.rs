//! CPUs and priorities of what has to be on time.

use std::fmt;
use std::process::Command;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sys;

/// Lowest real-time priority: enough to go before every ordinary thread.
const PROGRAM_PRIORITY: i32 = 1;

/// Above the programs under test, which would otherwise delay each other's packets.
const FORWARDER_PRIORITY: i32 = 2;

/// CPU and priority of a thread or a program.
///
/// Measured, programs that are pinned and go before others are what shortens the tail of round-trip
/// times most. A program that never sleeps must not be real-time: nothing else would run on its
/// CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// The only CPU it runs on; `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// True if the thread goes before all ordinary ones (`SCHED_FIFO`).
    pub realtime: bool,
}

impl Scheduling {
    /// Real-time, on a CPU other than that of a pinned forwarder; programs numbered from 0 share
    /// those CPUs in turn.
    pub fn exact(program: usize) -> Scheduling {
        let cpus = own_cpus();
        let others = cpus.split_last().map_or(&[][..], |(_, others)| others);
        let cpu = program.checked_rem(others.len()).and_then(|turn| others.get(turn)).copied();
        Scheduling { cpu, realtime: true }
    }

    /// Returns what of this the system grants; tries it in a thread that ends at once.
    pub fn granted(self) -> Scheduling {
        thread::scope(|scope| {
            let trial = thread::Builder::new().spawn_scoped(scope, || self.enter());
            trial.ok().and_then(|trial| trial.join().ok()).unwrap_or_default()
        })
    }

    /// Applies it to the calling thread, and to threads and processes it starts later; returns what
    /// was granted.
    pub fn enter(self) -> Scheduling {
        self.enter_with(PROGRAM_PRIORITY)
    }

    /// Makes a command run so as far as the system grants it; [`granted`](Scheduling::granted) says
    /// how far that is.
    pub fn apply_to(self, command: &mut Command) -> &mut Command {
        sys::before_exec(command, move || {
            self.enter();
        });
        command
    }

    /// As the forwarder: on the last CPU, which [`exact`](Scheduling::exact) leaves free, if there
    /// is another.
    pub(crate) fn enter_as_forwarder(pinned: bool) -> Scheduling {
        let cpus = own_cpus();
        let last = cpus.last().copied().filter(|_| pinned && cpus.len() > 1);
        Scheduling { cpu: last, realtime: true }.enter_with(FORWARDER_PRIORITY)
    }

    /// Makes system calls only, as it also runs between fork and exec.
    fn enter_with(self, priority: i32) -> Scheduling {
        Scheduling {
            cpu: self.cpu.filter(|cpu| pin(*cpu)),
            realtime: self.realtime && sys::set_realtime_priority(priority).is_ok(),
        }
    }
}

/// Exactness that a lab's forwarder can reach here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exactness {
    /// It goes before all ordinary threads.
    pub realtime: bool,
    /// It has a CPU that no other thread of the lab is pinned to.
    pub pinned: bool,
    /// The kernel said of every frame so far when it came, so that the forwarder's own waking up
    /// delays none.
    pub timestamps: bool,
}

impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let realtime = if self.realtime { "real-time" } else { "not real-time" };
        let pinned = if self.pinned { "pinned to a CPU" } else { "not pinned" };
        let without = if self.timestamps { "" } else { "without " };
        write!(f, "forwarder {realtime}, {pinned}, {without}kernel time stamps")
    }
}

/// The CPUs the calling thread may use, in order.
fn own_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn pin(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_leave_the_last_cpu_to_the_forwarder() {
        let cpus = own_cpus();
        let last = cpus.last().copied();
        for program in 0..2 * cpus.len() {
            let cpu = Scheduling::exact(program).cpu;
            assert_eq!(cpu.is_some(), cpus.len() > 1);
            assert!(cpu.is_none() || cpu != last && cpus.contains(&cpu.unwrap()));
        }
    }

    #[test]
    fn pinning_holds_for_the_thread_that_asked_and_for_its_programs() {
        let Some(cpu) = Scheduling::exact(0).cpu else { return };
        let only = Scheduling { cpu: Some(cpu), realtime: false };
        assert_eq!(only.granted(), only);
        let before = own_cpus();
        let mut command = Command::new("cat");
        let output = only.apply_to(command.arg("/proc/self/status")).output().unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert_eq!(list.map(str::trim), Some(cpu.to_string().as_str()));
        assert_eq!(own_cpus(), before);
    }

    #[test]
    fn no_such_cpu_is_not_granted() {
        for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            let nowhere = Scheduling { cpu: Some(cpu), realtime: false };
            assert_eq!(nowhere.granted().cpu.filter(|cpu| !own_cpus().contains(cpu)), None);
        }
    }
}
