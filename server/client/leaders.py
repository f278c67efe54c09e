"""Who leads the partitions of some topics, and what offsets the leaders have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from kwire.errors import ErrorCode

from .answers import leaders_of, offsets_in
from .brokers import PATIENCE_S, Brokers
from .contact import RETRY_S
from .errors import ClientError, Unavailable, is_passing, words_of
from .requests import Partition, metadata_of, offsets_request


class Leaders:
    """The leaders of the partitions of some topics, which exist. Errors: ClientError for permanent errors, Unavailable.

    Shape: `by_partition` are ids of brokers, -1 for none.
    """

    def __init__(
        self,
        brokers: Brokers,
        topics: Iterable[str],
        isolation: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_partition: dict[Partition, int] = {}
        self._brokers = brokers
        self._topics = list(dict.fromkeys(topics))
        self._isolation = isolation
        self._now = now
        self._await()

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return sorted(number for name, number in self.by_partition if name == topic)

    def learn(self) -> int:
        """Find the leaders of the partitions; returns the remaining error. Errors: ClientError, Unavailable."""
        response = self._brokers.ask(metadata_of(self._topics))
        self._brokers.take_nodes(response)
        leaders: dict[Partition, int] = {}
        error = 0
        for topic in response.topics:
            if topic.error_code and not is_passing(topic.error_code):
                raise ClientError(f"{topic.name}: {words_of(topic.error_code)}")
            error = error or topic.error_code
            for number, leader in leaders_of(topic).items():
                leaders[topic.name, number] = leader
        self.by_partition = leaders
        return error

    def _await(self) -> None:
        """Find the leaders of the topics, which exist. Errors: ClientError, Unavailable."""
        give_up = self._now() + PATIENCE_S
        while error := self.learn():
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._now() > give_up:
                missing = set(self._topics) - {topic for topic, _ in self.by_partition}
                raise ClientError(f"{min(missing or self._topics)}: {words_of(error)}")
            time.sleep(RETRY_S)

    def offsets_at(self, tps: Sequence[Partition], at: int) -> dict[Partition, int]:
        """The first offset at or after a time; partitions without one are omitted. Errors: ClientError.

        Shape: `at` is a Unix time in ms, EARLIEST or LATEST; the latest is the last offset that the isolation level
        permits to read.
        """
        found: dict[Partition, int] = {}
        left = list(tps)
        give_up = self._now() + PATIENCE_S
        while left:
            problem = ""
            by_leader: dict[int, list[Partition]] = {}
            for tp in left:
                by_leader.setdefault(self.by_partition.get(tp, -1), []).append(tp)
            left = by_leader.pop(-1, [])
            if left:
                problem = f"{left[0][0]}-{left[0][1]}: no leader"
            for leader, some in by_leader.items():
                try:
                    errors = self._ask_offsets(leader, some, at, found)
                except Unavailable as failure:
                    problem = str(failure)
                    left += some
                    continue
                for (topic, number), error in errors.items():
                    problem = f"{topic}-{number}: {words_of(error)}"
                    if not is_passing(error):
                        raise ClientError(problem)
                    left.append((topic, number))
            if left:
                if self._now() > give_up:
                    raise ClientError(problem)
                time.sleep(RETRY_S)
                self.learn()
        return {tp: offset for tp, offset in found.items() if offset >= 0}

    def _ask_offsets(
        self, leader: int, tps: Sequence[Partition], at: int, found: dict[Partition, int]
    ) -> dict[Partition, int]:
        """Send a request to one leader; returns the errors by partition. Errors: Unavailable."""
        request = offsets_request(tps, at, isolation=self._isolation)
        offsets, errors = offsets_in(self._brokers.ask(request, leader))
        found.update(offsets)
        return errors
