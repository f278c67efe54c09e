"""The share coordinator for those who ask: finds the shard, and refuses what belongs elsewhere.

The state of a share partition belongs to the broker that leads its partition of __share_group_state.
Source: ShareCoordinatorService.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Generator
from typing import Any

from kwire.errors import ErrorCode
from kwire.records.batch import iter_batches
from kwire.types import uuid_from_str, uuid_to_str

from ...cause import Own
from ...clock import Clock
from ...metadata.image import MetadataImage
from ...metadata.internal_topics import SHARE_GROUP_STATE_TOPIC
from ...turns import Steps, Turns
from ..common.front_desk import FrontDesk
from ..common.runtime import CoordinatorLog
from .config import ShareCoordinatorConfig
from .operations import OutcomeT, RowT, StateOperation
from .rows import StatePartition
from .shard import PRUNE, ShareMemory, ShareShard

_JAVA_INT = re.compile(r"[+-]?[0-9]{1,10}")


class ShareCoordinator(FrontDesk[ShareCoordinatorConfig, ShareShard]):
    """All share partitions whose state this broker keeps, by their `coordinator_key`.

    Shape: each operation returns its row, or an awaitable of it if it has to wait.
    `delete_before(partition, offset)` removes the records of a partition of __share_group_state before an offset.
    """

    topic = SHARE_GROUP_STATE_TOPIC

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        metadata: Callable[[], MetadataImage],
        delete_before: Callable[[int, int], None],
        turns: Turns | None = None,
    ) -> None:
        self.memory = ShareMemory()
        self.metadata = metadata
        self.delete_before = delete_before
        self.coordinator_log = coordinator_log
        super().__init__(
            config,
            config.state_topic_partitions,
            coordinator_log,
            clock,
            lambda partition: ShareShard(partition, self.config, self.partitions_of, self.memory),
            lambda: self.config.write_timeout_ms,
            turns,
        )

    def topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Remove the states of deleted topics, in turns. Source: ShareCoordinatorService.onTopicsDeleted."""
        self.runtime.turns.start(self._remove(frozenset(topic_ids)), Own("deleted topics"))

    def _remove(self, topic_ids: frozenset[bytes]) -> Steps[None]:
        for partition, shard in self.runtime.active():
            yield
            for keys in shard.keys_of(topic_ids):
                yield
                if self.runtime.shard(partition) is shard:
                    self.runtime.start(
                        partition,
                        lambda shard, now_ms, keys=keys: shard.remove(keys),  # type: ignore[misc]
                    )

    def partitions_of(self, topic_id: bytes) -> int:
        """The number of partitions of a topic; 0 if there is none with this id."""
        topic = self.metadata().topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def ask(
        self, operation: StateOperation[RowT, OutcomeT], group_id: str, row: RowT
    ) -> OutcomeT | Awaitable[OutcomeT]:
        """Run an operation on the state of a share partition; its rules are those of the shard.

        Errors: those of find, with INVALID_GROUP_ID for "".
        """
        return self.run(
            coordinator_key(group_id, row) if group_id else "",
            lambda shard, token, now_ms: operation.run(shard, group_id, row, token, now_ms),
            lambda error: operation.refused(row, error),
        )

    # Effects of a shard

    def perform(self, partition: int, leader_epoch: int, effect: object) -> None:
        """Remove records that are no longer needed."""
        assert effect == PRUNE
        self.runtime.turns.start(self._prune(partition), Own("pruning"))

    def _prune(self, partition: int) -> Generator[None, None, None]:
        """Find the first record that is needed, from the log's start, and remove those before its batch."""
        shard = self.runtime.shard(partition)
        if isinstance(shard, ErrorCode):
            return
        needless = -1
        for stored in self.coordinator_log.read_all(partition):
            for batch in iter_batches(stored):
                yield
                if self.runtime.shard(partition) is not shard:
                    return
                header = batch.header
                if header.codec or self._is_needed(shard, batch):
                    break
                needless = header.base_offset + header.last_offset_delta + 1
            else:
                continue
            break
        if needless >= 0:
            self.delete_before(partition, needless)

    def _is_needed(self, shard: ShareShard, batch: Any) -> bool:
        if batch.header.is_control:
            return False
        for record in batch.records():
            decoded = None if record.key is None else shard.decode(record.key, record.value)
            if decoded is not None and shard.is_needed(decoded):
                return True
        return False


def coordinator_key(group_id: str, row: StatePartition) -> str:
    """The key by which FindCoordinator is asked. Source: SharePartitionKey.asCoordinatorKey."""
    return f"{group_id}:{uuid_to_str(row.topic_id)}:{row.partition}"


def parsed_key(text: str) -> str | None:
    """A client's key as `coordinator_key` writes it; None if it is none. Source: SharePartitionKey.getInstance."""
    group_id, _, rest = text.rpartition(":")[0].rpartition(":")
    number = text.rpartition(":")[2]
    if not group_id.strip() or not _JAVA_INT.fullmatch(number):
        return None
    try:
        topic_id = uuid_from_str(rest)
    except ValueError:
        return None
    partition = int(number)
    if not -(2**31) <= partition < 2**31:
        return None
    return coordinator_key(group_id, StatePartition(topic_id, partition))
