"""The partitions of a broker 0 on real files, with an image made by the test; no network, no store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kwire.api import response_class
from kwire.codec import decode, encode
from kwire.errors import EncodeError
from kwire.records.batch import BatchBuilder, RecordBatch, iter_batches
from server.config import BrokerConfig
from server.executor import Executor
from server.handlers.context import ConnectionInfo, Later, RequestContext
from server.handlers.produce import produce
from server.handlers.registry import Handler
from server.log.file_layer import FileLayer, FileSlice
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.endpoint import Endpoint
from server.metadata.image import (
    TOPICS,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from server.metadata.publisher import MetadataPublisher
from server.net.dispatcher import Plain
from server.replication.fetch_session import FetchSessionCache
from server.replication.partition import Partition
from server.replication.replica_manager import ReplicaManager
from server.turns import Turns
from tests.support.services import services_of
from tests.support.steps import finished

from .clock import ManualClock
from .roles import ImageRoles

NOW = 1_700_000_000_000
BROKER_ID = 0


class UnsyncedFiles(FileLayer):
    """Real files that are not synced to the device, to save time."""

    def fsync(self, fd: int) -> None: ...

    def sync_path(self, path: str) -> None: ...


def topic_id(name: str) -> bytes:
    """A readable topic id: the topic's name, padded."""
    return name.encode()[:16].ljust(16, b"\1")


def topic_image(
    name: str,
    partitions: int = 1,
    *,
    leader: int = BROKER_ID,
    epoch: int = 0,
    replicas: tuple[int, ...] = (BROKER_ID,),
    isr: tuple[int, ...] | None = None,
    id: bytes | None = None,
) -> TopicImage:
    """A topic whose partitions are all alike."""
    return TopicImage(
        name,
        topic_id(name) if id is None else id,
        {
            number: PartitionImage(
                number, leader, epoch, replicas, replicas if isr is None else isr
            )
            for number in range(partitions)
        },
    )


def batch(
    *values: bytes,
    timestamp: int = NOW,
    key: bytes | None = b"k",
    codec: int = 0,
    magic: int = 2,
    **options: Any,
) -> bytes:
    """One batch with a record per value."""
    builder = BatchBuilder(magic, codec, **options)
    for number, value in enumerate(values or (b"value",)):
        builder.append(timestamp + number, key, value)
    return builder.build()


def stored(data: Any) -> bytes | None:
    """The bytes of a fetched partition, in memory or in a file; None stays None."""
    if isinstance(data, FileSlice):
        try:
            return data.read()
        finally:
            data.close()
    return None if data is None else bytes(data)


def values(data: Any) -> list[bytes | None]:
    """The values of all data records in fetched bytes."""
    return [
        record.value
        for each in iter_batches(stored(data))
        if not RecordBatch(each.view).is_control
        for record in each.records()
    ]


