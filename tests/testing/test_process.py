"""A broker in a separate process, and no remains of brokers when the test's process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kwire.testing import Broker, ProcessBroker

from .clients import producer, send

pytestmark = pytest.mark.e2e

PARENT = """
import multiprocessing, time
from kwire.testing import Broker, Cluster, ProcessBroker, SecureBroker
child = ProcessBroker().start()
started = [Broker().start(), SecureBroker().start(), Cluster(2).start()]
fork = started[0].fork()
with Broker() as passed:
    left = passed._folders[1]
assert not left.exists()
forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
forked.start()
folders = {folder.parent for each in (*started, fork) for folder in each._folders.values()}
print(forked.pid, child.pid, child._folder.parent, *folders, flush=True)
time.sleep(60)
"""


def test_killed_process_keeps_what_was_acknowledged() -> None:
    with ProcessBroker() as broker:
        topic = broker.topic()
        client = producer(broker.bootstrap_servers)
        send(client, topic, b"1")
        address, pid = broker.bootstrap_servers, broker.pid
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert (broker.bootstrap_servers, broker.pid == pid) == (address, False)
        send(client, topic, b"2")
        assert [record.value for record in topic.consume()] == [b"1", b"2"]
        folder = broker._folder
        assert folder is not None
    assert not folder.exists()


def test_directory_of_a_killed_process_is_served_from_a_copy() -> None:
    with ProcessBroker() as broker:
        topic = broker.topic("orders", configs={"retention.ms": 3_600_000})
        send(producer(broker.bootstrap_servers), topic, b"1")
        assert broker._folder is not None
        data = broker._folder / "data"
        with pytest.raises(ValueError, match=f"a broker is running on {data}"):
            Broker.from_directory(data).start()
        broker.kill()
        with Broker.from_directory(data) as copy:
            assert [record.value for record in copy.consume("orders")] == [b"1"]
            copy.clock.advance("2h")  # the topic has its settings
            assert copy.consume("orders") == []
        broker.start()
        assert [record.value for record in topic.consume()] == [b"1"]


def test_process_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match=r"num\.partitions"),
        ProcessBroker({"num.partitions": "x"}),
    ):
        pass


def test_kill_9_of_the_parent_leaves_nothing() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    try:
        words = parent.stdout.readline().split()
        forked, pid = int(words[0]), int(words[1])
        folders = {Path(os.fsdecode(word)) for word in words[2:]}
        assert all(folder.exists() for folder in folders)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
    end = time.monotonic() + 60
    while time.monotonic() < end and (is_alive(pid) or any(each.exists() for each in folders)):
        time.sleep(0.01)
    lives_on = is_alive(forked)
    os.kill(forked, signal.SIGKILL)
    assert not is_alive(pid)
    assert not [folder for folder in folders if folder.exists()]
    assert lives_on, "what it has forked is its own affair, and must not be waited for"


def is_alive(pid: int) -> bool:
    """Whether there is a process, other than one that has ended and waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while this is read
        return False
