"""A test process that forks, as multiprocessing and Celery do: the child neither holds nor disturbs the brokers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context

import pytest

from kwire.connection import ClientConnection
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.testing import Broker, Cluster, ProcessBroker, SecureBroker
from kwire.testing.client.connections import Connection

PATIENCE_S = 10.0


class Peer:
    """A connection of a client."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), PATIENCE_S)
        self.wire = ClientConnection("peer")

    def ask(self) -> bytes:
        """Send a request, and return the response; nothing if the connection ends instead."""
        self.wire.request(ApiVersionsRequest(), 0)
        self.sock.sendall(b"".join(self.wire.take_output()))
        size = self.sock.recv(4)
        return self.sock.recv(int.from_bytes(size), socket.MSG_WAITALL) if size else b""


@contextmanager
def forked(work: Callable[[], None] = lambda: None) -> Iterator[int]:
    """A child that works, and then lives until the end of the block, when it must have succeeded."""
    done, told = os.pipe()
    ended, end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # a process with threads should not fork
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(end)
            work()
            os.write(told, b".")
            os.read(ended, 1)
            status = 0
        finally:
            os._exit(status)
    os.close(told)
    os.close(ended)
    try:
        assert os.read(done, 1) == b".", "the child has failed"
        yield pid
    finally:
        os.close(end)
        os.close(done)
        assert os.waitpid(pid, 0)[1] == 0


def test_connections_are_closed_though_a_child_lives() -> None:
    with Broker() as broker:
        peers = [Peer(broker.bootstrap_servers) for _ in range(2)]
        assert all(each.ask() for each in peers)
        with forked():
            with broker.fault("ApiVersions", close=True, times=1):
                assert peers[0].ask() == b""
            with (
                broker.fault("ApiVersions", reset=True, times=1),
                pytest.raises(ConnectionResetError),
            ):
                peers[1].ask()
            late = Peer(broker.bootstrap_servers)
            assert late.ask()
            broker.stop()
            assert late.sock.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                Peer(broker.bootstrap_servers)
    for each in (*peers, late):
        each.sock.close()


def test_brokers_of_a_cluster_are_killed_and_started_though_a_child_lives() -> None:
    with Cluster(2) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        peer = Peer(addresses[0])
        with forked():
            cluster.kill(1)
            assert peer.sock.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                Peer(addresses[0])
            cluster.start_broker(1)
            again = Peer(addresses[0])
            assert again.ask()
            topic = cluster.topic()
            topic.produce("1")
            assert len(topic.consume()) == 1
        peer.sock.close()
        again.sock.close()


def test_encrypted_connections_are_closed_though_a_child_lives() -> None:
    with SecureBroker() as broker:
        client = broker.client
        connection = Connection(client.bootstrap[0], client._tls)
        with forked():
            broker.stop()
            assert connection.sock.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                Connection(client.bootstrap[0])
        connection.close()


def test_child_has_the_helpers_but_not_the_broker() -> None:
    with Broker() as broker, ProcessBroker() as other:
        topic, second = broker.topic(), other.topic()
        folder = broker._folders[1]

        def work() -> None:
            topic.produce("child")
            second.produce("child")
            with pytest.raises(
                RuntimeError, match="runs in the process that this one was forked from"
            ):
                broker.fault("Produce", close=True)
            broker.stop()
            other.kill()
            with Broker() as own:
                own.topic().produce("1")

        with forked(work):
            assert folder.exists() and other.is_running
        for each in (topic, second):
            each.produce("parent")
            assert [record.value for record in each.consume()] == [b"child", b"parent"]


def test_child_that_is_started_while_the_broker_works_holds_none_of_its_sockets() -> None:
    """What is accepted at the moment of a fork is closed, too."""
    with Broker() as broker:
        peers: list[Peer] = []
        connecting = threading.Thread(
            target=lambda: [peers.append(Peer(broker.bootstrap_servers)) for _ in range(50)]
        )
        connecting.start()
        with forked():
            connecting.join()
            broker.stop()
            for each in peers:
                assert each.sock.recv(1) == b""
                each.sock.close()


@pytest.mark.e2e
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_children_of_multiprocessing_hold_no_connection(method: str) -> None:
    with Broker() as broker, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        peer = Peer(broker.bootstrap_servers)
        assert peer.ask()
        context = get_context(method)
        event = context.Event()
        child = context.Process(target=event.wait)
        child.start()
        broker.stop()
        assert peer.sock.recv(1) == b""
        event.set()
        child.join()
        assert child.exitcode == 0
        peer.sock.close()


@pytest.mark.e2e
def test_child_program_that_inherits_descriptors_holds_no_connection() -> None:
    with Broker() as broker:
        peer = Peer(broker.bootstrap_servers)
        assert peer.ask()
        with subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        ) as child:
            broker.stop()
            assert peer.sock.recv(1) == b""
            child.communicate(b"\n")
        peer.sock.close()
