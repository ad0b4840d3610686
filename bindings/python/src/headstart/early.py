"""What may be sent before the handshake is done."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["early_data"]

EARLY_DATA_MAX = 16 * 1024
"""Bytes that the agent takes as early data (docs/managed.md)."""

TOO_EARLY = 425
"""The server wants the request again, and not early (RFC 8470 section 5.2)."""

_allowed: ContextVar[bool] = ContextVar("headstart_early_data", default=False)


@contextmanager
def early_data(allowed: bool = True) -> Iterator[None]:
    """Mark the requests of a block as safe to send early, with a new connection's first bytes.

    **Anyone on the path can replay an early request** (RFC 8446 section 8), so mark only requests
    that may arrive twice: most GETs (RFC 8470). Requests whose body is a file or an iterable are
    never sent early, nor are those of other threads that the block starts.

    >>> with headstart.early_data():
    ...     session.get("https://www.example.com/")
    """
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def is_allowed() -> bool:
    """Whether the request at hand is marked."""
    return _allowed.get()
