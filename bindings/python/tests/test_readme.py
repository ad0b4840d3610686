"""The examples of the README do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headstart

from .serving import NAME, RunningAgent, until

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_there_are_five() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(
    example: str,
    agent: headstart.Agent,
    running: RunningAgent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HEADSTART_SOCKET", str(running.path))
    for name in (
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
    assert NAME in example
    exec(compile(example, str(README), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out
    until("a session is kept", lambda: bool(agent.sessions()))
