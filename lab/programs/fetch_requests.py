# requests; where an agent is named, through its socket: then the agent speaks TLS
# (docs/managed.md).
import os
import socket
import sys
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

AGENT = os.environ.get("HEADSTART_SOCKET")


def managed(host, port):
    """A stream of plain bytes to a host, over TLS of the agent."""
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(AGENT)
    fields = [
        f"CONNECT {host}:{port} HTTP/1.1",
        f"Host: {host}:{port}",
        "Headstart-TLS: managed",
        "Headstart-ALPN: http/1.1",
        f"Headstart-Context: {os.environ['HEADSTART_CONTEXT']}",
    ]
    stream.sendall(("\r\n".join(fields) + "\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        if not byte:
            raise OSError("the agent has hung up")
        head += byte
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(head.decode())
    return stream


class Connection(HTTPConnection):
    def _new_conn(self):
        return managed(self.host, self.port)


class Pool(HTTPConnectionPool):
    ConnectionCls = Connection


class Managed(HTTPAdapter):
    def get_connection(self, url, proxies=None):
        parts = urlsplit(url)
        return Pool(parts.hostname, parts.port or 443)

    def get_connection_with_tls_context(self, request, verify, proxies=None, cert=None):
        return self.get_connection(request.url)

    def cert_verify(self, conn, url, verify, cert):
        """The agent checks the certificate."""


def adapter():
    """That of the package, where it is installed: it alone sends early data."""
    try:
        from headstart.requests import HeadstartAdapter
    except ImportError:
        return Managed()
    early = "HEADSTART_EARLY" in os.environ
    return HeadstartAdapter(context=os.environ["HEADSTART_CONTEXT"], early_data=early)


session = requests.Session()
if AGENT:
    session.mount("https://", adapter())
answer = session.get(sys.argv[1], timeout=30)
answer.raise_for_status()
sys.stdout.buffer.write(answer.content)
