"""A whole broker on this event loop, with its embedded store, driven over real sockets."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.describe_cluster import DescribeClusterRequest
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.messages.metadata import MetadataRequest, MetadataRequestTopic
from server.broker import Broker
from server.composition.opened import host_name
from server.config import BrokerConfig, ConfigError
from server.coordination.embedded import EmbeddedStore
from server.executor import Executor
from server.log.log_directory import (
    InconsistentBrokerId,
    InconsistentClusterId,
    LogDirInUse,
    MissingMetadata,
)
from server.run import STOP_SIGNALS, ignore_signals, run_until_stopped
from tests.support.requests import produce_request

from .handlers.fetches import fetch_request, rows
from .support.replicas import UnsyncedFiles, batch, values
from .support.socket_client import SocketClient

Scenario = Callable[[Broker, SocketClient], Awaitable[None]]


def new_broker(
    folder: Path,
    store: EmbeddedStore | None = None,
    /,
    executor: Executor | None = None,
    **config: str,
) -> Broker:
    settings = {
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "2",
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    return Broker(
        BrokerConfig(settings), file_layer=UnsyncedFiles(), store=store, executor=executor
    )


@asynccontextmanager
async def running(folder: Path, **config: str) -> AsyncIterator[tuple[Broker, SocketClient]]:
    """A broker that serves, and a client of it."""
    broker = new_broker(folder, **config)
    client = None
    try:
        await broker.start()
        client = await connect(broker)
        yield broker, client
    finally:
        if client is not None:
            await client.close()
        await broker.stop()


async def connect(broker: Broker) -> SocketClient:
    return await SocketClient.open("127.0.0.1", broker.serving.listeners[0].port)


def run(folder: Path, scenario: Scenario, **config: str) -> None:
    async def main() -> None:
        async with running(folder, **config) as (broker, client):
            await asyncio.wait_for(scenario(broker, client), 30)

    asyncio.run(main())


async def create(client: SocketClient, *names: str, partitions: int = 1, **configs: str) -> Any:
    rows = [CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()]
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
        for name in names
    ]
    answer = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert [topic.error_code for topic in answer.topics] == [0] * len(names)
    return answer.topics


async def produce(client: SocketClient, topic: str, *values: bytes, **options: Any) -> int:
    answer = await client.ask(
        produce_request((topic, 0, batch(*values, **options)), timeout_ms=10_000), 9
    )
    ((row,),) = [each.partition_responses for each in answer.responses]
    assert row.error_code == 0
    return int(row.base_offset)


async def fetch(client: SocketClient, topic: str, offset: int = 0, version: int = 12) -> Any:
    answer = await client.ask(fetch_request((topic, 0, offset)), version)
    (row,) = rows(answer).values()
    return row


async def metadata(client: SocketClient, *names: str, version: int = 12) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return await client.ask(MetadataRequest(topics=topics), version)


# Serving


def test_created_topic_can_be_used_at_once_on_every_connection(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        other = await connect(broker)
        for number in range(30):
            name = f"topic-{number}"
            await create(client, name, partitions=3)
            assert await produce(other, name, b"1", b"2") == 0
            assert values((await fetch(client, name)).records) == [b"1", b"2"]
        await other.close()

    run(tmp_path, scenario)


def test_topic_made_by_first_use_can_be_used_at_once_by_all_who_asked(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        clients = [await connect(broker) for _ in range(10)]
        answers = await asyncio.gather(*(metadata(each, "new") for each in clients))
        assert {topic.error_code for answer in answers for topic in answer.topics} == {0}
        assert len({topic.topic_id for answer in answers for topic in answer.topics}) == 1
        offsets = await asyncio.gather(*(produce(each, "new", b"v") for each in clients))
        assert sorted(offsets) == list(range(10))
        for each in clients:
            await each.close()

    run(tmp_path, scenario)


def test_deleted_topic_is_gone_and_may_be_made_again(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        (first,) = await create(client, "a")
        await produce(client, "a", b"old")
        await client.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 5)
        assert (await fetch(client, "a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (second,) = await create(client, "a")
        assert first.topic_id != second.topic_id
        assert (await fetch(client, "a")).high_watermark == 0
        assert await produce(client, "a", b"new") == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_large_answer_leaves_the_connection_and_the_broker_free(
    tmp_path: Path, version: int
) -> None:
    """In versions below 12, the answer ends with a slice of the file."""

    async def scenario(broker: Broker, client: SocketClient) -> None:
        await create(client, "a")
        value = os.urandom(300_000)
        await produce(client, "a", value)
        for _ in range(3):
            assert values((await fetch(client, "a", version=version)).records) == [value]

    run(tmp_path, scenario)


def test_fetch_waits_for_what_another_connection_produces(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        other = await connect(broker)
        await create(client, "a")
        await client.send(fetch_request(("a", 0, 0), max_wait_ms=20_000), 12)
        await metadata(other, "a")
        assert broker.rooms.replica_manager.partitions["a", 0].waiters.fetches  # type: ignore[index]
        await produce(other, "a", b"1")
        (row,) = rows(await client.receive()).values()
        assert values(row.records) == [b"1"]
        await other.close()

    run(tmp_path, scenario)


def test_fetch_of_a_client_that_went_away_waits_no_longer(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        await create(client, "a")
        other = await connect(broker)
        await other.send(fetch_request(("a", 0, 0), max_wait_ms=20_000), 12)
        waiters = broker.rooms.replica_manager.partitions["a", 0].waiters.fetches  # type: ignore[index]
        while not waiters:
            await asyncio.sleep(0)
        await other.close()
        began = time.monotonic()
        while waiters and time.monotonic() - began < 10:  # the fetch itself would wait for 20 s
            await asyncio.sleep(0)
        assert not waiters

    run(tmp_path, scenario)


def test_failed_acks_0_closes_the_connection_and_a_good_one_does_not(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        await create(client, "a")
        await client.send(produce_request(("a", 0, batch(b"1")), acks=0), 9)
        assert await produce(client, "a", b"2") == 1
        await client.send(produce_request(("nope", 0, batch(b"1")), acks=0), 9)
        assert await client.is_closed()

    run(tmp_path, scenario)


def test_embedded_store_serves_what_4_3_has_and_old_clients_too(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await client.ask(asked, 3)
        ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        assert ranges[ApiKey.DESCRIBE_TOPIC_PARTITIONS] == (0, 0)
        assert ranges[ApiKey.FETCH][0] == ranges[ApiKey.LIST_OFFSETS][0] == 0

    run(tmp_path, scenario)


def test_chroot_that_is_no_path_is_refused_by_its_key(tmp_path: Path) -> None:
    async def main() -> None:
        broker = new_broker(tmp_path, zookeeper_connect="localhost:1/a//b")
        try:
            with pytest.raises(ConfigError, match=r"zookeeper\.connect=localhost:1/a//b: "):
                await broker.start()
        finally:
            await broker.stop()

    asyncio.run(main())


def test_name_that_no_host_can_have_in_the_ensemble_is_refused_by_its_key(tmp_path: Path) -> None:
    async def main() -> None:
        broker = new_broker(tmp_path, zookeeper_connect="localhost:1,zk2..example.com:1")
        try:
            with pytest.raises(
                ConfigError, match=r"'zk2\.\.example\.com' is not the name of a host"
            ):
                await broker.start()
        finally:
            await broker.stop()

    asyncio.run(main())


# Addresses


@pytest.mark.parametrize(
    ("config", "told", "registered"),
    [
        ({}, "127.0.0.1:own", "127.0.0.1:own"),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, "127.0.0.1:own", "name:own"),
        (
            {"advertised_listeners": "PLAINTEXT://kafka.example:9999"},
            "kafka.example:9999",
            "kafka.example:9999",
        ),
    ],
)
def test_client_is_told_where_it_reached_the_broker_unless_that_was_set(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    told: str,
    registered: str,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "name")

    async def scenario(broker: Broker, client: SocketClient) -> None:
        own = str(broker.serving.listeners[0].port)
        (node,) = (await metadata(client)).brokers
        assert f"{node.host}:{node.port}" == told.replace("own", own)
        (described,) = (await client.ask(DescribeClusterRequest(), 0)).brokers
        assert (described.host, described.port) == (node.host, node.port)
        (endpoint,) = broker.rooms.publisher.image.brokers[broker.opened.node_id].endpoints
        assert f"{endpoint.host}:{endpoint.port}" == registered.replace("own", own)

    run(tmp_path, scenario, **config)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, "name"),
        ({"zookeeper.connect": "localhost"}, "full.name"),
        ({"listeners": "PLAINTEXT://10.0.0.1:0", "zookeeper.connect": "localhost"}, "name"),
        ({"advertised.listeners": "PLAINTEXT://a:1", "zookeeper.connect": "localhost"}, "name"),
        ({"listeners": "SSL://:0", "security.inter.broker.protocol": "SSL"}, "full.name"),
    ],
)
def test_full_name_of_the_machine_is_looked_up_if_others_are_told_it(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, str], name: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "name")
    monkeypatch.setattr("socket.getfqdn", lambda: "full.name")
    executor = Executor()
    try:
        assert asyncio.run(host_name(BrokerConfig(config), executor)) == name
    finally:
        executor.close()


def test_wildcard_without_an_address_to_tell_is_explained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        port = broker.serving.listeners[0].port
        assert f"start with --advertise HOST:{port}" in caplog.text
        assert broker.address == f"localhost:{port}"

    with caplog.at_level("INFO"):
        run(tmp_path, scenario, listeners="PLAINTEXT://0.0.0.0:0")


# Restarts


def test_restart_keeps_topics_configs_records_and_ids(tmp_path: Path) -> None:
    async def main() -> None:
        ask_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        async with running(tmp_path) as (broker, client):
            (topic,) = await create(client, "a", partitions=2, retention_ms="12345")
            await produce(client, "a", b"1", b"2", b"3")
            await client.ask(delete_before("a", 2), 2)
            cluster_id, node_id = broker.rooms.services.cluster_id, broker.opened.node_id
            producer_id = (await client.ask(ask_id, 4)).producer_id
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        async with running(tmp_path) as (broker, client):
            assert (broker.rooms.services.cluster_id, broker.opened.node_id) == (
                cluster_id,
                node_id,
            )
            (found,) = (await metadata(client, "a")).topics
            assert (found.topic_id, len(found.partitions)) == (topic.topic_id, 2)
            assert (await fetch(client, "a", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await fetch(client, "a", 2)).high_watermark == 3
            assert await earliest(client, "a") == 2
            assert await config(client, "a", "retention.ms") == "12345"
            assert (await client.ask(ask_id, 4)).producer_id > producer_id
            assert await produce(client, "a", b"4") == 3

    asyncio.run(main())


def test_broker_that_was_killed_comes_back_with_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (broker, client):
            await create(client, "a")
            await produce(client, "a", b"1", producer_id=7, producer_epoch=0, base_sequence=0)
            # As if the process ended here: nothing is flushed, checkpointed or marked.
            broker.opened.log_manager.shutdown = lambda now_ms, **_: None  # type: ignore[method-assign,assignment,misc]
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        async with running(tmp_path) as (broker, client):
            assert values((await fetch(client, "a")).records) == [b"1"]
            again = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
            assert await produce(client, "a", b"1", **again) == 0
            assert await produce(client, "a", b"2") == 1

    asyncio.run(main())


def delete_before(topic: str, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000
    )


async def earliest(client: SocketClient, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    return int((await client.ask(request, 5)).topics[0].partitions[0].offset)


async def config(client: SocketClient, topic: str, name: str) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=[name]
    )
    answer = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    (row,) = answer.results[0].configs
    assert row.name == name
    return str(row.value)


# Refusals


def test_second_broker_on_a_data_directory_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        await create(client, "a")
        second = new_broker(tmp_path)
        with pytest.raises(LogDirInUse, match="in use by another broker"):
            await second.start()
        await second.stop()
        assert await produce(client, "a", b"1") == 0

    run(tmp_path, scenario)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def start_refused(folder: Path, error: type[Exception], match: str, **config: Any) -> None:
    store = config.pop("store", None)
    broker = new_broker(folder, store, **config)
    with pytest.raises(error, match=match):
        await broker.start()
    await broker.stop()


def test_directory_of_another_broker_or_cluster_is_refused_and_left_as_it_is(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with running(tmp_path / "one", node_id="1") as (_, client):
            await create(client, "a")
            await produce(client, "a", b"1")
        async with running(tmp_path / "two"):
            pass
        before = checkpoints(tmp_path / "one")
        await start_refused(tmp_path / "one", InconsistentBrokerId, "broker 1", node_id="2")
        store = await EmbeddedStore.open(
            tmp_path / "two" / "coordination.db", new_broker(tmp_path).seams.clock
        )
        await start_refused(tmp_path / "one", InconsistentClusterId, "cluster", store=store)
        assert checkpoints(tmp_path / "one") == before
        async with running(tmp_path / "one") as (_, client):
            assert (await fetch(client, "a")).high_watermark == 1

    asyncio.run(main())


def checkpoints(folder: Path) -> dict[str, bytes]:
    names = [path for path in folder.iterdir() if "checkpoint" in path.name]
    return {path.name: path.read_bytes() for path in [*names, folder / "meta.properties"]}


def test_start_that_fails_does_not_call_a_killed_brokers_directory_clean(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path / "one") as (broker, client):
            await create(client, "a")
            await produce(client, "a", b"1")
            broker.opened.log_manager.shutdown = lambda now_ms, **_: None  # type: ignore[method-assign,assignment,misc]
        before = checkpoints(tmp_path / "one")
        async with running(tmp_path / "two") as (other, _):
            taken = f"PLAINTEXT://127.0.0.1:{other.serving.listeners[0].port}"
            await start_refused(tmp_path / "one", OSError, "cannot listen on", listeners=taken)
        assert not (tmp_path / "one" / ".kafka_cleanshutdown").exists()
        assert checkpoints(tmp_path / "one") == before

    asyncio.run(main())


# Stopping


def test_stop_does_not_wait_for_clients_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        broker = new_broker(tmp_path)
        await broker.start()
        clients = [await connect(broker) for _ in range(20)]
        await create(clients[0], "a", partitions=50)
        for client in clients:
            await client.send(fetch_request(("a", 0, 0), max_wait_ms=60_000), 12)
        while len(broker.rooms.replica_manager.partitions["a", 0].waiters.fetches) < 20:  # type: ignore[index]
            await asyncio.sleep(0)
        begin = time.monotonic()
        await broker.stop()
        assert time.monotonic() - begin < 30
        for client in clients:
            assert await client.is_closed()
            await client.close()

    asyncio.run(main())


class WorkerThatEndsLate(Executor):
    """A worker whose work finishes at the very moment when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[asyncio.Future[None]] = []

    async def in_worker(self, client: Any, function: Any, *args: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.work.append(future)
        await future
        return function(*args)

    def close(self) -> None:
        for future in self.work:
            if not future.done():
                future.set_result(None)
        super().close()


def test_what_waits_for_the_worker_is_not_appended_to_closed_logs(tmp_path: Path) -> None:
    async def main() -> None:
        worker = WorkerThatEndsLate()
        broker = new_broker(tmp_path, executor=worker)
        await broker.start()
        clients = [await connect(broker) for _ in range(2)]
        await create(clients[0], "a", compression_type="gzip")
        partition = broker.rooms.replica_manager.partitions["a", 0]  # type: ignore[index]
        for waiting, client in enumerate(clients, 1):
            for value in (bytes(100_000), b"behind it"):
                await client.send(produce_request(("a", 0, batch(value))), 9)
            while sorted(map(len, (partition.append_queues or {}).values())) != [2] * waiting:
                await asyncio.sleep(0)
        await broker.stop()
        assert partition.log.log_end_offset == 0
        for client in clients:
            await client.close()

    asyncio.run(main())


def test_broker_whose_directories_all_fail_cannot_go_on(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: SocketClient) -> None:
        await create(client, "a")
        log = broker.rooms.replica_manager.partitions["a", 0].log  # type: ignore[index]
        log.on_io_error(OSError("the disk is gone"))
        assert broker.failed is not None and broker.failed.done()
        assert "all log directories have failed" in str(broker.failed.result())
        answer = await client.ask(produce_request(("a", 0, batch(b"1"))), 9)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


def test_metadata_has_its_own_directory_if_that_is_set(tmp_path: Path) -> None:
    own = tmp_path / "metadata"

    async def main() -> None:
        async with running(tmp_path / "logs", metadata_log_dir=str(own)) as (_, client):
            await create(client, "a")
            await start_refused(
                tmp_path / "others", LogDirInUse, "metadata", metadata_log_dir=str(own)
            )
        assert (own / "coordination.db").exists()
        assert not (tmp_path / "logs" / "coordination.db").exists()
        async with running(tmp_path / "logs", metadata_log_dir=str(own)) as (_, client):
            assert [each.name for each in (await metadata(client, "a")).topics] == ["a"]
        # The directory of another broker's metadata.
        await start_refused(
            tmp_path / "others",
            InconsistentBrokerId,
            f"{own} belongs to broker 1",
            metadata_log_dir=str(own),
            node_id="2",
        )

    asyncio.run(main())


def test_metadata_directory_may_be_a_link_to_a_log_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "logs")

    async def main() -> None:
        link = str(tmp_path / "link")
        async with running(tmp_path / "logs", metadata_log_dir=link) as (_, client):
            await create(client, "a")
            await produce(client, "a", b"1")
        async with running(tmp_path / "logs") as (_, client):
            assert (await fetch(client, "a")).high_watermark == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "is_emptied", [False, True, None], ids=["removed", "emptied", "with meta.properties"]
)
def test_logs_without_their_metadata_are_not_served_as_an_empty_and_open_cluster(
    tmp_path: Path, is_emptied: bool | None
) -> None:
    store = tmp_path / "coordination.db"

    async def main() -> None:
        async with running(tmp_path) as (broker, client):
            await create(client, "a")
            await produce(client, "a", b"1")
            cluster_id = broker.opened.cluster_id
        store.rename(tmp_path / "kept")
        if is_emptied:
            store.touch()
        ids = (tmp_path / "meta.properties").read_bytes()
        if is_emptied is None:
            (tmp_path / "meta.properties").unlink()
        for _ in range(2):  # it is no excuse that the first attempt has made a file
            await start_refused(tmp_path, MissingMetadata, "logs of 1 partitions, such as a-0")
        (tmp_path / "kept").rename(store)
        async with running(tmp_path) as (_, client):
            assert (await fetch(client, "a")).high_watermark == 1
        store.unlink()
        (tmp_path / "meta.properties").write_bytes(ids)
        told = {"kwire_metadata_may_be_missing": "true"}
        async with running(tmp_path, **told) as (broker, client):
            assert broker.opened.cluster_id == cluster_id
            assert (await metadata(client)).topics == []
        async with running(tmp_path):  # from now on, this is its metadata
            pass
        assert (tmp_path / "a-0").exists()

    asyncio.run(main())


