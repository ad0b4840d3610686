"""urllib3 over the agent: the same pools, retries, redirects and responses, and TLS by the agent.

>>> pools = headstart.urllib3.PoolManager()
>>> response = pools.request("GET", "https://www.example.com/")
>>> facts(response).resumed
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from urllib3 import PoolManager as _PoolManager
from urllib3.connection import HTTPSConnection as _HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.connectionpool import HTTPSConnectionPool as _HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError
from urllib3.util import assert_fingerprint, resolve_cert_reqs

from . import early
from .agent import Agent
from .errors import AgentUnavailable, HeadstartError, TimedOut, TlsError, Unsupported
from .facts import Facts
from .options import Options, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from urllib3.connection import HTTPConnection
    from urllib3.response import BaseHTTPResponse, HTTPResponse

__all__ = ["HTTPSConnection", "HTTPSConnectionPool", "Managed", "PoolManager", "facts"]

_log = logging.getLogger(__name__)

_ABOUT = "_headstart"
"""What a response remembers of its connection."""

_OWN_TLS = "TLS is the agent's: see the options of headstart"
_CLIENT_CERTIFICATE = (
    "headstart agent --client-certificate NAME=FILE, and here: client_certificate=NAME"
)

_UNSUPPORTED = {
    "ssl_context": _OWN_TLS,
    "ssl_version": _OWN_TLS,
    "ssl_minimum_version": _OWN_TLS,
    "ssl_maximum_version": _OWN_TLS,
    "assert_hostname": "server_hostname is asked for and checked",
    "ca_cert_dir": "give a file of roots: ca_certs",
    "ca_cert_data": "give a file of roots: ca_certs",
    "cert_file": _CLIENT_CERTIFICATE,
    "key_file": _CLIENT_CERTIFICATE,
    "source_address": "the agent chooses it",
}
"""What a connection can be told that does not happen, and what there is instead."""


def facts(response: object) -> Facts | None:
    """Tell the facts of the connection that a response came on, of urllib3 or of requests.

    ``None``: it came on another one, by a proxy, as a fallback, or over plain HTTP.
    """
    about = getattr(getattr(response, "raw", response), _ABOUT, None)
    return about.facts if isinstance(about, _About) else None


@dataclass(frozen=True)
class _About:
    facts: Facts | None
    early: bool
    """Whether the request was sent early."""


@dataclass(frozen=True)
class Managed:
    """How the connections of a pool are asked for; the rest is in urllib3's own arguments."""

    agent: Agent = field(default_factory=Agent)
    context: str | None = None
    policy: Policy | None = None
    client_certificate: str | None = None
    fallback: bool = False
    """Whether connections without the agent are better than none."""

    fallback_roots: str | None = None
    """The roots of such connections, if there are none in urllib3's arguments."""


