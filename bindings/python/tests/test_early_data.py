"""Early data: of requests that are marked, and of no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headstart
from headstart.requests import HeadstartAdapter, facts
from headstart.urllib3 import PoolManager

from .conftest import mounted
from .serving import Nginx, until

if TYPE_CHECKING:
    from requests import PreparedRequest, Response


@pytest.fixture
def visited(agent: headstart.Agent, nginx: Nginx) -> headstart.Agent:
    """An agent that has sessions of the server, which allow early data."""
    with mounted(HeadstartAdapter(agent)) as session:
        assert session.get(nginx.url()).text == "GET early="
    until("a session is kept", lambda: any(row["early_data"] for row in agent.sessions()))
    return agent


def became(response: Response) -> str | None:
    about = facts(response)
    return None if about is None else about.early_data


def test_marked_requests_are_sent_early(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited, early_data=True)) as session:
        response = session.get(nginx.url())
        assert (response.text, became(response)) == ("GET early=1", "accepted")
        assert session.get(nginx.url()).text == "GET early=", "the second one on the connection"


def test_a_block_marks_requests(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        assert session.get(nginx.url()).text == "GET early=1"
    until("a session is kept", lambda: any(row["early_data"] for row in visited.sessions()))
    with PoolManager(agent=visited) as pools, headstart.early_data():
        assert pools.request("GET", nginx.url()).data == b"GET early=1"


def test_others_are_not(visited: headstart.Agent, nginx: Nginx) -> None:
    def at_home(request: PreparedRequest) -> bool:
        return request.path_url == "/home"

    for early_data, method, body in ((False, "GET", None), (True, "POST", "words"), (at_home, "GET", None)):
        with mounted(HeadstartAdapter(visited, early_data=early_data)) as session:
            response = session.request(method, nginx.url(), data=body)
            assert (response.text, became(response)) == (f"{method} early=", "none")
    with mounted(HeadstartAdapter(visited, early_data=at_home)) as session:
        assert became(session.get(nginx.url("/home"))) == "accepted"


def test_bodies_that_cannot_be_sent_again_are_not(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        assert became(session.post(nginx.url(), data=iter([b"words"]))) == "none"


def test_without_a_session_it_is_sent_late(agent: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(agent, early_data=True)) as session:
        response = session.get(nginx.url())
    assert (response.text, became(response)) == ("GET early=", "none")


def test_more_than_fits_is_sent_late(visited: headstart.Agent, nginx: Nginx) -> None:
    with mounted(HeadstartAdapter(visited)) as session, headstart.early_data():
        response = session.get(nginx.url(), data="x" * 20_000)
    assert (response.text, became(response)) == ("GET early=", "none")


def test_a_request_that_came_too_early_is_sent_again(visited: headstart.Agent, nginx: Nginx) -> None:
    """RFC 8470 section 5.2."""
    with mounted(HeadstartAdapter(visited, early_data=True)) as session:
        response = session.get(nginx.url("/never"))
    assert (response.status_code, response.text) == (200, "late")


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
