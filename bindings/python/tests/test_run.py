"""`headstart run` breaks no program of these, which work without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .serving import PATIENCE, Files, RunningAgent, Server, binary, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HTTPX = "import httpx, sys; print(httpx.get(sys.argv[1]).text)"
REQUESTS = "import requests, sys; print(requests.get(sys.argv[1]).text)"
AIOHTTP = """
import aiohttp, asyncio, sys

async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(sys.argv[1]) as response:
            print(await response.text())

asyncio.run(main())
"""


class Runner:
    """Runs programs that trust the test's server, and nothing else of the environment."""

    def __init__(self, running: RunningAgent, files: Files, home: Path) -> None:
        self._running = running
        roots = str(files.certificate)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "SSL_CERT_FILE": roots,
            "REQUESTS_CA_BUNDLE": roots,
        }

    def run(self, command: Sequence[str]) -> tuple[int, str, str]:
        done = subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def lead(self, command: Sequence[str]) -> tuple[int, str, str]:
        """Run a program by `headstart run`, and by the agent's proxy."""
        proxy = f"127.0.0.1:{self._running.listen}"
        options = ["--socket", str(self._running.path), "--proxy", proxy]
        return self.run([str(binary()), "run", *options, "--", *command])


@pytest.fixture
def runner(own_agent: RunningAgent, files: Files, tmp_path: Path) -> Runner:
    return Runner(own_agent, files, tmp_path)


@pytest.mark.parametrize("script", [HTTPX, REQUESTS, AIOHTTP], ids=["httpx", "requests", "aiohttp"])
def test_a_program_of_python(
    script: str, runner: Runner, own_agent: RunningAgent, server: Server
) -> None:
    command = [sys.executable, "-c", script, server.url("/page")]
    alone = runner.run(command)
    assert alone == (0, "GET /page\n", "")
    assert runner.lead(command) == alone
    line = f"opened host=localhost port={server.port}"
    until("the agent's line", lambda: line in own_agent.log())


@pytest.mark.skipif(shutil.which("wget2") is None, reason="tools/install.sh installs wget2")
def test_wget2(runner: Runner, server: Server, files: Files) -> None:
    """wget2 speaks TLS to an HTTP proxy, in place of CONNECT: no such proxy is named to it."""
    command = ["wget2", "-qO-", f"--ca-certificate={files.certificate}", server.url("/page")]
    alone = runner.run(command)
    assert alone == (0, "GET /page", "")
    assert runner.lead(command) == alone
