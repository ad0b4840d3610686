#!/usr/bin/env python3
"""Compares the metrics in the sources, in docs/metrics.md and in packaging/monitoring.

    tools/metrics.py --check    exits with 1 if a metric is not documented or not counted, if its
                                type or labels differ, if one of its documented values is no word of
                                the sources, or if a query of the dashboard or an alert uses what is
                                not documented
"""

import argparse
import json
import re
import sys
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = "docs/metrics.md"
DASHBOARD = "packaging/monitoring/headstart.json"
ALERTS = "packaging/monitoring/alerts.yml"
# Labels that Prometheus adds.
TARGET = {"job", "instance"}

CONSTANT = re.compile(r'const ([A-Z_]+): &str = "(headstart_\w+)"')
MACRO = re.compile(r'\b(counter|gauge|histogram)!\(\s*(?:"(\w+)"|([A-Z_]+))\s*([^;]*?)\)\s*[.;\n]')
LABELS = re.compile(r"let labels =\s*\[(.*?)\];", re.DOTALL)
ROW = re.compile(r"^\| `(headstart_\w+)` \| (\w+) \| (.*?) ?\| .*\|$", re.MULTILINE)
# A table of one label: its head, and its rows.
VALUES = re.compile(r"^\| `(headstart_\w+)` `(\w+)` \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
SELECTOR = re.compile(r"\b([a-z_]\w*)\s*(?:\{([^}]*)\}|\[)")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z]\w*)\s*\}\}")
LINK = re.compile(r"\bdocs/(\w+\.md)(?:#([\w-]+))?")


def in_sources(sources):
    """Returns {metric: {(type, labels)}} of what the sources count, and all their strings."""
    names = dict(CONSTANT.findall("\n".join(sources)))
    found = {name: set() for name in names.values()}
    for text in sources:
        for call in MACRO.finditer(text):
            kind, name, constant, arguments = call.groups()
            labels = re.findall(r'"(\w+)" =>', arguments)
            if "&labels" in arguments:
                before = LABELS.findall(text[:call.start()])[-1]
                labels = re.findall(r'(?<!\w)\("(\w+)",', before)
            found.setdefault(name or names[constant], set()).add((kind, frozenset(labels)))
    strings = set(re.findall(r'"([^"\s]+)"', "\n".join(sources)))
    return found, strings


def in_document(text):
    """Returns {metric: (type, {label: values})}."""
    found = {}
    for name, kind, cell in ROW.findall(text):
        labels = re.findall(r"`(\w+)`([^`·]*)", re.sub(r"\(.*?\)", "", cell))
        found[name] = (kind, {
            label: set(re.findall(r"[\w./]+", re.sub(r"\[.*?\]", "", values)))
            for label, values in labels})
    for name, label, rows in VALUES.findall(text):
        for row in rows.splitlines():
            found[name][1][label].update(re.findall(r"`(\w+)`", row.split(" | ")[0]))
    return found


def misused(query, shown, documented):
    """Yields what a query, or a text that shows its labels, uses and nobody documents."""
    known = set(TARGET)
    if "histogram_quantile" in query:
        query, known = re.sub(r"(headstart_\w+)_bucket\b", r"\1", query), known | {"le"}
    for name, matchers in SELECTOR.findall(query):
        if name != "up" and not name.startswith("headstart_"):
            yield f"no metric {name}"
        labels = documented.get(name, ("", {}))[1]
        for label, _, value in MATCHER.findall(matchers):
            if label not in labels.keys() | TARGET:
                yield f"{name} has no label {label}"
            elif label in labels and labels[label] and "$" not in value:
                for one in set(value.split("|")) - labels[label]:
                    yield f"{label} of {name} is never {one}"
    for name in set(re.findall(r"\bheadstart_\w+", query)):
        known |= documented.get(name, ("", {}))[1].keys()
        if name not in documented:
            yield f"no metric {name}"
    grouped = ",".join(GROUPING.findall(query)).replace(",", " ").split()
    for label in sorted(set(grouped + SHOWN.findall(shown)) - known):
        yield f"no label {label} in {' '.join(query.split())[:60]}"


def queries(dashboard, alerts):
    """Yields (place, query, text that shows its labels)."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"{DASHBOARD}: {panel['title']}", target["expr"], target.get("legendFormat", "")
    for variable in dashboard["templating"]["list"]:
        metric = re.fullmatch(r"label_values\((.*), (\w+)\)", str(variable.get("query")))
        if metric:
            yield f"{DASHBOARD}: {variable['name']}", metric[1], "{{%s}}" % metric[2]
    for rule in alerts.split("- alert: ")[1:]:
        name, body = rule.split("\n", 1)
        expr = re.search(r"( +)expr:(.*(?:\n\1 .*)*)", body)[2].lstrip(" |>-\n")
        yield f"{ALERTS}: {name}", expr, body


def broken_links(text):
    """Yields links of the alerts to documents or headings that are not there."""
    for name, anchor in LINK.findall(text):
        path = ROOT / "docs" / name
        if not path.is_file() or anchor and anchor not in prose.anchors(path.read_text()):
            yield f"{ALERTS}: no docs/{name}#{anchor}"


def check(sources, document, dashboard, alerts):
    """Returns what is wrong."""
    counted, strings = in_sources(sources)
    documented = in_document(document)
    problems = [f"{DOCUMENT}: {name} is not there" for name in counted.keys() - documented.keys()]
    for name, (kind, labels) in documented.items():
        if not counted.get(name):
            problems.append(f"{DOCUMENT}: nothing counts {name}")
        elif counted[name] != {(kind, frozenset(labels))}:
            there = "; ".join(f"{kind}: {sorted(it)}" for kind, it in counted[name])
            problems.append(f"{DOCUMENT}: the type or the labels of {name} differ: {there}")
        unknown = {value for values in labels.values() for value in values} - strings
        problems += [f"{DOCUMENT}: {name} is never {value}" for value in sorted(unknown)]
    for place, query, shown in queries(dashboard, alerts):
        problems += [f"{place}: {it}" for it in misused(query, shown, documented)]
    return problems + list(broken_links(alerts))


def overlooked(sources, document, dashboard, alerts):
    """Plants a fault in each place, and returns those that the check does not find."""
    planted = {
        "headstart_new_total is not": (
            [*sources, 'counter!("headstart_new_total").increment(1);'], document, dashboard,
            alerts),
        "nothing counts headstart_old": (
            sources, document + "\n| `headstart_old` | gauge | | |\n", dashboard, alerts),
        "never slience": (sources, document, dashboard, alerts.replace("silence", "slience", 1)),
        "no label reasons": (
            sources, document, json.loads(json.dumps(dashboard).replace("(reason)", "(reasons)")),
            alerts),
    }
    return [f"the check overlooks: {kind}" for kind, world in planted.items()
            if not any(kind in problem for problem in check(*world))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if something differs")
    options = parser.parse_args()

    # Tests and the laboratory count nothing of their own.
    sources = [path.read_text() for crate in ("net", "headstart", "proto", "sessions")
               for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))]
    world = (sources, (ROOT / DOCUMENT).read_text(), json.loads((ROOT / DASHBOARD).read_text()),
             (ROOT / ALERTS).read_text())
    problems = check(*world) + overlooked(*world)
    for problem in problems:
        print(problem)
    print(f"{len(in_document(world[1]))} metrics, {len(list(queries(*world[2:])))} queries, "
          f"{len(problems)} problems")
    return 1 if options.check and problems else 0


if __name__ == "__main__":
    sys.exit(main())
