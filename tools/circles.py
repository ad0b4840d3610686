#!/usr/bin/env python3
"""Finds circles among the modules of each crate.

    tools/circles.py          prints each circle, and exits with 1 if there is one
    tools/circles.py CRATE... only of these crates

A module depends on another if a path in its code names it: `crate::a::b`, `super::c`, `self::d`, a
submodule by its name, or an item that `pub use` re-exports from it. Dependencies between a module
and its own ancestors are left out: a parent declares its children, and they share its private
items. Tests (`#[cfg(test)]` modules, files called tests) do not count.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOD = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
PATH = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")
ATTRIBUTES = r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?"
TEST_MODULE = re.compile(ATTRIBUTES + r"mod\s+\w+\s*\{")
TEST_ITEM = re.compile(ATTRIBUTES + r"(?:mod|use)[^;{]*;")
LOCAL = re.compile(r"(?<![\w:])([a-z]\w*)::(\w+)")


def strip(text):
    """Removes comments, strings and test modules."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.DOTALL)
    if begin := TEST_MODULE.search(text):
        text = text[:begin.start()]
    return TEST_ITEM.sub("", text)


def expand(tree):
    """Yields the paths of a use tree, as lists of names; `a::{b, c as d}` gives [a, b], [a, c]."""
    tree = tree.strip()
    depth, parts, start = 0, [], 0
    for at, letter in enumerate(tree):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(tree[start:at])
            start = at + 1
    parts.append(tree[start:])
    for part in parts:
        part = part.strip()
        if not part:
            continue
        head, brace, rest = part.partition("{")
        names = [name.strip() for name in head.split("::") if name.strip()]
        if brace:
            for tail in expand(rest.rsplit("}", 1)[0]):
                yield names + tail
        else:
            names[-1] = names[-1].split(" as ")[0].strip()
            yield names


class Crate:
    """The modules of one crate, by their path from its root."""

    def __init__(self, root):
        self.modules = {}
        self.exports = {}
        self.read((), root, root.parent)

    def read(self, path, file, directory):
        text = strip(file.read_text())
        self.modules[path] = text
        for name in MOD.findall(text):
            below = directory / name
            child = below.with_suffix(".rs")
            if not child.exists():
                child = below / "mod.rs"
            if child.exists() and name != "tests":
                self.read(path + (name,), child, below)

    def resolve(self, names, module):
        """Returns the module that a path names, followed through re-exports, or None."""
        at = ()
        if names[0] == "crate":
            names = names[1:]
        elif names[0] == "self":
            at, names = module, names[1:]
        elif names[0] == "super":
            at = module
            while names and names[0] == "super":
                at, names = at[:-1], names[1:]
        elif module + (names[0],) in self.modules:
            at = module
        else:
            return None
        for _ in range(8):
            while names and at + (names[0],) in self.modules:
                at, names = at + (names[0],), names[1:]
            exported = names and self.exports.get(at, {}).get(names[0])
            if not exported or exported == at:
                return at
            at = exported
            if at + (names[0],) not in self.modules:
                return at
        return at

    def dependencies(self):
        """Returns, for each module, the modules that its code names."""
        for module, text in self.modules.items():
            for public, tree in USE.findall(text):
                if public:
                    for names in expand(tree):
                        if (target := self.resolve(names, module)) is not None and target != module:
                            self.exports.setdefault(module, {})[names[-1]] = target
        edges = {}
        for module, text in self.modules.items():
            found = set()
            for public, tree in USE.findall(text):
                if not public:
                    found.update(self.resolve(names, module) for names in expand(tree))
            for path in PATH.findall(USE.sub("", text)):
                found.add(self.resolve(path.split("::"), module))
            for head, tail in LOCAL.findall(USE.sub("", text)):
                found.add(self.resolve([head, tail], module))
            found.discard(None)
            edges[module] = {other for other in found if not related(module, other)}
        return edges


def related(one, other):
    """Tells whether one module is the other, or contains it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def circles(edges):
    """Returns the strongly connected components of more than one module (Tarjan 1972)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for node in edges:
        if node not in index:
            visit(node)
    return found


def top_level(edges):
    """Returns the same dependencies among top-level modules."""
    result = {}
    for module, others in edges.items():
        for other in others:
            if module and other and module[0] != other[0]:
                result.setdefault(module[:1], set()).add(other[:1])
                result.setdefault(other[:1], set())
    return result


def main():
    wanted = sys.argv[1:]
    if wanted and wanted[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    count = 0
    for directory in sorted((ROOT / "crates").iterdir()):
        root = directory / "src" / "lib.rs"
        if not root.exists() or (wanted and directory.name not in wanted):
            continue
        edges = Crate(root).dependencies()
        for kind, graph in (("top level", top_level(edges)), ("modules", edges)):
            for circle in circles(graph):
                count += 1
                print(f"{directory.name}: {kind}: {len(circle)}")
                for module in circle:
                    inside = [other for other in sorted(graph[module]) if other in circle]
                    print(f"    {'::'.join(module)} -> {', '.join('::'.join(o) for o in inside)}")
    print(f"{count} circles")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
