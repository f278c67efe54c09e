"""Logs in the directories of a broker that are not replicas of it.

They come from a reassignment that was cancelled, or completed, while the broker was down, or from metadata that was lost
or replaced. A log is deleted after a while only if the metadata knows its topic, by its id, and has all of its replicas
on other brokers. Anything else may be all that is left of a topic, so it is kept, and reported.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..log.log import Log
    from ..metadata.image import MetadataImage
    from ..metadata.topic_partition import TopicPartition

#: The number of logs that a message names.
NAMED = 5

logger = logging.getLogger(__name__)


class StrayLogs:
    """The stray logs of a broker, as far as it has noticed them.

    Shape: `advice` ends the warning about them.
    """

    def __init__(self, broker_id: int, advice: str = "") -> None:
        self._broker_id = broker_id
        self._advice = advice
        self._since: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._since)

    def look(
        self,
        logs: Iterable[Log],
        replicas: Container[TopicPartition],
        image: MetadataImage,
        now_ms: int,
        delay_ms: int,
    ) -> list[TopicPartition]:
        """Note the logs that are strays; returns those to delete: surplus ones that were noticed `delay_ms` ago.

        Shape: `now_ms` is monotonic; new strays are logged. With a negative delay, none is returned.
        """
        before, self._since = self._since, {}
        new: list[TopicPartition] = []
        due: list[TopicPartition] = []
        for log in logs:
            tp = log.tp
            if log.offline or tp in replicas:
                continue
            since = before.get(tp)
            if since is None:
                since = now_ms
                new.append(tp)
            if 0 <= delay_ms <= now_ms - since and self._is_surplus(log, image):
                due.append(tp)
            else:
                self._since[tp] = since
        if new:
            self._report(new)
        return due

    def _is_surplus(self, log: Log, image: MetadataImage) -> bool:
        topic = image.topics.get(log.tp.topic)
        if topic is None or topic.topic_id != log.topic_id:
            return False
        partition = topic.partitions.get(log.tp.partition)
        return (
            partition is not None
            and bool(partition.replicas)
            and self._broker_id not in partition.replicas
        )

    def _report(self, strays: list[TopicPartition]) -> None:
        # They may be all that is left if the coordination store was lost.
        logger.warning(
            "%d logs on disk belong to no partition of this broker: %s%s%s",
            len(strays),
            ", ".join(map(str, sorted(strays)[:NAMED])),
            ", ..." if len(strays) > NAMED else "",
            self._advice,
        )
