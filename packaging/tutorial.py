#!/usr/bin/env python3
"""Types docs/tutorial.md into two fresh Debians, a server and a laptop 100 ms apart.

    packaging/tutorial.py ROOT.tar PACKAGE.deb    as root; packaging/test.sh calls it

ROOT.tar has systemd, nginx, openssl, curl and OpenSSH. Every block of the tutorial that begins with
```sh MACHINE is typed as it stands there: `root` behind the machine says by whom, `&` that it goes
on in a terminal of its own, `^C` that this is ended first. A block must succeed, and print the
lines of the block ```output behind it, in their order; `...` in those is any text, and a number
with a point may differ by a tenth.
"""

import fcntl
import heapq
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

TUTORIAL = Path(__file__).resolve().parent.parent / "docs/tutorial.md"
BLOCK = re.compile(r"^```(sh|output)((?: \S+)*)\n(.*?)^```", re.DOTALL | re.M)
# Not a part of an address.
FIGURE = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")
ADDRESSES = {"server": "192.0.2.1", "laptop": "192.0.2.2"}
ONE_WAY = 0.1
PATIENCE = 60
TUNSETIFF = 0x400454CA


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


class Link:
    """Two network namespaces, and a thread that passes packets between them, each one late."""

    def __init__(self):
        self.devices = {}
        for name, address in ADDRESSES.items():
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            # Bare packets: IFF_TUN and IFF_NO_PI.
            made = fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"tutorial%d", 0x1001))
            interface = made[:16].rstrip(b"\0").decode()
            space = self.space(name)
            run("ip", "netns", "add", space)
            run("ip", "link", "set", interface, "netns", space)
            for line in ("link set lo up", f"addr add {address}/24 dev {interface}",
                         f"link set {interface} up"):
                run("ip", "-n", space, *line.split())
            self.devices[name] = device
        threading.Thread(target=self.forward, daemon=True).start()

    @staticmethod
    def space(name):
        return f"tutorial-{os.getpid()}-{name}"

    def forward(self):
        server, laptop = self.devices.values()
        other = {server: laptop, laptop: server}
        waiting, count = [], 0
        while True:
            wait = max(0, waiting[0][0] - time.monotonic()) if waiting else None
            try:
                for device in select.select([server, laptop], [], [], wait)[0]:
                    count += 1
                    late = time.monotonic() + ONE_WAY
                    heapq.heappush(waiting, (late, count, other[device], os.read(device, 65536)))
                while waiting and waiting[0][0] <= time.monotonic():
                    _, _, device, packet = heapq.heappop(waiting)
                    os.write(device, packet)
            except OSError:
                # The namespaces are gone.
                return

    def remove(self):
        for name in ADDRESSES:
            subprocess.run(["ip", "netns", "del", self.space(name)], check=False)


