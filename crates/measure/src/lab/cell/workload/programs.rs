//! Command lines of programs, and their needs on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use headstart_emulation::Node;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt::Interrupt;
use crate::lab::cell::agent::Agent;
use crate::lab::cell::setting::Setting;
use crate::lab::plan::Plan;
use crate::lab::process::Broken;
use crate::lab::workload::{Application, Visit, Way};
use headstart::base::failure::Failure;

/// The context in which the programs share sessions.
const CONTEXT: &str = "workload";

/// The library of `headstart run`, and the variable that says where it is, if not beside this
/// program.
const LIBRARY: &str = "libheadstart_preload.so";
const LIBRARY_VARIABLE: &str = "HEADSTART_PRELOAD";

/// Programs of some lines, from lab/programs.
const SCRIPTS: [(&str, &str); 7] = [
    ("fetch.py", include_str!("../../../../../../lab/programs/fetch.py")),
    ("fetch_requests.py", include_str!("../../../../../../lab/programs/fetch_requests.py")),
    ("fetch.php", include_str!("../../../../../../lab/programs/fetch.php")),
    ("fetch.rb", include_str!("../../../../../../lab/programs/fetch.rb")),
    ("fetch.mjs", include_str!("../../../../../../lab/programs/fetch.mjs")),
    ("fetch.pl", include_str!("../../../../../../lab/programs/fetch.pl")),
    ("fetch.cmake", include_str!("../../../../../../lab/programs/fetch.cmake")),
];

/// Environment variables of the lab that programs inherit: where Python finds the package of
/// bindings/python, and where the library is.
const PASSED_ON: [&str; 3] = ["PATH", "PYTHONPATH", LIBRARY_VARIABLE];

/// Interval at which a wait looks whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// Characters of what a failed program said that go into the results.
const SAID_MAX: usize = 200;

/// Finds programs that are missing before anything is built.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    let programs = programs(plan);
    if programs.is_empty() {
        return Ok(());
    }
    let lacking: Vec<_> =
        programs.into_iter().filter(|program| version(*program).is_none()).collect();
    if !lacking.is_empty() {
        let names: Vec<_> = lacking.iter().map(|program| program.name()).collect();
        let packages: BTreeSet<_> =
            lacking.iter().map(|program| program.needs().packages).collect();
        let packages: Vec<_> = packages.into_iter().collect();
        let what = format!("this run of {} needs {}", plan.experiment.name, names.join(", "));
        return Err(Failure::usage(what)
            .hint(format!("install the packages: apt-get install {}", packages.join(" "))));
    }
    let shares =
        |stage: &crate::lab::plan::Stage| stage.cells.iter().any(|cell| cell.arm.shares_sessions());
    match plan.stages.iter().any(shares) && library().is_none() {
        false => Ok(()),
        true => {
            Err(Failure::usage(format!("this run of {} needs {LIBRARY}", plan.experiment.name))
                .hint(
                    "build it with cargo build -p headstart-preload, with the profile of this \
                program, or say with HEADSTART_PRELOAD where it is",
                ))
        }
    }
}

pub(crate) fn versions(plan: &Plan) -> BTreeMap<&'static str, String> {
    let all = programs(plan).into_iter();
    all.filter_map(|program| Some((program.name(), version(program)?))).collect()
}

fn programs(plan: &Plan) -> BTreeSet<Application> {
    let programs = plan.stages.iter().filter_map(|stage| stage.variant.work.programs());
    programs.flat_map(|programs| programs.shares.keys().copied()).collect()
}

/// The first line that a program says of itself; none if it, or a part of it, is not there.
fn version(program: Application) -> Option<String> {
    let needs = program.needs();
    let mut command = Command::new(executable(needs.executable)?);
    // From wherever it is called: some take files of the working directory for their own.
    let output = command.args(needs.probe).current_dir("/").stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

fn executable(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') { Some(name.into()) } else { crate::lab::process::find_program(name) }
}

/// Variable by which `headstart run` finds its library.
fn library() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os(LIBRARY_VARIABLE) {
        return Some(PathBuf::from(told)).filter(|file| file.is_file());
    }
    let program = std::env::current_exe().ok()?;
    let dir = program.parent()?;
    let places = [dir.join(LIBRARY), dir.join("../lib/headstart").join(LIBRARY)];
    places.into_iter().find(|place| place.is_file())
}

/// A program's output, or a reverse proxy's answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) bytes: u64,
    /// Moment of the first byte; none if it went to a file.
    pub(super) first: Option<Instant>,
}

