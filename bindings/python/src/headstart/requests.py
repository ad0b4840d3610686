"""requests over the agent: sessions as ever, and TLS by the agent.

>>> session = requests.Session()
>>> session.mount("https://", headstart.requests.HeadstartAdapter())
>>> response = session.get("https://www.example.com/")
>>> headstart.requests.facts(response).opening
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Callable, Union

from requests import PreparedRequest, Response
from requests.adapters import DEFAULT_POOLBLOCK, DEFAULT_POOLSIZE, DEFAULT_RETRIES, HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from . import early
from .urllib3 import HTTPSConnectionPool, PoolManager, facts

if TYPE_CHECKING:
    from urllib3 import Retry

    from .agent import Agent
    from .options import Policy

__all__ = ["EarlyData", "HeadstartAdapter", "facts"]

EarlyData = Union[bool, Callable[[PreparedRequest], bool]]
"""``True``: GET, HEAD and OPTIONS without a body may be sent early; a function decides itself."""

_SAFE = ("GET", "HEAD", "OPTIONS")


class HeadstartAdapter(HTTPAdapter):
    """Transport for ``https://`` over TLS by the agent; one pool of connections for each host.

    ``verify`` and ``timeout`` mean what they mean in requests: ``verify=True`` uses the roots of
    the agent's system, a path is a file of roots, ``False`` accepts any certificate. ``cert``
    raises `headstart.Unsupported`: certificates are configured in the agent. Requests that go to a
    proxy do their own TLS, as without this adapter.

    Args:
        agent: Which agent; else that of the environment.
        context: A label within this user: servers cannot link connections of other contexts.
        policy: ``share``, ``isolate`` or ``off``.
        client_certificate: What the agent calls a certificate to be shown.
        server_name: The name to send and to verify, if it is not the host of the URL.
        early_data: Which requests may be sent early; see `headstart.early_data`.
        fallback: When no agent answers, connect as requests does, instead of an error. Never with a
            ``client_certificate``.
        pool_connections: As in requests.
        pool_maxsize: As in requests.
        max_retries: As in requests.
        pool_block: As in requests.
    """

    # A list, as in requests.
    __attrs__ = [*HTTPAdapter.__attrs__, "_managed", "_server_name", "_early_data"]  # noqa: RUF012

    def __init__(
        self,
        agent: Agent | None = None,
        *,
        context: str | None = None,
        policy: Policy | None = None,
        client_certificate: str | None = None,
        server_name: str | None = None,
        early_data: EarlyData = False,
        fallback: bool = False,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        max_retries: int | Retry = DEFAULT_RETRIES,
        pool_block: bool = DEFAULT_POOLBLOCK,
    ) -> None:
        self._managed: dict[str, Any] = {
            "agent": agent,
            "context": context,
            "policy": policy,
            "client_certificate": client_certificate,
            "fallback": fallback,
        }
        self._server_name = server_name
        self._early_data = early_data
        super().__init__(pool_connections, pool_maxsize, max_retries, pool_block)

    def init_poolmanager(
        self, connections: int, maxsize: int, block: bool = DEFAULT_POOLBLOCK, **pool_kwargs: Any
    ) -> None:
        """Make the pool manager."""
        self._pool_connections = connections
        self._pool_maxsize = maxsize
        self._pool_block = block
        if self._server_name is not None:
            pool_kwargs["server_hostname"] = self._server_name
        self.poolmanager = PoolManager(
            num_pools=connections,
            maxsize=maxsize,
            block=block,
            fallback_roots=DEFAULT_CA_BUNDLE_PATH,
            **self._managed,
            **pool_kwargs,
        )

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Leave pools of the agent as they were made: requests would give them its own roots."""
        if not isinstance(conn, HTTPSConnectionPool):
            super().cert_verify(conn, url, verify, cert)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Send a request, early if it is marked so."""
        with early.early_data() if self._is_marked(request) else nullcontext():
            return super().send(request, stream, timeout, verify, cert, proxies)

    def _is_marked(self, request: PreparedRequest) -> bool:
        if callable(self._early_data):
            return self._early_data(request)
        return self._early_data and request.method in _SAFE and request.body is None
