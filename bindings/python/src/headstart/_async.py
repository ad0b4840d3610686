"""Connections by the agent, for programs with an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread

from ._wire import Deadline

if TYPE_CHECKING:
    from .agent import Agent, Connection
    from .options import Options


async def connect(
    agent: Agent,
    host: str,
    port: int,
    options: Options,
    *,
    early_data: bytes = b"",
    timeout: float | None = None,
) -> Connection:
    """Open a connection as `Agent.connect` does, in a thread; if cancelled, close its socket.

    Raises:
        HeadstartError: One of its kinds.
    """
    deadline = Deadline(timeout)
    opened: list[Connection] = []

    def open_connection() -> None:
        connection = agent._open(host, port, options, early_data, deadline)
        opened.append(connection)
        if deadline.is_abandoned:
            connection.close()

    try:
        # A limiter of its own: connections that hang do not keep others, nor look-ups, waiting.
        limiter = anyio.CapacityLimiter(1)
        await anyio.to_thread.run_sync(open_connection, abandon_on_cancel=True, limiter=limiter)
    except BaseException:
        deadline.abandon()
        for connection in opened:
            connection.close()
        raise
    return opened[0]