impl Received {
    fn from_pipe(mut pipe: impl Read) -> Self {
        let (mut received, mut buffer) = (Self::default(), [0; 4096]);
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            received.first.get_or_insert_with(Instant::now);
            received.bytes += count as u64;
        }
        received
    }

    fn in_file(file: &Path) -> Self {
        Self { bytes: fs::metadata(file).map_or(0, |file| file.len()), first: None }
    }
}

impl Setting {
    pub(super) fn programs(&self) -> impl Iterator<Item = Application> + '_ {
        let programs = self.stage.variant.work.programs().into_iter();
        programs.flat_map(|programs| programs.shares.keys().copied())
    }

    fn scripts(&self) -> PathBuf {
        self.work().join("programs")
    }

    pub(super) fn write_programs(&self) -> Result<(), Broken> {
        let folder = self.scripts();
        let write = || {
            fs::create_dir_all(&folder)?;
            SCRIPTS.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
        };
        write().map_err(|error| Broken::unwritten(&folder, &error))
    }

    /// Returns what a program has fetched, or why it has nothing.
    pub(super) fn run(
        &self,
        node: &Node,
        visit: Visit,
        socket: &Path,
        interrupt: &Interrupt,
    ) -> Result<Result<Received, String>, Broken> {
        let out = self.work().join(format!("out-{}", self.number + 1));
        let errors = self.work().join(format!("said-{}", self.number + 1));
        let mut command = self.command(node, visit, socket, &out);
        let said = match (fs::write(&out, ""), File::create(&errors)) {
            (Ok(()), Ok(said)) => said,
            (Err(error), _) | (_, Err(error)) => return Err(Broken::unwritten(&out, &error)),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        // Its own process group: its children end with it, and Ctrl-C reaches the runner alone.
        command.process_group(0);
        self.schedule(&mut command);
        let mut child = match node.spawn(command) {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("cannot be started: {error}"))),
        };
        let pipe = child.stdout.take();
        let output = pipe.map(|pipe| thread::spawn(move || Received::from_pipe(pipe)));
        let Some(status) = ended(child, self.patience(), interrupt)? else {
            return Ok(Err(format!("hung for {:?}", self.patience())));
        };
        let received = match visit.program {
            Application::Cmake => Received::in_file(&out),
            _ => output.and_then(|reader| reader.join().ok()).unwrap_or_default(),
        };
        Ok(if status.success() { Ok(received) } else { Err(last_words(status, &errors)) })
    }

    fn command(&self, node: &Node, visit: Visit, socket: &Path, out: &Path) -> Command {
        let shares = self.spec.arm.shares_sessions();
        let program = executable(visit.program.needs().executable).unwrap_or_default();
        let mut command = match visit.program.way() {
            Way::Library | Way::ProxyOnly if shares => {
                let mut run = node.command(self.program());
                run.args(["run", "--context", CONTEXT, "--socket"]).arg(socket);
                run.arg("--proxy").arg(Agent::listen(self.number).to_string());
                run.arg("--").arg(program);
                run
            }
            _ => node.command(program),
        };
        command.env_clear();
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.current_dir(self.work()).env("HOME", self.work()).env("LANG", "C.UTF-8");
        command.env("SSL_CERT_FILE", self.roots());
        match visit.program.way() {
            Way::Socket if shares => {
                command.env("HEADSTART_SOCKET", socket).env("HEADSTART_CONTEXT", CONTEXT);
                if self.spec.arm.sends_early_data() {
                    command.env("HEADSTART_EARLY", "1");
                }
            }
            // These two ignore SSL_CERT_FILE.
            Way::Socket => {
                command.env("REQUESTS_CA_BUNDLE", self.roots());
                command.env("NODE_EXTRA_CA_CERTS", self.roots());
            }
            _ => {}
        }
        self.arguments(&mut command, visit, out);
        command
    }

    fn arguments(&self, command: &mut Command, visit: Visit, out: &Path) {
        let host = self.stage.host_name(self.number, visit.host);
        let url = format!("https://{host}/bytes/{}", self.stage.response);
        let script = |name: &str| self.scripts().join(name);
        let seconds = self.stage.timeout.as_secs().max(1).to_string();
        match visit.program {
            Application::Curl => command.args(["-sS", "--fail", "--max-time", &seconds]),
            Application::Wget => {
                let roots = format!("--ca-certificate={}", self.roots().display());
                let timeout = format!("--timeout={seconds}");
                command.args(["-q", "-O", "-", "--tries=1", &timeout, &roots])
            }
            Application::Python => command.arg(script("fetch.py")),
            Application::Requests => command.arg(script("fetch_requests.py")),
            Application::Php => command.arg(script("fetch.php")),
            Application::Ruby => command.arg(script("fetch.rb")),
            Application::Node => command.arg(script("fetch.mjs")),
            Application::Perl => command.arg(script("fetch.pl")),
            Application::Cmake => {
                command.arg(format!("-DURL={url}")).arg(format!("-DOUT={}", out.display()));
                command.arg("-P").arg(script("fetch.cmake"));
                return;
            }
            // They are requested, not started.
            Application::Nginx | Application::Haproxy => return,
        };
        command.arg(url);
    }

    /// Fetches from the host of a reverse proxy.
    pub(super) fn fetch_through_proxy(
        &self,
        node: &Node,
        program: Application,
    ) -> Result<Received, String> {
        let (address, bytes) = (self.proxy_address(program), self.stage.response);
        let patience = self.patience();
        let (first, answer) = node
            .run(move || -> std::io::Result<(Instant, Vec<u8>)> {
                let mut tcp = TcpStream::connect(address)?;
                tcp.set_read_timeout(Some(patience))?;
                let request = format!(
                    "GET /bytes/{bytes} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
                );
                tcp.write_all(request.as_bytes())?;
                let mut answer = vec![0];
                tcp.read_exact(&mut answer)?;
                let first = Instant::now();
                tcp.read_to_end(&mut answer)?;
                Ok((first, answer))
            })
            .flatten()
            .map_err(|error| error.to_string())?;
        Ok(Received { bytes: content_length(&answer)?, first: Some(first) })
    }
}

