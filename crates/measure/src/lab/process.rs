//! A program that runs on a node: what it says, and how it ended when it should not have.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headstart::companion;
use headstart_emulation::Node;

use crate::interrupt::Interrupt;
use headstart::base::failure::Failure;

/// Longest line taken from a program. Those of connections have some hundred bytes; that of a page
/// has some sixty for each resource, of which there are 50,000 at most.
const LINE_MAX: u64 = 8 << 20;

/// Last lines of standard error that are kept, to say why a program broke.
const TAIL: usize = 12;

/// Lines read ahead; beyond them the program has to wait.
const LINES: usize = 4096;

/// Interval at which a wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// Time that a program may take to end when asked, before it is killed.
const END: Duration = Duration::from_millis(500);

/// A running program. Killed when dropped, and by the kernel when this process ends.
#[derive(Debug)]
pub(crate) struct Program {
    what: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    tail: Tail,
}

/// A line, and when it was there.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) at: Instant,
}

/// Reason why a program can be used no more, or the run stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It ended, hangs or says nonsense: one line for the results.
    Program(String),
    Interrupted,
}

impl Broken {
    /// A file of the run's own that cannot be written.
    pub(crate) fn unwritten(file: &Path, error: &io::Error) -> Self {
        Self::Program(format!("cannot write {}: {error}", file.display()))
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Interrupted => Self::usage("interrupted; all programs of the run are ended")
                .hint("run it again; --quick takes minutes"),
            Broken::Program(why) => Self::usage(why),
        }
    }
}

/// Returns the path of this program, which runs again as the peers of a run.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::usage(format!("cannot find this program: {error}")))
}

/// Returns the path of `headstart`, whose edges and agents are measured.
///
/// # Errors
/// It is neither beside this program nor on the `PATH`.
pub(crate) fn product() -> Result<PathBuf, Failure> {
    companion::find("headstart").ok_or_else(|| {
        Failure::usage("headstart, whose edges and agents are measured, is not there")
            .hint("put it beside headstart-lab or on the PATH; cargo build --bins makes both")
    })
}

type Tail = Arc<Mutex<VecDeque<String>>>;

impl Program {
    /// Starts `command` on `node`; `what` is what messages call it.
    pub(crate) fn start(
        node: &Node,
        what: impl Into<String>,
        mut command: Command,
    ) -> Result<Self, Broken> {
        let what = what.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own process group: Ctrl-C reaches the runner alone, which then ends the group.
        command.process_group(0);
        let mut child = node
            .spawn(command)
            .map_err(|error| Broken::Program(format!("{what} cannot be started: {error}")))?;
        let (sender, lines) = sync_channel(LINES);
        let tail = Tail::default();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            let kept = Arc::clone(&tail);
            thread::spawn(move || send_lines(stdout, &sender));
            thread::spawn(move || keep_tail(stderr, &kept));
        }
        let stdin = child.stdin.take();
        Ok(Self { what, child, stdin, lines, tail })
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Broken> {
        let written = self.stdin.as_mut().is_some_and(|stdin| writeln!(stdin, "{line}").is_ok());
        if written { Ok(()) } else { Err(self.ended()) }
    }

