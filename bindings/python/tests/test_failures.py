"""What is not there, does not answer, or is no agent."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
import requests
import urllib3
from urllib3.exceptions import MaxRetryError

import headstart
from headstart.requests import HeadstartAdapter, facts
from headstart.urllib3 import PoolManager

from .conftest import mounted
from .serving import (
    Files,
    RunningAgent,
    Server,
    free_port,
    plain_server,
    played,
    silent_server,
)

if TYPE_CHECKING:
    from pathlib import Path

GRANTED = b"HTTP/1.1 200 OK\r\nheadstart-opening: plain\r\nheadstart-resumed: 0\r\n\r\n"


def test_without_an_agent_there_is_an_error(tmp_path: Path) -> None:
    agent = headstart.Agent(tmp_path / "none")
    with (
        mounted(HeadstartAdapter(agent)) as session,
        pytest.raises(requests.exceptions.ConnectionError) as raised,
    ):
        session.get("https://localhost/")
    error = headstart.reason(raised.value)
    assert isinstance(error, headstart.AgentUnavailable)
    assert error.hint == f"start one: headstart agent --socket {tmp_path / 'none'}"
    with pytest.raises(MaxRetryError) as raised_by_urllib3:
        PoolManager(agent=agent).request("GET", "https://localhost/", retries=0)
    assert isinstance(headstart.reason(raised_by_urllib3.value), headstart.AgentUnavailable)


def test_a_fallback_is_an_ordinary_request(
    own_agent: RunningAgent, files: Files, server: Server
) -> None:
    adapter = HeadstartAdapter(own_agent.agent(), fallback=True)
    with mounted(adapter) as session:
        session.verify = str(files.certificate)
        assert facts(session.get(server.url("/last"))) is not None
        own_agent.close()
        response = session.get(server.url("/page"))
        assert response.text == "GET /page"
        assert facts(response) is None
        session.verify = True
        with pytest.raises(requests.exceptions.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            session.get(server.url("/page"))
    with PoolManager(
        agent=own_agent.agent(), fallback=True, ca_certs=str(files.certificate)
    ) as pools:
        assert pools.request("GET", server.url("/page")).data == b"GET /page"


def test_a_fallback_is_never_without_the_certificate(
    tmp_path: Path, files: Files, server: Server
) -> None:
    adapter = HeadstartAdapter(
        headstart.Agent(tmp_path / "none"), fallback=True, client_certificate="work"
    )
    with mounted(adapter) as session, pytest.raises(requests.exceptions.ConnectionError) as raised:
        session.get(server.url(), verify=str(files.certificate))
    assert isinstance(headstart.reason(raised.value), headstart.AgentUnavailable)


def test_a_fallback_is_not_for_what_the_agent_refuses(agent: headstart.Agent) -> None:
    url = f"https://localhost:{free_port()}/"
    with mounted(HeadstartAdapter(agent, fallback=True)) as session:
        with pytest.raises(requests.exceptions.ConnectionError) as raised:
            session.get(url)
    error = headstart.reason(raised.value)
    assert isinstance(error, headstart.ConnectFailed)
    assert (error.status, error.error) == (502, "refused")


def test_the_environment_names_the_socket(
    running: RunningAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = headstart.Agent()
    monkeypatch.delenv("HEADSTART_SOCKET", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(headstart.AgentUnavailable, match="name it in HEADSTART_SOCKET"):
        agent.sessions()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "headstart.sock").symlink_to(running.path)
    agent.sessions()
    monkeypatch.setenv("HEADSTART_SOCKET", str(tmp_path / "other"))
    with pytest.raises(headstart.AgentUnavailable, match=r"cannot reach an agent at .*other"):
        agent.sessions()


def test_a_server_that_does_not_answer(agent: headstart.Agent) -> None:
    with silent_server() as (silent, _), mounted(HeadstartAdapter(agent)) as session:
        with pytest.raises(requests.exceptions.ConnectTimeout) as raised:
            session.get(f"https://localhost:{silent}/", timeout=(0.3, 60))
    assert isinstance(headstart.reason(raised.value), headstart.TimedOut)


def test_a_server_without_tls(agent: headstart.Agent) -> None:
    with plain_server() as url, mounted(HeadstartAdapter(agent)) as session:
        with pytest.raises(requests.exceptions.SSLError) as raised:
            session.get(url.replace("http:", "https:"))
    error = headstart.reason(raised.value)
    assert isinstance(error, headstart.TlsError)
    assert error.error == "tls"


def test_retries_are_those_of_urllib3(tmp_path: Path) -> None:
    adapter = HeadstartAdapter(
        headstart.Agent(tmp_path / "none"), max_retries=urllib3.Retry(connect=2)
    )
    with mounted(adapter) as session, pytest.raises(requests.exceptions.ConnectionError) as raised:
        session.get("https://localhost/")
    assert isinstance(raised.value.args[0], MaxRetryError)


@pytest.mark.parametrize(
    ("answered", "kind", "words"),
    [
        (b"", headstart.AgentUnavailable, "broke off before it answered"),
        (
            b"HTTP/1.1 200 OK\r\nheadstart-op",
            headstart.AgentUnavailable,
            "broke off before it answered",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", headstart.NoAgent, "no HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", headstart.NoAgent, "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n", headstart.NoAgent, "says nothing of the connection"),
        (GRANTED[:-2] + b"headstart-ledger: tls=x\r\n\r\n", headstart.NoAgent, "ledger is garbled"),
        (
            GRANTED[:-2] + b"headstart-certificate: *\r\n\r\n",
            headstart.NoAgent,
            "certificate is garbled",
        ),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * (1 << 16), headstart.NoAgent, "more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", headstart.NoAgent, "garbled"),
        (
            b"HTTP/1.1 500 No\r\n\r\nwords\nhint: more words\n",
            headstart.Refused,
            r"words \(hint: more words\)",
        ),
        (b"HTTP/1.1 418 No\r\n\r\n", headstart.Refused, "the agent answers 418"),
    ],
)
def test_what_is_no_answer(
    tmp_path: Path, answered: bytes, kind: type[Exception], words: str
) -> None:
    with played(tmp_path, answered) as agent, pytest.raises(kind, match=words):
        agent.connect("localhost", timeout=60)


def test_an_answer_that_trickles_in(tmp_path: Path) -> None:
    """The bytes behind the head are the server's, whether they come with it or later."""

    def bytewise(sock: socket.socket) -> None:
        for byte in GRANTED + b"first words":
            sock.sendall(bytes([byte]))

    for play in (bytewise, lambda sock: sock.sendall(GRANTED + b"first words")):
        with played(tmp_path, play) as agent, agent.connect("localhost", timeout=60) as connection:
            with connection.sock.makefile("rb") as words:
                assert words.read() == b"first words"


def test_a_trickle_does_not_prolong_the_deadline(tmp_path: Path) -> None:
    over = threading.Event()

    def drip(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.02):
                sock.sendall(b"x")

    with played(tmp_path, drip) as agent:
        with pytest.raises(headstart.TimedOut):
            agent.connect("localhost", timeout=0.5)
        over.set()


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("a b", headstart.Options()),
        ("", headstart.Options()),
        ("a\r\nx: y", headstart.Options()),
        ("b\u00fccher.example", headstart.Options()),
        ("localhost", headstart.Options(context="a\r\nHeadstart-Verify: none")),
        ("localhost", headstart.Options(context=" a")),
        ("localhost", headstart.Options(server_name="")),
        ("localhost", headstart.Options(alpn=("h2\n",))),
    ],
)
def test_nothing_is_smuggled_into_a_request(
    running: RunningAgent, host: str, options: headstart.Options
) -> None:
    with pytest.raises(headstart.Unsupported):
        running.agent().connect(host, 443, options)
