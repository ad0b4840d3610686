"""One agent and one server for tests that only read; tests that change state start their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

import headstart
from headstart.requests import HeadstartAdapter

from .serving import NAME, Files, Nginx, RunningAgent, Server, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("files")
    directory.chmod(0o755)
    return Files(directory)


@pytest.fixture(scope="session")
def server(files: Files) -> Iterator[Server]:
    server = Server(files)
    yield server
    server.close()


@pytest.fixture(scope="session")
def nginx(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    nginx = Nginx(tmp_path_factory.mktemp("nginx"), files)
    yield nginx
    nginx.close()


@pytest.fixture(scope="session")
def running(
    files: Files, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningAgent]:
    """Its system's roots are the test's, and www.example.com is the test's server."""
    edge = f"{NAME}=127.0.0.1:{server.port}"
    directory = tmp_path_factory.mktemp("agent")
    running = RunningAgent(
        directory, ["--edge", edge, "--opening", "plain"], roots=files.certificate
    )
    yield running
    running.close()


@pytest.fixture
def agent(running: RunningAgent) -> headstart.Agent:
    """The agent, with nothing left of other tests."""
    agent = running.agent()
    agent.forget()
    return agent


@pytest.fixture
def own_agent(files: Files, tmp_path: Path) -> Iterator[RunningAgent]:
    """An agent that may be stopped."""
    running = RunningAgent(tmp_path, roots=files.certificate)
    yield running
    running.close()


@pytest.fixture
def session(agent: headstart.Agent) -> Iterator[requests.Session]:
    with mounted(HeadstartAdapter(agent)) as session:
        yield session


@pytest.fixture
def visited(agent: headstart.Agent, nginx: Nginx) -> headstart.Agent:
    """An agent that has sessions of the server, which allow early data."""
    with mounted(HeadstartAdapter(agent)) as session:
        assert session.get(nginx.url()).text == "GET"
    until("a session is kept", lambda: any(row["early_data"] for row in agent.sessions()))
    return agent


def mounted(adapter: HeadstartAdapter) -> requests.Session:
    """A session whose environment does not matter."""
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", adapter)
    return session
