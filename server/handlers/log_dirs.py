"""DescribeLogDirs (API key 35).

Behavior: one result for each log directory, an offline one with KAFKA_STORAGE_ERROR; sizes are the
bytes of the segments' batches; the lag is 0, as no replicas are being moved. From version 5 on a row
says whether its directory takes no new partitions (KIP-1066), which is so of none.
Omitted: AlterReplicaLogDirs (docs/omissions.md); `cordoned.log.dirs`.
Source: ReplicaManager.describeLogDirs.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode
from kwire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from ..metadata.topic_partition import TopicPartition
from . import refusals
from .authorization import AclOperation, cluster
from .context import RequestContext
from .registry import handles

if TYPE_CHECKING:
    from ..log.log import Log

#: How many partitions are looked at in one step.
STEP = 64


@handles(
    DescribeLogDirsRequest,
    versions="0-5",
    authorize=cluster(AclOperation.DESCRIBE),
    refusal=refusals.describe_log_dirs,
)
def describe_log_dirs(
    ctx: RequestContext, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    """Return what each log directory contains, and how much room is left."""
    manager = ctx.services.log_manager
    by_topic: dict[str, dict[int, Log]] = {}
    for number, log in enumerate(manager.logs()):
        if not number % STEP:
            yield
        by_topic.setdefault(log.tp.topic, {})[log.tp.partition] = log
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
        logs += [log for _, log in sorted(by_topic[name].items())]
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
            if manager.directory_of(tp) is not directory or (
                wanted is not None and tp not in wanted
            ):
                continue
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = DescribeLogDirsTopic(name=tp.topic, partitions=[])
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=tp.partition, partition_size=log.size_bytes
                )
            )
        usage = shutil.disk_usage(directory.path)
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
