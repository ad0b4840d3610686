"""Heads of HTTP/1.1, read from a socket without one byte of what the server sends after them."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from .errors import AgentUnavailable, NoAgent, TimedOut, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD_MAX = 64 * 1024
"""Bytes of the head of an answer: a certificate with ML-DSA has 7 to 17 kB, more in base64."""

TEXT_MAX = 16 * 1024
"""Bytes of a refusal in words: two lines."""

_END = b"\r\n\r\n"
_HINT = "is that the socket of headstart agent?"
_LATE = (
    "the agent has no connection in time",
    "check that the server is reachable, or allow a longer timeout to connect",
)


class Head(NamedTuple):
    """The head of an answer."""

    status: int
    fields: http.client.HTTPMessage


class Deadline:
    """When all of an exchange has to be over; ``None``: whenever it is."""

    is_abandoned = False

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout
        self._sock: socket.socket | None = None

    def apply(self, sock: socket.socket) -> None:
        """Let the next operation take what is left.

        Raises:
            TimedOut: Nothing is.
        """
        self._sock = sock
        if self.is_abandoned:
            raise TimedOut("the exchange was abandoned")
        if self._end is None:
            sock.settimeout(None)
            return
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(*_LATE)
        sock.settimeout(left)

    def abandon(self) -> None:
        """End the exchange from another thread: its socket carries nothing more."""
        self.is_abandoned = True
        if self._sock is not None:
            with contextlib.suppress(OSError):  # not connected yet, or closed
                self._sock.shutdown(socket.SHUT_RDWR)


def target(host: str, port: int) -> str:
    """Write whom a connection is for.

    Raises:
        Unsupported: A host that cannot be named there.
    """
    if not host or not host.isascii() or any(letter <= " " or letter == "\x7f" for letter in host):
        raise Unsupported(f"{host!r} is no host name", "write it in ASCII (xn--...)")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def connect_request(target: str, fields: Mapping[str, str]) -> bytes:
    """Write a request for a connection."""
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def exchange(sock: socket.socket, request: bytes, deadline: Deadline) -> Head:
    """Send a request, and read the head of its answer.

    Raises:
        AgentUnavailable: The agent breaks off before it has answered.
        NoAgent: That is no answer.
        TimedOut: It does not come in time.
    """
    try:
        deadline.apply(sock)
        _send(sock, request)
        return _parse(_read_head(sock, deadline))
    except socket.timeout as error:
        raise TimedOut(*_LATE) from error
    except OSError as error:
        raise AgentUnavailable(f"the agent broke off: {error}") from error


def read_text(sock: socket.socket, head: Head, deadline: Deadline) -> str:
    """Read the words of a refusal, as many as there are."""
    length = head.fields.get("Content-Length", "")
    left = min(int(length), TEXT_MAX) if length.isdigit() and len(length) < 10 else TEXT_MAX
    text = b""
    try:
        while left > len(text):
            deadline.apply(sock)
            more = sock.recv(left - len(text))
            if not more:
                break
            text += more
    except (OSError, TimedOut):
        pass  # the status is known, and says most of it
    return text.decode("utf-8", "replace")


def _send(sock: socket.socket, request: bytes) -> None:
    """An agent that has too many connections answers without reading, and closes."""
    # What it has said can still be read.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(request)


def _read_head(sock: socket.socket, deadline: Deadline) -> bytes:
    head = b""
    while not head.endswith(_END):
        room = HEAD_MAX - len(head)
        if room == 0:
            raise NoAgent(f"the head of the answer has more than {HEAD_MAX} bytes", _HINT)
        deadline.apply(sock)
        peeked = sock.recv(room, socket.MSG_PEEK)
        if not peeked:
            raise AgentUnavailable(
                "the agent broke off before it answered", "was it stopped? its log says more"
            )
        end = (head + peeked).find(_END)
        head += sock.recv(len(peeked) if end < 0 else end + len(_END) - len(head))
    return head


def _parse(head: bytes) -> Head:
    line, _, rest = head.partition(b"\r\n")
    words = line.split(b" ", 2)
    if (
        len(words) < 2
        or not words[0].startswith(b"HTTP/1.")
        or not words[1].isdigit()
        or len(words[1]) != 3
    ):
        raise NoAgent(f"the answer is no HTTP: {line[:40]!r}", _HINT)
    try:
        fields = http.client.parse_headers(io.BytesIO(rest))
    except http.client.HTTPException as error:
        raise NoAgent(f"the head of the answer is garbled: {error!r}", _HINT) from error
    return Head(int(words[1]), fields)
