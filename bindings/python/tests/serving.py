"""Servers and agents, as processes and threads of their own."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import headstart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATIENCE = 60.0
"""Seconds, longer than anything here takes."""

NAME = "www.example.com"
"""Whom the certificates are for, beside localhost."""


def binary() -> Path:
    """Find the command: it is never skipped."""
    named = os.environ.get("HEADSTART_BINARY")
    path = Path(named) if named else Path(__file__).parents[3] / "target/debug/headstart"
    assert path.exists(), (
        f"{path} is not there: cargo build -p headstart, or name it in HEADSTART_BINARY"
    )
    return path.resolve()


def until(what: str, happened: Callable[[], bool]) -> None:
    """Wait for what happens soon."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.02)


def check_contexts(agent: headstart.Agent, resumed: Callable[..., bool]) -> None:
    """Check that contexts have nothing in common; `resumed` tells of a connection with options."""
    assert not resumed(context="work")
    until("a session is kept", lambda: bool(agent.sessions()))
    assert not resumed(context="home")
    assert not resumed(context="work", policy="isolate")
    assert resumed(context="work")
    assert {row["context"] for row in agent.sessions()} == {"work", "home"}


def free_port() -> int:
    """A port that nobody listens on: the kernel gives them out in turn."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Files:
    """Certificates in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate, self.key = self.issue(
            "server", "DNS:localhost", f"DNS:{NAME}", "IP:127.0.0.1"
        )

    def issue(self, name: str, *names: str, days: int = 2) -> tuple[Path, Path]:
        """Make a certificate that vouches for itself, and its key."""
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-subj", f"/CN={name}"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-days", str(days)]
        command += ["-keyout", str(key), "-out", str(certificate)]
        command += ["-addext", f"subjectAltName={','.join(names)}"]
        subprocess.run(command, check=True, capture_output=True)
        key.chmod(0o600)
        certificate.chmod(0o644)
        return certificate, key


