"""Connections that come when nobody waits for them any longer."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

import headstart
from headstart import _async

from .serving import PATIENCE, until


class Opener(headstart.Agent):
    """An agent that opens a connection when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_open, self.has_opened = (threading.Event() for _ in range(3))
        self.sock, self._other = socket.socketpair()

    def _open(self, *_: object) -> headstart.Connection:
        self.is_asked.set()
        assert self.may_open.wait(PATIENCE)
        self.has_opened.set()
        return headstart.Connection(self.sock, headstart.Facts("plain", False, "none"))

    def close(self) -> None:
        self._other.close()
        until("the connection is closed", lambda: self.sock.fileno() == -1)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_connection_that_comes_too_late_is_closed(is_open: bool) -> None:
    agent = Opener()

    async def main() -> None:
        opening = asyncio.ensure_future(
            _async.connect(agent, "localhost", 443, headstart.Options())
        )
        while not agent.is_asked.is_set():
            await asyncio.sleep(0)
        if is_open:
            agent.may_open.set()
            agent.has_opened.wait(PATIENCE)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        agent.may_open.set()

    asyncio.run(main())
    agent.close()
