"""aiohttp with the connector: sessions as ever, and what the agent adds."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

import headstart
from headstart.aiohttp import Connector, facts

from .serving import (
    NAME,
    PATIENCE,
    Files,
    RunningAgent,
    Server,
    check_contexts,
    free_port,
    plain_server,
    played,
    silent_server,
    until,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

LONG = aiohttp.ClientTimeout(PATIENCE)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * PATIENCE))


@contextlib.asynccontextmanager
async def connected(agent: headstart.Agent, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=Connector(agent, **options), timeout=LONG
    ) as session:
        yield session


async def fetch(
    session: aiohttp.ClientSession, url: str, method: str = "GET", **arguments: Any
) -> tuple[str, headstart.Facts | None]:
    async with session.request(method, url, **arguments) as response:
        text = await response.text()
        assert response.connection is None, "it is back in the pool"
        return text, facts(response)


def fetch_alone(
    url: str, agent: headstart.Agent, *, ssl: Any = True, **options: Any
) -> tuple[str, headstart.Facts | None]:
    async def main() -> tuple[str, headstart.Facts | None]:
        async with connected(agent, **options) as session:
            return await fetch(session, url, ssl=ssl)

    return asyncio.run(main())


def test_a_page_and_the_facts_of_its_connection(agent: headstart.Agent, server: Server) -> None:
    async def main() -> None:
        before = server.connections
        async with connected(agent) as session:
            async with session.get(server.url("/page")) as response:
                assert (response.status, await response.text()) == (200, "GET /page")
                assert (response.url.scheme, str(response.url)) == ("https", server.url("/page"))
                about = facts(response)
            assert about is not None
            assert (about.opening, about.version, about.alpn) == ("plain", "TLS 1.3", "http/1.1")
            assert about.certificate is not None
            assert await fetch(session, server.url("/again")) == ("GET /again", about)
        assert server.connections == before + 1, "the connection was used again"

    run(main())


def test_bodies_redirects_and_cookies(agent: headstart.Agent, server: Server) -> None:
    async def main() -> None:
        async with connected(agent) as session:
            large = "0123456789" * 300_000
            body = io.BytesIO(large.encode())
            assert (await fetch(session, server.url("/echo"), "POST", data=body))[0] == large
            assert (await fetch(session, server.url("/chunks")))[0] == "one two three"
            redirect = server.url(f"/redirect/https://{NAME}/redirect//page")
            async with session.get(redirect) as response:
                assert (await response.text(), str(response.url)) == (
                    "GET /page",
                    f"https://{NAME}/page",
                )
            assert (await fetch(session, server.url("/cookie")))[0] == "none"
            assert (await fetch(session, server.url("/cookie")))[0] == "visited=1", (
                "a secure cookie goes to https alone"
            )

    run(main())


@pytest.mark.parametrize("status", [404, 425, 503])
def test_error_codes_are_answers(agent: headstart.Agent, server: Server, status: int) -> None:
    async def main() -> None:
        async with connected(agent) as session:
            async with session.get(server.url(f"/status/{status}")) as response:
                assert (response.status, await response.text()) == (status, "words")
                with pytest.raises(aiohttp.ClientResponseError):
                    response.raise_for_status()

    run(main())


def test_contexts_have_nothing_in_common(agent: headstart.Agent, server: Server) -> None:
    def resumed(**options: Any) -> bool:
        about = fetch_alone(server.url(), agent, **options)[1]
        assert about is not None
        return about.resumed

    check_contexts(agent, resumed)


def test_roots(agent: headstart.Agent, files: Files, tmp_path: Path) -> None:
    other = Files(tmp_path)
    with closing(Server(other)) as server:
        for roots in (True, files.certificate):
            with pytest.raises(aiohttp.ClientConnectorCertificateError) as raised:
                fetch_alone(server.url(), agent, verify=roots)
            error = headstart.reason(raised.value)
            assert isinstance(error, headstart.CertificateError)
            assert str(error) in str(raised.value)
        for roots, checked in ((other.certificate, True), (False, True), (True, False)):
            text, about = fetch_alone(server.url(), agent, verify=roots, ssl=checked)
            assert (text, about is None) == ("GET /", False)


def test_another_name(agent: headstart.Agent, files: Files) -> None:
    certificate, key = files.issue("elsewhere", "DNS:elsewhere.example")
    with closing(Server(files, names=(certificate, key))) as server:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            fetch_alone(server.url(), agent, verify=certificate)
        named = {"verify": certificate, "server_name": "elsewhere.example"}
        assert fetch_alone(server.url(), agent, **named)[1] is not None

        async def main() -> None:
            async with connected(agent, verify=certificate) as session:
                name = "elsewhere.example"
                text, _ = await fetch(session, server.url(), server_hostname=name)
                assert text == "GET /"

        run(main())


def test_fallbacks(own_agent: RunningAgent, files: Files, server: Server) -> None:
    asked: dict[str, Any] = {"agent": own_agent.agent(), "verify": files.certificate}
    assert fetch_alone(server.url(), **asked, fallback=True)[1] is not None
    with pytest.raises(aiohttp.ClientConnectorError) as raised:
        fetch_alone(f"https://localhost:{free_port()}/", **asked, fallback=True)
    assert isinstance(headstart.reason(raised.value), headstart.ConnectFailed)
    own_agent.close()
    assert fetch_alone(server.url(), **asked, fallback=True) == ("GET /", None)
    refused: list[dict[str, Any]] = [{}, {"fallback": True, "client_certificate": "work"}]
    for options in refused:
        with pytest.raises(aiohttp.ClientConnectorError) as raised:
            fetch_alone(server.url(), **asked, **options)
        error = headstart.reason(raised.value)
        assert isinstance(error, headstart.AgentUnavailable)
        assert str(error) in str(raised.value)
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        fetch_alone(server.url(), own_agent.agent(), fallback=True)
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        fetch_alone(server.url(), **asked, fallback=True, server_name="elsewhere.example")


@pytest.mark.parametrize("name", ["ssl", "fingerprint", "resolver", "family", "local_addr"])
def test_what_cannot_be_heeded_is_refused(agent: headstart.Agent, name: str) -> None:
    given: dict[str, Any] = {name: None}
    with pytest.raises(headstart.Unsupported, match=name):
        Connector(agent, **given)


def test_what_cannot_be_asked_for(agent: headstart.Agent, server: Server) -> None:
    with pytest.raises(headstart.Unsupported):
        fetch_alone(server.url(), agent, context=" a")
    for given in (ssl.create_default_context(), aiohttp.Fingerprint(b"0" * 32)):
        with pytest.raises(headstart.Unsupported, match="verify="):
            fetch_alone(server.url(), agent, ssl=given)


def test_a_server_without_tls(agent: headstart.Agent) -> None:
    with plain_server() as url, pytest.raises(aiohttp.ClientConnectorSSLError) as raised:
        fetch_alone(url.replace("http:", "https:"), agent)
    assert isinstance(headstart.reason(raised.value), headstart.TlsError)


def test_timeouts(agent: headstart.Agent, files: Files) -> None:
    async def main() -> None:
        async with connected(agent) as session:
            with silent_server() as (silent, _):
                connect = aiohttp.ClientTimeout(PATIENCE, sock_connect=0.3)
                with pytest.raises(aiohttp.ServerTimeoutError) as raised:
                    await fetch(session, f"https://localhost:{silent}/", timeout=connect)
                assert isinstance(headstart.reason(raised.value), headstart.TimedOut)
            with closing(Server(files)) as server:
                with pytest.raises(asyncio.TimeoutError):
                    await fetch(session, server.url("/slow"), timeout=aiohttp.ClientTimeout(0.3))

    run(main())


def test_plain_http_is_as_ever(agent: headstart.Agent) -> None:
    with plain_server() as url:
        assert fetch_alone(url, agent) == ("plain", None)


def test_a_proxy_is_used_as_ever(
    agent: headstart.Agent, running: RunningAgent, files: Files, server: Server
) -> None:
    async def main() -> None:
        proxy = f"http://127.0.0.1:{running.listen}"
        async with connected(agent, verify=files.certificate) as session:
            assert await fetch(session, server.url(), proxy=proxy) == ("GET /", None)

    run(main())
    assert agent.sessions() == [], "its TLS is its own"


def test_the_port_of_an_agent(running: RunningAgent, server: Server) -> None:
    assert fetch_alone(server.url(), running.agent_at_port())[1] is not None


def test_web_sockets(agent: headstart.Agent, server: Server) -> None:
    async def main() -> None:
        async with connected(agent) as session:
            async with session.ws_connect(server.url("/socket").replace("https", "wss")) as sock:
                await sock.send_bytes(b"words")
                assert await sock.receive_bytes() == b"words"

    run(main())
    until("a session is kept", lambda: bool(agent.sessions()))


def test_many_requests_at_once(agent: headstart.Agent, server: Server) -> None:
    async def main() -> None:
        bodies = [f"{number} " * 10_000 for number in range(32)]
        async with connected(agent) as session:
            answers = await asyncio.gather(
                *(fetch(session, server.url("/echo"), "POST", data=body) for body in bodies)
            )
        assert [text for text, _ in answers] == bodies
        assert None not in [about for _, about in answers]

    run(main())


def test_connections_that_hang_keep_nobody_waiting(agent: headstart.Agent, server: Server) -> None:
    """More than have threads in the pools of asyncio and anyio."""

    async def main() -> None:
        async with connected(agent) as session:
            with silent_server() as (silent, accepted):
                url = f"https://localhost:{silent}/"
                hanging = [asyncio.ensure_future(fetch(session, url)) for _ in range(64)]
                await asyncio.to_thread(until, "64", lambda: accepted() >= 64)
                assert (await fetch(session, server.url("/page")))[0] == "GET /page"
                for task in hanging:
                    task.cancel()
                await asyncio.wait(hanging)

    run(main())


def test_cancellation_closes_the_connection(tmp_path: Path) -> None:
    asked, closed = threading.Event(), threading.Event()

    def wait(sock: socket.socket) -> None:
        asked.set()
        sock.settimeout(PATIENCE)
        if sock.recv(1) == b"":
            closed.set()

    async def main() -> None:
        async with connected(agent) as session:
            request = asyncio.ensure_future(fetch(session, "https://localhost/"))
            assert await asyncio.to_thread(asked.wait, PATIENCE)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert await asyncio.to_thread(closed.wait, PATIENCE)

    with played(tmp_path, wait) as agent:
        run(main())
