#!/usr/bin/env python3
"""Checks the edge that speaks TLS with h2spec (HTTP/2), sslyze (Mozilla's recommendations) and
testssl (known weaknesses).

    tools/conformance.py PROGRAM FOLDER

PROGRAM is the command `headstart`. FOLDER keeps the first two; Go and pip bring what is missing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import venv
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import retries

H2SPEC = "2.2.1"
SSLYZE = "6.3.1"

# Findings of testssl about the certificate made here, the names of this machine, its OpenSSL, and
# the origin's headers.
NOT_THE_EDGE = {"cert_revocation", "DNS_CAArecord", "engine_problem", "HSTS", "security_headers"}

# Finding of testssl where it had no ticket in time.
NO_TICKET = ("sessionresumption_ticket", "check failed because of connect problem")

# An authority and a certificate with all that sslyze wants to see in them.
CERTIFICATES = """
openssl ecparam -genkey -name prime256v1 -noout -out ca.key
openssl req -x509 -new -key ca.key -sha256 -days 90 -subj /CN=Test -out ca.pem
    -addext keyUsage=critical,keyCertSign
openssl ecparam -genkey -name prime256v1 -noout -out key.pem
openssl req -new -key key.pem -subj /CN=localhost -out request.pem
openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -sha256 -days 89 -out cert.pem
    -extfile extensions
"""
EXTENSIONS = """
subjectAltName=DNS:localhost
extendedKeyUsage=serverAuth
keyUsage=critical,digitalSignature
basicConstraints=critical,CA:FALSE
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


class Origin(BaseHTTPRequestHandler):
    """Answers each request on a connection of its own, with enough bytes for all cases."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"an answer\n")

    do_POST = do_GET

    def log_message(self, *_):
        pass


class OriginServer(ThreadingHTTPServer):
    def handle_error(self, *_):
        """Says nothing of connections that the edge breaks off with its client's."""


def install(folder):
    """Returns the paths of h2spec and sslyze, and installs them first if they are missing."""
    h2spec = folder / f"h2spec-{H2SPEC}" / "h2spec"
    if not h2spec.exists():
        package = f"github.com/summerwind/h2spec/cmd/h2spec@v{H2SPEC}+incompatible"
        environment = os.environ | {"GOBIN": str(h2spec.parent.resolve()), "GOFLAGS": ""}
        subprocess.run(["go", "install", package], env=environment, check=True)
    sslyze = folder / f"sslyze-{SSLYZE}" / "bin" / "sslyze"
    if not sslyze.exists():
        venv.create(sslyze.parent.parent, with_pip=True)
        pip = [sslyze.parent / "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"sslyze=={SSLYZE}"], check=True)
    return h2spec, sslyze


def issue(folder):
    """Makes an authority and a certificate for localhost."""
    (folder / "extensions").write_text(EXTENSIONS)
    for command in re.split(r"\n(?=\S)", CERTIFICATES.strip()):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)


def start_edge(program, folder, origin):
    """Starts the edge, and returns it with its port."""
    edge = subprocess.Popen(
        [program, "edge", "--listen=127.0.0.1:0", f"--origin=http://127.0.0.1:{origin}",
         f"--cert={folder}/cert.pem", f"--key={folder}/key.pem"],
        env={"HEADSTART_LOG": "info"}, stderr=subprocess.PIPE, text=True)
    for line in edge.stderr:
        listening = re.search(r"listening address=\S+:(\d+)", line)
        if listening:
            # Or a full pipe would stop it.
            threading.Thread(target=edge.stderr.read, daemon=True).start()
            return edge, listening[1]
    sys.exit(f"the edge ended with {edge.wait()}")


def check_http2(h2spec, port):
    """Runs every case of h2spec, of HTTP/2 and of HPACK."""
    command = [h2spec, "--host=localhost", f"--port={port}", "--tls", "--insecure", "--timeout=10"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600)
    counts = re.search(r"(\d+) tests, (\d+) passed", said.stdout)
    if said.returncode or not counts or counts[1] != counts[2] or int(counts[1]) < 145:
        sys.exit(said.stdout[said.stdout.find("Failures:"):] + said.stderr + "h2spec: failed")
    print(f"h2spec: {counts[2]} of {counts[1]} passed")


def check_tls(sslyze, folder, port):
    """Compares protocols, ciphers, groups and certificate with Mozilla's "intermediate"."""
    command = [sslyze, f"--certinfo_ca_file={folder}/ca.pem", "--mozilla_config=intermediate",
               f"localhost:{port}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if said.returncode or "OK - Compliant" not in said.stdout:
        sys.exit(said.stdout + said.stderr + "sslyze: failed")
    print("sslyze: compliant with Mozilla's intermediate configuration")


def check_weaknesses(folder, port):
    """Lets testssl look for everything that it knows, and judges each of its findings.

    Its clients close TLS 1.3 after the handshake, some before the tickets are there that its check
    of resumption goes on with; then it finds a "connect problem", and looks once more.
    """
    report = folder / "testssl.json"
    command = ["testssl", "--quiet", "--color=0", "--warnings=off", "--ip=127.0.0.1",
               f"--add-ca={folder}/ca.pem", f"--jsonfile={report}", f"localhost:{port}"]
    for _ in range(2):
        report.unlink(missing_ok=True)
        said = subprocess.run(command, capture_output=True, text=True, timeout=900)
        found = json.loads(report.read_text()) if report.exists() else []
        bad = [one for one in found
               if one["severity"] not in ("OK", "INFO") and one["id"] not in NOT_THE_EDGE]
        if [(one["id"], one["finding"]) for one in bad] != [NO_TICKET]:
            break
        retries.note("testssl resumption")
    good = sum(one["severity"] == "OK" for one in found)
    # Of a scan that broke off there are fewer.
    if bad or good < 30:
        sys.exit(f"{said.stdout}{said.stderr}{bad}\ntestssl: failed")
    print(f"testssl: nothing found, {good} answers as they should be")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, tools = sys.argv[1], Path(sys.argv[2])
    h2spec, sslyze = install(tools)
    origin = OriginServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        issue(Path(folder))
        edge, port = start_edge(program, folder, origin.server_port)
        try:
            check_http2(h2spec, port)
            check_tls(sslyze, folder, port)
            check_weaknesses(Path(folder), port)
        finally:
            edge.terminate()
            edge.wait()


if __name__ == "__main__":
    main()
