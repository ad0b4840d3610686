"""Who may be taken for the agent: it sees every plain byte."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from ._wire import exchange
from .errors import AgentUntrusted, refusal

if TYPE_CHECKING:
    from ._wire import Deadline

AGENT_UID = "HEADSTART_AGENT_UID"
"""Variable that names a user whose agent is trusted, beside this user and root."""

NONCE_BYTES = 32
"""Random bytes of a nonce; on the wire it has two hexadecimal digits for each."""

OVERFLOW_UID = 65534
"""Initial value of kernel.overflowuid."""

_TOKEN = re.compile(r"[!-~]{32,256}")
"""A token as the agent takes it: anyone can guess a shorter one."""

_OVERLOADED = 503
"""Status of a refusal for want of room, which an agent sends instead of a proof."""

_TOO_MANY = (
    "there are too many connections to the agent\n"
    "hint: close some, or start the agent with a larger --max-connections"
)

_HEX = re.compile(r"[0-9a-f]{64}")
_CREDENTIALS = struct.Struct("iII")


def check_user(sock: socket.socket, path: str) -> None:
    """Check that the listener of a Unix socket is root, this user, or the one of the environment.

    Raises:
        AgentUntrusted: It is another user.
    """
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(peer)
    if is_trusted(uid):
        return
    raise AgentUntrusted(
        f"the listener at {path} is not trusted: it is user {uid}, neither this user nor root",
        "run the agent as this user or root, in this user namespace"
        if _is_anyone(uid)
        else f"if the agent runs as that user, say so: {AGENT_UID}={uid}",
    )


def is_trusted(uid: int) -> bool:
    """Tell whether whoever listens as this user may be taken for the agent."""
    named = os.environ.get(AGENT_UID, "")
    is_known = uid in (0, os.geteuid()) or (named.isdecimal() and uid == int(named))
    return is_known and not _is_anyone(uid)


def _is_anyone(uid: int) -> bool:
    """The kernel shows users that do not exist in this user namespace as one."""
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        overflow = OVERFLOW_UID
    return uid in (OVERFLOW_UID, overflow)


def check_token(token: str) -> None:
    """Check that not anyone could prove this token.

    Raises:
        AgentUntrusted: It is too short, too long, or no token.
    """
    if _TOKEN.fullmatch(token):
        return
    raise AgentUntrusted(
        "no listener is trusted: anyone could prove what is given as the token",
        "a token has 32 to 256 letters and digits: is the file of it empty?",
    )


def prove(sock: socket.socket, token: str, deadline: Deadline) -> str:
    """Have the listener of a port prove that it has the token; return this side's proof.

    Nothing that the listener could use is sent to it: docs/managed.md, "The port".

    Raises:
        AgentUntrusted: It does not have the token, or relays the proof of an agent that has.
        Overloaded: It says so, and may be anyone.
    """
    ours = secrets.token_hex(NONCE_BYTES)
    request = f"GET /proof HTTP/1.1\r\nHost: agent\r\nHeadstart-Nonce: {ours}\r\n\r\n"
    head = exchange(sock, request.encode(), deadline)
    if head.status == _OVERLOADED:
        raise refusal(_OVERLOADED, "overloaded", _TOO_MANY)
    theirs = head.fields.get("Headstart-Nonce", "")
    shown = head.fields.get("Headstart-Proof", "")
    ends = (_address(sock.getsockname()), _address(sock.getpeername()))
    is_whole = head.status == 200 and _HEX.fullmatch(theirs) and _HEX.fullmatch(shown)
    if not is_whole or not hmac.compare_digest(shown, proof(token, "agent", ours, theirs, *ends)):
        raise AgentUntrusted(
            f"the listener at {ends[1]} is not trusted: it does not prove that it has the token",
            "is this its token? a port that is forwarded, or of another network namespace, "
            "proves nothing: use the Unix socket",
        )
    return proof(token, "client", ours, theirs, *ends)


def proof(token: str, side: str, ours: str, theirs: str, client: str, agent: str) -> str:
    """Make the proof of one side: a MAC of both nonces and of the connection's addresses."""
    text = f"headstart-proof {side}\n{ours}\n{theirs}\n{client}\n{agent}\n"
    return hmac.new(token.encode(), text.encode(), "sha256").hexdigest()


def _address(end: tuple[str, int]) -> str:
    """Write an address as both ends do: an IPv4 address of an IPv6 socket as IPv4."""
    ip = ipaddress.ip_address(end[0].partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    return f"[{ip}]:{end[1]}" if ip.version == 6 else f"{ip}:{end[1]}"
