"""What is public of a connection."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import NoAgent

if TYPE_CHECKING:
    from http.client import HTTPMessage

__all__ = ["Facts", "Ledger"]


@dataclass(frozen=True)
class Ledger:
    """Times of events, in ms since the agent read the request; ``None`` if not known."""

    lookup: float | None = None
    """The addresses of the server were known."""

    tcp: float | None = None
    """TCP was connected."""

    tls: float | None = None
    """The handshake was done."""

    rtt: float | None = None
    """The round-trip time of the network: no moment, but a duration."""


@dataclass(frozen=True)
class Facts:
    """What the agent says about a connection. It holds for all requests of the connection."""

    opening: str
    """How it was opened: ``plain``, ``turbo`` or ``fop``."""

    resumed: bool
    """Whether a session was resumed, which this program or another one has left."""

    early_data: str
    """What became of the early data: ``none`` was sent, or it was ``accepted`` or ``refused``."""

    version: str | None = None
    """Of TLS, such as ``TLS 1.3``."""

    cipher: str | None = None
    """The cipher suite, by its name in the RFCs."""

    group: str | None = None
    """What the keys were agreed in, such as ``X25519MLKEM768``."""

    alpn: str | None = None
    """The application protocol, if one was agreed on."""

    certificate: bytes | None = field(default=None, repr=False)
    """The server's certificate (DER); of a resumed connection, that of the full handshake."""

    ledger: Ledger = field(default_factory=Ledger)
    """What it took."""

    @classmethod
    def read(cls, fields: HTTPMessage) -> Facts:
        """Read the fields of an answer.

        Raises:
            NoAgent: They are none of an agent.
        """
        opening, resumed = fields.get("Headstart-Opening"), fields.get("Headstart-Resumed")
        if opening is None or resumed not in ("0", "1"):
            raise NoAgent("the answer says nothing of the connection", "is that a headstart agent?")
        return cls(
            opening=opening,
            resumed=resumed == "1",
            early_data=fields.get("Headstart-Early-Data", "none"),
            version=fields.get("Headstart-Version"),
            cipher=fields.get("Headstart-Cipher"),
            group=fields.get("Headstart-Group"),
            alpn=fields.get("Headstart-ALPN"),
            certificate=_certificate(fields.get("Headstart-Certificate")),
            ledger=_ledger(fields.get("Headstart-Ledger", "")),
        )


def _certificate(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NoAgent("the server's certificate is garbled") from error


def _ledger(text: str) -> Ledger:
    """Whoever knows more moments than we do is understood all the same."""
    times: dict[str, float] = {}
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name in ("lookup", "tcp", "tls", "rtt"):
            try:
                times[name] = float(value)
            except ValueError as error:
                raise NoAgent(f"the ledger is garbled: {item.strip()[:40]}") from error
    return Ledger(**times)
