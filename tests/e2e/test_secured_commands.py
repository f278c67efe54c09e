"""kwire's own commands on a secured broker, with the properties of Apache Kafka's tools (`--command-config`)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..support.broker_process import REPOSITORY
from ..support.kafka import write_properties
from ..support.secured import ADMIN, SCRAM, WRONG_PASSWORD, Secured, Way

pytestmark = pytest.mark.e2e


def kwire(
    secured: Secured, way: Way, *words: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    properties = secured.java(way)
    if way.mechanism is None:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secured.folder / f"{way.user}.pem"),
        }
        del properties["ssl.keystore.password"], properties["ssl.key.password"]
    file = write_properties(secured.folder / f"command-{way.listener}-{way.user}", properties)
    where = ("--bootstrap", secured.bootstrap(way), "--command-config", str(file))
    return subprocess.run(
        [sys.executable, "-m", "server", words[0], *where, *words[1:]],
        cwd=REPOSITORY,
        input=text,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def test_commands_log_in(secured: Secured) -> None:
    topic = "alice-commands"
    asked = [
        (SCRAM, ("topics", "create", topic), ""),
        (SCRAM, ("produce", topic), "one\ntwo\n"),
        (
            SCRAM,
            ("consume", topic, "--group", topic, "--from-beginning", "--max-messages", "2"),
            "",
        ),
        (SCRAM, ("groups", "list"), ""),
        (ADMIN, ("acls", "list"), ""),
        (ADMIN, ("quotas", "list"), ""),
        (ADMIN, ("users", "list"), ""),
    ]
    said = []
    for way, words, text in asked:
        ended = kwire(secured, way, *words, text=text)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        said.append(ended.stdout)
    assert said[2].splitlines() == ["one", "two"]
    assert topic in said[3] and "User:alice" in said[4] and "alice" in said[6]


def test_command_says_why_it_is_refused(secured: Secured) -> None:
    ended = kwire(secured, WRONG_PASSWORD, "topics", "list")
    assert ended.returncode != 0
    assert "login as alice with SCRAM-SHA-512: Authentication failed" in ended.stderr
