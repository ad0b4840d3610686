"""The agent itself: its port, plain sockets, sessions and policies."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import headstart
from headstart.requests import HeadstartAdapter, facts

from .conftest import mounted
from .serving import RunningAgent, Server, until

ROOT = Path(__file__).parents[3]

TOKEN = "0123456789abcdef0123456789abcdef"


def get(
    agent: headstart.Agent, server: Server, options: headstart.Options | None = None
) -> headstart.Facts:
    with agent.connect("localhost", server.port, options, timeout=60) as connection:
        connection.sock.sendall(b"GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with connection.sock.makefile("rb") as answer:
            assert answer.read().endswith(b"\r\n\r\nlast")
        return connection.facts


def test_a_plain_socket(agent: headstart.Agent, server: Server) -> None:
    assert get(agent, server).version == "TLS 1.3"
    until("a session is kept", lambda: bool(agent.sessions()))
    assert get(agent, server).resumed
    assert get(agent, server, headstart.Options(alpn=())).alpn is None


def test_addresses_as_hosts(agent: headstart.Agent, server: Server) -> None:
    with agent.connect("127.0.0.1", server.port, timeout=60) as connection:
        assert connection.facts.alpn == "http/1.1"
    with pytest.raises(headstart.ConnectFailed):
        agent.connect("::1", server.port, timeout=60)


def test_the_port_wants_a_proof_of_its_token(
    own_agent: RunningAgent, server: Server, tmp_path: Path
) -> None:
    port, at_port = own_agent.port, own_agent.agent_at_port()
    token = own_agent.token.read_text().strip()
    for agent in (at_port, headstart.Agent(port=port, token=token)):
        assert isinstance(agent.sessions(), list)
        with mounted(HeadstartAdapter(agent)) as session:
            assert facts(session.get(server.url())) is not None
    wrong = headstart.Agent(port=port, token=TOKEN)
    for ask in (wrong.sessions, lambda: wrong.connect("localhost", server.port)):
        with pytest.raises(headstart.AgentUntrusted, match="does not prove"):
            ask()
    assert TOKEN not in repr(wrong)
    own_agent.close()
    with pytest.raises(headstart.AgentUnavailable, match="--managed-listen"):
        at_port.sessions()
    with pytest.raises(headstart.AgentUnavailable, match="cannot read the token"):
        headstart.Agent(port=port, token_file=tmp_path / "none").connect("localhost")


def test_an_agent_has_one_address() -> None:
    for arguments in ({"token": "x"}, {"port": 1}, {"port": 1, "token": "x", "token_file": "y"}):
        with pytest.raises(ValueError, match="token"):
            headstart.Agent(**arguments)
    with pytest.raises(ValueError, match="no socket beside it"):
        headstart.Agent("/socket", port=1, token="x")


def test_sessions_are_listed_and_forgotten(agent: headstart.Agent, server: Server) -> None:
    get(agent, server, headstart.Options(context="a b/c"))
    until("a session is kept", lambda: bool(agent.sessions()))
    (row,) = agent.sessions()
    assert (row["server"], row["context"], row["alpn"]) == ("localhost", "a b/c", ["http/1.1"])
    assert agent.forget("other.example") == 0
    assert agent.forget(context="") == 0
    assert agent.forget("localhost", context="a b/c") >= 1
    assert agent.sessions() == []


def test_policies(agent: headstart.Agent, server: Server) -> None:
    set_to = agent.set_policy("a b/c", sharing="off", lifetime=60, early_data=False)
    assert (set_to["sharing"], set_to["lifetime_ms"], set_to["early_data"]) == (
        "off",
        60_000,
        False,
    )
    assert agent.policy("a b/c") == set_to
    get(agent, server, headstart.Options(context="a b/c"))
    assert agent.sessions() == []
    with pytest.raises(headstart.BadRequest) as raised:
        agent.set_policy("a b/c", sharing="sometimes")
    assert raised.value.hint is not None
    agent.end_context("a b/c")
    assert agent.policy("a b/c")["sharing"] == "share"


def test_errors_can_be_pickled() -> None:
    error = headstart.CertificateError("it has expired", "renew it", 502, "certificate_expired")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.error) == (
        "it has expired (hint: renew it)",
        502,
        "certificate_expired",
    )
    assert headstart.reason(ValueError("nothing")) is None
    assert headstart.reason(None) is None


def test_the_version_is_that_of_the_workspace() -> None:
    versions = [
        re.search(r'^version = "(.*?)"', (ROOT / name).read_text(), re.MULTILINE)
        for name in ("Cargo.toml", "bindings/python/pyproject.toml")
    ]
    found = [version.group(1) for version in versions if version]
    assert len(found) == 2
    assert found[0] == found[1]
