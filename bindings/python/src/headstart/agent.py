"""The agent of this machine, and connections that it opens."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ._trust import check_token, check_user, prove
from ._wire import Deadline, connect_request, exchange, read_text, target
from .early import EARLY_DATA_MAX
from .errors import AgentUnavailable, NoAgent, TimedOut, Unsupported, refusal
from .facts import Facts
from .options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["Agent", "Connection"]

CALL_TIMEOUT = 10.0
"""Seconds that the agent may take to look at its memory."""

JSON_MAX = 8 << 20
"""Bytes of such an answer: a store that is full has some 2,000 rows of 300 bytes."""


class Connection:
    """A connection to a server: a stream of plain bytes, and facts about it.

    The socket keeps the timeout of the request; set your own. Unless the application protocol
    announces the end of the stream (lengths, chunks), anyone may have cut it: docs/managed.md,
    "How it ends".
    """

    sock: socket.socket
    facts: Facts

    def __init__(self, sock: socket.socket, facts: Facts) -> None:
        self.sock = sock
        self.facts = facts

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


class Agent:
    """The agent of this machine, as ``headstart agent --socket`` or ``--managed-listen`` runs it.

    Making one connects to nothing. It can be used from any thread, and by child processes.

    Args:
        path: The Unix socket; else what the environment says in ``HEADSTART_SOCKET``, else
            ``$XDG_RUNTIME_DIR/headstart.sock``, both looked up when they are needed. Its listener
            has to be this user, root, or the user with the number in ``HEADSTART_AGENT_UID``.
        port: The port of loopback instead (``--managed-listen``), with its token.
        host: The address of loopback that the port is of.
        token: The token of the port, which both sides prove to each other and neither sends:
            32 to 256 letters and digits.
        token_file: The file that has it (``--managed-token``), read whenever it is needed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if port is None and (token is not None or token_file is not None):
            raise ValueError("a token is for a port, and there is none")
        if port is not None and (path is not None or (token is None) == (token_file is None)):
            raise ValueError(
                "a port needs either a token or the file of one, and has no socket beside it"
            )
        self._path = None if path is None else os.fspath(path)
        self._address = None if port is None else (host, port)
        self._token = token
        self._token_file = None if token_file is None else os.fspath(token_file)

    def __repr__(self) -> str:
        return f"Agent({self._path or self._address or ''!r})"

    def connect(
        self,
        host: str,
        port: int = 443,
        options: Options | None = None,
        *,
        early_data: bytes = b"",
        timeout: float | None = None,
    ) -> Connection:
        """Open a connection to a server.

        The bytes in ``early_data`` may be sent early. If ``facts.early_data`` of the connection is
        ``accepted``, the server has them; otherwise send them first. See `headstart.early_data`
        for which bytes are safe to send early.

        Args:
            host: The name or the address of the server.
            port: Its port.
            options: What is asked for.
            early_data: At most 16 KiB.
            timeout: Seconds for all of it; the agent has bounds of its own.

        Raises:
            HeadstartError: One of its kinds.
        """
        connection = self._open(host, port, options or Options(), early_data, Deadline(timeout))
        connection.sock.settimeout(timeout)
        return connection

    def _open(
        self, host: str, port: int, options: Options, early_data: bytes, deadline: Deadline
    ) -> Connection:
        """Open a connection, whose socket has what is left of the deadline."""
        fields = options.fields()
        if len(early_data) > EARLY_DATA_MAX:
            raise Unsupported(f"{len(early_data)} bytes of early data", f"at most {EARLY_DATA_MAX}")
        if early_data:
            fields["Headstart-Early-Data"] = base64.b64encode(early_data).decode("ascii")
        server = target(host, port)
        sock, authorization = self._dial(deadline)
        with _closed_on_error(sock):
            request = connect_request(server, {**fields, **authorization})
            head = exchange(sock, request, deadline)
            if not 200 <= head.status < 300:
                error = head.fields.get("Headstart-Error", "")
                raise refusal(head.status, error, read_text(sock, head, deadline))
            return Connection(sock, Facts.read(head.fields))

    def sessions(self) -> list[dict[str, Any]]:
        """List the sessions of this user, without secrets, as docs/managed.md describes them."""
        return list(self._call("GET", "/sessions")["sessions"])

    def forget(self, server: str | None = None, *, context: str | None = None) -> int:
        """Forget sessions; say how many.

        Args:
            server: Of this server only; else of all, and cookies, too.
            context: Of this context only (an empty one has no label); else of all of this user.
        """
        query = {
            name: value
            for name, value in (("server", server), ("context", context))
            if value is not None
        }
        path = f"/sessions?{urlencode(query, quote_via=quote)}" if query else "/sessions"
        return int(self._call("DELETE", path)["forgotten"])

    def policy(self, context: str | None = None) -> dict[str, Any]:
        """Return the policy of a context, or of this user's connections without a label."""
        return self._call("GET", _policy_of(context))

    def set_policy(
        self,
        context: str | None = None,
        *,
        sharing: str | None = None,
        lifetime: float | None = None,
        early_data: bool | None = None,
    ) -> dict[str, Any]:
        """Set the policy of a context, and tell it; what is not said stays as it is.

        Args:
            context: The context, as for `policy`.
            sharing: ``share``, ``certificate``, ``isolate`` or ``off``, which wipes what is there.
            lifetime: Seconds that sessions live after the last full handshake.
            early_data: Whether early data is sent at all.
        """
        milliseconds = None if lifetime is None else round(lifetime * 1000)
        values = {"sharing": sharing, "lifetime_ms": milliseconds, "early_data": early_data}
        body = {name: value for name, value in values.items() if value is not None}
        return self._call("PUT", _policy_of(context), body)

    def end_context(self, context: str) -> None:
        """End a context: delete its sessions, cookies and policy for good."""
        self._call("DELETE", f"/contexts/{quote(context, safe='')}")

    @contextlib.contextmanager
    def private_context(self) -> Iterator[str]:
        """Name a context that nobody else is in, and end it at the end of the block.

        >>> with agent.private_context() as context:
        ...     session.mount("https://", HeadstartAdapter(agent, context=context))
        """
        context = f"private-{secrets.token_hex(16)}"
        try:
            yield context
        finally:
            # An agent that is gone has forgotten everything.
            with contextlib.suppress(AgentUnavailable):
                self.end_context(context)

    def _dial(self, deadline: Deadline) -> tuple[socket.socket, dict[str, str]]:
        """Connect to a listener that is the agent; return the fields that requests need there."""
        if self._address is None:
            path = self._path or _default_path()
            sock = _dial(socket.AF_UNIX, path, deadline)
            with _closed_on_error(sock):
                check_user(sock, path)
            return sock, {}
        token = self._token if self._token_file is None else _read_token(self._token_file)
        check_token(token or "")
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        sock = _dial(family, self._address, deadline)
        with _closed_on_error(sock):
            proof = prove(sock, token or "", deadline)
        return sock, {"Proxy-Authorization": f"Headstart {proof}"}

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask something that is not about a connection."""
        call = http.client.HTTPConnection("agent")
        call.sock, authorization = self._dial(Deadline(CALL_TIMEOUT))
        call.sock.settimeout(CALL_TIMEOUT)
        try:
            call.request(method, path, None if body is None else json.dumps(body), authorization)
            answer = call.getresponse()
            text = answer.read(JSON_MAX)
        except socket.timeout as error:
            raise TimedOut("the agent did not answer in time") from error
        except (OSError, http.client.HTTPException) as error:
            raise AgentUnavailable(f"the agent cannot be asked: {error!r}") from error
        finally:
            call.close()
        if answer.status != 200:
            error_name = answer.headers.get("Headstart-Error", "")
            raise refusal(answer.status, error_name, text.decode("utf-8", "replace"))
        return _object(text)


def _policy_of(context: str | None) -> str:
    return f"/policies/{quote(context or '', safe='')}"


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise NoAgent("the answer is no JSON", "is that the socket of headstart agent?") from error
    if not isinstance(value, dict):
        raise NoAgent("the answer is no object", "is that the socket of headstart agent?")
    return value


def _default_path() -> str:
    path = os.environ.get("HEADSTART_SOCKET")
    if path:
        return path
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if directory:
        return os.path.join(directory, "headstart.sock")
    raise AgentUnavailable(
        "no socket of an agent is named, and XDG_RUNTIME_DIR is not set",
        "name it in HEADSTART_SOCKET",
    )


def _dial(family: socket.AddressFamily, address: Any, deadline: Deadline) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    with _closed_on_error(sock):
        try:
            deadline.apply(sock)
            sock.connect(address)
            if family is not socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise _unreachable(address, error) from error
    return sock


@contextlib.contextmanager
def _closed_on_error(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sock.close()
        raise


def _unreachable(address: Any, error: OSError) -> AgentUnavailable:
    message = f"cannot reach an agent at {address}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        return AgentUnavailable(message, "its --socket-mode and --socket-group say who may use it")
    start = (
        f"--socket {address}"
        if isinstance(address, str)
        else "--managed-listen ADDR:PORT --managed-token FILE"
    )
    return AgentUnavailable(message, f"start one: headstart agent {start}")


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AgentUnavailable(f"cannot read the token of the agent in {path}: {error}") from error
