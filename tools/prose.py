#!/usr/bin/env python3
"""Counts habits of prose and code that slow down a native reader.

    tools/prose.py [PATH...]           prints the counts of the tree, or of some paths
    tools/prose.py --list [PATH...]    prints each place as well, as file:line: kind: text
    tools/prose.py --check             exits with 1 if a count of the whole tree is over its limit,
                                       SECURITY.md names a test that is not there, a link between
                                       documents leads nowhere, or a document has a command, an
                                       option or an experiment that does not exist

The limits come from reading quinn, rustls, pingora and s2n-quic in the same way.
"""

import argparse
import os.path
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100

QUESTION = re.compile(r"(?:What|Whether|How|Which|Who|Whose|Why)\b")
FRAGMENT = re.compile(r"(?:Of|By|With|That|Those|None)\b")
DOC = re.compile(r"\s*//[/!](?!/) ?(.*)")
CLOSURE = re.compile(r"\s*let (?:mut )?\w+(?:: [^=]+)? = (?:async )?(?:move )?\|")
NAMED_OF = re.compile(r"\bfn of\b")
# One line by the rules of their formats: a heading, a row, a directive in a comment; and a table of
# TOML within a line.
MARKDOWN_LINE = re.compile(r"#+ |\||<!--.*-->$")
INLINE_TABLE = re.compile(r"([\w.-]+ = )?\{.*\},?$")

