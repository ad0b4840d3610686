"""urllib3's pools over the agent."""

from __future__ import annotations

import hashlib
import ssl
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import MaxRetryError, SSLError

import headstart
from headstart.urllib3 import HTTPSConnectionPool, PoolManager, facts

from .serving import Files, Server


def test_pages_redirects_and_facts(agent: headstart.Agent, server: Server) -> None:
    with PoolManager(agent=agent) as pools:
        response = pools.request("GET", server.url("/redirect//page"))
        assert (response.status, response.data) == (200, b"GET /page")
        about = facts(response)
        assert about is not None
        assert (about.opening, about.alpn) == ("plain", "http/1.1")
        response = pools.request("GET", server.url("/chunks"), preload_content=False)
        assert b"".join(response.stream(4)) == b"one two three"
        assert facts(response) is about, "the connection was used again"


def test_arguments_of_urllib3_mean_the_same(
    agent: headstart.Agent, files: Files, server: Server
) -> None:
    with (
        PoolManager(agent=agent, ca_certs=str(files.key)) as pools,
        pytest.raises(MaxRetryError) as raised,
    ):
        pools.request("GET", server.url(), retries=0)
    error = headstart.reason(raised.value)
    assert isinstance(error, headstart.BadRequest)
    assert error.error == "roots"
    with PoolManager(agent=agent, cert_reqs="CERT_NONE") as pools:
        with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
            assert pools.request("GET", server.url()).status == 200
    with (
        PoolManager(agent=agent, server_hostname="other.example") as pools,
        pytest.raises(MaxRetryError) as raised,
    ):
        pools.request("GET", server.url(), retries=0)
    assert isinstance(raised.value.reason, SSLError)


def test_fingerprints(agent: headstart.Agent, files: Files, server: Server) -> None:
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(files.certificate.read_text())).hexdigest()
    with PoolManager(agent=agent, assert_fingerprint=digest) as pools:
        assert pools.request("GET", server.url()).status == 200
    with (
        PoolManager(agent=agent, assert_fingerprint="00" * 32) as pools,
        pytest.raises(MaxRetryError) as raised,
    ):
        pools.request("GET", server.url(), retries=0)
    assert isinstance(raised.value.reason, SSLError)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ssl_context": ssl.create_default_context()},
        {"assert_hostname": False},
        {"ca_cert_dir": "/etc/ssl/certs"},
        {"cert_file": "/etc/client.pem"},
        {"ssl_minimum_version": ssl.TLSVersion.TLSv1_3},
        {"source_address": ("127.0.0.1", 0)},
    ],
)
def test_what_cannot_be_heeded_is_refused(
    agent: headstart.Agent, server: Server, arguments: dict[str, Any]
) -> None:
    with PoolManager(agent=agent, **arguments) as pools, pytest.raises(headstart.Unsupported):
        pools.request("GET", server.url())


def test_a_pool_of_its_own(agent: headstart.Agent, server: Server) -> None:
    managed = headstart.urllib3.Managed(agent, context="work")
    with HTTPSConnectionPool("localhost", server.port, managed=managed) as pool:
        assert pool.request("GET", "/page").data == b"GET /page"
