"""What can go wrong, each with a hint of what to do about it."""

from __future__ import annotations

__all__ = [
    "AgentUnavailable",
    "AgentUntrusted",
    "BadRequest",
    "CertificateError",
    "ConnectFailed",
    "HeadstartError",
    "NoAgent",
    "NotAllowed",
    "Overloaded",
    "Refused",
    "TimedOut",
    "TlsError",
    "Unsupported",
    "reason",
]


class HeadstartError(Exception):
    """Anything that goes wrong between a program, the agent and a server."""

    message: str
    """What went wrong, without the hint."""

    hint: str | None
    """What to do about it, if anybody knows."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class AgentUnavailable(HeadstartError):
    """No agent answers, so nothing has been sent to a server but early data."""


class AgentUntrusted(AgentUnavailable):
    """Whoever listens may not be the agent, and was sent nothing.

    On a Unix socket its user is not trusted, on a port it does not prove that it has the token.
    """


class NoAgent(HeadstartError):
    """Something answers that is no agent, or one of another version."""


class Unsupported(HeadstartError, ValueError):
    """Something is asked for that the agent cannot do, so it is not even asked."""


class TimedOut(HeadstartError):
    """The agent, or the server behind it, did not answer in time."""


class Refused(HeadstartError):
    """The agent says no."""

    status: int
    """The status of HTTP."""

    error: str
    """What it is about (``Headstart-Error``); empty if the agent does not say."""

    def __init__(self, message: str, hint: str | None, status: int, error: str) -> None:
        super().__init__(message, hint)
        self.args = (message, hint, status, error)
        self.status = status
        self.error = error


class BadRequest(Refused):
    """The agent does not take the request: 400, 404, 405, 409, 413 and 431."""


class NotAllowed(Refused):
    """This user may not, or has not proved the token: 403 and 407."""


class Overloaded(Refused):
    """This user has too many connections: 503."""


class ConnectFailed(Refused):
    """No connection to the server: it has no address, or refuses, or cannot be reached."""


class TlsError(Refused):
    """The handshake failed."""


class CertificateError(TlsError):
    """The certificate of the server is not to be believed."""


_BY_STATUS: dict[int, type[Refused]] = {
    400: BadRequest,
    403: NotAllowed,
    404: BadRequest,
    405: BadRequest,
    407: NotAllowed,
    409: BadRequest,
    413: BadRequest,
    431: BadRequest,
    503: Overloaded,
}

_HINTS = {
    "name": "check the host name: the agent asks the DNS servers of its machine, or its --resolver",
    "roots": "name a PEM file of roots that the agent can read",
    "certificate_name": "check the host name, or name the one of the certificate: server_name= "
    "(urllib3: server_hostname=)",
    "certificate_untrusted": "if you know its issuer, name a PEM file of the issuer's certificate: "
    "verify= (urllib3: ca_certs=; requests: also REQUESTS_CA_BUNDLE), or SSL_CERT_FILE in the "
    "agent's environment",
    "token": "name the file of the agent's --managed-token: Agent(port=, token_file=)",
    "timed_out": "check that the server is reachable; the agent waits as long as its "
    "--connect-timeout, and the program as long as its own timeout",
}
"""Hints by ``Headstart-Error``; the agent's own are for programs that write header fields."""


def refusal(status: int, error: str, text: str) -> HeadstartError:
    """Make an error of an answer: of its status, its ``Headstart-Error``, and its body."""
    message, _, hint = text.strip().partition("\nhint: ")
    message = message.strip() or f"the agent answers {status}"
    hint = _HINTS.get(error, hint)
    if status == 504:
        return TimedOut(message, hint or None)
    return _class_of(status, error)(message, hint or None, status, error)


def _class_of(status: int, error: str) -> type[Refused]:
    if error.startswith("certificate") and status == 502:
        return CertificateError
    if status == 502:
        return TlsError if error == "tls" else ConnectFailed
    return _BY_STATUS.get(status, Refused)


def reason(error: BaseException | None) -> HeadstartError | None:
    """The error of this package behind one of an HTTP library, if there is one.

    >>> try:
    ...     session.get("https://expired.example/")
    ... except requests.exceptions.SSLError as error:
    ...     print(headstart.reason(error).hint)
    """
    seen: set[int] = set()
    left: list[object] = [error]
    while left:
        candidate = left.pop(0)
        if isinstance(candidate, HeadstartError):
            return candidate
        if not isinstance(candidate, BaseException) or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        left += [candidate.__cause__, candidate.__context__]
        left += [getattr(candidate, "reason", None), *candidate.args]
    return None
