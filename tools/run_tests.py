#!/usr/bin/env python3
"""Runs the tests of the workspace, several programs at a time.

    tools/run_tests.py               builds and runs every test program that changed since it passed
    tools/run_tests.py --all         runs those that have not changed, too
    tools/run_tests.py NAME...       runs the programs whose name contains one of these

`cargo test` runs one program after another, and most of ours wait for time to pass: this keeps the
processors busy meanwhile. A program of which nothing has changed since it passed (itself, the
commands that it starts, the files that it reads) does not run again.

Programs that count round trips of real packets run last, two at a time. Only their tests
get a second try, each by itself, and every such try is printed; a program that dies, or a test that
fails among the others, fails the run.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import retries

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
STATE = TARGET / "check" / "tests.json"
# Digests of programs, with the size and time of each when it was read: together they have
# gigabytes.
DIGESTS = TARGET / "check" / "programs.json"

# Programs at a time: their tests wait more than they compute.
PROGRAMS = 2 * (os.cpu_count() or 1)
THREADS = 3 * (os.cpu_count() or 1)
# Longer than any takes on a machine that does other things besides.
TIMEOUT = 40 * 60

# Tests that compare times of real packets: package, program. They run after the others, two
# programs at a time, the longest first.
TIMED = [
    ("headstart-measure", "lab"),
    ("headstart-measure", "link"),
    ("headstart-openers", "round_trips"),
    ("headstart-emulation", "split_tcp"),
    ("headstart-emulation", "real_packets"),
    ("headstart-emulation", "record"),
]
# Of these one test at a time. Those of the lab know which of them need that.
ONE_BY_ONE = [job for job in TIMED if job != ("headstart-measure", "lab")]
RETRIES_MAX = 3

# Those of the others that wait for minutes begin first.
LONGEST = [("headstart-measure", "record"), ("headstart", "fleet"), ("headstart-pageload", "main")]

# Tracked files that tests read when they run, besides their own program.
READ = ["lab", "docs", "bpf", "fuzz/corpus", "bindings", "extension", "crates/*/tests"]
# Documents count for the programs alone whose sources name them.
DOCUMENT = re.compile(r'"[^"\n]*?([\w-]+\.md)"')
PRINTED = threading.Lock()


def build():
    """Builds all test programs; yields (package, program, executable, its main source file)."""
    command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        for line in built.stdout.splitlines():
            message = json.loads(line).get("message") if line.startswith("{") else None
            if message and message.get("level") == "error":
                print(message["rendered"], file=sys.stderr)
        sys.exit("the tests do not compile")
    for line in built.stdout.splitlines():
        artifact = json.loads(line) if line.startswith("{") else {}
        if artifact.get("reason") == "compiler-artifact" and artifact["profile"]["test"]:
            if artifact["executable"]:
                source = Path(artifact["target"]["src_path"])
                package = package_name(artifact["package_id"])
                kind = "unit" if "lib" in artifact["target"]["kind"] else artifact["target"]["name"]
                yield package, kind, Path(artifact["executable"]), source


def package_name(identifier):
    """Returns the name in a package id, as path+file:///a/b/name#0.1.0 or ...#name@0.1.0."""
    path, _, fragment = identifier.partition("#")
    return fragment.split("@")[0] if "@" in fragment else path.rsplit("/", 1)[-1]


def digest(paths):
    """Returns a digest of the contents of files."""
    result = hashlib.sha256()
    for path in paths:
        result.update(str(path).encode() + b"\0")
        if path.is_file():
            result.update(hashlib.sha256(path.read_bytes()).digest())
    return result.hexdigest()


class Programs:
    """Digests of programs, each read only after it was built anew."""

    def __init__(self):
        self.before = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
        self.now = {}

    def digest(self, path):
        """Returns a digest of a program's content; an empty one if there is none."""
        if not path.is_file():
            return ""
        stamp = f"{path.stat().st_size} {path.stat().st_mtime_ns}"
        known = self.before.get(str(path))
        if not known or known[0] != stamp:
            known = [stamp, digest([path])]
        self.now[str(path)] = known
        return known[1]

    def save(self):
        """Keeps the digests of the programs that were asked for."""
        DIGESTS.parent.mkdir(parents=True, exist_ok=True)
        DIGESTS.write_text(json.dumps(self.now, indent=1, sort_keys=True))


