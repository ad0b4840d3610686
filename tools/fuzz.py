#!/usr/bin/env python3
"""Runs the fuzz targets in turn, and keeps the account of it in fuzz/hours.tsv.

    tools/fuzz.py --minutes 60 [TARGET...]   the one with the least time so far goes next
    tools/fuzz.py --summary                  hours since the last change of what a target parses
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
LOG = FUZZ / "hours.tsv"
COLUMNS = ["target", "parsed", "commit", "cpu_seconds", "executions", "cov", "ft", "crashes"]
SETTINGS = tomllib.loads((FUZZ / "Cargo.toml").read_text())["package"]["metadata"]
PARSED = SETTINGS["parsed"]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True,
                          text=True).stdout


def digest(target):
    """Returns a digest of the code that a target parses with, without tests and comments."""
    result = hashlib.sha256()
    for name in git("ls-files", "--", *PARSED[target]).splitlines():
        if "/tests" not in name:
            code, _, _ = (ROOT / name).read_text().partition("#[cfg(test)]\nmod tests {")
            lines = [line for line in code.splitlines() if not re.match(r"\s*(//|$)", line)]
            result.update("\n".join([name, *lines, ""]).encode())
    return result.hexdigest()[:12]


def read():
    """Returns the lines of the account, by target and digest."""
    lines = LOG.read_text().splitlines()[1:] if LOG.exists() else []
    rows = [dict(zip(COLUMNS, line.split("\t"))) for line in lines]
    return {(row["target"], row["parsed"]): row for row in rows}


def add(target, parsed, commit, run):
    """Adds a run to the account: times and counts are sums, coverage is the last."""
    rows = read()
    before = rows.get((target, parsed), {})
    summed = ("cpu_seconds", "executions", "crashes")
    sums = {name: run[name] + int(before.get(name, 0)) for name in summed}
    rows[target, parsed] = {"target": target, "parsed": parsed, "commit": commit, **run, **sums}
    lines = ["\t".join(str(row[name]) for name in COLUMNS) for _, row in sorted(rows.items())]
    LOG.write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n")


def run(target, program, seconds):
    """Runs a target for a while; returns what came of it."""
    found, artifacts = FUZZ / "target/corpus" / target, FUZZ / "artifacts" / target
    found.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    command = ["nice", "-n", "19", program, f"-max_total_time={seconds}", "-print_final_stats=1",
               f"-artifact_prefix={artifacts}/", *SETTINGS["arguments"].get(target, []),
               found, FUZZ / "corpus" / target]
    before = sum(os.times()[2:4])
    done = subprocess.run(command, capture_output=True, cwd=FUZZ)
    cpu, said = sum(os.times()[2:4]) - before, done.stderr.decode(errors="replace")
    (FUZZ / "target" / f"{target}.log").write_text(said)
    cov, ft = (re.findall(r"cov: (\d+) ft: (\d+)", said) or [(0, 0)])[-1]
    count = (re.findall(r"number_of_executed_units: (\d+)", said) or [0])[-1]
    return {"cpu_seconds": round(cpu), "executions": int(count), "cov": cov, "ft": ft,
            "crashes": int(done.returncode != 0)}


def fuzz(targets, minutes, longest):
    """Builds the targets, and runs them in slices until the time is over."""
    paths = [path for target in targets for path in PARSED[target]]
    if changed := git("status", "--porcelain", "--", *paths):
        raise SystemExit(f"commit this first, or nobody could tell what was run:\n{changed}")
    parsed, commit = {target: digest(target) for target in targets}, git("rev-parse", "HEAD")[:8]
    subprocess.run(["cargo", "+nightly", "fuzz", "build", "--all-features"], check=True, cwd=ROOT)
    # Copies: another build must not take their place meanwhile.
    (programs := FUZZ / "target/programs").mkdir(exist_ok=True)
    for target in targets:
        shutil.copy(next(FUZZ.glob(f"target/*-linux-*/release/{target}")), programs)
    end = time.monotonic() + 60 * minutes
    while targets and (left := int(end - time.monotonic())) > 0:
        rows = read()
        spent = {t: int(rows.get((t, parsed[t]), {}).get("cpu_seconds", 0)) for t in targets}
        target = min(targets, key=spent.get)
        result = run(target, programs / target, min(longest, left))
        print(target, *result.values(), flush=True)
        add(target, parsed[target], commit, result)
        # One that crashed would do the same again.
        targets = [t for t in targets if t != target or not result["crashes"]]


def summary():
    """Prints what counts of the account: the rest is of code that has changed."""
    rows, total = read(), 0
    for target in PARSED:
        row = rows.get((target, digest(target)), dict.fromkeys(COLUMNS, 0))
        hours, count = int(row["cpu_seconds"]) / 3600, int(row["executions"])
        total += hours
        print(f"{target:16} {hours:6.2f} h {count:13,} runs  cov {row['cov']:>6}  {row['commit']}")
    print(f"{'together':16} {total:6.2f} h")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(PARSED))
    parser.add_argument("--minutes", type=float, default=60, help="for all targets together")
    parser.add_argument("--slice", type=int, default=300, help="seconds that one target runs on")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    options = parser.parse_args()
    summary() if options.summary else fuzz(options.targets, options.minutes, options.slice)
