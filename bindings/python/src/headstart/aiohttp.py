"""aiohttp over the agent: sessions as ever, and TLS by the agent.

>>> async with aiohttp.ClientSession(connector=headstart.aiohttp.Connector()) as session:
...     async with session.get("https://www.example.com/") as response:
...         print(headstart.aiohttp.facts(response).opening)
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp

from . import _async
from .agent import Agent
from .errors import (
    AgentUnavailable,
    CertificateError,
    HeadstartError,
    TimedOut,
    TlsError,
    Unsupported,
)
from .facts import Facts
from .options import Options, Policy, Verify, ordinary_roots

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

    from .agent import Connection

__all__ = ["Connector", "facts"]

_log = logging.getLogger(__name__)

_FACTS = "_headstart"
"""What a connection remembers of itself."""

_UNSUPPORTED = {
    **dict.fromkeys(("ssl", "ssl_context", "verify_ssl", "fingerprint"), "see verify="),
    **dict.fromkeys(("local_addr", "socket_factory"), "the agent connects"),
    **dict.fromkeys(("resolver", "family"), "the agent looks names up"),
}
"""What a connector can be told that does not happen, and why."""


def facts(response: aiohttp.ClientResponse) -> Facts | None:
    """Tell the facts of the connection that a response came on.

    ``None``: it came on another one, by a proxy, as a fallback, or over plain HTTP.
    """
    about = getattr(getattr(response, "_protocol", None), _FACTS, None)
    return about if isinstance(about, Facts) else None


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector, with ``https`` and ``wss`` connections by the agent.

    ``ssl=False`` of a request accepts any certificate, and ``server_hostname=`` names another
    server; other values of ``ssl`` raise `headstart.Unsupported`, and so do aiohttp's arguments
    about TLS, lookup and sockets. Requests that go to a proxy do their own TLS, as without this
    connector.

    Args:
        agent: Which agent; else that of the environment.
        context: A label within this user: servers cannot link connections of other contexts.
        policy: ``share``, ``isolate`` or ``off``.
        verify: ``True``: the roots of the agent's system; a file of roots; ``False``: no check.
        server_name: The name to send and to verify, if it is not the host of the URL.
        client_certificate: What the agent calls a certificate to be shown.
        fallback: When no agent answers, connect as aiohttp does, instead of an error. Never with a
            ``client_certificate``.
        connector: As in aiohttp: ``limit`` and others about the pool.
    """

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
        **connector: Any,
    ) -> None:
        for name in connector:
            if name in _UNSUPPORTED:
                raise Unsupported(f"{name} does not work with the agent", _UNSUPPORTED[name])
        super().__init__(ssl=ordinary_roots(verify), **connector)
        self._agent = agent or Agent()
        self._options = Options(context, policy, verify, server_name, client_certificate)
        self._falls_back = fallback and client_certificate is None

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        """Open a connection; connectors of other kinds override this, too."""
        if req.proxy or not req.is_ssl():
            return await super()._create_connection(req, traces, timeout)
        req.server_hostname = req.server_hostname or self._options.server_name
        try:
            return await self._adopt(await self._open(req, timeout.sock_connect))
        except AgentUnavailable as error:
            if not self._falls_back:
                raise _translated(error, req) from error
            _log.info("%s: connecting without it", error)
            return await super()._create_connection(req, traces, timeout)
        except Unsupported:
            raise
        except HeadstartError as error:
            raise _translated(error, req) from error

    async def _open(self, req: aiohttp.ClientRequest, timeout: float | None) -> Connection:
        if not isinstance(req.ssl, bool):
            raise Unsupported("ssl= does not work with the agent", "see verify= of the connector")
        options = replace(
            self._options,
            verify=req.ssl and self._options.verify,
            server_name=req.server_hostname,
        )
        host, port = req.url.raw_host or "", req.port or 443
        return await _async.connect(self._agent, host, port, options, timeout=timeout)

    async def _adopt(self, opened: Connection) -> ResponseHandler:
        """Make aiohttp's connection of one that is open, and without TLS."""
        is_local = opened.sock.family is socket.AF_UNIX
        create = self._loop.create_unix_connection if is_local else self._loop.create_connection
        try:
            opened.sock.setblocking(False)
            _, protocol = await create(self._factory, sock=opened.sock)
        except BaseException:
            opened.close()
            raise
        setattr(protocol, _FACTS, opened.facts)
        return protocol


def _translated(error: HeadstartError, req: aiohttp.ClientRequest) -> Exception:
    """Translate an error to aiohttp's, with the same words."""
    key, words = req.connection_key, str(error)
    if isinstance(error, TimedOut):
        return asyncio.TimeoutError(words)
    if isinstance(error, CertificateError):
        return aiohttp.ClientConnectorCertificateError(key, ssl.SSLCertVerificationError(1, words))
    if isinstance(error, TlsError):
        return aiohttp.ClientConnectorSSLError(key, ssl.SSLError(1, words))
    return aiohttp.ClientConnectorError(key, OSError(None, words))