class Machine:
    """A Debian that systemd boots, and people who type."""

    def __init__(self, name, root):
        self.name = name
        self.log = open(root.parent / f"{name}.log", "w", encoding="utf-8")
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
             f"--machine={Link.space(name)}", f"--directory={root}",
             f"--network-namespace-path=/run/netns/{Link.space(name)}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.terminal = None
        # Before it listens, systemctl fails.
        wait_until(lambda: self.first() and subprocess.run(
            [*self.enter("root"), "systemctl is-system-running --wait"], check=False,
            text=True, capture_output=True).stdout.strip() in ("running", "degraded"))

    def first(self):
        """Returns the process that is number 1 in there."""
        for process in children(self.nspawn.pid):
            if re.search(r"^NSpid:.*\t1$", Path(f"/proc/{process}/status").read_text(), re.M):
                return process
        return None

    def enter(self, user):
        """Returns the command that a line is to be given to, as the shell of `user` takes it."""
        home = "/root" if user == "root" else f"/home/{user}"
        script = f"cd {home} && exec bash -e -o pipefail -c \"$1\""
        who = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        return ["nsenter", "--target", str(self.first()), "--all", "env", "--ignore-environment",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                f"HOME={home}", f"USER={user}", "XDG_RUNTIME_DIR=/run/manager",
                *(who if user != "root" else []), "bash", "-c", script, "bash"]

    def type(self, text, user):
        """Types a block, and returns what it prints."""
        done = subprocess.run([*self.enter(user), text], check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE)
        if done.returncode:
            raise Wrong(f"exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def begin(self, text, user, ready):
        """Types a block that does not end, and waits until it has printed what it should."""
        with tempfile.TemporaryFile("w+") as printed:
            self.terminal = subprocess.Popen([*self.enter(user), f"exec {text}"], text=True,
                                             stdin=subprocess.DEVNULL, stdout=printed,
                                             stderr=subprocess.STDOUT)

            def so_far():
                return os.pread(printed.fileno(), 1 << 20, 0).decode()

            wait_until(lambda: self.terminal.poll() is not None or not missing(ready, so_far()))
            return so_far()

    def interrupt(self):
        """Presses Ctrl-C in the other terminal."""
        for process in children(self.terminal.pid):
            os.kill(process, signal.SIGINT)
        if code := self.terminal.wait(PATIENCE):
            raise Wrong(f"exit code {code} after Ctrl-C")

    def remove(self):
        if self.first():
            os.kill(self.first(), signal.SIGKILL)
        self.nspawn.wait(PATIENCE)
        self.log.close()


class Wrong(Exception):
    """What a reader would stumble over."""


def children(process):
    return map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise Wrong("it takes too long")
        time.sleep(0.05)


def matches(promised, line):
    """Tells whether a line is what the tutorial shows of it."""
    figures = map(float, FIGURE.findall(promised))
    parts = FIGURE.sub("\0", promised.strip()).split("...")
    pattern = ".*".join(map(re.escape, parts)).replace(re.escape("\0"), r"(\d+\.\d+)")
    found = re.fullmatch(pattern, line.strip())
    return bool(found) and all(abs(float(it) - figure) <= 0.1
                               for it, figure in zip(found.groups(), figures))


def missing(promised, printed):
    """Returns the first promised line that is not printed in its turn."""
    lines = iter(printed.splitlines())
    for line in promised.splitlines():
        if not any(matches(line, it) for it in lines):
            return line
    return None


def blocks():
    """Yields (machine, user, how, text, output) of each block to type."""
    found = [(kind, words.split(), text) for kind, words, text
             in BLOCK.findall(TUTORIAL.read_text())]
    for (kind, words, text), after in zip(found, [*found[1:], ("sh", [], "")]):
        if kind == "sh":
            machine, *how = words
            user = "root" if machine == "server" or "root" in how else "reader"
            yield machine, user, how, text, after[2] if after[0] == "output" else ""


def accounts(roots, package):
    """Makes what both have before the tutorial begins: a user, SSH between them, the package."""
    for name, root in roots.items():
        run("useradd", "--root", str(root), "--create-home", "--shell", "/bin/bash", "reader")
        (root / "etc/hostname").write_text(f"{name}\n")
    reader = roots["laptop"] / "home/reader"
    server = roots["server"]
    key = reader / ".ssh/id_ed25519"
    key.parent.mkdir(mode=0o700)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    run("ssh-keygen", "-A", "-f", str(server))
    (server / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (server / "root/.ssh/authorized_keys").write_text(key.with_suffix(".pub").read_text())
    host_key = (server / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    (key.parent / "known_hosts").write_text(f"{ADDRESSES['server']} {host_key}")
    run("cp", package, str(reader))
    run("cp", package, str(roots["laptop"] / "root"))
    run("chroot", str(roots["laptop"]), "chown", "--recursive", "reader:", "/home/reader")


def main():
    tar, package = sys.argv[1:]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        roots = {name: work / name for name in ADDRESSES}
        for root in roots.values():
            root.mkdir()
            run("tar", "--directory", str(root), "--extract", "--file", tar)
        accounts(roots, package)
        link = Link()
        stack.callback(link.remove)
        machines = {}
        for name, root in roots.items():
            machines[name] = Machine(name, root)
            stack.callback(machines[name].remove)
        # The user's own systemd, as a login starts it.
        machines["laptop"].type(
            "systemd-run --quiet --unit manager --property Type=notify --property Delegate=yes "
            "--uid reader --property RuntimeDirectory=manager --setenv HOME=/home/reader "
            "--setenv XDG_RUNTIME_DIR=/run/manager /lib/systemd/systemd --user", "root")
        typed = 0
        for name, user, how, text, promised in blocks():
            machine = machines[name]
            try:
                if "^C" in how:
                    machine.interrupt()
                if "&" in how:
                    printed = machine.begin(text, user, promised)
                else:
                    printed = machine.type(text, user)
                if (line := missing(promised, printed)) is not None:
                    raise Wrong(f"does not print {json.dumps(line)}, but:\n{printed}")
            except (Wrong, subprocess.TimeoutExpired) as wrong:
                sys.exit(f"docs/tutorial.md, {user} at the {name}:\n{text}\n{wrong}")
            typed += 1
        print(f"== tutorial: {typed} blocks typed, and what they promise was printed")


if __name__ == "__main__":
    main()