class HTTPSConnection(_HTTPSConnection):
    """A connection by the agent: plain HTTP on a local socket, TLS from the agent on."""

    facts: Facts | None
    """Of the connection, if there is one and it is the agent's."""

    def __init__(self, *args: Any, managed: Managed, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.facts = None
        self._managed = managed
        self._held: bytearray | None = None
        self._was_early = False

    def connect(self) -> None:
        """Have the agent open the connection."""
        self._open(b"")

    def holds_back(self) -> bool:
        """Tell whether a request opens this connection, since it may be sent early."""
        return self.is_closed and early.is_allowed() and self._is_checked()

    def request(  # type: ignore[override]  # as in urllib3
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a request, as urllib3 does; or collect it first and send it early."""
        self._was_early = False
        can_be_repeated = body is None or isinstance(body, (bytes, str))
        if not (can_be_repeated and self.holds_back()):
            super().request(method, url, body, headers, **kwargs)
            return
        self._held = bytearray()
        try:
            super().request(method, url, body, headers, **kwargs)
            if self._held is not None:
                self._release(self._held, may_be_early=True)
        finally:
            self._held = None

    def send(self, data: Any) -> None:
        """Send bytes, or hold them back until the request is whole."""
        if self._held is None:
            super().send(data)
        elif len(self._held) + len(data) <= early.EARLY_DATA_MAX:
            self._held += data
        else:
            self._release(self._held + data, may_be_early=False)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        """Read the head of the response."""
        about = _About(self.facts, self._was_early)
        response = super().getresponse()
        setattr(response, _ABOUT, about)
        return response

    def _release(self, held: bytearray, may_be_early: bool) -> None:
        """Open the connection with what was held back, and send it unless that is done by then."""
        self._held = None
        self._open(bytes(held) if may_be_early else b"")
        if self.facts is not None and self.facts.early_data == "accepted":
            self._was_early = True
        else:
            self.send(bytes(held))

    def _open(self, early_data: bytes) -> None:
        self.facts = None
        options = self._options()
        try:
            opened = self._managed.agent.connect(
                self.host, self.port, options, early_data=early_data, timeout=self.timeout
            )
        except AgentUnavailable as error:
            if self._falls_back():
                _log.info("%s: connecting without it", error)
                self._connect_ordinarily()
                return
            raise _translated(error, self) from error
        except HeadstartError as error:
            raise _translated(error, self) from error
        self.sock, self.facts = opened.sock, opened.facts
        try:
            self._check_fingerprint(opened.facts)
        except BaseException:
            self.close()
            raise
        self.is_verified = self._is_checked()
        sys.audit("http.client.connect", self, self.host, self.port)

    def _options(self) -> Options:
        for name, hint in _UNSUPPORTED.items():
            if getattr(self, name) is not None:
                raise Unsupported(f"{name} does not work with the agent", hint)
        return Options(
            context=self._managed.context,
            policy=self._managed.policy,
            verify=(self.ca_certs or True) if self._is_checked() else False,
            server_name=self.server_hostname,
            client_certificate=self._managed.client_certificate,
        )

    def _is_checked(self) -> bool:
        return bool(resolve_cert_reqs(self.cert_reqs))

    def _check_fingerprint(self, opened: Facts) -> None:
        if self.assert_fingerprint:
            assert_fingerprint(opened.certificate, self.assert_fingerprint)

    def _falls_back(self) -> bool:
        """Nobody but the agent has the client's certificate."""
        return self._managed.fallback and self._managed.client_certificate is None

    def _connect_ordinarily(self) -> None:
        given = self.ca_certs
        if self._is_checked():
            self.ca_certs = given or self._managed.fallback_roots
        try:
            super().connect()
        finally:
            self.ca_certs = given


def _translated(error: HeadstartError, connection: HTTPConnection) -> HTTPError:
    """Translate an error to urllib3's, for retries and for programs unaware of the agent."""
    if isinstance(error, TlsError):
        return SSLError(str(error))
    if isinstance(error, TimedOut):
        return ConnectTimeoutError(
            connection, f"Connection to {connection.host} timed out: {error}"
        )
    return NewConnectionError(connection, str(error))


class HTTPSConnectionPool(_HTTPSConnectionPool):
    """Connections to one host, that the agent opens."""

    ConnectionCls = HTTPSConnection

    def _validate_conn(self, conn: Any) -> None:
        """Open the connection, unless the request does."""
        if not conn.holds_back():
            super()._validate_conn(conn)

    def urlopen(self, method: str, url: str, *args: Any, **kwargs: Any) -> BaseHTTPResponse:
        """Send a request, and once more if it was sent early and came too early."""
        response = super().urlopen(method, url, *args, **kwargs)
        about = getattr(response, _ABOUT, None)
        if response.status != early.TOO_EARLY or not isinstance(about, _About) or not about.early:
            return response
        response.drain_conn()
        response.release_conn()
        with early.early_data(False):
            return super().urlopen(method, url, *args, **kwargs)


class PoolManager(_PoolManager):
    """urllib3's pool manager, with ``https`` connections by the agent.

    Of urllib3's arguments, ``cert_reqs``, ``ca_certs`` (a file), ``server_hostname`` and
    ``assert_fingerprint`` keep their meaning; without ``ca_certs`` the roots are those of the
    agent's system. Other arguments about TLS, and ``source_address``, raise
    `headstart.Unsupported` with the first request.

    Args:
        num_pools: As in urllib3.
        headers: As in urllib3.
        agent: Which agent; else that of the environment.
        context: A label within this user: servers cannot link connections of other contexts.
        policy: ``share``, ``isolate`` or ``off``.
        client_certificate: What the agent calls a certificate to be shown.
        fallback: When no agent answers, connect as urllib3 does, instead of an error. Never with a
            ``client_certificate``.
        fallback_roots: The roots (a file) of such connections, if there are no ``ca_certs``.
        connection_pool_kw: As in urllib3.
    """

    def __init__(
        self,
        num_pools: int = 10,
        headers: Mapping[str, str] | None = None,
        *,
        agent: Agent | None = None,
        context: str | None = None,
        policy: Policy | None = None,
        client_certificate: str | None = None,
        fallback: bool = False,
        fallback_roots: str | None = None,
        **connection_pool_kw: Any,
    ) -> None:
        super().__init__(num_pools, headers, **connection_pool_kw)
        self.pool_classes_by_scheme = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self._managed = Managed(
            agent or Agent(), context, policy, client_certificate, fallback, fallback_roots
        )

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        """Make a pool; urllib3 means this to be overridden."""
        if scheme == "https":
            given = self.connection_pool_kw if request_context is None else request_context
            request_context = {**given, "managed": self._managed}
        return super()._new_pool(scheme, host, port, request_context)