class RunningAgent:
    """`headstart agent` with a socket and a port."""

    def __init__(
        self, directory: Path, arguments: Sequence[str] = (), roots: Path | None = None
    ) -> None:
        self.path = directory / "agent.sock"
        self.token = directory / "token"
        self.listen, self.port = free_port(), free_port()
        self._log = directory / "agent.log"
        command = [str(binary()), "agent", "--listen", f"127.0.0.1:{self.listen}"]
        command += ["--socket", str(self.path), "--managed-listen", f"127.0.0.1:{self.port}"]
        command += ["--managed-token", str(self.token)]
        environment = {"HEADSTART_LOG": "debug"}
        if roots is not None:
            environment["SSL_CERT_FILE"] = str(roots)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until("the agent is ready", self._is_ready)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(headstart.AgentUnavailable):
            headstart.Agent(self.path).sessions()
            return True
        return False

    def log(self) -> str:
        return self._log.read_text()

    def agent(self) -> headstart.Agent:
        return headstart.Agent(self.path)

    def agent_at_port(self) -> headstart.Agent:
        return headstart.Agent(port=self.port, token_file=self.token)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Handler(BaseHTTPRequestHandler):
    """Pages about the request."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path))
        page = self.path.partition("?")[0].strip("/").partition("/")[0]
        getattr(self, f"page_{page}", self.page)()

    do_HEAD = do_POST = do_GET

    def page(self) -> None:
        self.answer(200, f"{self.command} {self.path}")

    def page_echo(self) -> None:
        self.answer(200, self.body().decode())

    def page_redirect(self) -> None:
        """To what is behind the path."""
        self.answer(302, "", {"Location": self.path[len("/redirect/") :]})

    def page_cookie(self) -> None:
        cookie = self.headers.get("Cookie", "none")
        self.answer(200, cookie, {"Set-Cookie": "visited=1; Secure; HttpOnly"})

    def page_status(self) -> None:
        """That behind the path."""
        self.answer(int(self.path.rpartition("/")[2]), "words")

    def page_last(self) -> None:
        self.answer(200, "last", {"Connection": "close"})

    def page_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in (b"one ", b"two ", b"three"):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def page_cut(self) -> None:
        """Less than was announced."""
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)
        self.close_connection = True

    def page_slow(self) -> None:
        self.server.hurry.wait(PATIENCE)
        self.answer(200, "slow")

    def page_socket(self) -> None:
        """A WebSocket that returns one short message (RFC 6455)."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        kind, length = self.rfile.read(2)
        mask = self.rfile.read(4)
        masked = self.rfile.read(length & 0x7F)
        words = bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))
        self.wfile.write(bytes([kind, len(words)]) + words + b"\x88\x00")
        self.close_connection = True

    def page_whoami(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        certificate: Any = self.connection.getpeercert() or {}
        names = [value for part in certificate.get("subject", ()) for _, value in part]
        self.answer(200, names[0] if names else "nobody")

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, status: int, text: str, fields: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (fields or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """An HTTPS server in a thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, files: Files, *, clients: Path | None = None, names: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*(names or (files.certificate, files.key)))
        self.context.set_alpn_protocols(["http/1.1"])
        if clients is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(clients)
        self.seen: list[tuple[str, str]] = []
        self.connections = 0
        self.hurry = threading.Event()
        self.port = int(self.server_address[1])
        self.thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def url(self, path: str = "/", host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"

    def finish_request(self, request: Any, client_address: Any) -> None:
        with (
            contextlib.suppress(OSError),
            self.context.wrap_socket(request, server_side=True) as tls,
        ):
            self.connections += 1
            Handler(tls, client_address, self)

    def close(self) -> None:
        self.hurry.set()
        self.shutdown()
        self.server_close()
        self.thread.join()


class Nginx:
    """nginx that takes early data."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.port = free_port()
        self._log = directory / "nginx.log"
        configuration = directory / "nginx.conf"
        configuration.write_text(
            f"""
            daemon off;
            master_process off;
            pid {directory}/nginx.pid;
            error_log {self._log} info;
            events {{}}
            http {{
                access_log off;
                client_body_temp_path {directory}/body;
                proxy_temp_path {directory}/proxy;
                fastcgi_temp_path {directory}/fastcgi;
                uwsgi_temp_path {directory}/uwsgi;
                scgi_temp_path {directory}/scgi;
                server {{
                    listen 127.0.0.1:{self.port} ssl;
                    ssl_certificate {files.certificate};
                    ssl_certificate_key {files.key};
                    ssl_protocols TLSv1.3;
                    ssl_early_data on;
                    default_type text/plain;
                    location / {{ return 200 "$request_method"; }}
                }}
            }}
            """
        )
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        command = ["nginx", "-c", str(configuration), "-p", str(directory), "-e", str(self._log)]
        self.process = subprocess.Popen(
            command, env={**os.environ, "PATH": path}, stderr=subprocess.DEVNULL
        )
        until("nginx accepts", self._accepts)

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def url(self, path: str = "/") -> str:
        return f"https://localhost:{self.port}{path}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class EarlyServer:
    """`openssl s_server`, which tells early data from later data; one connection at a time."""

    def __init__(self, files: Files, statuses: Sequence[str]) -> None:
        self.port = free_port()
        self._statuses = list(statuses)
        self._said = b""
        command = ["openssl", "s_server", "-accept", f"127.0.0.1:{self.port}", "-early_data"]
        self.process = subprocess.Popen(
            [*command, "-cert", str(files.certificate), "-key", str(files.key)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()
        until("openssl s_server accepts", lambda: "ACCEPT" in self.said())

    def said(self) -> str:
        return self._said.decode("utf-8", "replace")

    def url(self, path: str = "/") -> str:
        return f"https://localhost:{self.port}{path}"

    def _answer(self) -> None:
        """Answer each head of a request with the next status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answered = 0
        while more := os.read(self.process.stdout.fileno(), 65536):
            self._said += more
            while self._said.count(b"\r\n\r\n") > answered and self._statuses:
                answered += 1
                answer = f"HTTP/1.1 {self._statuses.pop(0)}\r\nContent-Length: 0\r\n\r\n"
                self.process.stdin.write(answer.encode())
                self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def played(
    directory: Path, play: bytes | Callable[[socket.socket], None]
) -> Iterator[headstart.Agent]:
    """An agent of one connection that answers so, whatever it is asked."""
    path = directory / "played.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=answer, args=(listener, play))
        thread.start()
        yield headstart.Agent(path)
        thread.join()


def answer(listener: socket.socket, play: bytes | Callable[[socket.socket], None]) -> None:
    """Answer one connection, whatever it asks."""
    sock, _ = listener.accept()
    with sock, contextlib.suppress(OSError):
        sock.recv(65536)
        if isinstance(play, bytes):
            sock.sendall(play)
        else:
            play(sock)


@contextlib.contextmanager
def silent_server() -> Iterator[tuple[int, Callable[[], int]]]:
    """A port that accepts and says nothing, and how many connections it has accepted."""
    accepted: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            yield int(listener.getsockname()[1]), lambda: len(accepted)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for sock in accepted:
                sock.close()


@contextlib.contextmanager
def plain_server() -> Iterator[str]:
    """The URL of a server without TLS, for one request."""
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nplain"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener, page))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()
