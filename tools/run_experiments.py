#!/usr/bin/env python3
"""Runs experiments of lab/experiments in short: the shape of their results, and their bars.

    tools/run_experiments.py NAME...     runs these
    tools/run_experiments.py --all       runs each of them

A few trials measure times badly on a machine that does other things as well. So an experiment that
missed nothing but bars on times runs again, at most twice; each such try is printed and counted. An
experiment that fails in any other way (a program that died, a connection that was not made, a
saving that was not there) fails the run at once.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import retries

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LAB = TARGET / "debug" / "headstart-lab"
EXPERIMENTS = ROOT / "lab" / "experiments"

TRIES_MAX = 3
# Exit code of `headstart-lab lab run` that ran to its end and missed a bar, or has a broken cell.
MISSED = 1
# Bars on times. All others count what happened, which does not depend on how fast a machine is.
TIMED = {"ratio_max", "ratio_interval_below", "paired_ratio_max", "difference_max_ms", "rtts_max",
         "rtts_min", "saved_rtts_max", "saved_rtts_min"}


def lacking(name, experiment):
    """Returns what this machine lacks for an experiment, or None."""
    if name.startswith("fop-") and os.geteuid() != 0:
        # Nobody else may attach programs to the kernel.
        return "root"
    if replays_pages(experiment) and not (os.environ.get("HEADSTART_DATA") and os.geteuid() == 0):
        return "recorded pages (HEADSTART_DATA) and root"
    if "recordings" in experiment and not shutil.which("chromium"):
        return "Chromium"
    return None


def replays_pages(value):
    """Tells whether a table, or one within it, has work with a recorded page."""
    if isinstance(value, list):
        return any(replays_pages(one) for one in value)
    if not isinstance(value, dict):
        return False
    work = value.get("work")
    if isinstance(work, dict) and "page" in work:
        return True
    return any(replays_pages(one) for one in value.values())


def may_run_again(code, results):
    """Tells whether a run failed by nothing but bars on times."""
    if code != MISSED:
        return False
    try:
        cells = json.loads((results / "summary.json").read_text())
        verdicts = json.loads((results / "bars.json").read_text())
    except (OSError, ValueError):
        return False
    missed = [verdict["condition"] for verdict in verdicts if not verdict["met"]]
    is_whole = not any(cell.get("broken") for cell in cells)
    return is_whole and bool(missed) and TIMED.issuperset(missed)


def run(name, results):
    """Runs one experiment; returns True if it passed."""
    for number in range(1, TRIES_MAX + 1):
        command = [LAB, "lab", "run", name, "--quick", "--out", results]
        code = subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
        if code == 0:
            return True
        if not may_run_again(code, results):
            print(f"{name} failed (exit code {code}), and not by its times alone", flush=True)
            return False
        if number < TRIES_MAX:
            print(f"{name} missed bars on times: try {number + 1} of {TRIES_MAX}", flush=True)
            retries.note(name)
            shutil.rmtree(results)
    print(f"{name} missed bars on times in each of {TRIES_MAX} tries", flush=True)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="file in lab/experiments")
    parser.add_argument("--all", action="store_true", help="each of them")
    options = parser.parse_args()
    names = options.names
    if options.all:
        names = sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))
    if not names:
        parser.error("name an experiment, or say --all")
    for name in names:
        if not (EXPERIMENTS / f"{name}.toml").is_file():
            parser.error(f"there is no lab/experiments/{name}.toml")
    if not os.environ.get("HEADSTART_TEST_NET"):
        print("skipped: HEADSTART_TEST_NET=1 runs the experiments")
        return 0

    with tempfile.TemporaryDirectory() as folder:
        ran = []
        for name in names:
            experiment = tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text())
            if lack := lacking(name, experiment):
                print(f"skipped: {name} needs {lack}", flush=True)
                continue
            ran.append(Path(folder) / name)
            if not run(name, ran[-1]):
                return 1
        if ran:
            report = Path(folder) / "report.html"
            subprocess.run([LAB, "lab", "report", *ran, "--html", report], check=True,
                           stdout=subprocess.DEVNULL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