# As a process


@pytest.fixture
def process_settings() -> Iterator[None]:
    """The settings of the process that running a broker changes."""
    threshold = gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    atexit.unregister(ignore_signals)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.collect()  # the objects frozen along with the broker's
    gc.freeze()


class Stub:
    """A broker whose start does what the test requires."""

    address = "127.0.0.1:9092"
    config = BrokerConfig({})

    def __init__(self, start: Callable[[], Awaitable[None]]) -> None:
        self.start = start
        self.failed: asyncio.Future[Exception] | None = None
        self.stopped = 0

    async def stop(self) -> None:
        self.stopped += 1


def test_broker_says_when_it_is_ready_and_stops_when_told(
    process_settings: None, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start() -> None:
        loop = asyncio.get_running_loop()
        broker.failed = loop.create_future()
        loop.call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)

    broker = Stub(start)
    assert run_until_stopped(broker) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().out == "kwire ready 127.0.0.1:9092\n"
    assert broker.stopped == 1


AFTER_THE_END = """
import asyncio, atexit, os, signal, sys
from server.config import BrokerConfig
from server.run import run_until_stopped

class Stub:
    address = "127.0.0.1:9092"
    config = BrokerConfig({})

    async def start(self):
        self.failed = asyncio.get_running_loop().create_future()
        kill()

    async def stop(self):
        pass

def kill():
    os.kill(os.getpid(), signal.SIGTERM)

atexit.register(kill)  # runs last
status = run_until_stopped(Stub())
kill()
sys.exit(status)
"""


