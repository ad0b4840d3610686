#!/usr/bin/env python3
"""Builds the documents as a site with mdBook, and follows every link of the result.

    tools/site.py OUT BIN    writes the book to OUT/html, with the help of the programs in BIN

docs/README.md is the only index: its parts and their order are those of the site. What it does not
list and documents link to comes behind. Links to folders lead to their README.md, or are text. The
part Reference has a page for each command of the programs besides.
"""

import os.path
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from prose import CODE, FENCED, LINK, ROOT, listed

FRONT, INDEX = "README.md", "docs/README.md"
PART = re.compile(r"^## (.+)$", re.MULTILINE)
PROGRAMS = ("headstart", "headstart-lab")
COMMANDS = re.compile(r"^Commands:\n((?: .+\n)+)", re.MULTILINE)
# Without clap's own, and those that `headstart` passes on to the other program.
COMMAND = re.compile(r"^  (?!help )([a-z][\w-]*)(?!.*\(headstart-lab\)$)", re.MULTILINE)
TEXT_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
BOOK = """[book]
title = "headstart"
language = "en"
[build]
build-dir = "html"
create-missing = false
[output.html.print]
enable = false
"""


def target(name, link):
    """Returns the file or folder of the tree that a link in the document `name` leads to."""
    path = link.partition("#")[0]
    return os.path.normpath(Path(name).parent / path) if path and "://" not in link else None


def linked(name, text):
    """Yields what links of a document lead to, code left out."""
    for link in LINK.findall(CODE.sub("", FENCED.sub("", text))):
        if path := target(name, link):
            yield path


def parts(documents):
    """Returns [(title, documents)], each document once."""
    _, *found = PART.split(documents[INDEX])
    seen, result = {FRONT, INDEX}, []

    def new(name, text):
        readmes = (it if it in documents else f"{it}/README.md" for it in linked(name, text))
        names = [it for it in dict.fromkeys(readmes) if it in documents and it not in seen]
        seen.update(names)
        return names

    for title, text in zip(found[::2], found[1::2]):
        result.append((title, new(INDEX, text)))
    more = []
    for name in [FRONT, INDEX, *(it for _, names in result for it in names)]:
        more += new(name, documents[name])
    # It grows meanwhile.
    for name in more:
        more += new(name, documents[name])
    return [*result, ("More", more)]


def rewritten(name, documents, files):
    """Returns a document with links as mdBook has them: a README.md is the index of its folder."""
    def place(link):
        path = target(name, link[2])
        if path and (ROOT / path).is_dir():
            path = f"{path}/README.md"
            if path not in files:
                return link[1]
        if path not in files:
            return link[0]
        to = os.path.relpath(path, Path(name).parent)
        if path in documents:
            to = re.sub(r"README\.md$", "index.md", to)
        return f"[{link[1]}]({to}{''.join(link[2].partition('#')[1:])})"

    return TEXT_LINK.sub(place, documents[name])


def helps(folder, *words):
    """Yields (words, help) of a command and of all below it."""
    text = subprocess.run([folder / words[0], *words[1:], "--help"], check=True, env={},
                          capture_output=True, text=True).stdout
    yield words, text
    for names in COMMANDS.findall(text):
        for name in COMMAND.findall(names):
            yield from helps(folder, *words, name)


def reference(folder, place):
    """Writes a page for each command to `place`; returns their lines of the summary."""
    pages = [page for program in PROGRAMS for page in helps(folder, program)]
    place.mkdir(parents=True)
    lines = []
    for words, text in pages:
        title, file = " ".join(words), f"{'-'.join(words)}.md"
        below = [f"* [{' '.join(it)}]({'-'.join(it)}.md)\n" for it, _ in pages if it[:-1] == words]
        page = f"# {title}\n\n{''.join(below)}\n```text\n{text}```\n"
        (place / file).write_text(page)
        lines.append(f"{'  ' * (len(words) - 1)}- [{title}]({place.name}/{file})\n")
    return lines


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")}
        self.links += [it for it in (attrs.get("href"), attrs.get("src")) if it]


def broken(html):
    """Yields (page, link) for each link of the book that leads nowhere."""
    pages = {path: Page(path) for path in html.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            to, _, anchor = unquote(link).partition("#")
            place = Path(os.path.normpath(path.parent / to)) if to else path
            is_found = place.exists() and (not anchor or place not in pages
                                           or anchor in pages[place].anchors)
            # The page for missing addresses is of another root.
            if not re.match(r"\w+:|//", link) and path.name != "404.html" and not is_found:
                yield path.relative_to(html), link


def main():
    out, programs = map(Path, sys.argv[1:])
    files = set(listed([]))
    documents = {name: (ROOT / name).read_text() for name in files if name.endswith(".md")}
    shutil.rmtree(out, ignore_errors=True)
    source = out / "src"
    source.mkdir(parents=True)
    (out / "book.toml").write_text(BOOK)
    chosen = [FRONT, INDEX]
    summary = [f"# Summary\n\n[headstart]({FRONT})\n[Documents]({INDEX})\n"]
    for title, names in parts(documents):
        summary.append(f"\n# {title}\n\n")
        for name in names:
            heading = re.search(r"^# (.+)$", documents[name], re.MULTILINE)[1]
            summary.append(f"- [{heading}]({name})\n")
        if title == "Reference":
            summary += reference(programs, source / "commands")
        chosen += names
    (source / "SUMMARY.md").write_text("".join(summary))
    for name in chosen:
        for path in [name, *linked(name, documents[name])]:
            if path in files and (path == name or path not in documents):
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, source / path)
        (source / name).write_text(rewritten(name, documents, files))
    subprocess.run(["mdbook", "build", str(out)], check=True)
    found = sorted(set(broken(out / "html")))
    for page, link in found:
        print(f"{page}: {link} leads nowhere")
    print(f"{len(chosen)} documents in {out / 'html'}, {len(found)} broken links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
