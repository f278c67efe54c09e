"""kazoo and its recipes on this server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, RolledBackError
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from .serving import ServerThread

Connect = Callable[..., KazooClient]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServerThread]:
    """A server with a file."""
    with ServerThread(tmp_path / "coordination.db") as server:
        yield server


@pytest.fixture
def connect(served: ServerThread) -> Iterator[Connect]:
    """Creates clients, which are stopped at the end."""
    clients = []

    def made(chroot: str = "", **options: Any) -> KazooClient:
        options.setdefault("timeout", 10)
        options.setdefault("connection_retry", KazooRetry(max_tries=-1, delay=0.02, max_delay=0.1))
        client = KazooClient(hosts=served.connect + chroot, **options)
        clients.append(client)
        client.start(60)
        return client

    yield made
    for client in clients:
        client.stop()
        client.close()


def test_paths_below_a_chroot_are_made(connect: Connect) -> None:
    whole = connect()
    whole.ensure_path("/one/two")
    client = connect("/one/two")
    client.ensure_path("/a/b/c")
    client.create("/x/y", b"x", makepath=True)
    assert whole.get("/one/two/x/y")[0] == b"x"
    assert client.server_version() == (3, 8, 4)


def test_lock_goes_from_one_to_the_next(connect: Connect) -> None:
    first, second = connect(), connect()
    held = first.Lock("/lock", "first")
    wanted = second.Lock("/lock", "second")
    assert held.acquire(timeout=60)
    assert not wanted.acquire(blocking=False)
    got = threading.Event()

    def want() -> None:
        if wanted.acquire(timeout=60):
            got.set()

    waiting = threading.Thread(target=want)
    waiting.start()
    held.release()
    assert got.wait(60)
    waiting.join()
    assert second.Lock("/lock").contenders() == ["second"]
    wanted.release()


def test_election_goes_to_another_when_the_leaders_session_ends(connect: Connect) -> None:
    leaders: queue.Queue[str] = queue.Queue()
    leave = threading.Event()
    threads = []
    clients = [connect(), connect()]
    for name, client in zip(("one", "two"), clients, strict=True):

        def lead(name: str = name) -> None:
            leaders.put(name)
            leave.wait(60)

        thread = threading.Thread(target=client.Election("/election", name).run, args=(lead,))
        thread.start()
        threads.append(thread)
        if name == "one":
            assert leaders.get(timeout=60) == "one"
    leave.set()
    assert leaders.get(timeout=60) == "two"
    for thread in threads:
        thread.join()


def test_watches_of_data_and_children_follow_changes(connect: Connect) -> None:
    client, other = connect(), connect()
    client.create("/w", b"0")
    data: queue.Queue[bytes | None] = queue.Queue()
    names: queue.Queue[list[str]] = queue.Queue()
    client.DataWatch("/w", lambda value, stat: data.put(value))
    client.ChildrenWatch("/w", lambda value: names.put(value))
    assert data.get(timeout=60) == b"0"
    assert names.get(timeout=60) == []
    other.set("/w", b"1")
    assert data.get(timeout=60) == b"1"
    other.create("/w/c")
    assert names.get(timeout=60) == ["c"]
    other.delete("/w/c")
    assert names.get(timeout=60) == []
    other.delete("/w")
    assert data.get(timeout=60) is None


def test_transaction_is_whole_or_nothing(connect: Connect) -> None:
    client = connect()
    client.create("/t", b"")
    transaction = client.transaction()
    transaction.create("/t/a", b"1")
    transaction.check("/t", 5)
    assert [type(result) for result in transaction.commit()] == [RolledBackError, BadVersionError]
    assert client.get_children("/t") == []


def test_node_of_a_user_is_closed_to_others(connect: Connect) -> None:
    anna = connect(auth_data=[("digest", "anna:secret")])
    anna.create("/anna", b"x", acl=[make_digest_acl("anna", "secret", all=True)])
    with pytest.raises(NoAuthError):
        connect().get("/anna")
    assert anna.get("/anna")[0] == b"x"


def states(client: KazooClient) -> queue.Queue[str]:
    """The state changes of a client's connection from now on."""
    seen: queue.Queue[str] = queue.Queue()

    def listen(state: str) -> None:
        seen.put(state)

    client.add_listener(listen)
    return seen


def test_session_comes_back_after_a_restart_with_its_watches(
    served: ServerThread, connect: Connect
) -> None:
    client = connect()
    session = client.client_id
    client.create("/e", b"", ephemeral=True)
    fired = threading.Event()
    client.exists("/later", watch=lambda event: fired.set())
    changes = states(client)
    served.stop()
    assert changes.get(timeout=60) == "SUSPENDED"
    served.start()
    assert changes.get(timeout=60) == "CONNECTED"
    assert client.client_id == session
    assert client.exists("/e").ephemeralOwner == session[0]
    connect().create("/later")
    assert fired.wait(60)


def test_session_that_ran_out_is_replaced(served: ServerThread, connect: Connect) -> None:
    client = connect()
    session = client.client_id
    client.create("/e", b"", ephemeral=True)
    changes = states(client)
    thief = connect(client_id=session)  # takes the session over, and ends it
    thief.stop()
    seen = [changes.get(timeout=60)]
    while seen[-1] != "CONNECTED":
        seen.append(changes.get(timeout=60))
    assert "LOST" in seen
    assert client.client_id[0] != session[0]
    assert client.exists("/e") is None
