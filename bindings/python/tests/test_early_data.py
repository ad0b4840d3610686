"""Early data: of requests that are marked, and of no others."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import headstart
from headstart.requests import HeadstartAdapter, facts
from headstart.urllib3 import PoolManager

from .conftest import mounted
from .serving import EarlyServer, Files, Nginx, until

if TYPE_CHECKING:
    from requests import PreparedRequest, Response


def became(response: Response) -> str | None:
    about = facts(response)
    return None if about is None else about.early_data


def test_marked_requests_are_sent_early(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited, early_data=True)) as session:
        response = session.get(nginx.url())
        assert (response.text, became(response)) == ("GET", "accepted")
        assert session.get(nginx.url()).text == "GET"


def test_a_block_marks_requests(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        assert became(session.get(nginx.url())) == "accepted"
    until("a session is kept", lambda: any(row["early_data"] for row in visited.sessions()))
    with PoolManager(agent=visited) as pools, headstart.early_data():
        about = facts(pools.request("GET", nginx.url()))
        assert about is not None
        assert about.early_data == "accepted"


def test_others_are_not(visited: headstart.Agent, nginx: Nginx) -> None:
    def at_home(request: PreparedRequest) -> bool:
        return request.path_url == "/home"

    for early_data, method, body in (
        (False, "GET", None),
        (True, "POST", "words"),
        (at_home, "GET", None),
    ):
        with mounted(HeadstartAdapter(visited, early_data=early_data)) as session:
            response = session.request(method, nginx.url(), data=body)
            assert (response.text, became(response)) == (method, "none")
    with mounted(HeadstartAdapter(visited, early_data=at_home)) as session:
        assert became(session.get(nginx.url("/home"))) == "accepted"


def test_bodies_that_cannot_be_sent_again_are_not(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        assert became(session.post(nginx.url(), data=iter([b"words"]))) == "none"


def test_without_a_session_it_is_sent_late(agent: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(agent, early_data=True)) as session:
        response = session.get(nginx.url())
    assert (response.text, became(response)) == ("GET", "none")


def test_more_than_fits_is_sent_late(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        response = session.get(nginx.url(), data="x" * 20_000)
    assert (response.text, became(response)) == ("GET", "none")


def test_a_request_that_came_too_early_is_sent_again(agent: headstart.Agent, files: Files) -> None:
    """RFC 8470 section 5.2: the same request, once before the handshake is done and once after."""
    statuses = ["200 OK", "425 Too Early", "200 OK", "425 Too Early"]
    with closing(EarlyServer(files, statuses)) as server:
        with mounted(HeadstartAdapter(agent)) as session:
            assert session.get(server.url("/first")).status_code == 200
        until("a session is kept", lambda: bool(agent.sessions()))
        assert "Early data received" not in server.said()
        with mounted(HeadstartAdapter(agent, early_data=True)) as session:
            response = session.get(server.url("/second"))
            assert (response.status_code, became(response)) == (200, "accepted")
            assert session.get(server.url("/third")).status_code == 425, "that one was not early"
        said = server.said()
    assert [said.count(f"GET /{path} ") for path in ("first", "second", "third")] == [1, 2, 1]
    assert said.count("Early data received") == 1


def test_a_policy_forbids_it(visited: headstart.Agent, nginx: Nginx) -> None:
    visited.set_policy(early_data=False)
    try:
        with mounted(HeadstartAdapter(visited, early_data=True)) as session:
            assert became(session.get(nginx.url())) == "none"
    finally:
        visited.set_policy(early_data=True)


def test_unverified_connections_send_nothing_early(visited: headstart.Agent, nginx: Nginx) -> None:
    before = len(visited.sessions())
    for _ in range(2):
        with mounted(HeadstartAdapter(visited, early_data=True)) as session:
            with pytest.warns(match="Unverified HTTPS"):
                assert became(session.get(nginx.url(), verify=False)) == "none"
        until("a session is kept", lambda: len(visited.sessions()) > before)
