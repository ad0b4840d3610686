"""httpx over the agent: clients as ever, and TLS by the agent.

>>> client = httpx.Client(transport=headstart.httpx.Transport())
>>> response = client.get("https://www.example.com/")
>>> headstart.httpx.facts(response).opening
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio.abc
import httpcore
import httpx
from httpcore._backends.anyio import AnyIOStream
from httpcore._backends.sync import SyncStream

from . import _async, early
from .agent import Agent
from .errors import AgentUnavailable, HeadstartError, TimedOut, Unsupported
from .options import Options, Policy, Verify, ordinary_roots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .agent import Connection
    from .facts import Facts

__all__ = ["AsyncTransport", "Transport", "facts"]

_log = logging.getLogger(__name__)

_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)
"""Those of httpx."""

_TLS = (b"https", b"wss")


def facts(response: httpx.Response) -> Facts | None:
    """Tell the facts of the connection that a response came on.

    ``None``: it came on another one, by a proxy, as a fallback, or over plain HTTP.
    """
    stream = response.extensions.get("network_stream")
    return stream.facts if isinstance(stream, _Opening) else None


@dataclass(frozen=True)
class _Managed:
    """How the connections of a pool are asked for."""

    agent: Agent
    options: Options
    fallback: bool


class _Opening:
    """What a stream is asked for with, and what is written before it is open."""

    facts: Facts | None = None
    was_early = False
    """Whether the request at hand was sent early."""

    _held: bytes | None = None
    """What may be sent early; ``None``: nothing, or the stream is open."""

    def __init__(self, managed: _Managed, host: str, port: int) -> None:
        self._managed = managed
        self._server = (host, port)
        self._stream: Any = None

    def get_extra_info(self, info: str) -> Any:
        """Tell what the socket knows. There is no ``ssl_object``, so httpcore speaks HTTP/1.1."""
        return None if self._stream is None else self._stream.get_extra_info(info)

    def _plan(self, ssl_context: ssl.SSLContext, name: str | None, timeout: float | None) -> None:
        """Note what `_open` needs, and whether it waits for a request."""
        name = self._managed.options.server_name or name
        server_name = None if name == self._server[0] else name
        self._options = replace(self._managed.options, server_name=server_name)
        self._ordinary_tls = (ssl_context, name, timeout)
        self._timeout = timeout
        if early.is_allowed() and self._options.verify is not False:
            self._held = b""

    def _arguments(self) -> tuple[bytes, dict[str, Any]]:
        """Take what is held, and tell what the agent is asked; more than fits is sent late."""
        held, self._held = self._held or b"", None
        host, port = self._server
        return held, {
            "host": host,
            "port": port,
            "options": self._options,
            "early_data": held if len(held) <= early.EARLY_DATA_MAX else b"",
            "timeout": self._timeout,
        }

    def _note(self, opened: Connection) -> None:
        self.facts = opened.facts
        self.was_early = opened.facts.early_data == "accepted"

    def _check_fallback(self, error: AgentUnavailable) -> None:
        if not self._managed.fallback:
            raise error
        _log.info("%s: connecting without it", error)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate errors to those that httpx expects of its pools, with the same words."""
    try:
        yield
    except Unsupported:
        raise
    except TimedOut as error:
        raise httpcore.ConnectTimeout(str(error)) from error
    except HeadstartError as error:
        raise httpcore.ConnectError(str(error)) from error


