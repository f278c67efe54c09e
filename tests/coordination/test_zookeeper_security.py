"""Logins at ZooKeeper and ACLs of znodes, with a real server and compared with Apache Kafka 3.9.2."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL

from server.coordination.cluster import ClusterStore
from server.coordination.store import Create, NotAllowed, StoreClosed
from server.coordination.znode_acls import Access, access_of
from server.coordination.zookeeper import ZooKeeperLogin, ZooKeeperStore
from tests.support.clock import ManualClock
from tests.support.zookeeper import ZooKeeperServer

#: ACL -> the paths that have it, in a cluster of Apache Kafka 3.9.2 whose broker logs in as kafka.
RECORDED: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("kafka_3_9_2_znode_acls.json").read_text()
)
EXPECTED = {
    Access.OPEN: "31:world:anyone",
    Access.READ: "31:sasl:kafka 1:world:anyone",
    Access.OWNER: "31:sasl:kafka",
}
KAFKA = ZooKeeperLogin("kafka", "secret")
JAAS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret" user_other="hush";
};"""


def test_access_to_each_znode_is_that_of_apache_kafka():
    assert len(RECORDED) == 3
    for acl, found in RECORDED.items():
        for path in found:
            assert (path, EXPECTED[access_of(path)]) == (path, acl)


def test_login_is_not_shown():
    assert "secret" not in repr(KAFKA)


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(jaas=JAAS)
    try:
        server.start()
        yield server
    finally:
        server.close()


def text_of(acls: list[ACL]) -> str:
    return " ".join(f"{acl.perms}:{acl.id.scheme}:{acl.id.id}" for acl in acls)


@pytest.mark.zookeeper
def test_znodes_get_the_acls_of_apache_kafka(server: ZooKeeperServer) -> None:
    async def body() -> None:
        place = server.connect + "/cluster"
        store = await ZooKeeperStore.connect(place, login=KAFKA, set_acl=True)
        stranger = await ZooKeeperStore.connect(place)
        try:
            await ClusterStore(store, ManualClock()).ensure_paths()
            await store.create("/config/users/alice", b"x")
            await store.multi([Create("/config/topics/t", b"x"), Create("/config/brokers/1", b"x")])
            assert (await stranger.get("/config/topics/t"))[0] == b"x"
            for path in ("/config/topics/t", "/config/brokers/1"):
                with pytest.raises(NotAllowed):
                    await stranger.set(path, b"y")
            with pytest.raises(NotAllowed):
                await stranger.get("/config/users/alice")
        finally:
            await stranger.close()
            await store.close()

    asyncio.run(body())
    client = KazooClient(
        server.connect,
        sasl_options={"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"},
    )
    client.start(20)
    try:
        seen = 0

        def check(path: str) -> None:
            nonlocal seen
            seen += 1
            acl = text_of(client.get_acls("/cluster" + path)[0])
            assert (path, acl) == (path, EXPECTED[access_of(path or "/")])
            for child in client.get_children("/cluster" + path):
                check(f"{path}/{child}")

        check("")
        assert seen > 20
    finally:
        client.stop()
        client.close()


@pytest.mark.zookeeper
def test_refused_login_is_an_error_that_says_so(server: ZooKeeperServer, caplog) -> None:
    async def body() -> None:
        wrong = ZooKeeperLogin("kafka", "wrong")
        with pytest.raises(StoreClosed, match="ZooKeeper refused the login of kafka"):
            await ZooKeeperStore.connect(server.connect, login=wrong, connection_timeout_ms=5000)

    asyncio.run(body())
    assert "wrong" not in caplog.text


@pytest.mark.zookeeper
def test_login_is_repeated_when_the_server_comes_back() -> None:
    own = ZooKeeperServer(jaas=JAAS)

    async def body() -> None:
        store = await ZooKeeperStore.connect(
            own.connect, login=KAFKA, set_acl=True, session_timeout_ms=40_000
        )
        try:
            await store.create("/a", b"1")
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            assert (await store.get("/a"))[0] == b"1"
            await store.set("/a", b"2")
        finally:
            await store.close()

    try:
        own.start()
        asyncio.run(asyncio.wait_for(body(), 60))
    finally:
        own.close()
