"""The helpers of a test, beside the test's own clients.

They wait for answers of the broker, never for time to pass: a Fetch waits at the broker until there are records.
"""

from __future__ import annotations

import os
import random
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakSet

from kwire.server.client.requests import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED

from .client import groups, records, topics
from .client.connections import LOOK_AGAIN_S, PATIENCE, Client, address_of
from .client.groups import GROUP_STATES, Group
from .client.records import Record
from .durations import Duration, to_ms
from .nearest import nearest
from .patched import refuse_sockets
from .real_time import time, wall_ns

T = TypeVar("T")
Value = bytes | str | None

#: How long a Fetch of the helpers waits at the broker before it is repeated.
FETCH_WAIT_MS = 500


class Topic(str):
    """A topic's name, which any client takes as a string, with helpers for the topic."""

    _owner: Helpers

    __slots__ = ("_owner",)

    def produce(self, *values: Value, **options: Any) -> list[Record]:
        """As `produce` of the broker, for this topic."""
        return self._owner.produce(self, *values, **options)

    def consume(self, count: int | None = None, **options: Any) -> list[Record]:
        """As `consume` of the broker, for this topic."""
        return self._owner.consume(self, count, **options)

    def end_offset(self, partition: int = 0) -> int:
        """The offset that the next record will get: the high watermark."""
        return records.offset_at(self._owner.client, self, partition, LATEST)

    def start_offset(self, partition: int = 0) -> int:
        """The offset of the oldest record that is kept."""
        return records.offset_at(self._owner.client, self, partition, EARLIEST)


