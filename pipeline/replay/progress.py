"""A replay's progress by what is committed: the positions of its source partitions, and a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..bar import Bar
from ..cluster import Cluster
from ..problems import Problem
from .plan import Job, ReplayPosition, Task
from .writer import other_replay

#: Seconds to read a group's offsets; a cluster's first group has to wait until the topic for them is created.
GROUP_S = 60.0
#: Groups read at the same time, each with its own client.
GROUPS = 8
#: The maximum number of groups that are read for a line: a replay may have thousands, and each takes a separate client.
AT_A_TIME = 64
#: Seconds between two lines.
INTERVAL_S = 2.0


class Positions:
    """Reads the positions of a replay's source partitions."""

    def __init__(self, cluster: Cluster, job: Job, tasks: Sequence[Task]) -> None:
        self._cluster = cluster
        self._job = job
        self.tasks = tasks

    def read(self) -> list[ReplayPosition | None]:
        """The committed state of each task, None if there is none; raises Problem for offsets of another replay."""
        return list(self._read(range(len(self.tasks))).values())

    def refreshed(
        self, known: Sequence[ReplayPosition | None], turn: int
    ) -> list[ReplayPosition | None]:
        """`known`, updated with the committed state of some of the unfinished tasks. Raises Problem as `read`."""
        return list({**dict(enumerate(known)), **self._read(self.due(known, turn))}.values())

    def due(self, known: Sequence[ReplayPosition | None], turn: int) -> list[int]:
        """The tasks to check in this turn: half of them have begun, and the others take turns."""
        left = [number for number, offsets in enumerate(self.left(known)) if offsets]
        begun = [number for number in left if known[number] is not None]
        others = [number for number in left if known[number] is None]
        found = []
        for some, count in (
            (begun, AT_A_TIME // 2),
            (others, AT_A_TIME - min(len(begun), AT_A_TIME // 2)),
        ):
            first = turn * count % len(some) if len(some) > count else 0
            found += [*some[first:], *some[:first]][:count]
        return found

    def _read(self, numbers: Sequence[int]) -> dict[int, ReplayPosition | None]:
        # For each topic, because a replay with the same name may have written to another topic.
        topics = dict.fromkeys(self._cluster.partitions(), 1)
        with ThreadPoolExecutor(GROUPS) as pool:
            found = pool.map(lambda number: self._position(self.tasks[number], topics), numbers)
            return dict(zip(numbers, found, strict=True))

    def _position(self, task: Task, topics: Mapping[str, int]) -> ReplayPosition | None:
        group = self._job.group(task.source.topic, task.source.partition)
        found = None
        for place, (offset, metadata) in self._cluster.committed(group, topics, GROUP_S).items():
            try:
                position = ReplayPosition.of(offset, metadata)
            except ValueError as error:
                raise Problem(f"group {group} is in use: {error}; choose another --name") from error
            if position.digest != self._job.digest:
                raise Problem(other_replay(self._job.name))
            if place == (task.target.topic, 0):
                found = position
        return found

    def left(self, found: Sequence[ReplayPosition | None]) -> list[int]:
        """The number of offsets that each task still has to replay."""
        return [
            max(0, task.end - (task.start if position is None else position.offset))
            for task, position in zip(self.tasks, found, strict=True)
        ]


def line(
    positions: Positions, found: Sequence[ReplayPosition | None], before: int, seconds: float
) -> str:
    """`12,000 records, 61 %, 5,321/s, 2 of 4 partitions done`; `before` records came from other runs."""
    left = positions.left(found)
    whole = sum(task.end - task.start for task in positions.tasks)
    share = 100 * (whole - sum(left)) // whole if whole else 100
    records = sum(position.records for position in found if position is not None)
    rate = (records - before) / seconds if seconds > 0 else 0.0
    done = left.count(0)
    return f"{records:,} records, {share} %, {rate:,.0f}/s, {done} of {len(left)} partitions done"


@contextmanager
def shown(
    positions: Positions, before: Sequence[ReplayPosition | None], bar: Bar | None = None
) -> Iterator[None]:
    """Print a line on standard error from time to time, or move a bar, while a replay runs."""
    ended = threading.Event()
    first = sum(position.records for position in before if position is not None)

    def show() -> None:
        began = at = time.monotonic()
        last = first
        found = list(before)
        turn = 0
        while not ended.wait(INTERVAL_S):
            turn += 1
            try:
                found = positions.refreshed(found, turn)
            except Problem as problem:
                # Only report it: the tasks fail if it matters.
                if ended.is_set():
                    return
                if bar is not None:
                    bar.above(f"  {problem}")
                else:
                    print(f"  {problem}", file=sys.stderr, flush=True)
                continue
            if ended.is_set():
                return
            now = time.monotonic()
            records = sum(position.records for position in found if position is not None)
            if bar is not None:
                bar.at(bar.offsets - sum(positions.left(found)), records - first, now - began)
            elif records > last:
                print(f"  {line(positions, found, last, now - at)}", file=sys.stderr, flush=True)
            last, at = records, now

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # It may wait for a broker that is away.
        thread.join(INTERVAL_S)
        if bar is not None:
            bar.end()
