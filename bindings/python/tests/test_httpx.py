"""httpx with the transports: clients as ever, and what the agent adds."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

import headstart
from headstart.httpx import AsyncTransport, Transport, facts

from .serving import (
    NAME,
    PATIENCE,
    EarlyServer,
    Files,
    Nginx,
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
    from pathlib import Path

LOOPS = ("asyncio", "trio")

Fetch = Any
"""Sends requests by one client, in turn, and returns the responses."""


def _fetch(*urls: str | tuple[str, str, dict[str, Any]], **options: Any) -> list[httpx.Response]:
    with httpx.Client(transport=Transport(**options), timeout=PATIENCE) as client:
        return [client.request(method, url, **more) for method, url, more in map(_whole, urls)]


def _fetch_in(loop: str) -> Fetch:
    def fetch(*urls: str | tuple[str, str, dict[str, Any]], **options: Any) -> list[httpx.Response]:
        async def main() -> list[httpx.Response]:
            transport = AsyncTransport(**options)
            async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
                return [
                    await client.request(method, url, **more)
                    for method, url, more in map(_whole, urls)
                ]

        return anyio.run(main, backend=loop)

    return fetch


def _whole(url: str | tuple[str, str, dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    return ("GET", url, {}) if isinstance(url, str) else url


@pytest.fixture(params=["threads", *LOOPS])
def fetch(request: pytest.FixtureRequest) -> Fetch:
    return _fetch if request.param == "threads" else _fetch_in(request.param)


def facts_of(response: httpx.Response) -> headstart.Facts:
    about = facts(response)
    assert about is not None, "it did not come by the agent"
    return about


def test_a_page_and_the_facts_of_its_connection(
    fetch: Fetch, agent: headstart.Agent, server: Server
) -> None:
    before = server.connections
    page, again = fetch(server.url("/page"), server.url("/again"), agent=agent)
    assert (page.status_code, page.text, str(page.url)) == (200, "GET /page", server.url("/page"))
    about = facts_of(page)
    assert (about.opening, about.version, about.alpn) == ("plain", "TLS 1.3", "http/1.1")
    assert about.certificate is not None
    assert (again.text, facts(again)) == ("GET /again", about)
    assert server.connections == before + 1, "the connection was used again"


def test_bodies(fetch: Fetch, agent: headstart.Agent, server: Server) -> None:
    large = "0123456789" * 300_000
    chunks, echo, cookie, again = fetch(
        server.url("/chunks"),
        ("POST", server.url("/echo"), {"content": large}),
        server.url("/cookie"),
        server.url("/cookie"),
        agent=agent,
    )
    assert chunks.text == "one two three"
    assert echo.text == large
    assert (cookie.text, again.text) == ("none", "visited=1"), "a secure cookie goes to https alone"


@pytest.mark.parametrize("status", [404, 425, 503])
def test_error_codes_are_answers(
    fetch: Fetch, agent: headstart.Agent, server: Server, status: int
) -> None:
    (response,) = fetch(server.url(f"/status/{status}"), agent=agent)
    assert (response.status_code, response.text) == (status, "words")
    with pytest.raises(httpx.HTTPStatusError):
        response.raise_for_status()


def test_contexts_have_nothing_in_common(
    fetch: Fetch, agent: headstart.Agent, server: Server
) -> None:
    def resumed(**options: str) -> bool:
        return facts_of(*fetch(server.url(), agent=agent, **options)).resumed

    check_contexts(agent, resumed)


def test_roots(fetch: Fetch, agent: headstart.Agent, files: Files, tmp_path: Path) -> None:
    other = Files(tmp_path)
    with closing(Server(other)) as server:
        for roots in (True, files.certificate):
            with pytest.raises(httpx.ConnectError) as raised:
                fetch(server.url(), agent=agent, verify=roots)
            error = headstart.reason(raised.value)
            assert isinstance(error, headstart.CertificateError)
            assert str(raised.value) == str(error)
        for accepted in (other.certificate, False):
            assert fetch(server.url(), agent=agent, verify=accepted)[0].text == "GET /"


def test_another_name(fetch: Fetch, agent: headstart.Agent, files: Files) -> None:
    certificate, key = files.issue("elsewhere", "DNS:elsewhere.example")
    with closing(Server(files, names=(certificate, key))) as server:
        asked = {"agent": agent, "verify": certificate}
        with pytest.raises(httpx.ConnectError) as raised:
            fetch(server.url(), **asked)
        error = headstart.reason(raised.value)
        assert isinstance(error, headstart.CertificateError)
        assert error.error == "certificate_name"
        assert fetch(server.url(), **asked, server_name="elsewhere.example")[0].is_success
        named = {"extensions": {"sni_hostname": "elsewhere.example"}}
        assert fetch(("GET", server.url(), named), **asked)[0].is_success


def test_a_client_certificate_that_is_not_there(
    fetch: Fetch, agent: headstart.Agent, server: Server
) -> None:
    with pytest.raises(httpx.ConnectError) as raised:
        fetch(server.url(), agent=agent, client_certificate="none")
    assert isinstance(headstart.reason(raised.value), headstart.NotAllowed)


def test_fallbacks(fetch: Fetch, own_agent: RunningAgent, files: Files, server: Server) -> None:
    asked = {"agent": own_agent.agent(), "verify": files.certificate}
    assert facts(fetch(server.url(), **asked, fallback=True)[0]) is not None
    refused = f"https://localhost:{free_port()}/"
    with pytest.raises(httpx.ConnectError) as raised:
        fetch(refused, **asked, fallback=True)
    assert isinstance(headstart.reason(raised.value), headstart.ConnectFailed)
    own_agent.close()
    for is_early in (False, True):
        with headstart.early_data(is_early):
            page, again = fetch(server.url("/page"), server.url(), **asked, fallback=True)
        assert (page.text, facts(page), again.text) == ("GET /page", None, "GET /")
    for options in ({}, {"fallback": True, "client_certificate": "work"}):
        with pytest.raises(httpx.ConnectError) as raised:
            fetch(server.url(), **asked, **options)
        error = headstart.reason(raised.value)
        assert isinstance(error, headstart.AgentUnavailable)
        assert str(raised.value) == str(error)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(server.url(), agent=own_agent.agent(), fallback=True)


def test_what_cannot_be_asked_for(fetch: Fetch, agent: headstart.Agent, server: Server) -> None:
    with pytest.raises(headstart.Unsupported):
        fetch(server.url(), agent=agent, context=" a")


def test_timeouts(fetch: Fetch, agent: headstart.Agent, files: Files) -> None:
    with silent_server() as (silent, _):
        short = {"timeout": httpx.Timeout(PATIENCE, connect=0.3)}
        with pytest.raises(httpx.ConnectTimeout) as raised:
            fetch(("GET", f"https://localhost:{silent}/", short), agent=agent)
    assert isinstance(headstart.reason(raised.value), headstart.TimedOut)
    with closing(Server(files)) as server:
        short = {"timeout": httpx.Timeout(PATIENCE, read=0.3)}
        with pytest.raises(httpx.ReadTimeout):
            fetch(("GET", server.url("/slow"), short), agent=agent)


def test_plain_http_is_as_ever(fetch: Fetch, agent: headstart.Agent) -> None:
    with plain_server() as url:
        (response,) = fetch(url, agent=agent)
    assert (response.text, facts(response)) == ("plain", None)


def test_a_proxy_is_used_as_ever(
    agent: headstart.Agent,
    running: RunningAgent,
    files: Files,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = f"http://127.0.0.1:{running.listen}"
    verify = httpx.create_ssl_context()
    verify.load_verify_locations(files.certificate)
    with httpx.Client(transport=Transport(agent), proxy=proxy, verify=verify) as client:
        response = client.get(server.url("/page"))
    assert (response.text, facts(response)) == ("GET /page", None)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    with httpx.Client(transport=Transport(agent)) as client:
        assert facts(client.get(server.url("/page"))) is not None


def test_the_port_of_an_agent(fetch: Fetch, running: RunningAgent, server: Server) -> None:
    assert facts(fetch(server.url(), agent=running.agent_at_port())[0]) is not None


@pytest.mark.parametrize("loop", LOOPS)
def test_many_requests_at_once(loop: str, agent: headstart.Agent, server: Server) -> None:
    texts: dict[int, str] = {}

    async def main() -> None:
        async with httpx.AsyncClient(transport=AsyncTransport(agent), timeout=PATIENCE) as client:

            async def get(number: int) -> None:
                body = f"{number} " * 10_000
                response = await client.post(server.url("/echo"), content=body)
                texts[number] = response.text
                assert facts(response) is not None

            async with anyio.create_task_group() as tasks:
                for number in range(32):
                    tasks.start_soon(get, number)

    anyio.run(main, backend=loop)
    assert texts == {number: f"{number} " * 10_000 for number in range(32)}


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_that_hang_keep_nobody_waiting(
    loop: str, agent: headstart.Agent, server: Server
) -> None:
    """More than have threads in the pools of asyncio and anyio."""

    async def main() -> None:
        transport = AsyncTransport(agent, limits=httpx.Limits())
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE) as client:
            async with anyio.create_task_group() as tasks:
                with silent_server() as (silent, accepted):
                    for _ in range(64):
                        tasks.start_soon(client.get, f"https://localhost:{silent}/")
                    await anyio.to_thread.run_sync(lambda: until("64", lambda: accepted() >= 64))
                    assert (await client.get(server.url("/page"))).text == "GET /page"
                    tasks.cancel_scope.cancel()

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_early", [False, True])
def test_cancellation_closes_the_connection(loop: str, is_early: bool, tmp_path: Path) -> None:
    asked, closed = threading.Event(), threading.Event()

    def wait(sock: socket.socket) -> None:
        asked.set()
        sock.settimeout(PATIENCE)
        if sock.recv(1) == b"":
            closed.set()

    async def main(agent: headstart.Agent) -> None:
        async with httpx.AsyncClient(transport=AsyncTransport(agent), timeout=None) as client:
            async with anyio.create_task_group() as tasks:
                with headstart.early_data(is_early):
                    tasks.start_soon(client.get, "https://localhost/")
                assert await anyio.to_thread.run_sync(asked.wait, PATIENCE)
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(closed.wait, PATIENCE)

    with played(tmp_path, wait) as agent:
        anyio.run(main, agent, backend=loop)


def test_a_block_marks_requests(fetch: Fetch, visited: headstart.Agent, nginx: Nginx) -> None:
    with headstart.early_data():
        first, second = fetch(nginx.url(), nginx.url(), agent=visited)
    assert (first.text, facts_of(first).early_data) == ("GET", "accepted")
    assert second.text == "GET"
    until("a session is kept", lambda: any(row["early_data"] for row in visited.sessions()))
    (response,) = fetch(nginx.url(), agent=visited)
    assert facts_of(response).early_data == "none"


async def _pieces() -> Any:
    yield b"words"


@pytest.mark.parametrize("body", ["pieces", "more than fits"])
def test_others_are_sent_late(
    fetch: Fetch, visited: headstart.Agent, nginx: Nginx, body: str
) -> None:
    content: Any = "x" * 20_000
    if body == "pieces":
        content = iter([b"words"]) if fetch is _fetch else _pieces()
    with headstart.early_data():
        (response,) = fetch(("POST", nginx.url(), {"content": content}), agent=visited)
    assert (response.text, facts_of(response).early_data) == ("POST", "none")


def test_unverified_connections_send_nothing_early(
    fetch: Fetch, visited: headstart.Agent, nginx: Nginx
) -> None:
    before = len(visited.sessions())
    for _ in range(2):
        with headstart.early_data():
            (response,) = fetch(nginx.url(), agent=visited, verify=False)
        assert facts_of(response).early_data == "none"
        until("a session is kept", lambda: len(visited.sessions()) > before)


def test_without_a_session_it_is_sent_late(
    fetch: Fetch, agent: headstart.Agent, nginx: Nginx
) -> None:
    with headstart.early_data():
        (response,) = fetch(nginx.url(), agent=agent)
    assert (response.text, facts_of(response).early_data) == ("GET", "none")


def test_a_request_that_came_too_early_is_sent_again(
    fetch: Fetch, agent: headstart.Agent, files: Files
) -> None:
    """RFC 8470 section 5.2: the same request, once before the handshake is done and once after."""
    statuses = ["200 OK", "425 Too Early", "200 OK", "425 Too Early"]
    with closing(EarlyServer(files, statuses)) as server:
        assert fetch(server.url("/first"), agent=agent)[0].status_code == 200
        until("a session is kept", lambda: bool(agent.sessions()))
        with headstart.early_data():
            second, third = fetch(server.url("/second"), server.url("/third"), agent=agent)
        assert (second.status_code, facts_of(second).early_data) == (200, "accepted")
        assert third.status_code == 425, "that one was not early"
        said = server.said()
    assert [said.count(f"GET /{path} ") for path in ("first", "second", "third")] == [1, 2, 1]
    assert said.count("Early data received") == 1


def test_the_port_443(fetch: Fetch, agent: headstart.Agent) -> None:
    assert fetch(f"https://{NAME}/page", agent=agent)[0].text == "GET /page"
