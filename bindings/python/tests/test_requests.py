"""requests with the adapter: everything that it does as ever, and what the agent adds."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import requests
import urllib3

import headstart
from headstart.requests import HeadstartAdapter, facts

from .conftest import mounted
from .serving import NAME, Files, RunningAgent, Server, check_contexts, until


def facts_of(response: requests.Response) -> headstart.Facts:
    about = facts(response)
    assert about is not None, "it did not come by the agent"
    return about


def test_a_page_and_the_facts_of_its_connection(session: requests.Session, server: Server) -> None:
    response = session.get(server.url("/page"))
    assert (response.status_code, response.text) == (200, "GET /page")
    assert response.url == server.url("/page")
    about = facts_of(response)
    assert (about.opening, about.version, about.alpn) == ("plain", "TLS 1.3", "http/1.1")
    assert about.cipher is not None
    assert about.cipher.startswith("TLS_")
    assert (about.resumed, about.early_data) == (False, "none")
    assert about.certificate is not None
    assert about.ledger.tls is not None
    assert about.ledger.tls >= (about.ledger.tcp or 0.0) > 0.0


def test_urls_of_port_443(session: requests.Session) -> None:
    assert session.get(f"https://{NAME}/page").text == "GET /page"


def test_programs_share_sessions(
    agent: headstart.Agent, running: RunningAgent, server: Server
) -> None:
    program = (
        "import sys, requests, headstart\n"
        "from headstart.requests import HeadstartAdapter, facts\n"
        "session = requests.Session()\n"
        "session.mount('https://', HeadstartAdapter())\n"
        "print(facts(session.get(sys.argv[1])).resumed)\n"
    )

    def run() -> str:
        command = [sys.executable, "-c", program, server.url()]
        environment = {"HEADSTART_SOCKET": str(running.path)}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert run() == "False"
    until("a session is kept", lambda: bool(agent.sessions()))
    assert run() == "True"


def test_a_connection_is_used_again(session: requests.Session, server: Server) -> None:
    before = server.connections
    first, second = session.get(server.url("/one")), session.get(server.url("/two"))
    assert server.connections == before + 1
    assert facts_of(first) is facts_of(second)
    session.get(server.url("/last"))
    assert facts_of(session.get(server.url("/three"))) is not facts_of(first)


def test_one_pool_for_each_host(session: requests.Session, server: Server) -> None:
    adapter = session.get_adapter("https://localhost/")
    assert isinstance(adapter, HeadstartAdapter)
    for host in ("localhost", "127.0.0.1", "localhost"):
        assert session.get(server.url(host=host)).ok
    assert len(adapter.poolmanager.pools) == 2


def test_redirects_and_cookies(session: requests.Session, server: Server) -> None:
    response = session.get(server.url(f"/redirect/https://{NAME}/redirect//page"))
    assert (response.text, response.url) == ("GET /page", f"https://{NAME}/page")
    assert [step.status_code for step in response.history] == [302, 302]
    assert session.get(server.url("/cookie")).text == "none"
    assert session.get(server.url("/cookie")).text == "visited=1", (
        "a secure cookie goes to https alone"
    )


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_methods(session: requests.Session, server: Server, method: str) -> None:
    response = session.request(method, server.url("/page"))
    assert response.text == ("" if method == "HEAD" else f"{method} /page")


def test_bodies(session: requests.Session, server: Server) -> None:
    assert session.post(server.url("/echo"), data="words").text == "words"
    assert session.post(server.url("/echo"), json={"a": 1}).json() == {"a": 1}
    pieces = iter([b"one ", b"two"])
    assert session.post(server.url("/echo"), data=pieces).text == "one two"
    large = "x" * 3_000_000
    assert session.post(server.url("/echo"), data=large).text == large


def test_streams(session: requests.Session, server: Server) -> None:
    with session.get(server.url("/chunks"), stream=True) as response:
        assert b"".join(response.iter_content(4)) == b"one two three"


def test_an_answer_that_is_cut_short(session: requests.Session, server: Server) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        session.get(server.url("/cut"))


def test_many_threads(session: requests.Session, server: Server) -> None:
    with ThreadPoolExecutor(8) as threads:
        texts = list(
            threads.map(lambda number: session.get(server.url(f"/{number}")).text, range(40))
        )
    assert texts == [f"GET /{number}" for number in range(40)]


def test_a_slow_answer(session: requests.Session, files: Files) -> None:
    with closing(Server(files)) as server:
        with pytest.raises(requests.exceptions.ReadTimeout):
            session.get(server.url("/slow"), timeout=(60, 0.2))
        server.hurry.set()
        assert session.get(server.url("/slow")).text == "slow"


def test_contexts_have_nothing_in_common(agent: headstart.Agent, server: Server) -> None:
    def resumed(**options: str) -> bool:
        with mounted(HeadstartAdapter(agent, **options)) as session:  # type: ignore[arg-type]
            return facts_of(session.get(server.url())).resumed

    check_contexts(agent, resumed)


def test_a_private_context_is_forgotten(agent: headstart.Agent, server: Server) -> None:
    with (
        agent.private_context() as context,
        mounted(HeadstartAdapter(agent, context=context)) as session,
    ):
        assert session.get(server.url()).ok
        until("a session is kept", lambda: bool(agent.sessions()))
    assert agent.sessions() == []


def test_roots(
    agent: headstart.Agent, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("other")
    other = Files(directory)
    with closing(Server(other)) as server, mounted(HeadstartAdapter(agent)) as session:
        with pytest.raises(requests.exceptions.SSLError) as raised:
            session.get(server.url())
        error = headstart.reason(raised.value)
        assert isinstance(error, headstart.CertificateError)
        assert (error.status, error.error) == (502, "certificate_untrusted")
        assert error.hint is not None
        assert error.hint in str(raised.value)
        assert session.get(server.url(), verify=str(other.certificate)).ok
        with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
            assert session.get(server.url(), verify=False).ok
        with pytest.raises(requests.exceptions.SSLError):
            session.get(server.url(), verify=str(files.certificate))
        with pytest.raises(headstart.Unsupported, match="give a file of roots"):
            session.get(server.url(), verify=str(directory))


def test_another_name(agent: headstart.Agent, files: Files) -> None:
    names = files.issue("elsewhere", "DNS:elsewhere.example")
    with closing(Server(files, names=names)) as server:
        with (
            mounted(HeadstartAdapter(agent)) as session,
            pytest.raises(requests.exceptions.SSLError) as raised,
        ):
            session.get(server.url(), verify=str(names[0]))
        error = headstart.reason(raised.value)
        assert isinstance(error, headstart.CertificateError)
        assert error.error == "certificate_name"
        with mounted(HeadstartAdapter(agent, server_name="elsewhere.example")) as session:
            assert session.get(server.url(), verify=str(names[0])).ok


def test_client_certificates_are_named(
    files: Files, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("mtls")
    certificate, key = files.issue("client", "DNS:client.example")
    both = directory / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    both.chmod(0o600)
    running = RunningAgent(
        directory, ["--client-certificate", f"work={both}"], roots=files.certificate
    )
    with closing(running), closing(Server(files, clients=certificate)) as server:
        with mounted(HeadstartAdapter(running.agent(), client_certificate="work")) as session:
            assert session.get(server.url("/whoami")).text == "client"
            with pytest.raises(headstart.Unsupported, match="client_certificate=NAME"):
                session.get(server.url("/whoami"), cert=str(both))
        with mounted(HeadstartAdapter(running.agent(), client_certificate="home")) as session:
            with pytest.raises(requests.exceptions.ConnectionError) as raised:
                session.get(server.url("/whoami"))
            error = headstart.reason(raised.value)
            assert isinstance(error, headstart.NotAllowed)
            assert error.error == "certificate_not_allowed"


def test_a_proxy_is_used_as_ever(
    agent: headstart.Agent, running: RunningAgent, files: Files, server: Server
) -> None:
    with mounted(HeadstartAdapter(agent)) as session:
        session.proxies = {"https": f"http://127.0.0.1:{running.listen}"}
        session.verify = str(files.certificate)
        response = session.get(server.url("/page"))
    assert response.text == "GET /page"
    assert facts(response) is None, "its TLS is its own"
    assert agent.sessions() == []


def test_an_adapter_can_be_pickled(agent: headstart.Agent, server: Server) -> None:
    adapter = pickle.loads(pickle.dumps(HeadstartAdapter(agent, context="work", server_name=NAME)))
    with mounted(adapter) as session:
        assert facts(session.get(server.url())) is not None
    until("a session is kept", lambda: bool(agent.sessions()))
    assert (agent.sessions()[0]["context"], agent.sessions()[0]["server"]) == ("work", NAME)


def test_nothing_is_left_open(agent: headstart.Agent, server: Server) -> None:
    """Sockets that are not closed are warnings, which are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with mounted(HeadstartAdapter(agent)) as session:
            session.get(server.url())
