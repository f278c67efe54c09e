"""The topics that a replay writes to: whether they accept the records, and what they would change about them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from ..cluster import Cluster
from ..problems import Problem
from ..topic_configs import Configs, is_compacted, topic_configs
from .plan import TargetTopic

#: A limit on timestamps at least this large is no limit (the default is the largest int64).
NO_BOUND_MS = 1 << 53


def find_targets(
    cluster: Cluster, needed: Mapping[str, int]
) -> dict[str, tuple[TargetTopic, Configs]]:
    """Topic -> the records that it accepts, and its configs; `needed` is the least number of partitions it must have.

    Raises Problem for a topic that does not exist or has fewer.
    """
    there = cluster.partitions()
    for name, count in needed.items():
        if name not in there:
            raise Problem(
                f"there is no topic {name} at {cluster.bootstrap} to replay to: create it first, for example with"
                f" kwire topics create {name} -p {max(1, count)} --bootstrap {cluster.bootstrap}"
            )
        if there[name] < count:
            raise Problem(
                f"topic {name} has {there[name]} partitions, but --keep-partitions needs {count}:"
                f" kwire topics alter {name} -p {count} --bootstrap {cluster.bootstrap}"
            )
    configs = topic_configs(cluster, needed)
    now = time.time_ns() // 1_000_000
    return {
        name: (_target(name, there[name], configs[name], now), configs[name]) for name in needed
    }


def _target(name: str, partitions: int, configs: Configs, now_ms: int) -> TargetTopic:
    def bound(side: str) -> int | None:
        found = int(configs.get(f"message.timestamp.{side}.max.ms") or NO_BOUND_MS)
        return found if found < NO_BOUND_MS else None

    before, after = bound("before"), bound("after")
    if configs.get("message.timestamp.type") == "LogAppendTime":
        before = after = None
    return TargetTopic(
        name,
        partitions,
        None if before is None else now_ms - before,
        None if after is None else now_ms + after,
        int(configs.get("max.message.bytes") or 1_048_588),
    )


def warnings(target: TargetTopic, configs: Configs, oldest_ms: int | None) -> list[str]:
    """Effects of the topic on the records that may surprise a user; `oldest_ms` is the oldest timestamp, if known."""
    found = []
    if configs.get("message.timestamp.type") == "LogAppendTime":
        found.append(
            f"topic {target.topic} has message.timestamp.type=LogAppendTime: records get the time of this"
            " replay; set CreateTime to keep theirs"
        )
    elif oldest_ms is not None:
        retention = int(configs.get("retention.ms") or -1)
        now = time.time_ns() // 1_000_000
        if 0 <= retention < now - oldest_ms and "delete" in configs.get("cleanup.policy", "delete"):
            oldest = datetime.fromtimestamp(oldest_ms / 1000, UTC).isoformat(timespec="seconds")
            found.append(
                f"topic {target.topic} deletes records older than {retention:,} ms (retention.ms), and the oldest"
                f" record to replay is from {oldest}: raise it unless that is intended"
            )
    if is_compacted(configs):
        found.append(f"topic {target.topic} is compacted: only the last record of each key stays")
    return found