class _Stream(_Opening, httpcore.NetworkStream):
    """A connection that the agent opens, in `start_tls` or before the first read."""

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        self._plan(ssl_context, server_hostname, timeout)
        if self._held is None:
            self._open()
        return self

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held is not None:
            self._open()
        data: bytes = self._stream.read(max_bytes, timeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.was_early = False
        if self._held is None:
            self._stream.write(buffer, timeout)
            return
        self._held += buffer
        if len(self._held) > early.EARLY_DATA_MAX:
            self._open()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _open(self) -> None:
        held, arguments = self._arguments()
        with _translated():
            try:
                opened = self._managed.agent.connect(**arguments)
                self._stream = SyncStream(opened.sock)
                self._note(opened)
            except AgentUnavailable as error:
                self._check_fallback(error)
                tcp = httpcore.SyncBackend().connect_tcp(*self._server, self._timeout)
                self._stream = tcp.start_tls(*self._ordinary_tls)
        if held and not self.was_early:
            self._stream.write(held, self._timeout)


class _AsyncStream(_Opening, httpcore.AsyncNetworkStream):
    """The same for a program with an event loop."""

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self._plan(ssl_context, server_hostname, timeout)
        if self._held is None:
            await self._open()
        return self

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held is not None:
            await self._open()
        data: bytes = await self._stream.read(max_bytes, timeout)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.was_early = False
        if self._held is None:
            await self._stream.write(buffer, timeout)
            return
        self._held += buffer
        if len(self._held) > early.EARLY_DATA_MAX:
            await self._open()

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    async def _open(self) -> None:
        held, arguments = self._arguments()
        with _translated():
            try:
                opened = await _async.connect(self._managed.agent, **arguments)
                self._stream = await _wrapped(opened)
                self._note(opened)
            except AgentUnavailable as error:
                self._check_fallback(error)
                tcp = await httpcore.AnyIOBackend().connect_tcp(*self._server, self._timeout)
                self._stream = await tcp.start_tls(*self._ordinary_tls)
        if held and not self.was_early:
            await self._stream.write(held, self._timeout)


async def _wrapped(opened: Connection) -> AnyIOStream:
    try:
        return AnyIOStream(await anyio.abc.SocketStream.from_socket(opened.sock))
    except BaseException:
        opened.close()
        raise


@dataclass(frozen=True)
class _Backend(httpcore.NetworkBackend):
    managed: _Managed

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> _Stream:
        """Wait for `start_tls`, which knows the name to verify."""
        return _Stream(self.managed, host, port)


@dataclass(frozen=True)
class _AsyncBackend(httpcore.AsyncNetworkBackend):
    managed: _Managed

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> _AsyncStream:
        return _AsyncStream(self.managed, host, port)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class _Pool(httpcore.ConnectionPool):
    def __init__(self, managed: _Managed, **options: Any) -> None:
        super().__init__(**options)
        self._arguments = _connection_arguments(_Backend(managed), options)

    def create_connection(self, origin: httpcore.Origin) -> httpcore.ConnectionInterface:
        if origin.scheme in _TLS:
            return httpcore.HTTPConnection(origin, **self._arguments)
        return super().create_connection(origin)


class _AsyncPool(httpcore.AsyncConnectionPool):
    def __init__(self, managed: _Managed, **options: Any) -> None:
        super().__init__(**options)
        self._arguments = _connection_arguments(_AsyncBackend(managed), options)

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        if origin.scheme in _TLS:
            return httpcore.AsyncHTTPConnection(origin, **self._arguments)
        return super().create_connection(origin)


def _connection_arguments(backend: object, options: dict[str, Any]) -> dict[str, Any]:
    shared = {name: options[name] for name in ("ssl_context", "keepalive_expiry", "retries")}
    return {**shared, "network_backend": backend}


class _Configured:
    """What both transports are made with."""

    _pool: Any
    _pool_class: Any

    def __init__(
        self,
        agent: Agent | None = None,
        *,
        context: str | None = None,
        policy: Policy | None = None,
        verify: Verify = True,
        server_name: str | None = None,
        client_certificate: str | None = None,
        fallback: bool = False,
        limits: httpx.Limits = _LIMITS,
        retries: int = 0,
    ) -> None:
        options = Options(context, policy, verify, server_name, client_certificate)
        falls_back = fallback and client_certificate is None
        # That of httpx has roots, which take long to read: without a fallback it does no TLS.
        ssl_context = (
            httpx.create_ssl_context(ordinary_roots(verify))
            if falls_back
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        # Instead of the pool that httpx would make.
        self._pool = self._pool_class(
            _Managed(agent or Agent(), options, falls_back),
            ssl_context=ssl_context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            retries=retries,
        )


class Transport(_Configured, httpx.HTTPTransport):
    """Transport of an `httpx.Client`, with ``https`` connections by the agent.

    A client heeds ``verify``, ``cert``, ``http2``, ``limits`` and the proxies of the environment
    only without a transport: the options are here.

    Args:
        agent: Which agent; else that of the environment.
        context: A label within this user: servers cannot link connections of other contexts.
        policy: ``share``, ``isolate`` or ``off``.
        verify: ``True``: the roots of the agent's system; a file of roots; ``False``: no check.
        server_name: The name to send and to verify, if it is not the host of the URL.
        client_certificate: What the agent calls a certificate to be shown.
        fallback: When no agent answers, connect as httpx does, instead of an error. Never with a
            ``client_certificate``.
        limits: As in httpx.
        retries: As in httpx.
    """

    _pool_class = _Pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and once more if it was sent early and came too early."""
        with early.early_data(_may_be_early(request)):
            response = super().handle_request(request)
        if not _came_too_early(response):
            return response
        response.read()
        with early.early_data(False):
            return super().handle_request(request)


class AsyncTransport(_Configured, httpx.AsyncHTTPTransport):
    """Transport of an `httpx.AsyncClient`, with asyncio or trio, as `Transport` is."""

    _pool_class = _AsyncPool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and once more if it was sent early and came too early."""
        with early.early_data(_may_be_early(request)):
            response = await super().handle_async_request(request)
        if not _came_too_early(response):
            return response
        await response.aread()
        with early.early_data(False):
            return await super().handle_async_request(request)


def _may_be_early(request: httpx.Request) -> bool:
    """Only what is marked, and can be sent again."""
    return early.is_allowed() and isinstance(request.stream, httpx.ByteStream)


def _came_too_early(response: httpx.Response) -> bool:
    stream = response.extensions.get("network_stream")
    is_early = isinstance(stream, _Opening) and stream.was_early
    return is_early and response.status_code == early.TOO_EARLY
