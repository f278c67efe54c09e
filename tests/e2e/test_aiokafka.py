"""aiokafka against a whole broker."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata

from ..support.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_leftovers() -> Iterator[None]:
    yield
    gc.collect()  # while this module's filters hold


def cell(feature: str) -> pytest.MarkDecorator:
    """Return the marker of this client's row."""
    return pytest.mark.compat("aiokafka", feature)


class Session:
    """The clients of one test, made inside its event loop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        """Give a started admin client."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def consumer(self, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
        """Give a started consumer that begins at the earliest record."""
        options: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 500,
        }
        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap, **(options | settings)
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def create(self, topic: str, partitions: int = 1, **config: str) -> list[Any]:
        """Create one topic and return the rows of the answer."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, 1, topic_configs=settings)
        async with self.admin() as admin:
            answer = await admin.create_topics([new])
        rows: list[Any] = answer.topic_errors
        return rows

    async def produce(self, topic: str, values: list[bytes], **settings: Any) -> list[int]:
        """Write values to partition 0 and return the acknowledged offsets."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **settings)
        await producer.start()
        try:
            futures = [await producer.send(topic, value, partition=0) for value in values]
            acknowledged = await asyncio.gather(*futures)
        finally:
            await producer.stop()
        return [row.offset for row in acknowledged if row is not None]


