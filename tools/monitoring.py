#!/usr/bin/env python3
"""Runs dashboard and alerts (packaging/monitoring) on a real Prometheus, with an edge and an agent.

    tools/monitoring.py HEADSTART    HEADSTART is the program; needs prometheus, curl and openssl

promtool checks the rules, and the metrics of both daemons; each documented series is there before
anything happens, each query of the dashboard must give a series, and no rule may fail.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import metrics as documents
import status_shots

ROOT = Path(__file__).resolve().parent.parent
MONITORING = ROOT / "packaging/monitoring"
# What Grafana puts in. Scrapes are a second apart.
VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "30s"}
PATIENCE = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def wait_until(what, is_so):
    """Waits until `is_so` returns something true, and returns that."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        try:
            if found := is_so():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"waited {PATIENCE} s for {what}")


def queries():
    """Returns title and query of all panels, as Grafana would send them."""
    dashboard = json.loads((MONITORING / "headstart.json").read_text())
    panels = [inner for panel in dashboard["panels"] for inner in [panel, *panel.get("panels", [])]]
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            yield panel["title"], query


def late_series(text):
    """Returns the documented series that are not there before anything happened.

    Labels whose values are not documented are names: only what has no other label may come later.
    """
    document = (ROOT / documents.DOCUMENT).read_text()
    for name in re.findall(r"`(process_\w+)`", document):
        if f"\n{name} " not in text:
            yield name
    for name, (kind, labels) in documents.in_document(document).items():
        counted = f"{name}_count" if kind == "histogram" else name
        series = [line for line in text.splitlines() if re.match(counted + "[{ ]", line)]
        known = {label: values for label, values in labels.items() if values}
        if not series and (known or not labels):
            yield name
        for label, values in known.items():
            for value in sorted(values):
                if not any(f'{label}="{value}"' in line for line in series):
                    yield f"{name} {label}={value}"


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"promtool {' '.join(map(str, words))}: {done.stdout}{done.stderr}")


def configuration(place, targets):
    jobs = "".join(f"""
  - job_name: {job}
    static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]""" for job, port in targets.items())
    file = place / "prometheus.yml"
    file.write_text(f"""global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [{MONITORING}/alerts.yml]
scrape_configs:{jobs}
""")
    return file


def daemons(place, program):
    """Returns commands of edge and agent, a certificate, the agent's port, and those of metrics."""
    chain, key = status_shots.certificate(place)
    listen, origin, proxy = free_port(), free_port(), free_port()
    metrics = {"edge": free_port(), "agent": free_port()}
    name = status_shots.NAME
    commands = [
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(origin)],
        [program, "edge", "--listen", f"127.0.0.1:{listen}", "--cert", chain, "--key", key,
         "--origin", f"http://127.0.0.1:{origin}", "--quic", f"127.0.0.1:{free_port()}",
         "--metrics", f"127.0.0.1:{metrics['edge']}"],
        [program, "agent", "--listen", f"127.0.0.1:{proxy}", "--edge",
         f"{name}=127.0.0.1:{listen}", "--metrics", f"127.0.0.1:{metrics['agent']}"],
    ]
    return commands, chain, proxy, metrics


def main():
    program = Path(sys.argv[1]).resolve()
    promtool("check", "rules", MONITORING / "alerts.yml")
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        commands, chain, proxy, metrics = daemons(place, program)
        api = f"127.0.0.1:{free_port()}"
        commands.append(["prometheus", "--config.file", configuration(place, metrics),
                         "--storage.tsdb.path", place / "data", "--web.listen-address", api])
        log = open(place / "log", "w")
        started = [subprocess.Popen(command, cwd=place, stdout=log, stderr=log)
                   for command in commands]

        def ask(path, **fields):
            answer = json.loads(read(f"http://{api}/api/v1/{path}?{urllib.parse.urlencode(fields)}"))
            return answer["data"]

        try:
            texts = [wait_until("metrics", lambda: read(f"http://127.0.0.1:{port}/metrics"))
                     for port in metrics.values()]
            for text in texts:
                promtool("check", "metrics", text=text)
            if late := list(late_series("\n".join(texts))):
                sys.exit(f"not there from the start: {', '.join(late)}")
            curl = ["curl", "-sS", "--proxy", f"socks5h://127.0.0.1:{proxy}", "--cacert", chain,
                    "--output", "/dev/null", f"https://{status_shots.NAME}/"]
            wait_until("a page", lambda: subprocess.run(curl).returncode == 0)
            wait_until("Prometheus", lambda: ask("rules"))
            missing = dict(enumerate(queries()))
            count = len(missing)

            def all_there():
                for number, (_, query) in list(missing.items()):
                    if ask("query", query=query)["result"]:
                        del missing[number]
                return not missing

            begun = time.monotonic()
            while not all_there() and time.monotonic() - begun < 20:
                time.sleep(1)
            if missing:
                sys.exit("\n".join(f"{title}: no series: {query}"
                                   for title, query in missing.values()))
            groups = wait_until("the rules", lambda: [
                group for group in ask("rules")["groups"]
                if all(rule["lastEvaluation"][:4] != "0001" for rule in group["rules"])])
            rules = [rule for group in groups for rule in group["rules"]]
            if bad := [rule for rule in rules if rule["health"] != "ok"]:
                sys.exit(f"rules fail: {bad}")
            firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
            if firing:
                sys.exit(f"alerts without a cause: {firing}")
            print(f"{count} queries give series, {len(rules)} rules hold, "
                  f"{len(metrics)} daemons' metrics are clean")
        except BaseException:
            print((place / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