# Of Markdown: fenced code, code within a line, links, headings and anchors by hand.
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR = re.compile(r'<a name="([^"]+)"')
# A shell's lines, and a command of ours there or in code within a line.
SHELL = re.compile(r"^ *```sh.*?^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:`|^ *)headstart(?:-lab)? ([a-z][^`\n#]*)", re.MULTILINE)
SUBCOMMANDS = re.compile(r"derive\([^)]*\bSubcommand\)\][^{]*?enum \w+ \{(.*?)^\}",
                         re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^ +pub(?:\(\w+\))? (\w+):", re.MULTILINE)
LONG = re.compile(r"long = \"([\w-]+)\"")
VARIANT = re.compile(r"^    (?:#\[command\(name = \"([\w-]+)\"|([A-Z]\w*))", re.MULTILINE)

# Files of which every line counts, and those whose prose is ours but whose data is not.
WRAPPED = {".rs", ".py", ".js", ".ts", ".mjs", ".c", ".h", ".sh", ".toml", ".md", ".css", ".lua"}
# Recorded, generated or published elsewhere: not written by us.
FOREIGN = re.compile(r"(^|/)(results|node_modules|target|corpus|vectors|hellos|LICENSE-\w+)(/|$)"
                     r"|\.lock$|package-lock\.json$")

# Kind: its limit, and what that is counted against.
LIMITS = {
    "question": (1, "percent of doc comments"),
    "fragment": (0.3, "percent of doc comments"),
    "closure": (1, "per 1,000 lines of Rust"),
    "of": (0, "functions"),
    "columns": (0, "lines"),
}


def listed(paths):
    """Returns the names of the files of the tree below `paths`."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *paths]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def tracked(paths):
    """Yields the files of the tree below `paths` that are written by hand."""
    for name in listed(paths):
        path = ROOT / name
        if path.suffix in WRAPPED and not FOREIGN.search(name):
            yield name, path


def rust_habits(lines):
    """Yields (line number, kind, text) for each habit, and ("doc", ...) for each doc comment."""
    in_doc = False
    for number, line in enumerate(lines, 1):
        doc = DOC.match(line)
        if doc and not in_doc and doc[1]:
            yield number, "doc", doc[1]
            if QUESTION.match(doc[1]):
                yield number, "question", doc[1]
            elif FRAGMENT.match(doc[1]):
                yield number, "fragment", doc[1]
        in_doc = bool(doc)
        if CLOSURE.match(line):
            yield number, "closure", line.strip()
        if NAMED_OF.search(line):
            yield number, "of", line.strip()


def is_too_wide(line, suffix, in_code):
    """Tells whether a line could be wrapped and is not."""
    if len(line) <= COLUMNS:
        return False
    text = line.strip()
    if "://" in text and " " not in text[text.index("://"):]:
        return False
    if suffix == ".md":
        # Commands to copy are one line each.
        return not (in_code or MARKDOWN_LINE.match(text))
    return not (suffix == ".toml" and INLINE_TABLE.match(text))


def habits(path):
    """Returns every (line number, kind, text) of one file, and its number of lines."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return [], 0
    found = list(rust_habits(lines)) if path.suffix == ".rs" else []
    in_code = False
    for number, line in enumerate(lines, 1):
        if path.suffix == ".md" and line.lstrip().startswith("```"):
            in_code = not in_code
        if is_too_wide(line, path.suffix, in_code):
            found.append((number, "columns", line.strip()[:COLUMNS]))
    return found, len(lines) if path.suffix == ".rs" else 0


def missing_tests():
    """Returns the tests that the table of SECURITY.md names and that are not there."""
    rows = re.findall(r"^\| .* \| (`.*`) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    found = subprocess.run(["git", "grep", "-hoE", r"fn [a-z0-9_]+\(", "--", "*.rs"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout
    return named - {line[3:-1] for line in found.splitlines()}


def anchors(text):
    """Returns what links can name in a document, as GitHub makes it of headings."""
    text = FENCED.sub("", text)
    headings = Counter(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                       for heading in HEADING.findall(text))
    again = (f"{heading}-{n}" for heading, count in headings.items() for n in range(1, count))
    return {*ANCHOR.findall(text), *headings, *again}


def broken_links():
    """Yields (document, target) for each link between files of the tree that leads nowhere."""
    files = listed([])
    there = {*files, *(str(folder) for name in files for folder in Path(name).parents)}
    documents = {name: (ROOT / name).read_text() for name in files if name.endswith(".md")}
    for name, text in documents.items():
        for target in LINK.findall(CODE.sub("", FENCED.sub("", text))):
            path, _, anchor = target.partition("#")
            to = os.path.normpath(Path(name).parent / path) if path else name
            is_found = to in there and (not anchor or anchor in anchors(documents.get(to, "")))
            if "://" not in target and not is_found:
                yield name, target


def kebab(name):
    return re.sub(r"(?<!^)(?=[A-Z])|_", "-", name).lower()


def unknown_commands():
    """Yields (document, command) for each command of ours that the sources do not have."""
    words, options = set(), {"help", "version"}
    for name in listed(["crates/*.rs"]):
        text = (ROOT / name).read_text()
        for variants in SUBCOMMANDS.findall(text):
            words |= {given or kebab(variant) for given, variant in VARIANT.findall(variants)}
        if "clap::" in text:
            options |= {kebab(it) for it in FIELD.findall(text)} | set(LONG.findall(text))
    experiments = {Path(name).stem for name in listed(["lab/experiments"])}
    for name in listed(["*.md"]):
        text = (ROOT / name).read_text()
        # Code within a line of other documents may be the head of a file.
        text = text if name == "docs/papers.md" else "\n".join(SHELL.findall(text))
        for command in COMMAND.findall(text):
            first, second, third, *_ = (*command.split(" -- ")[0].split(), "", "", "")
            is_builtin = (first, second) == ("lab", "run") and re.fullmatch(r"[a-z][\w-]+", third)
            if (first not in words or {*re.findall(r" --([a-z][\w-]+)", command)} - options
                    or is_builtin and third not in experiments):
                yield name, f"headstart {command.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--list", action="store_true", help="print each place")
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    options = parser.parse_args()

    counts = dict.fromkeys(["doc", *LIMITS], 0)
    rust_lines = 0
    for name, path in tracked(options.paths):
        found, lines = habits(path)
        rust_lines += lines
        for number, kind, text in found:
            counts[kind] += 1
            if options.list and kind != "doc":
                print(f"{name}:{number}: {kind}: {text}")

    missing = missing_tests()
    for name in sorted(missing):
        print(f"SECURITY.md: there is no test {name}")

    broken = list(broken_links())
    for name, target in broken:
        print(f"{name}: {target} leads nowhere")

    unknown = list(unknown_commands())
    for name, command in unknown:
        print(f"{name}: there is no {command}")

    exceeded = bool(missing or broken or unknown)
    bases = {"percent": counts["doc"] / 100, "per": rust_lines / 1000}
    for kind, (limit, unit) in LIMITS.items():
        value = counts[kind] / (bases.get(unit.split()[0], 1) or 1)
        exceeded |= value > limit
        mark = "  over the limit" if value > limit else ""
        print(f"{kind:9} {counts[kind]:6}  = {value:7.2f} {unit} (limit {limit}){mark}")
    return 1 if options.check and exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
