//! The programs that are measured: started here, ended here, their time and memory read from /proc.

use crate::programs::headstart;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Failure;

/// /proc/PID/stat counts in hundredths of a second (USER_HZ) on every architecture that headstart
/// runs on.
const TICKS: f64 = 100.0;

/// A running program; ended when dropped.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts `command` and waits until it listens at `address`.
    pub(crate) fn start(command: &mut Command, address: SocketAddr) -> Result<Self, Failure> {
        Self::start_until(command, &address.to_string(), || TcpStream::connect(address).is_ok())
    }

    /// Starts `command` and waits until it listens on the Unix socket `path`.
    pub(crate) fn start_on_socket(command: &mut Command, path: &Path) -> Result<Self, Failure> {
        let place = path.display().to_string();
        Self::start_until(command, &place, || UnixStream::connect(path).is_ok())
    }

    fn start_until(
        command: &mut Command,
        place: &str,
        listens: impl Fn() -> bool,
    ) -> Result<Self, Failure> {
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
        let mut program = Self { child };
        let end = Instant::now() + Duration::from_secs(10);
        while !listens() {
            if let Some(status) = program.child.try_wait()? {
                return Err(format!("{:?} ended with {status}", command.get_program()).into());
            }
            if Instant::now() > end {
                return Err(format!("nothing listens at {place}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(program)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time so far, seconds.
    pub(crate) fn cpu(&self) -> Result<f64, Failure> {
        cpu_of(&self.child.id().to_string())
    }

    /// Resident memory now and at most, bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let find = |name: &str| -> Result<u64, Failure> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.split_whitespace().next());
            Ok(kilobytes.ok_or("no such line in status")?.parse::<u64>()? * 1024)
        };
        Ok((find("VmRSS:")?, find("VmHWM:")?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of this bench so far, seconds.
pub(crate) fn own_cpu() -> Result<f64, Failure> {
    cpu_of("self")
}

/// Returns the time that a processor was not idle so far, in seconds.
pub(crate) fn busy(cpu: usize) -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")));
    let fields = line.ok_or("no such processor in /proc/stat")?.split_whitespace();
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    // proc_stat(5): user nice system idle iowait irq softirq steal, and guests, which are in the
    // first two as well.
    let [user, nice, system, _, _, irq, softirq, steal] =
        ticks.first_chunk().ok_or("a short line in /proc/stat")?;
    Ok((user + nice + system + irq + softirq + steal) / TICKS)
}

fn cpu_of(process: &str) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name in stat")?;
    // Fields 14 and 15 of proc_pid_stat(5), of which the first two are gone.
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

/// `headstart edge` on `address` before `origin`; this build, unless another `program` is given.
pub(crate) fn edge(
    program: Option<&Path>,
    address: SocketAddr,
    origin: SocketAddr,
    options: &[&str],
) -> Result<Program, Failure> {
    let program = program.map_or_else(headstart, Path::to_owned);
    let mut command = Command::new(program);
    command.arg("edge").args(["--listen", &address.to_string(), "--origin", &origin.to_string()]);
    command.args(options).env("HEADSTART_LOG", "error");
    Program::start(&mut command, address)
}

pub(crate) fn raise_file_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
