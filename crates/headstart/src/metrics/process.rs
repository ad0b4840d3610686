//! Metrics of the process itself, by the names that Prometheus's own libraries give them.

use std::fmt::Write;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The process as the kernel counts it.
struct Process {
    cpu_seconds: f64,
    threads: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
    /// Start, in seconds since 1970.
    start_seconds: f64,
    open_fds: u64,
    max_fds: Option<u64>,
}

/// Appends them to `text`, or nothing where /proc is missing.
///
/// The exporter keeps counters as whole numbers, too coarse for seconds of a processor.
pub(super) fn append(text: &mut String) {
    let Some(process) = read() else { return };
    let mut put = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
    };
    put(
        "process_cpu_seconds_total",
        "counter",
        "Processor time used, in seconds",
        process.cpu_seconds,
    );
    put("process_threads", "gauge", "Threads", process.threads as f64);
    let (virtual_bytes, resident) = (process.virtual_bytes as f64, process.resident_bytes as f64);
    put("process_virtual_memory_bytes", "gauge", "Address space in use", virtual_bytes);
    put("process_resident_memory_bytes", "gauge", "Memory in use", resident);
    put(
        "process_start_time_seconds",
        "gauge",
        "Start, in seconds since 1970",
        process.start_seconds,
    );
    put("process_open_fds", "gauge", "Files open now", process.open_fds as f64);
    let max_fds = process.max_fds.map_or(f64::INFINITY, |max| max as f64);
    put("process_max_fds", "gauge", "Limit of open files", max_fds);
}

fn read() -> Option<Process> {
    let ticks = clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Field n of proc_pid_stat(5), which counts from 1; the third is the first here.
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let booted = fs::read_to_string("/proc/stat").ok()?;
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Process {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_size() as u64,
        start_seconds: booted.trim().parse::<f64>().ok()? + field(22)? as f64 / ticks,
        // One is the directory's own.
        open_fds: (fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1),
        max_fds: getrlimit(Resource::Nofile).current,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::base::clock::wall_clock;

    #[test]
    fn the_process_is_as_the_kernel_counts_it() {
        let before = read().unwrap();
        let files: Vec<_> = (0..50).map(|_| File::open("/proc/self/stat").unwrap()).collect();
        let process = read().unwrap();
        // Other tests of this process open and close files, too.
        assert!(process.open_fds >= files.len() as u64, "{}", process.open_fds);
        assert!(process.max_fds.is_none_or(|max| process.open_fds <= max));
        assert!(process.cpu_seconds >= before.cpu_seconds);
        assert!(process.resident_bytes > 1 << 20 && process.virtual_bytes > process.resident_bytes);
        let now = wall_clock().0 as f64;
        assert!((now - 86_400.0..=now + 2.0).contains(&process.start_seconds));

        let mut text = String::new();
        append(&mut text);
        for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds"] {
            assert!(text.contains(&format!("\nprocess_{name} ")), "{name}\n{text}");
        }
    }
}