class Replicas:
    """A log manager, a replica manager and the services that handlers reach them through."""

    #: Whether requests go to the plain form of their handler first.
    plain = False

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, str] | None = None,
        broker_id: int = BROKER_ID,
        layer: FileLayer | None = None,
    ) -> None:
        self.folder = folder
        self.broker_id = broker_id
        self.config = BrokerConfig(
            {"broker.id": str(broker_id), "log.dirs": str(folder), **(config or {})}
        )
        self.clock = ManualClock(now_ms=NOW)
        self.logs = LogManager(self.config.log_dirs, layer or UnsyncedFiles())
        self.logs.lock()
        self.publisher = MetadataPublisher()
        self.executor = Executor()
        self.turns = Turns(self.clock.monotonic_us)
        self.replicas = ReplicaManager(
            broker_id,
            self.logs,
            self.settings,
            self.clock,
            executor=self.executor,
            turns=self.turns,
        )
        self.publisher.subscribe(ImageRoles(self.replicas).on_image)
        self.publisher.subscribe(self.replicas.on_image)
        self.settings_calls = 0
        #: The number of requests that the plain forms of handlers have answered.
        self.plain_answers = 0
        self.stopped = False
        self.services = services_of(
            ceiling="4.3",
            node_id=broker_id,
            cluster_id="cluster",
            advertises=True,
            config=self.config,
            clock=self.clock,
            executor=self.executor,
            turns=self.turns,
            metadata=self.publisher.current,
            log_manager=self.logs,
            replica_manager=self.replicas,
            fetch_sessions=FetchSessionCache(10),
        )
        self.connection = ConnectionInfo(
            "127.0.0.1:9092-127.0.0.1:50000-1",
            client_host="127.0.0.1",
            client_port=50000,
            local_host="10.0.0.7",
            local_port=9092,
            listener="PLAINTEXT",
        )

    def start(self, *topics: TopicImage, configs: Mapping[str, Mapping[str, str]] = {}) -> Replicas:
        """Open the logs, and publish the first image with these topics."""
        edit = MetadataImage().edit().put_brokers({self.broker_id: registration(self.broker_id)})
        edit.put_cluster_id("cluster").put_controller(self.broker_id).put_topics(topics)
        for name, overrides in configs.items():
            edit.put_config(TOPICS, name, overrides)
        image = edit.build()
        self.publisher._image = image  # the source of the logs' settings
        self.logs.load(lambda topic: self.settings(topic)[0], self.clock.now_ms())
        self.publisher._image = MetadataImage()
        self.publisher.publish(image)
        return self

    def settings(self, topic: str) -> tuple[LogConfig, int]:
        self.settings_calls += 1
        values = self.config.topic_config(self.publisher.image.topic_config(topic))
        minimum = values["min.insync.replicas"]
        assert isinstance(minimum, int)
        return LogConfig.of(self.config, values), minimum

    def create(self, name: str, partitions: int = 1, **options: Any) -> Partition:
        """Add a topic, with `configs` among its options, and return its first partition."""
        configs = options.pop("configs", {})
        edit = self.publisher.image.edit().put_config(TOPICS, name, configs)
        edit.put_topics([topic_image(name, partitions, **options)])
        self.publisher.publish(edit.build())
        return self.partition(name)

    def delete(self, name: str) -> None:
        self.publisher.publish(self.publisher.image.without_topics([name]))

    def partition(self, name: str, number: int = 0) -> Partition:
        found = self.replicas.get(name, number)
        assert found is not None
        return found

    def produce(self, name: str, *values: bytes, number: int = 0, **options: Any) -> int:
        """Append as a client, and return the first offset; the append must succeed."""
        info = self.append(name, batch(*values, **options), number=number)
        return int(info.first_offset)

    def append(self, name: str, records: bytes, *, number: int = 0, **options: Any) -> Any:
        return self.partition(name, number).append_as_leader(
            memoryview(bytearray(records)),
            acks=1,
            now_ms=self.clock.now_ms(),
            max_bytes=1 << 20,
            **options,
        )

    def append_unread(self, name: str, records: bytes) -> Any:
        """Append a batch without reading its records, as with kwire.produce.validation=standard."""
        return self.append(name, records, prepared=True)

    def context(
        self, version: int, client_id: str | None = "test", handler: Any = produce
    ) -> RequestContext:
        return RequestContext(
            handler if isinstance(handler, Handler) else produce,
            version,
            1,
            client_id,
            self.clock.now_ms(),
            self.connection,
            self.services,
        )

    def call(self, handler: Any, request: Any, version: int, client_id: str = "test") -> Any:
        """Call a handler, which must answer at once."""
        answer = finished(self._handled(handler, request, version, client_id))
        assert not isinstance(answer, Later), "it did not answer at once"
        return answer

    async def ask(self, handler: Any, request: Any, version: int, client_id: str = "test") -> Any:
        """Call a handler and wait for its answer."""
        return await finish(self._handled(handler, request, version, client_id))

    def _handled(self, handler: Any, request: Any, version: int, client_id: str) -> Any:
        """What the handler returns; with `plain` its plain form, if the request is plain."""
        context = self.context(version, client_id, handler)
        if not self.plain or getattr(handler, "plain", None) is None:
            return handler(context, request)
        try:
            body = memoryview(bytearray(encode(request, version)))
        except EncodeError:  # never sent by a client
            return handler(context, request)
        answer = handler.plain(context, body, 0)
        if answer is None:
            return handler(context, request)
        self.plain_answers += 1

        def decoded(answer: Any) -> Any:
            if type(answer) is not Plain:
                return answer
            parts = [part.read() if hasattr(part, "read") else part for part in answer.parts]
            return decode(response_class(handler.api_key), b"".join(parts), version)

        if isinstance(answer, Later):
            finish = answer.finish
            assert finish is not None
            answer.finish = lambda result: decoded(finish(result))
            return answer
        return decoded(answer)

    def stop(self) -> None:
        """Close everything; safe to call twice."""
        if self.stopped:
            return
        self.stopped = True
        self.executor.close()
        self.logs.shutdown(self.clock.now_ms())


def registration(broker_id: int, rack: str | None = None) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", f"broker{broker_id}", 9092 + broker_id)
    return BrokerRegistration(broker_id, (endpoint,), rack)


async def finish(answer: Any) -> Any:
    """The final response of a handler's answer."""
    answer = finished(answer)
    if isinstance(answer, Later):
        result = await answer.awaitable
        return result if answer.finish is None else finished(answer.finish(result))
    return answer


async def turns(count: int = 5) -> None:
    """Let the loop run the callbacks that are ready."""
    for _ in range(count):
        await asyncio.sleep(0)