async def take(consumer: AIOKafkaConsumer, count: int, timeout_s: float = 60.0) -> list[Any]:
    """Return exactly count records. Errors: TimeoutError."""
    rows: list[Any] = []
    async with asyncio.timeout(timeout_s):
        while len(rows) < count:
            left = count - len(rows)
            for part in (await consumer.getmany(timeout_ms=200, max_records=left)).values():
                rows += part
    return rows


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until the condition holds; aiokafka's groups make progress in the background."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def run(broker: BrokerProcess) -> Callable[[Callable[[Session], Coroutine[Any, Any, None]]], None]:
    """Give a function that runs a test's coroutine with a Session."""

    def runner(body: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(body(Session(broker.bootstrap)))

    return runner


Run = Callable[[Callable[[Session], Coroutine[Any, Any, None]]], None]


@cell("create and delete topics")
def test_created_topic_is_listed_and_deleted_topic_is_not(run: Run, name: str) -> None:
    """Create, create again, list, delete."""

    async def body(session: Session) -> None:
        assert (await session.create(name, 3))[0][1] == 0
        exists = aiokafka.errors.TopicAlreadyExistsError.errno
        assert (await session.create(name, 3))[0][1] == exists
        async with session.admin() as admin:
            described = await admin.describe_topics([name])
            assert len(described[0]["partitions"]) == 3
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()

    run(body)


@cell("produce acks 0, 1, all")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_readable_whatever_the_acks(run: Run, name: str, acks: Any) -> None:
    """Acknowledged offsets count up."""

    async def body(session: Session) -> None:
        await session.create(name)
        values = [b"%d" % number for number in range(200)]
        offsets = await session.produce(name, values, acks=acks)
        assert acks == 0 or offsets == list(range(200))
        async with session.consumer(name) as consumer:
            assert [row.value for row in await take(consumer, 200)] == values

    run(body)


@cell("idempotent producer")
def test_idempotent_producer_writes_each_record_once_in_order(run: Run, name: str) -> None:
    """Many small batches."""

    async def body(session: Session) -> None:
        await session.create(name)
        values = [b"%d" % number for number in range(1000)]
        settings = {"enable_idempotence": True, "max_batch_size": 300}
        assert await session.produce(name, values, **settings) == list(range(1000))

    run(body)


@cell("seek and offsets")
def test_seek_ends_and_times_find_the_offset(run: Run, name: str) -> None:
    """Rewind, both ends, and the first record at or after a time."""

    async def body(session: Session) -> None:
        await session.create(name)
        now_ms = int(time.time() * 1000)
        async with AIOKafkaProducer(bootstrap_servers=session.bootstrap) as producer:
            for number in range(100):
                await producer.send(
                    name, b"%d" % number, partition=0, timestamp_ms=now_ms + number * 10
                )
        tp = TopicPartition(name, 0)
        async with session.consumer() as consumer:
            consumer.assign([tp])
            await take(consumer, 100)
            consumer.seek(tp, 40)
            assert (await take(consumer, 1))[0].value == b"40"
            await consumer.seek_to_beginning(tp)
            assert (await take(consumer, 1))[0].value == b"0"
            assert (await consumer.beginning_offsets([tp]))[tp] == 0
            assert (await consumer.end_offsets([tp]))[tp] == 100
            found = await consumer.offsets_for_times({tp: now_ms + 255})
            assert found[tp].offset == 26
            assert (await consumer.offsets_for_times({tp: now_ms + 10_000}))[tp] is None

    run(body)


@cell("groups: rebalance")
def test_members_share_the_partitions_and_inherit_them(run: Run, name: str) -> None:
    """A second member takes half of four partitions; when it leaves, the first has all again."""

    async def body(session: Session) -> None:
        await session.create(name, 4)
        async with session.consumer(name, group_id=name) as first:
            await until(lambda: len(first.assignment()) == 4)
            async with session.consumer(name, group_id=name) as second:
                both = [first, second]
                await until(lambda: [len(one.assignment()) for one in both] == [2, 2])
                assert not first.assignment() & second.assignment()
            await until(lambda: len(first.assignment()) == 4)

    run(body)


@cell("groups: static membership")
def test_static_member_returns_to_its_partitions(run: Run, name: str) -> None:
    """The same group_instance_id finds its old assignment."""

    async def body(session: Session) -> None:
        await session.create(name, 4)
        settings = {"group_id": name, "session_timeout_ms": 45000}
        async with session.consumer(name, group_instance_id="stay", **settings) as stay:
            async with session.consumer(name, group_instance_id="leave", **settings) as leave:
                both = [stay, leave]
                await until(lambda: [len(one.assignment()) for one in both] == [2, 2])
                had = leave.assignment()
            async with session.consumer(name, group_instance_id="leave", **settings) as again:
                await until(lambda: len(again.assignment()) == 2)
                assert again.assignment() == had

    run(body)


@cell("groups: commit and resume")
def test_committed_offset_is_where_the_next_member_begins(run: Run, name: str) -> None:
    """With metadata stored with the offset."""

    async def body(session: Session) -> None:
        await session.create(name)
        await session.produce(name, [b"%d" % number for number in range(20)])
        tp = TopicPartition(name, 0)
        async with session.consumer(name, group_id=name) as first:
            await take(first, 10)
            await first.commit({tp: OffsetAndMetadata(7, "noted")})
        async with session.consumer(name, group_id=name) as second:
            assert (await take(second, 1))[0].offset == 7
        async with session.admin() as admin:
            stored = await admin.list_consumer_group_offsets(name)
            assert stored[tp] == OffsetAndMetadata(7, "noted")

    run(body)


@cell("admin: groups")
def test_group_is_listed_and_described(run: Run, name: str) -> None:
    """Stable with one member."""

    async def body(session: Session) -> None:
        await session.create(name)
        async with session.consumer(name, group_id=name) as consumer, session.admin() as admin:
            await until(lambda: len(consumer.assignment()) == 1)
            assert (name, "consumer") in [group[:2] for group in await admin.list_consumer_groups()]
            described = (await admin.describe_consumer_groups([name]))[0].groups[0]
            assert described[2] == "Stable"
            assert len(described[5]) == 1

    run(body)


@cell("admin: partitions, configs and records")
def test_partitions_grow_configs_change_and_records_go(run: Run, name: str) -> None:
    """Each is seen in the next answer."""

    async def body(session: Session) -> None:
        await session.create(name)
        await session.produce(name, [b"%d" % number for number in range(10)])
        tp = TopicPartition(name, 0)
        async with session.admin() as admin:
            await admin.create_partitions({name: NewPartitions(3)})
            assert len((await admin.describe_topics([name]))[0]["partitions"]) == 3
            settings = {"retention.ms": "1234567"}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, settings)])
            answer = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            entries = {entry[0]: entry[1] for entry in answer[0].resources[0][4]}
            assert entries["retention.ms"] == "1234567"
            assert await admin.delete_records({tp: RecordsToDelete(4)}) == {tp: 4}
            assert (await admin.describe_cluster())["controller_id"] >= 0

    run(body)


@cell("large messages")
def test_large_message_passes_when_the_topic_allows_it(run: Run, name: str) -> None:
    """5 MB, also for a reader that requests far less at a time."""

    async def body(session: Session) -> None:
        await session.create(name, max_message_bytes="10000000")
        value = bytes(range(256)) * 20_000
        await session.produce(name, [value, b"after"], max_request_size=10_000_000)
        async with session.consumer(name, max_partition_fetch_bytes=1000) as consumer:
            assert [row.value for row in await take(consumer, 2)] == [value, b"after"]

    run(body)


@cell("errors")
def test_message_over_the_topics_limit_is_refused(run: Run, name: str) -> None:
    """The sender gets MESSAGE_TOO_LARGE."""

    async def body(session: Session) -> None:
        await session.create(name, max_message_bytes="2000")
        with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
            await session.produce(name, [b"x" * 3000])
        assert await session.produce(name, [b"y"]) == [0]

    run(body)
