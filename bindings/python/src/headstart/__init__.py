"""TLS by the local headstart agent: faster connections, and sessions shared by programs.

`headstart.requests` has an adapter for requests, `headstart.urllib3` a pool manager for urllib3,
`headstart.httpx` transports for httpx, `headstart.aiohttp` a connector for aiohttp, and
`Agent.connect` returns a plain socket for anything else.
"""

from .agent import Agent, Connection
from .early import early_data
from .errors import (
    AgentUnavailable,
    AgentUntrusted,
    BadRequest,
    CertificateError,
    ConnectFailed,
    HeadstartError,
    NoAgent,
    NotAllowed,
    Overloaded,
    Refused,
    TimedOut,
    TlsError,
    Unsupported,
    reason,
)
from .facts import Facts, Ledger
from .options import Options, Policy

__all__ = [
    "Agent",
    "AgentUnavailable",
    "AgentUntrusted",
    "BadRequest",
    "CertificateError",
    "ConnectFailed",
    "Connection",
    "Facts",
    "HeadstartError",
    "Ledger",
    "NoAgent",
    "NotAllowed",
    "Options",
    "Overloaded",
    "Policy",
    "Refused",
    "TimedOut",
    "TlsError",
    "Unsupported",
    "early_data",
    "reason",
]
