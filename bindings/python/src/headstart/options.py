"""How a connection is asked for."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Literal, Union

from .errors import Unsupported

__all__ = ["Options", "Policy", "Verify"]

Policy = Literal["share", "isolate", "off"]
"""``share`` sessions with other connections, ``isolate`` from them, or turn sessions ``off``."""

Verify = Union[bool, str, "os.PathLike[str]"]
"""``True``: the roots of the system; ``False``: anybody; else the path of a PEM file of roots."""


@dataclass(frozen=True)
class Options:
    """What a connection is asked for with."""

    context: str | None = None
    """A label within this user: servers cannot link connections of different contexts."""

    policy: Policy | None = None
    """For this connection: stricter than that of the context, and never laxer."""

    verify: Verify = True
    """Whose word is taken for the name of the server."""

    server_name: str | None = None
    """The name to ask for and to check the certificate for, if it is not the host."""

    client_certificate: str | None = None
    """The agent's name of a certificate to show (its ``--client-certificate NAME=FILE``)."""

    alpn: tuple[str, ...] = ("http/1.1",)
    """Application protocols, the best first."""

    def fields(self) -> dict[str, str]:
        """Write the fields of a request.

        Raises:
            Unsupported: Something that no field can hold.
        """
        values = {
            "Headstart-ALPN": ", ".join(self.alpn) or None,
            "Headstart-Context": self.context,
            "Headstart-Policy": self.policy,
            "Headstart-Server-Name": self.server_name,
            "Headstart-Verify": _verify(self.verify),
            "Headstart-Client-Certificate": self.client_certificate,
        }
        fields = {"Headstart-TLS": "managed"}
        fields.update(
            (name, _checked(name, value)) for name, value in values.items() if value is not None
        )
        return fields


def ordinary_roots(verify: Verify) -> bool | ssl.SSLContext:
    """Say the same to a library that does TLS itself; ``True``: the roots that it has anyway."""
    return verify if isinstance(verify, bool) else ssl.create_default_context(cafile=verify)


def _verify(verify: Verify) -> str | None:
    if verify is True:
        return None
    return "none" if verify is False else os.path.abspath(os.path.expanduser(verify))


def _checked(name: str, value: str) -> str:
    """A line break would be another field, and spaces at the ends do not arrive."""
    if (
        not value
        or value != value.strip()
        or any(ord(letter) < 0x20 or letter == "\x7f" for letter in value)
    ):
        raise Unsupported(
            f"{name} cannot be {value!r}", "no control characters, and no spaces at the ends"
        )
    return value