/// Bytes behind the head of an answer, if that is a good one.
fn content_length(answer: &[u8]) -> Result<u64, String> {
    const END: &[u8] = b"\r\n\r\n";
    let status = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = String::from_utf8_lossy(status);
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("answers {status:?}"));
    }
    let head = answer.windows(END.len()).position(|window| window == END);
    let head = head.ok_or("answers with half a head")?;
    Ok((answer.len() - head - END.len()) as u64)
}

/// Waits for the end of a program; none if it took too long, and was killed with all that it has
/// started.
fn ended(
    mut child: Child,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<Option<ExitStatus>, Broken> {
    let (pid, until) = (Pid::from_child(&child), Instant::now() + patience);
    let (sender, waited) = sync_channel(1);
    // Only waiting for it tells its end without delay.
    thread::spawn(move || {
        let _ = sender.send(child.wait());
    });
    let kill = || {
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = waited.recv();
    };
    loop {
        match waited.recv_timeout(LOOK) {
            Ok(Ok(status)) => return Ok(Some(status)),
            Ok(Err(error)) => return Err(Broken::Program(format!("cannot wait: {error}"))),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Broken::Program("nobody waits for the program".into()));
            }
            Err(RecvTimeoutError::Timeout) if interrupt.is_set() => {
                kill();
                return Err(Broken::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                kill();
                return Ok(None);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn last_words(status: ExitStatus, errors: &Path) -> String {
    let text = fs::read(errors).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let words: Vec<_> = text.split_whitespace().collect();
    let words = words.join(" ");
    let skipped = words.chars().count().saturating_sub(SAID_MAX);
    let words: String = words.chars().skip(skipped).collect();
    if words.is_empty() {
        format!("ended ({status})")
    } else {
        format!("ended ({status}): {words}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_through_a_proxy_are_counted_without_heads() {
        assert_eq!(content_length(b"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n12345"), Ok(5));
        assert_eq!(content_length(b"HTTP/1.1 200 OK\r\n\r\n"), Ok(0));
        assert!(content_length(b"HTTP/1.1 502 Bad Gateway\r\n\r\nx").unwrap_err().contains("502"));
        assert!(content_length(b"HTTP/1.1 200 OK\r\nServer").is_err());
        assert!(content_length(b"").is_err());
    }

    #[test]
    fn output_is_counted_from_its_first_byte_on() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 12; printf 345"]).stdout(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let received = Received::from_pipe(child.stdout.take().unwrap());
        assert!(received.bytes == 5 && received.first.is_some_and(|first| first > begun));
        child.wait().unwrap();
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & wait"]).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let interrupt = Interrupt::default();
        assert_eq!(ended(child, Duration::from_millis(50), &interrupt).unwrap(), None);
        // The pipe ends with its last holder.
        assert_eq!(Received::from_pipe(stdout), Received::default());
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let status = ended(child, Duration::from_secs(60), &interrupt).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "no\n  such host\n").unwrap();
        assert_eq!(last_words(status, file.path()), "ended (exit status: 3): no such host");
    }
}
