#!/usr/bin/env python3
"""Makes the pictures of docs/status.md with Chromium, of an edge and an agent 40 ms apart.

    tools/status_shots.py HEADSTART    HEADSTART is the program; needs root, Chromium, curl, openssl
                                       and iproute2, and works in namespaces of its own
"""

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "docs/status"
NAME, OTHER = "www.example.test", "static.example.test"
AGENT, EDGE = "10.9.0.1", "10.9.0.2"
# File, side, width, height, and Chromium's preferredColorScheme (0 is dark).
SHOTS = [
    ("agent-light", AGENT, 560, 870, 1),
    ("agent-dark", AGENT, 560, 870, 0),
    ("agent-narrow", AGENT, 390, 940, 1),
    ("edge-light", EDGE, 640, 862, 1),
    ("edge-dark", EDGE, 640, 862, 0),
    ("edge-narrow", EDGE, 390, 928, 1),
]
VISITS = 12
DELAY = 0.02
TUNSETIFF, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def side(address, other):
    """Makes a network namespace with this address; returns its descriptor and that of its link."""
    if LIBC.unshare(CLONE_NEWNET):
        sys.exit("no network namespace: run this as root")
    link = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(link, TUNSETIFF, struct.pack("16sH", b"tun0", TUN_WITHOUT_HEADER))
    for command in ("link set lo up", f"address add {address} peer {other} dev tun0",
                    "link set tun0 up"):
        subprocess.run(["ip", *command.split()], check=True)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY), link


def carry(source, sink):
    """Carries packets from one link to the other, DELAY later."""
    while True:
        packet = os.read(source, 65536)
        threading.Timer(DELAY, os.write, (sink, packet)).start()


def wait_for(address):
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"http://{address}:9101/status.json") as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody answers at {address}")


def certificate(place):
    chain, key = place / "cert.pem", place / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "60", "-subj", f"/CN={NAME}", "-addext",
         f"subjectAltName=DNS:{NAME},DNS:{OTHER}", "-keyout", key, "-out", chain],
        check=True, capture_output=True)
    key.chmod(0o600)
    return chain, key


def shoot(place, picture, url, width, height, scheme):
    """Makes a picture of a page; `place` is a folder for the browser."""
    picture.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars",
         f"--screenshot={picture}.png", f"--window-size={width},{height}",
         f"--user-data-dir={place}/profile", f"--blink-settings=preferredColorScheme={scheme}",
         url], check=True, capture_output=True)


def main():
    program = os.path.abspath(sys.argv[1])
    if os.environ.get("STATUS_SHOTS") != "inside":
        # The names lead to the edge for these programs alone.
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, __file__, program],
                   {**os.environ, "STATUS_SHOTS": "inside"})
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        (place / "hosts").write_text(f"127.0.0.1 localhost\n{EDGE} {NAME} {OTHER}\n")
        subprocess.run(["mount", "--bind", place / "hosts", "/etc/hosts"], check=True)
        chain, key = certificate(place)
        near, near_link = side(AGENT, EDGE)
        far, far_link = side(EDGE, AGENT)
        for ends in ((near_link, far_link), (far_link, near_link)):
            threading.Thread(target=carry, args=ends, daemon=True).start()
        started = []

        def enter(namespace):
            LIBC.setns(namespace, CLONE_NEWNET)

        def start(*command):
            started.append(subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))

        try:
            start(sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "8080")
            start(program, "edge", "--listen", f"{EDGE}:443", "--cert", chain, "--key", key,
                  "--origin", f"{NAME}=http://127.0.0.1:8080", "--origin",
                  f"{OTHER}=http://127.0.0.1:8080", "--status", f"{EDGE}:9101")
            wait_for(EDGE)
            enter(near)
            start(program, "agent", "--listen", "127.0.0.1:1080", "--edge", f"{NAME}={EDGE}:443",
                  "--status", f"{AGENT}:9101", "--status-names")
            wait_for(AGENT)
            for visit in range(VISITS):
                # The agent knows no edge for the other name.
                name = OTHER if visit % 4 == 2 else NAME
                subprocess.run(["curl", "-sS", "--proxy", "socks5h://127.0.0.1:1080", "--cacert",
                                chain, "--output", "/dev/null", f"https://{name}/"], check=True)
            for name, address, *size in SHOTS:
                enter(near if address == AGENT else far)
                shoot(place, PICTURES / name, f"http://{address}:9101/", *size)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
            subprocess.run(["umount", "/etc/hosts"], check=False)


if __name__ == "__main__":
    main()
