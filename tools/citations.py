#!/usr/bin/env python3
"""Follows the requirements of the protocol texts in docs into code and tests.

    tools/citations.py --check    exits with 1 if a requirement is not implemented or not shown
                                  anywhere, or if a citation names none, or a section of the draft
                                  that is not there
    tools/citations.py --table    prints where each requirement is cited

A requirement is a sentence with a word of RFC 2119 in capitals, and an identifier such as [W-ID-1]
behind it. Code cites W-ID-1 in a comment where it implements the rule, tests and vectors where they
show it. <!-- no code: REASON --> or <!-- no test: REASON --> behind an identifier is an exception.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from prose import anchors

ROOT = Path(__file__).resolve().parent.parent
DRAFT = "docs/draft-headstart-turbotls.md"
DOCUMENTS = {"W": DRAFT, "F": "docs/fop.md"}
BPF = "crates/net/bpf/"
SEARCHED = ["crates/*.rs", "go/*.go", BPF + "*.c", BPF + "*.h", "docs/vectors/*.txt"]

KEYWORD = r"\b(?:(?:MUST|SHALL|SHOULD)(?:\s+NOT)?|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b"
NAME = r"[WF]-[A-Z]+-\d+"
EXCEPTION = r"<!--\s*no (code|test):\s*(.*?)\s*-->"
TOKEN = re.compile(rf"(?P<word>{KEYWORD})|\[(?P<name>{NAME})\](?:\s*{EXCEPTION})?", re.DOTALL)
CITATION = re.compile(rf"\b{NAME}\b")
SECTION = re.compile(rf"{re.escape(DRAFT)}#([\w-]+)")
# What a reader takes as one: paragraphs, items of lists, rows of tables.
BLOCK_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=\|)")
# Code, and the paragraph that explains the words (RFC 8174).
QUOTED = re.compile(r"```.*?```|`(?:[^`\n]|\n(?!\s*\n))*`|^The key words \"MUST\".*?\n\n",
                    re.DOTALL | re.MULTILINE)
TESTS = re.compile(r"/tests/|/tests\.rs$|_test\.go$|/vectors/")
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\s*mod \w+ \{", re.MULTILINE)
PLACES = ["Rust", "Rust tests", "Go", "Go tests", "BPF", "vectors"]


def requirements(document, text, problems):
    """Returns {identifier: (keyword, what is missing by exception)} of one document."""
    found = {}
    for block in BLOCK_END.split(QUOTED.sub("", text)):
        word = None
        for token in TOKEN.finditer(block):
            if token["word"]:
                if word:
                    problems.append(f"{document}: no identifier behind {word}: {excerpt(block)}")
                word = " ".join(token["word"].split())
                continue
            name = token["name"]
            if not word:
                problems.append(f"{document}: no keyword of its own before {name}")
            if name in found:
                problems.append(f"{document}: {name} twice")
            if DOCUMENTS[name[0]] != document:
                problems.append(f"{document}: {name} belongs to the other document")
            found[name] = (word, token[3])
            word = None
        if word:
            problems.append(f"{document}: no identifier behind {word}: {excerpt(block)}")
    return found


def excerpt(block):
    return " ".join(block.split())[:70]


def place(path, in_test):
    """Returns the column of the table for a citation."""
    if path.startswith("docs/"):
        return "vectors"
    if path.startswith(BPF):
        return "BPF"
    return ("Go" if path.startswith("go/") else "Rust") + (" tests" if in_test else "")


def citations(files):
    """Returns {identifier: {place: [path:line]}}."""
    found = defaultdict(lambda: defaultdict(list))
    for path, text in files.items():
        module = TEST_MODULE.search(text)
        tests_from = 0 if TESTS.search(path) else module.start() if module else len(text)
        for citation in CITATION.finditer(text):
            line = text.count("\n", 0, citation.start()) + 1
            where = place(path, citation.start() >= tests_from)
            found[citation[0]][where].append(f"{path}:{line}")
    return found


def check(documents, files):
    """Returns what is wrong, the requirements and their citations."""
    problems, required = [], {}
    for name, text in documents.items():
        required |= requirements(name, text, problems)
    cited = citations(files)
    for name in sorted(cited.keys() - required.keys()):
        where = [it for places in cited[name].values() for it in places]
        problems.append(f"{', '.join(where)}: there is no requirement {name}")
    sections = anchors(documents[DRAFT])
    for path, text in files.items():
        problems += (f"{path}: there is no section {name}"
                     for name in SECTION.findall(text) if name not in sections)
    for name, (_, exception) in required.items():
        code = any(cited[name][it] for it in ("Rust", "Go", "BPF"))
        test = any(cited[name][it] for it in ("Rust tests", "Go tests", "vectors"))
        if not code and exception != "code":
            problems.append(f"{name}: no code cites it")
        if not test and not exception:
            problems.append(f"{name}: no test cites it")
        if test and exception or code and exception == "code":
            problems.append(f"{name}: it is cited, so it needs no exception")
    return problems, required, cited


def overlooked():
    """Plants an omission of each kind, and returns those that the check does not find."""
    documents = {DRAFT: "An id MUST be new [W-ID-1]."}
    files = {"crates/a/src/b.rs": "// W-ID-1", "go/b_test.go": "// W-ID-1"}
    planted = {
        "no code cites": (documents, files | {"crates/a/src/b.rs": ""}),
        "no test cites": (documents, files | {"go/b_test.go": ""}),
        "there is no requirement": (documents, files | {"go/b.go": "// W-ID-2"}),
        "there is no section": (documents, files | {"go/b.go": f"// {DRAFT}#ids"}),
        "no identifier behind": ({DRAFT: "A peer MUST answer."}, {}),
        "needs no exception": ({DRAFT: "MUST [W-ID-1] <!-- no test: why -->."}, files),
    }
    found = {kind: check(*world)[0] for kind, world in planted.items()}
    return check(documents, files)[0] + [
        f"the check overlooks: {kind}" for kind, problems in found.items()
        if not any(kind in problem for problem in problems)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a citation is missing")
    parser.add_argument("--table", action="store_true", help="print where each is cited")
    options = parser.parse_args()

    documents = {path: (ROOT / path).read_text() for path in DOCUMENTS.values()}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
               *SEARCHED]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    files = {path: (ROOT / path).read_text(errors="replace") for path in paths}
    problems, required, cited = check(documents, files)

    if options.table:
        print("| requirement | keyword | " + " | ".join(PLACES) + " |\n" + "|---" * 8 + "|")
        for name, (word, _) in required.items():
            places = (" ".join(cited[name][it]) for it in PLACES)
            print(f"| {name} | {word} | " + " | ".join(places) + " |")
    problems += overlooked()
    for problem in problems:
        print(problem)
    print(f"{len(required)} requirements, {len(problems)} problems")
    return 1 if options.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
