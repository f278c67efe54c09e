"""`kwire zookeeper` killed during writes: answered writes are complete, and numbers never go back."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from server.coordination.acl import OPEN
from server.coordination.zookeeper_server.records import (
    CreateRequest,
    MultiOp,
    OpCode,
    PathRequest,
    SetDataRequest,
    WatchingRequest,
)
from tests.support.broker_process import REPOSITORY

from .raw_client import Closed, RawClient, multi_body

pytestmark = pytest.mark.e2e

ROUNDS = 4


def start(directory: Path, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Start a server; return it and its port when it is ready."""
    command = [sys.executable, "-m", "server", "zookeeper", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--data-dir", str(directory), "--log-level", "ERROR"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline().rsplit(":", 1)[1])


def write(n: int) -> bytes:
    """Write two nodes and a counter in one transaction."""
    ops = [
        MultiOp(OpCode.CREATE, CreateRequest(f"/p/{n}", b"", OPEN, 0)),
        MultiOp(OpCode.CREATE, CreateRequest(f"/p/{n}/state", b"x" * 300, OPEN, 0)),
        MultiOp(OpCode.SET_DATA, SetDataRequest("/count", b"%d" % (n + 1), -1)),
    ]
    return multi_body(ops)


def test_killed_server_keeps_what_it_answered_and_its_sessions(tmp_path: Path) -> None:
    process, port = start(tmp_path)
    first = RawClient(port)
    session = first.connect(30_000)
    for path, flags in (("/p", 0), ("/count", 0), ("/mine", 1)):
        first.call(OpCode.CREATE, CreateRequest(path, b"0", OPEN, flags))
    client, count, zxid = first, 0, 0
    for round_number in range(ROUNDS):
        after = threading.Timer(0.1 + 0.13 * round_number, process.kill)
        after.start()
        acknowledged = count
        try:
            while True:
                reply = client.call(OpCode.MULTI, write(acknowledged))
                assert [code for code, _ in reply.record] == [1, 1, 5], reply
                assert reply.header.zxid > zxid
                zxid = reply.header.zxid
                acknowledged += 1
        except Closed:
            client.close()
        after.join()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        process, _ = start(tmp_path, port)
        client = RawClient(port)
        again = client.connect(30_000, session.session_id, session.password or b"", last_zxid=zxid)
        assert again.session_id == session.session_id
        assert client.call(OpCode.GET_EPHEMERALS, PathRequest("")).record.names == ("/mine",)
        stored = client.call(OpCode.GET_DATA, WatchingRequest("/count", False)).record.data
        count = int(stored)
        # The last one may have been applied without an answer.
        assert acknowledged <= count <= acknowledged + 1
        names = client.call(OpCode.GET_CHILDREN, WatchingRequest("/p", False)).record.names
        assert {int(name) for name in names} == set(range(count))
        below = client.call(OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/p")).record.value
        assert below == 2 * count
    assert count > ROUNDS
    client.end()
    process.terminate()
    assert process.wait(30) == 0
    assert process.stdout is not None
    process.stdout.close()
