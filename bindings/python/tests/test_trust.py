"""Who is not taken for the agent, and what such listeners are sent."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headstart
from headstart._trust import is_trusted, proof

from .serving import RunningAgent

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]

TOKEN = "0123456789abcdef0123456789abcdef"

OTHER = 54_321
"""A user that owns nothing else."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def test_proofs_are_those_of_the_vectors() -> None:
    text = (ROOT / "docs/vectors/port_proofs.txt").read_text(encoding="ascii")
    blocks = text.split("\n\n")[1:]
    assert len(blocks) >= 3
    for block in blocks:
        values = dict(line.split(" = ") for line in block.splitlines())
        nonces = (values["client_nonce"], values["agent_nonce"])
        ends = [_canonical(values[end]) for end in ("client", "agent")]
        for side in ("agent", "client"):
            made = proof(values["token"], side, *nonces, *ends)
            assert made == values[f"{side}_proof"], values["note"]


def _canonical(end: str) -> str:
    return end.replace("[::ffff:127.0.0.1]", "127.0.0.1")


def test_a_listener_of_the_port_that_proves_nothing_is_sent_nothing() -> None:
    made_up = f"headstart-nonce: {'0' * 64}\r\nheadstart-proof: {'0' * 64}\r\n"
    for fields in ("", made_up, "headstart-nonce: x\r\nheadstart-proof: \r\n"):
        answer = f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode()
        with listening(answer) as (port, heard):
            agent = headstart.Agent(port=port, token=TOKEN)
            with pytest.raises(headstart.AgentUntrusted, match="does not prove") as raised:
                agent.connect("a.example", early_data=b"secret")
            assert raised.value.hint is not None
            with pytest.raises(headstart.AgentUntrusted, match="does not prove"):
                agent.sessions()
        assert len(heard) == 2
        for request in heard:
            assert request.startswith(b"GET /proof HTTP/1.1\r\n")
            for secret in (TOKEN.encode(), b"uthorization", b"a.example", b"Early-Data"):
                assert secret not in request


def test_a_listener_cannot_prove_a_token_that_anyone_could_guess(tmp_path: Path) -> None:
    empty = tmp_path / "token"
    empty.write_text("")
    with listening(b"") as (port, heard):
        for agent in (
            headstart.Agent(port=port, token=""),
            headstart.Agent(port=port, token="guessed-by-a-person"),
            headstart.Agent(port=port, token_file=empty),
        ):
            for ask in (agent.sessions, lambda agent=agent: agent.connect("a.example")):
                with pytest.raises(headstart.AgentUntrusted, match="32 to 256"):
                    ask()
    assert heard == []


def test_words_before_the_proof_are_not_the_agents() -> None:
    text = b"\r\nheadstart-error: certificate\r\ncontent-length: 9\r\n\r\nrun this\n"
    for status in (201, 302, 407, 500, 502, 504):
        with listening(b"HTTP/1.1 %d No" % status + text) as (port, _):
            with pytest.raises(headstart.AgentUntrusted, match="does not prove"):
                headstart.Agent(port=port, token=TOKEN).sessions()
    with listening(b"HTTP/1.1 503 No" + text) as (port, _):
        with pytest.raises(headstart.Overloaded, match="too many connections") as raised:
            headstart.Agent(port=port, token=TOKEN).sessions()
    assert "run this" not in str(raised.value)


def test_a_relayed_proof_of_the_agent_is_not_believed(running: RunningAgent) -> None:
    with listening(running.port) as (relay, heard):
        with pytest.raises(headstart.AgentUntrusted, match="does not prove"):
            headstart.Agent(port=relay, token_file=running.token).sessions()
    assert [b"/sessions" in request for request in heard] == [False]
    running.agent_at_port().sessions()


@as_root
def test_a_socket_of_another_user_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    os.chown(directory, OTHER, OTHER)
    path = directory / "headstart.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        _listen_as(OTHER, listener)
        agent = headstart.Agent(path)
        monkeypatch.delenv("HEADSTART_AGENT_UID", raising=False)
        for ask in (lambda: agent.connect("a.example", early_data=b"secret"), agent.sessions):
            with pytest.raises(headstart.AgentUntrusted, match=f"it is user {OTHER}") as raised:
                ask()
            assert f"HEADSTART_AGENT_UID={OTHER}" in (raised.value.hint or "")
            with listener.accept()[0] as accepted:
                assert accepted.recv(1) == b""
        monkeypatch.setenv("HEADSTART_AGENT_UID", str(OTHER))
        with pytest.raises(headstart.TimedOut):
            agent.connect("a.example", timeout=2)
        with listener.accept()[0] as accepted:
            assert accepted.recv(64).startswith(b"CONNECT a.example:443")


def _listen_as(user: int, listener: socket.socket) -> None:
    """The user of a listener is the one that has called listen(2)."""
    script = f"import os, socket; os.setuid({user}); socket.socket(fileno=0).listen()"
    subprocess.run([sys.executable, "-c", script], stdin=listener.fileno(), check=True)


def test_the_overflow_uid_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for uid in (0, 65534, 1000):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        monkeypatch.setenv("HEADSTART_AGENT_UID", "65534")
        assert not is_trusted(65534)
        assert is_trusted(0)
        assert is_trusted(uid) == (uid != 65534)
        for named, trusted in (("1001", True), ("", False), ("x", False), ("-1001", False)):
            monkeypatch.setenv("HEADSTART_AGENT_UID", named)
            assert is_trusted(1001) == trusted


@contextlib.contextmanager
def listening(answer: bytes | int) -> Iterator[tuple[int, list[bytes]]]:
    """A port that answers all requests so, or has an agent's port answer; and what it hears."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock:
                    heard.append(sock.recv(65536))
                    sock.sendall(answer if isinstance(answer, bytes) else _asked(answer, heard[-1]))
                    while more := sock.recv(65536):
                        heard[-1] += more

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield int(listener.getsockname()[1]), heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _asked(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as agent:
        agent.sendall(request)
        return agent.recv(65536)
