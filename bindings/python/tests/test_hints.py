"""Hints, in the words of the libraries' own settings."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any, Callable

import aiohttp
import httpx
import pytest
import requests

import headstart
from headstart.aiohttp import Connector
from headstart.httpx import AsyncTransport, Transport
from headstart.requests import HeadstartAdapter
from headstart.urllib3 import PoolManager

from .serving import Files, Server, silent_server

if TYPE_CHECKING:
    from pathlib import Path

Fetch = Callable[..., Any]
"""Fetches a page by the agent; `roots` are the library's own way to name them."""


def _requests(agent: headstart.Agent, url: str, timeout: float, roots: Path | None = None) -> None:
    with requests.Session() as session:
        session.mount("https://", HeadstartAdapter(agent))
        session.get(url, timeout=timeout, verify=True if roots is None else str(roots))


def _urllib3(agent: headstart.Agent, url: str, timeout: float, roots: Path | None = None) -> None:
    with PoolManager(agent=agent, ca_certs=None if roots is None else str(roots)) as pools:
        pools.request("GET", url, timeout=timeout, retries=0)


def _httpx(agent: headstart.Agent, url: str, timeout: float, roots: Path | None = None) -> None:
    with httpx.Client(transport=Transport(agent, verify=roots or True), timeout=timeout) as client:
        client.get(url)


def _httpx_async(
    agent: headstart.Agent, url: str, timeout: float, roots: Path | None = None
) -> None:
    async def main() -> None:
        transport = AsyncTransport(agent, verify=roots or True)
        async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
            await client.get(url)

    asyncio.run(main())


def _aiohttp(agent: headstart.Agent, url: str, timeout: float, roots: Path | None = None) -> None:
    async def main() -> None:
        connector = Connector(agent, verify=roots or True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(sock_connect=timeout)
        ) as session:
            await session.get(url)

    asyncio.run(main())


@pytest.fixture(params=[_requests, _urllib3, _httpx, _httpx_async, _aiohttp])
def fetch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    fetch: Fetch = request.param
    return fetch


@pytest.fixture
def stranger(files: Files) -> Any:
    """A server whose issuer the agent does not know."""
    names = files.issue("stranger", "DNS:localhost")
    with closing(Server(files, names=names)) as server:
        yield server, names[0]


def _hint(fetch: Fetch, *arguments: Any, **more: Any) -> str:
    """Fetch in vain; return the hint, which the library's error repeats."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # each library has its own
        fetch(*arguments, **more)
    error = headstart.reason(raised.value)
    assert error is not None, raised.value
    assert error.hint is not None
    assert "Headstart-" not in error.hint
    # aiohttp has words of its own for timeouts.
    if not (isinstance(error, headstart.TimedOut) and fetch is _aiohttp):
        assert error.hint in str(raised.value)
    return error.hint


def test_an_unknown_name(fetch: Fetch, agent: headstart.Agent) -> None:
    hint = _hint(fetch, agent, "https://nowhere.invalid/", 60)
    assert "check the host name" in hint
    assert "reachable" not in hint


def test_an_untrusted_certificate(
    fetch: Fetch, agent: headstart.Agent, stranger: tuple[Server, Path]
) -> None:
    server, roots = stranger
    hint = _hint(fetch, agent, server.url(), 60)
    for setting in ("verify=", "ca_certs=", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        assert setting in hint
    fetch(agent, server.url(), 60, roots)


def test_requests_alone_takes_roots_from_the_environment(
    fetch: Fetch,
    agent: headstart.Agent,
    stranger: tuple[Server, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, roots = stranger
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    _hint(fetch, agent, server.url(), 60)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(roots))
    if fetch is _requests:
        fetch(agent, server.url(), 60)
    else:
        _hint(fetch, agent, server.url(), 60)


def test_another_name(fetch: Fetch, agent: headstart.Agent, files: Files) -> None:
    names = files.issue("other", "DNS:other.example")
    with closing(Server(files, names=names)) as server:
        hint = _hint(fetch, agent, server.url(), 60, names[0])
    assert "server_name=" in hint


def test_roots_that_cannot_be_read(agent: headstart.Agent, tmp_path: Path) -> None:
    options = headstart.Options(verify=tmp_path / "none.pem")
    with pytest.raises(headstart.BadRequest, match="name a PEM file of roots"):
        agent.connect("localhost", 443, options)


def test_no_agent(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "none"
    hint = _hint(fetch, headstart.Agent(path), "https://localhost/", 60)
    assert hint == f"start one: headstart agent --socket {path}"


def test_a_timeout(fetch: Fetch, agent: headstart.Agent) -> None:
    with silent_server() as (port, _):
        hint = _hint(fetch, agent, f"https://localhost:{port}/", 0.3)
    assert "allow a longer timeout" in hint