class Helpers:
    """What a test does with a cluster besides using its own clients.

    Errors: KafkaError if a broker refuses, TimeoutError if what is waited for does not come.
    """

    #: What clients connect to: "HOST:PORT", or several with commas.
    bootstrap_servers: str
    replication_factor = 1

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}
        #: Whether the brokers belong to another process, from which this one was forked.
        self._is_copy = False
        _ALL.add(self)

    @property
    def client(self) -> Client:
        """The helpers' own connections; each thread has its own."""
        thread = threading.get_ident()
        if thread not in self._clients:
            self._clients[thread] = self._connect()
        return self._clients[thread]

    def _connect(self) -> Client:
        refuse_sockets()
        return Client(self.bootstrap_servers)

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> Topic:
        """Create a topic, which can be used when this returns; without a name it gets one of its own.

        Shape: `configs` are topic settings as in Kafka, such as {"cleanup.policy": "compact"}.
        """
        made = Topic(name or f"topic-{random.getrandbits(40):010x}")
        made._owner = self
        factor = self.replication_factor if replication_factor is None else replication_factor
        topics.create(self.client, made, partitions, factor, configs or {})
        return made

    def produce(
        self,
        topic: str,
        *values: Value,
        key: Value = None,
        partition: int | None = None,
        headers: Mapping[str, Value] | Iterable[tuple[str, Value]] = (),
        timestamp: int | None = None,
    ) -> list[Record]:
        """Append one batch of records, and return them with their offsets; strings are encoded as UTF-8.

        Shape: without `partition` it is chosen by the key, or 0 without a key (use a real producer if the choice matters).
        Unit: `timestamp` is in ms since the epoch, by default now.
        """
        from kwire.records.batch import BatchBuilder

        if not values:
            raise ValueError("produce needs at least one value")
        now = wall_ns() // 1_000_000 if timestamp is None else timestamp
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        packed = tuple((name, _bytes(value)) for name, value in pairs)
        key_bytes = _bytes(key)
        if partition is None:
            count = len(topics.leaders(self.client, topic))
            partition = 0 if key_bytes is None else zlib.crc32(key_bytes) % count
        builder = BatchBuilder()
        for value in values:
            builder.append(now, key_bytes, _bytes(value), packed)
        base = records.append(self.client, topic, partition, builder.build())
        return [
            Record(str(topic), partition, base + number, key_bytes, _bytes(value), packed, now)
            for number, value in enumerate(values)
        ]

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        offset: int | None = None,
        read_committed: bool = False,
        timeout: Duration = PATIENCE,
    ) -> list[Record]:
        """Read records without a group: all that exist now, or, with `count`, as soon as there are that many.

        Shape: from the oldest record or from `offset`, of all partitions or one; in order within each partition. At
        most `count` records are returned. Errors: TimeoutError, which says how many there were.
        """
        client = self.client
        partitions = sorted(topics.leaders(client, topic)) if partition is None else [partition]
        offsets = {
            each: records.offset_at(client, topic, each, EARLIEST) if offset is None else offset
            for each in partitions
        }
        ends = {each: records.offset_at(client, topic, each, LATEST) for each in partitions}
        level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        found: list[Record] = []
        deadline = time.monotonic() + to_ms(timeout) / 1000
        while True:
            if count is None:
                behind = {each: at for each, at in offsets.items() if at < ends[each]}
                if not behind:
                    return found
                before = dict(offsets)
                moved, read = records.fetch(client, topic, behind, 0, level)
                offsets.update(moved)
                found += read
                if offsets == before and read_committed:
                    return found  # the rest belongs to open transactions
            else:
                if len(found) >= count:
                    return found[:count]
                offsets, read = records.fetch(client, topic, offsets, FETCH_WAIT_MS, level)
                found += read
            if time.monotonic() > deadline:
                if count is not None and len(found) >= count:
                    continue
                raise TimeoutError(f"{len(found)} of {count} records of {topic!r} have arrived")

    def group(self, name: str) -> Group:
        """The state of a consumer group; "Dead", without members, if there is none."""
        return groups.described(self.client, name)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """The offset that a group has committed; None if it has none."""
        return groups.committed(self.client, group, topic, partition)

    def fence(self, *, transactional_id: str | None = None, group: str | None = None) -> None:
        """Fence a producer, or the members of a group, as newer ones would.

        Shape: the transactional id gets a new epoch, which aborts its transaction, and the next request of the old
        producer is refused (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED). All members of the group are removed and get
        UNKNOWN_MEMBER_ID; most clients rejoin. Errors: ValueError unless exactly one of both is given, or if the group
        has no members.
        """
        if (group is None) == (transactional_id is None):
            raise ValueError("fence() needs a group or a transactional_id")
        if transactional_id is not None:
            groups.fence_producer(self.client, transactional_id)
        elif group is not None and not groups.remove_members(self.client, group):
            raise ValueError(f"group {group!r} has no members")

    def wait_for(
        self,
        condition: Callable[[], T],
        *,
        timeout: Duration = PATIENCE,
        message: str = "",
    ) -> T:
        """Call a function until its result is true, and return the result.

        Shape: it is called again whenever the broker has handled a request, and periodically. Errors: TimeoutError,
        with the message and the last value; TypeError for a condition that is no function.
        """
        if not callable(condition):
            raise TypeError(
                f"wait_for needs a function to call, such as a lambda, not {condition!r}"
            )
        deadline = time.monotonic() + to_ms(timeout) / 1000
        while not (value := condition()):
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{message or 'condition'}: still {value!r} after {waited(timeout)}"
                )
            self._wait_for_change()
        return value

    def wait_for_group(
        self,
        name: str,
        *,
        state: str = "Stable",
        members: int | None = None,
        timeout: Duration = PATIENCE,
    ) -> Group:
        """Wait until a group is in a state and, if given, has that many members.

        Errors: TimeoutError; ValueError for an unknown state.
        """
        if state not in GROUP_STATES:
            raise ValueError(f"unknown state of a group {state!r}{nearest(state, GROUP_STATES)}")
        last: Group | None = None

        def reached() -> Group | None:
            nonlocal last
            last = self.group(name)
            fits = last.state == state and (members is None or len(last.members) == members)
            return last if fits else None

        try:
            found = self.wait_for(reached, timeout=timeout)
        except TimeoutError:
            wanted = state if members is None else f"{state} with {members} members"
            raise TimeoutError(
                f"group {name!r} is not {wanted} after {waited(timeout)}: {last}"
            ) from None
        assert found is not None
        return found

    def wait_for_committed(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        timeout: Duration = PATIENCE,
    ) -> None:
        """Wait until a group has committed at least this offset."""
        self.wait_for(
            lambda: (self.committed(group, topic, partition) or 0) >= offset,
            timeout=timeout,
            message=f"group {group!r} has not committed {offset} of {topic}-{partition}",
        )

    def _wait_for_change(self) -> None:
        time.sleep(LOOK_AGAIN_S)

    def _close_client(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _forget(self, address: str) -> None:
        for client in list(self._clients.values()):
            client.forget(address_of(address))

    def become_copy(self) -> None:
        """In a process that was forked: leave the brokers and the connections to the process that started them.

        Shape: the helpers work here too, with connections of their own.
        """
        self._is_copy = True
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.leave()


#: All that have been made. Copies of descriptors would keep connections open that the other process closes.
_ALL: WeakSet[Helpers] = WeakSet()


def _become_copies() -> None:
    for each in list(_ALL):
        each.become_copy()


os.register_at_fork(after_in_child=_become_copies)


def waited(timeout: Duration) -> str:
    """A timeout as messages show it. Shape: a number gets its unit: 1 is `1s`."""
    return f"{timeout}s" if isinstance(timeout, int | float) else str(timeout)


def _bytes(value: Value) -> bytes | None:
    if value is not None and not isinstance(value, str | bytes):
        raise TypeError(f"keys and values are bytes, strings or None, not {value!r}")
    return value.encode() if isinstance(value, str) else value
