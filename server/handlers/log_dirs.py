"""AlterReplicaLogDirs and DescribeLogDirs (API keys 34 and 35).

Behavior: AlterReplicaLogDirs begins to move replicas of this broker between its log directories; DescribeLogDirs shows how
far they are. It has one result for each log directory, an offline one with KAFKA_STORAGE_ERROR; sizes are the bytes of the
segments' batches. A copy that is being made is a row of its own, marked as future, whose lag is what it does not have
yet; the lag of others is what a follower may still truncate. From version 5 on a row says whether its directory takes no
new partitions (KIP-1066), which is so of none.
Versions: AlterReplicaLogDirs 0-2, DescribeLogDirs 0-5.
Omitted: `cordoned.log.dirs`.
Source: ReplicaManager.alterReplicaLogDirs, describeLogDirs, getLogEndOffsetLag; KIP-113.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kwire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from ..metadata.topic_partition import TopicPartition
from .authorization import AclOperation, cluster
from .context import RequestContext
from .registry import handles

if TYPE_CHECKING:
    from ..log.log import Log
    from ..replication.partition import Partition

#: The lag of a log whose partition does not exist or is offline. Source: DescribeLogDirsResponse.INVALID_OFFSET_LAG.
NO_LAG = -1
#: The number of partitions that are processed in one step.
STEP = 64


@handles(
    AlterReplicaLogDirsRequest,
    versions="0-2",
    authorize=cluster(AclOperation.ALTER),
)
def alter_replica_log_dirs(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    """Begin to move replicas to other log directories."""
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                yield
                wanted[TopicPartition(topic.name, number)] = directory.path
    rows: dict[str, AlterReplicaLogDirTopicResult] = {}
    for tp, path in wanted.items():
        yield
        error = ctx.services.log_dir_moves.move(tp, path)
        row = AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=error)
        topic_row = rows.get(tp.topic)
        if topic_row is None:
            topic_row = rows[tp.topic] = AlterReplicaLogDirTopicResult(
                topic_name=tp.topic, partitions=[]
            )
        topic_row.partitions.append(row)
    return AlterReplicaLogDirsResponse(results=list(rows.values()))


@handles(
    DescribeLogDirsRequest,
    versions="0-5",
    authorize=cluster(AclOperation.DESCRIBE),
)
def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    """Return the content of each log directory, and the space left."""
    manager, replicas = ctx.services.log_manager, ctx.services.replica_manager
    by_topic: dict[str, dict[int, list[Log]]] = {}
    for number, log in enumerate((*manager.logs(), *manager.futures())):
        if not number % STEP:
            yield
        by_topic.setdefault(log.tp.topic, {}).setdefault(log.tp.partition, []).append(log)
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        for row in request.topics:
            yield
            there = by_topic.get(row.topic, {})
            for first in range(0, len(row.partitions), STEP):
                yield
                some = row.partitions[first : first + STEP]
                wanted.update(TopicPartition(row.topic, n) for n in some if n in there)
    logs: list[Log] = []
    for name in sorted(by_topic):
        yield
        logs += [log for _, each in sorted(by_topic[name].items()) for log in each]
    results = []
    for directory in manager.directories:
        if directory.offline:
            results.append(
                DescribeLogDirsResult(
                    error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]
                )
            )
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for number, log in enumerate(logs):
            if not number % STEP:
                yield
            tp = log.tp
            is_future = manager.future(tp) is log
            if wanted is not None and tp not in wanted:
                continue
            where = manager.future_directory_of(tp) if is_future else manager.directory_of(tp)
            if where is not directory:
                continue
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = DescribeLogDirsTopic(name=tp.topic, partitions=[])
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=tp.partition,
                    partition_size=log.size_bytes,
                    offset_lag=_lag(replicas.get(*tp), log),
                    is_future_key=is_future,
                )
            )
        # Loads two compression libraries, which otherwise nothing needs.
        from shutil import disk_usage

        usage = disk_usage(directory.path)
        results.append(
            DescribeLogDirsResult(
                error_code=0,
                log_dir=directory.path,
                topics=list(topics.values()),
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        )
    return DescribeLogDirsResponse(results=results)


def _lag(replica: Partition | None, log: Log) -> int:
    if replica is None:
        return NO_LAG
    current = replica.log
    if log is current:
        return max(log.high_watermark - log.log_end_offset, 0)
    return current.log_end_offset - log.log_end_offset
