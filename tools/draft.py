#!/usr/bin/env python3
"""Builds docs/draft-headstart-turbotls.md as an Internet-Draft, in text and HTML.

    tools/draft.py FOLDER    writes both to FOLDER; exits with 1 at any warning, or if bytes in the
                             draft are not those of docs/vectors/exchange.txt

kramdown-rfc comes from Debian (tools/install.sh full); pip brings xml2rfc, which FOLDER keeps.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs/draft-headstart-turbotls.md"
VECTOR = ROOT / "docs/vectors/exchange.txt"
XML2RFC = "3.34.1"

# Identifiers of requirements, which Markdown takes for links.
IDENTIFIER = re.compile(r"\[(W-[A-Z]+-\d+)\]")
# Exceptions of tools/citations.py.
EXCEPTION = re.compile(r"\s*<!--.*?-->", re.DOTALL)
BYTES = re.compile(r"^~~~ vector\n(.*?)^~~~", re.DOTALL | re.MULTILINE)
# What both programs say of a build without faults. References are written out in the source, so
# that nothing is fetched.
EXPECTED = re.compile(r"\*\*\* warning: explicit settings completely override canned bibxml .*\n"
                      r"| Created file .*\n")


def foreign_bytes(text):
    """Returns the figures with bytes that the vector does not have."""
    vector = " ".join(VECTOR.read_text().split())
    return [it for it in BYTES.findall(text) if " ".join(it.split()) not in vector]


def run(command, **options):
    """Runs a program; returns its output and what it warns of."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    warnings = done.stderr + (f"{command[0]} failed\n" if done.returncode else "")
    return done.stdout, EXPECTED.sub("", warnings)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    xml2rfc = folder / f"xml2rfc-{XML2RFC}" / "bin" / "xml2rfc"
    if not xml2rfc.exists():
        venv.create(xml2rfc.parent.parent, with_pip=True)
        pip = [xml2rfc.parent / "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"xml2rfc=={XML2RFC}"], check=True)

    text = SOURCE.read_text()
    problems = [f"not in {VECTOR.name}: {it}" for it in foreign_bytes(text)]
    source = IDENTIFIER.sub(r"\\[\1]", EXCEPTION.sub("", text))
    xml, warnings = run(["kramdown-rfc", "-3"], input=source)
    problems += warnings.splitlines()
    if xml:
        built = folder / SOURCE.with_suffix(".xml").name
        built.write_text(xml)
        for form in ("--text", "--html"):
            _, warnings = run([xml2rfc, "--no-network", form, built])
            problems += warnings.splitlines()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