def test_signals_after_the_broker_has_stopped_do_not_change_the_exit_status() -> None:
    ended = subprocess.run([sys.executable, "-c", AFTER_THE_END], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_broker_that_is_still_starting_can_be_stopped(
    process_settings: None, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    broker = Stub(start)
    assert run_until_stopped(broker) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""
    assert broker.stopped == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no such disk"), "no such disk"),
        (ConfigError("Invalid value v ...", "key", "v", "wrong"), "key=v: wrong"),
        (LogDirInUse("taken"), "taken"),
    ],
)
def test_broker_that_cannot_start_says_why_in_a_line(
    process_settings: None, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    async def start() -> None:
        raise error

    broker = Stub(start)
    assert run_until_stopped(broker) == 1  # type: ignore[arg-type]
    assert f"cannot start: {said}" in caplog.text
    assert broker.stopped == 1


def test_broker_that_cannot_go_on_stops_with_an_error(
    process_settings: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def start() -> None:
        broker.failed = asyncio.get_running_loop().create_future()
        broker.failed.set_result(OSError("the disk is gone"))

    broker = Stub(start)
    assert run_until_stopped(broker) == 1  # type: ignore[arg-type]
    assert "cannot continue: the disk is gone" in caplog.text
    assert broker.stopped == 1
