"""What the first broker of a process costs: the modules that are loaded, and CPU time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kwire.server.client.wire import Wire, open_socket
from kwire.testing import Broker
from kwire.testing.client.connections import address_of

ROOT = Path(__file__).parents[2]

FIRST = """
import sys
from tests.support.cpu_time import cpu_time
with cpu_time() as taken:
    from kwire.testing import Broker
    broker = Broker().start()
broker.stop()
print(taken.seconds, *sys.modules)
"""

#: Not needed until a test does something special.
LATE = {
    "cryptography",
    "kafka",
    "kazoo",
    "kwire.pipeline",
    "kwire.server.console",
    "kwire.server.handlers.acls",
    "kwire.server.handlers.share_fetch",
    "kwire.server.interbroker",
    "kwire.server.log.cleaner.worker",
    "kwire.server.share.manager",
    "kwire.testing.secure",
    "multiprocessing",
    "sqlite3",
}


@pytest.mark.e2e
def test_first_broker_takes_little_cpu_and_loads_little(tmp_path: Path) -> None:
    """With bytecode, as pip installs it."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    taken = []
    for _ in range(4):  # the first compiles
        ran = subprocess.run(
            [sys.executable, "-c", FIRST],
            env=environment,
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        seconds, *modules = ran.stdout.split()
        assert LATE & {*modules} == set()
        taken.append(float(seconds))
        if min(taken) < 0.4:
            return
    raise AssertionError(taken)


def ask_as_client(bootstrap: str, request: object, version: int) -> Any:
    """Ask as a client that is not one of the helpers, whose requests are not watched."""
    wire = Wire(open_socket(address_of(bootstrap), 30.0), "late")
    try:
        return wire.ask(request, version)
    finally:
        wire.close()


def test_handlers_that_are_loaded_late_are_watched_like_the_others() -> None:
    with Broker() as broker:
        broker.fault("DescribeUserScramCredentials", error="UNKNOWN_SERVER_ERROR")
        node = broker._nodes[1].broker
        assert node is not None and node.rooms is not None
        handlers = node.rooms.dispatcher.handlers.by_key
        assert ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS in handlers.late
        answer = ask_as_client(broker.bootstrap_servers, DescribeUserScramCredentialsRequest(), 0)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "DescribeUserScramCredentials v0" in broker.last_requests[-1]


#: A test that shows who has loaded a module of kwire, in an installation whose files its metadata lists.
OF_PYTHON = """
import importlib.util
import sys

def test_loader():
    assert sys.modules["kwire"].__file__.startswith({root!r})
    from kwire.testing import durations, loop
    import kwire.server.clock
    for module in (durations, loop, kwire.server.clock):
        assert type(module.__loader__).__name__ == "SourceFileLoader"
"""


@pytest.mark.e2e
def test_pytest_does_not_compile_kwire_again(tmp_path: Path) -> None:
    package, metadata = tmp_path / "site" / "kwire", tmp_path / "site" / "kwire-9.dist-info"
    for folder in (package, metadata):
        folder.mkdir(parents=True)
    for path in [*(ROOT / "kwire").iterdir(), ROOT / "server", ROOT / "testing"]:
        (package / path.name).symlink_to(path)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kwire\nVersion: 9\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nkwire = kwire.testing.plugin\n")
    (metadata / "RECORD").write_text("kwire/__init__.py,,\nkwire/api.py,,\n")
    (tmp_path / "test_loader.py").write_text(OF_PYTHON.format(root=str(package)))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "test_loader.py"],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