def tracked(*paths):
    """Returns the files below some paths that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def shared_inputs(programs):
    """Returns a digest of what any test may read or start when it runs, but for documents."""
    files = [path for path in tracked(*READ) if path.suffix not in (".rs", ".md")]
    started = [programs.digest(TARGET / "debug" / name) for name in ("headstart", "headstart-lab")]
    switches = [f"{name}={os.environ.get(name, '')}" for name in
                ("HEADSTART_TEST_NET", "HEADSTART_TEST_BROWSER", "HEADSTART_DATA")]
    return "".join([digest(sorted(files)), *started, *switches])


def documents(source):
    """Returns the documents that a program's sources name, of which `source` is the main one."""
    is_folder = source.name in ("main.rs", "lib.rs")
    folder = source.parent if is_folder else source.with_suffix("")
    files = {source, *folder.rglob("*.rs")}
    names = {name for path in files for name in DOCUMENT.findall(path.read_text())}
    return [path for path in tracked("*.md") if path.name in names]


def run(executable, directory, arguments):
    """Runs one program; returns its exit code, its output and the seconds that it took."""
    begun = time.monotonic()
    try:
        done = subprocess.run([executable, *arguments], cwd=directory, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT)
        code, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as expired:
        code, output = None, (expired.stdout or b"").decode(errors="replace")
    return code, output, time.monotonic() - begun


def failures(output):
    """Returns the names of failed tests in the output of a test program."""
    blocks = re.findall(r"^failures:\n\n?((?:    \S+\n)+)", output, re.MULTILINE)
    return sorted({name for block in blocks for name in block.split()})


def said_of_failures(output):
    """Returns what matters of a failed program's output: not the tests that passed."""
    lines = output.splitlines()
    return "\n".join(line for line in lines if not re.match(r"test .* \.\.\. ok$", line))


def counts(output):
    """Returns how many tests passed, failed and were ignored."""
    return [sum(int(n) for n in re.findall(rf"(\d+) {word}", output))
            for word in ("passed", "failed", "ignored")]


def attempt(job):
    """Runs one test program, with a second try for timed tests; returns what came of it."""
    package, name, executable, source = job
    directory = next(path for path in source.parents if (path / "Cargo.toml").is_file())
    threads = 1 if (package, name) in ONE_BY_ONE else THREADS
    code, output, seconds = run(executable, directory, [f"--test-threads={threads}"])
    passed, failed, ignored = counts(output)
    retried = []
    for _ in re.findall(r"^ *measured once more, because", output, re.MULTILINE):
        retries.note(f"{package} {name} measurement")
    if code not in (0, None) and (package, name) in TIMED:
        again = failures(output)
        # What a second try repairs is lost otherwise.
        first = said_of_failures(output)
        if again and len(again) <= RETRIES_MAX and failed == len(again):
            for test in again:
                code, more, took = run(executable, directory,
                                       ["--test-threads=1", "--exact", test])
                output, seconds = output + more, seconds + took
                if code != 0:
                    break
                retried.append(test)
                retries.note(f"{package} {name} {test}")
    with PRINTED:
        word = "passed" if code == 0 else "timed out" if code is None else "FAILED"
        print(f"{word:9} {seconds:6.1f} s  {package} {name}: {passed} passed, {failed} failed, "
              f"{ignored} ignored", flush=True)
        if retried:
            print(f"{first}\n          second try: {', '.join(retried)}", flush=True)
        if code != 0:
            print(said_of_failures(output), flush=True)
    return job, code == 0, passed + len(retried), failed - len(retried), retried, ignored


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of 'PACKAGE PROGRAM'")
    parser.add_argument("--all", action="store_true", help="also what has not changed")
    options = parser.parse_args()

    jobs = [job for job in build()
            if not options.names or any(name in f"{job[0]} {job[1]}" for name in options.names)]
    programs = Programs()
    shared = shared_inputs(programs)
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    keys = {job: programs.digest(job[2]) + digest(documents(job[3])) + shared for job in jobs}
    programs.save()
    due = [job for job in jobs
           if options.all or options.names or state.get(f"{job[0]} {job[1]}") != keys[job]]
    print(f"{len(due)} of {len(jobs)} test programs run, {PROGRAMS} at a time", flush=True)

    results = []
    timed = [job for name in TIMED for job in due if job[:2] == name]
    others = [job for job in due if job not in timed]
    others.sort(key=lambda job: job[:2] not in LONGEST)
    for batch, programs in ((others, PROGRAMS), (timed, 2)):
        with concurrent.futures.ThreadPoolExecutor(programs) as pool:
            results += pool.map(attempt, batch)

    for job, good, *_ in results:
        state[f"{job[0]} {job[1]}"] = keys[job] if good else None
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps(state, indent=1, sort_keys=True))
    passed = sum(result[2] for result in results)
    failed = sum(result[3] for result in results)
    died = [f"{job[0]} {job[1]}" for job, good, *_ in results if not good]
    retried = [test for result in results for test in result[4]]
    if retried:
        print(f"{len(retried)} passed only in a second try: {' '.join(retried)}")
    if died:
        print(f"failed: {', '.join(died)}")
    ignored = sum(result[5] for result in results)
    print(f"{passed} passed, {failed} failed, {ignored} ignored")
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