    /// Its next line.
    ///
    /// # Errors
    /// It ended, says nothing for `patience`, or the user interrupted.
    pub(crate) fn line(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Line, Broken> {
        let until = Instant::now() + patience;
        loop {
            if interrupt.is_set() {
                return Err(Broken::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(self.broken(&format!("said nothing for {patience:.0?}")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// Its exit code, if it has ended with one.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten()?.code()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time it has used, if the system tells.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        cpu_of(self.child.id())
    }

    /// Returns the same to the nanosecond, of threads that still run; ticks are too coarse for
    /// short work.
    pub(crate) fn run_time(&self) -> Option<Duration> {
        run_time_of(self.child.id()).or_else(|| self.cpu())
    }

    /// It said something that is no answer.
    pub(crate) fn nonsense(&self, line: &str) -> Broken {
        self.broken(&format!("said {line:?}"))
    }

    fn ended(&mut self) -> Broken {
        let until = Instant::now() + END;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return self.broken(&format!("ended ({status})")),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return self.broken("closed its output"),
            }
        }
    }

    fn broken(&self, how: &str) -> Broken {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let last = tail.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        let last =
            if last.is_empty() { String::new() } else { format!("; its last words: {last}") };
        Broken::Program(format!("{} {how}{last}", self.what))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send_lines(stdout: impl Read, sender: &SyncSender<Line>) {
    let mut reader = BufReader::new(stdout);
    while let Some(text) = next_line(&mut reader) {
        if sender.send(Line { text, at: Instant::now() }).is_err() {
            return;
        }
    }
}

fn keep_tail(stderr: impl Read, tail: &Tail) {
    let mut reader = BufReader::new(stderr);
    while let Some(line) = next_line(&mut reader) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line);
    }
}

/// The next line, in pieces if it is longer than any should be.
fn next_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Reads a number in the text of a status file, such as `VmRSS:` in kB (proc_pid_status(5)).
pub(crate) fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time of a process: fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)), in
/// clock ticks.
pub(crate) fn cpu_of(pid: u32) -> Option<Duration> {
    times_of(&format!("/proc/{pid}/stat"), 11)
}

/// User and system time of all children that have ended and were waited for, and of theirs: fields
/// 16 and 17.
pub(crate) fn cpu_of_children() -> Option<Duration> {
    times_of("/proc/self/stat", 13)
}

/// Time on a processor of all threads that a process has now: the first field of their schedstat
/// (Documentation/scheduler/sched-stats.rst), in nanoseconds.
fn run_time_of(pid: u32) -> Option<Duration> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // The file of a thread that ended meanwhile is gone.
    let times: Vec<Duration> = tasks
        .filter_map(|task: io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
        })
        .collect();
    (!times.is_empty()).then(|| times.into_iter().sum())
}

/// Returns the sum of two fields of a stat file, `skipped` fields after the name.
fn times_of(file: &str, skipped: usize) -> Option<Duration> {
    let stat = std::fs::read_to_string(file).ok()?;
    // The second field is the name in parentheses, which may contain spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(skipped).take(2);
    let ticks: u64 = fields.map(str::parse::<u64>).sum::<Result<_, _>>().ok()?;
    Some(in_time(ticks))
}

fn in_time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Returns the time that a processor was not idle so far.
pub(crate) fn busy(cpu: usize) -> Option<Duration> {
    busy_in(&std::fs::read_to_string("/proc/stat").ok()?, cpu)
}

fn busy_in(stat: &str, cpu: usize) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // proc_stat(5): user nice system idle iowait irq softirq steal, and guests, which are in the
    // first two as well.
    let [user, nice, system, _, _, irq, softirq, steal] = ticks.first_chunk()?;
    Some(in_time(user + nice + system + irq + softirq + steal))
}

/// Directories of servers that ordinary users lack on the path.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Returns the file of a program, on the path or in the folders of servers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path).chain(DIRECTORIES.map(PathBuf::from));
    listed.map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process_and_of_its_children() {
        let before = cpu_of_children().unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", work]).status().unwrap().success());
        assert!(cpu_of_children().unwrap() > before);
        let own = std::process::id();
        let first = run_time_of(own).unwrap();
        // The kernel updates it at its next tick.
        while run_time_of(own).unwrap() == first {}
        assert!(cpu_of(own).is_some());
        let stat = "cpu  9 9\ncpu0 1 1 1 1 1 1 1 1 9 9\ncpu1 100 10 10 900 90 10 10 10 0 0\n";
        assert_eq!(busy_in(stat, 1), Some(in_time(150)));
        assert_eq!(busy_in(stat, 2), None);
        assert_eq!(run_time_of(u32::MAX), None);
    }
}
