"""Limits on the speed of moving replicas (KIP-73): the recent traffic of throttled partitions. Pure.

Only replicas that are not in sync are throttled: an in-sync replica must stay in sync, and produced records do not wait
for a replica that is being moved. The bytes of both count.
Source: ReplicationQuotaManager, SimpleRate, TopicConfigHandler, BrokerConfigHandler (3.9).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..metadata.image import BROKERS, TOPICS, MetadataImage

if TYPE_CHECKING:
    from ..config import BrokerConfig

logger = logging.getLogger(__name__)

UNLIMITED = 2**63 - 1
EVERY_REPLICA = "*"


class ReplicationQuota:
    """The quota of one side: the bytes that this broker sends as leader, or fetches as follower.

    Shape: `throttled` maps topics with throttled replicas here to their partitions, None meaning all. The rate is
    measured over the last `samples` times `sample_ms`, or over the time since the first bytes if that is shorter, but
    over at least one sample's time.
    """

    __slots__ = ("_recent", "_sample_ms", "_samples", "bytes_per_second", "throttled")

    def __init__(self, samples: int = 11, sample_ms: int = 1000) -> None:
        self.bytes_per_second = UNLIMITED
        self.throttled: dict[str, frozenset[int] | None] = {}
        self._samples = samples
        self._sample_ms = sample_ms
        #: [start of the sample, bytes], in ascending order.
        self._recent: deque[list[int]] = deque()

    def throttle(self, topic: str, replicas: str, broker_id: int) -> None:
        """Set a topic's throttled replicas.

        Shape: `replicas` is "*", or "partition:broker,..." of which only this broker's entries count. An empty or
        invalid text throttles nothing, because a node may contain anything.
        """
        try:
            partitions = partitions_of(replicas, broker_id)
        except ValueError:
            logger.error(
                "throttled replicas %r of topic %s are invalid and ignored", replicas, topic
            )
            partitions = frozenset()
        if partitions is None or partitions:
            self.throttled[topic] = partitions
        else:
            self.throttled.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether a partition's bytes count, so that it is throttled when the quota is used up."""
        if topic not in self.throttled:
            return False
        partitions = self.throttled[topic]
        return partitions is None or partition in partitions

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes of throttled partitions that were transferred, even beyond the quota."""
        recent = self._recent
        if not recent or now_ms - recent[-1][0] >= self._sample_ms:
            recent.append([now_ms, 0])
        recent[-1][1] += size

    def pause_ms(self, now_ms: int) -> int:
        """0 while there is room; otherwise the time until the next check, at most one sample's time."""
        recent = self._recent
        window_ms = self._samples * self._sample_ms
        while recent and now_ms - recent[0][0] >= window_ms:
            recent.popleft()
        if not recent:
            return 0
        begin_ms = recent[0][0]
        elapsed_ms = max(now_ms - begin_ms, self._sample_ms)
        used = 1000 * sum(size for _, size in recent)
        limit = self.bytes_per_second
        if used <= limit * elapsed_ms:
            return 0
        if limit <= 0:
            return self._sample_ms
        return max(1, min(begin_ms + -(-used // limit) - now_ms, self._sample_ms))


def partitions_of(replicas: str, broker_id: int) -> frozenset[int] | None:
    """The partitions of "partition:broker,..." with a replica on this broker; None for all.

    Errors: ValueError.
    """
    if replicas.strip() == EVERY_REPLICA:
        return None
    pairs = [text.split(":") for text in replicas.split(",") if text.strip()]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuotas:
    """The quotas of both sides, from the configs of topics and brokers."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._config = config
        samples = config.get_int("replication.quota.window.num")
        sample_ms = 1000 * config.get_int("replication.quota.window.size.seconds")
        self.leader = ReplicationQuota(samples, sample_ms)
        self.follower = ReplicationQuota(samples, sample_ms)
        self._sides = (
            (
                self.leader,
                "leader.replication.throttled.replicas",
                "leader.replication.throttled.rate",
            ),
            (
                self.follower,
                "follower.replication.throttled.replicas",
                "follower.replication.throttled.rate",
            ),
        )

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply what has changed; an ImageListener that must come after the one of `config`."""
        changed = after.changes_since(before).configs
        self._take_topics(after, (name for kind, name in changed if kind == TOPICS))
        if any(kind == BROKERS for kind, _ in changed):
            self._take_rates()

    def _take_topics(self, image: MetadataImage, names: Iterable[str]) -> None:
        for name in names:
            overrides = image.topic_config(name)
            for quota, replicas, _ in self._sides:
                quota.throttle(name, overrides.get(replicas, ""), self._broker_id)

    def _take_rates(self) -> None:
        for quota, _, key in self._sides:
            rate = self._config.replication_rate(key)
            if rate != quota.bytes_per_second:
                quota.bytes_per_second = rate
                logger.info("%s: %s", key, "unlimited" if rate == UNLIMITED else f"{rate} bytes/s")
