"""A client that often writes a few keys to a compacted topic, and checks the remaining records."""

from __future__ import annotations

import asyncio

from kwire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.records.batch import iter_batches
from kwire.records.builder import BatchBuilder
from server.metadata.topic_partition import TopicPartition
from server.net.broker_channel import ChannelError

from .clients import Producer
from .history import Violation

TP = TopicPartition("compacted", 0)
#: The first ones are written all the time, the others only at the beginning.
KEYS, LASTING_KEYS = 4, 8
READ_TRIES = 50


def compacted_topic() -> CreatableTopic:
    """The request to create the topic."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "700", "min.insync.replicas": "2"}
    return CreatableTopic(
        name=TP.topic,
        num_partitions=1,
        replication_factor=3,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )


class Keeper(Producer):
    """Remembers the last acknowledged value of each key, and looks for it at the end."""

    last: dict[bytes, bytes]

    async def _produce(self, tp: TopicPartition, producer_id: int) -> None:
        self.last = {}
        sequence = 0
        while not self.stopping:
            kinds = KEYS + (LASTING_KEYS if sequence < 2 * LASTING_KEYS else 0)
            key = b"key%d" % self.rng.randrange(kinds)
            value = b"%d" % sequence
            builder = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=sequence
            )
            builder.append(1_700_000_000_000, key, value)
            if await self._send(tp, builder.build()) is None:
                return
            self.last[key] = value
            sequence += 1
            await asyncio.sleep(self.rng.random() * 1.5)

    async def verify(self) -> None:
        """Read everything that remains, and compare."""
        found: dict[bytes, bytes] = {}
        position = 0
        for _ in range(READ_TRIES):
            try:
                end = await self._read(position, found)
            except ChannelError:
                end = None
            if end is None:
                await self.pause()
                continue
            if end == position:
                break
            position = end
        missing = {key: value for key, value in self.last.items() if found.get(key) != value}
        if missing:
            raise Violation(f"{TP}: compaction left {found} where {missing} was written last")

    async def _read(self, offset: int, found: dict[bytes, bytes]) -> int | None:
        """The offset after the records at an offset; None if there are none yet."""
        row = FetchPartition(partition=TP.partition, fetch_offset=offset, partition_max_bytes=20000)
        leader = await self.leader(TP)
        topic = FetchTopic(topic_id=self.topic_ids[TP.topic], partitions=[row])
        answer = await self.ask(leader, FetchRequest(max_wait_ms=100, topics=[topic]), 13)
        rows = answer.responses[0].partitions if answer.responses else []
        if not rows or rows[0].error_code:
            self.leaders.pop(TP, None)
            return None
        for batch in iter_batches(bytes(rows[0].records or b"")):
            for record in batch.records():
                if record.offset >= offset:
                    found[bytes(record.key or b"")] = bytes(record.value or b"")
            offset = max(offset, batch.header.last_offset + 1)
        return offset
