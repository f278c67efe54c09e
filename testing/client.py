"""The helpers of a test: a small blocking client over the wire library, for any Kafka cluster.

They wait for answers of the broker, never for time to pass: a Fetch waits at the broker until there are records.
"""

from __future__ import annotations

import os
import random
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

from kwire.api import ApiKey
from kwire.errors import ErrorCode
from kwire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest
from kwire.messages.describe_groups import DescribeGroupsRequest
from kwire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.server.client.answers import addresses_in, leaders_of, offsets_in
from kwire.server.client.requests import EARLIEST as EARLIEST
from kwire.server.client.requests import LATEST as LATEST
from kwire.server.client.requests import (
    Limits,
    coordinator_request,
    fetch_request,
    metadata_of,
    offsets_request,
)
from kwire.server.client.wire import Wire, open_socket

from .durations import Duration, to_ms
from .nearest import nearest
from .patched import refuse_sockets
from .real_time import time, wall_ns

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
Value = bytes | str | None

#: Shown in the requests of the helpers; see handlers.py.
HELPERS = "kwire-testing"
PATIENCE: Duration = "10s"
#: How long a Fetch of the helpers waits at the broker before it is repeated.
FETCH_WAIT_MS = 500
#: How often a condition is checked if no request shows that it may have changed.
LOOK_AGAIN_S = 0.02

#: Those of groups of both kinds, as Kafka's tools show them.
GROUP_STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
)

# Versions that Apache Kafka 2.4 and later all serve.
METADATA, CREATE_TOPICS, DELETE_TOPICS, PRODUCE, FETCH, LIST_OFFSETS = 9, 5, 4, 8, 11, 5
FIND_COORDINATOR, DESCRIBE_GROUPS, OFFSET_FETCH, LEAVE_GROUP = 2, 5, 6, 3
INIT_PRODUCER_ID, ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS = 2, 0, 1
#: Those of 4.0 and later.
API_VERSIONS, CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT = 0, 0, 0
#: The epoch with which a member leaves (KIP-848).
LEAVES = -1

#: A broker that has just been started, or a topic just made, may answer these for a moment.
TRANSIENT = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class KafkaError(Exception):
    """A broker answered with an error. Shape: `code` is Kafka's."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        super().__init__(f"{what}: {self.code.name}" + (f" ({message})" if message else ""))


class Record(NamedTuple):
    """One record, as a consumer sees it. Unit: `timestamp` is in ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Group(NamedTuple):
    """A consumer group of either protocol. Shape: `state` is Kafka's word (Stable, Empty, PreparingRebalance, Dead); `members` are member ids."""

    name: str
    state: str
    members: tuple[str, ...]


class Connection(Wire):
    """One blocking connection to a broker, with TLS if `tls` is given. Errors: OSError."""

    CLOSED = "the broker has closed the connection of the test's helper"

    def __init__(
        self, address: tuple[str, int], tls: ssl.SSLContext | None = None, timeout_s: float = 30.0
    ) -> None:
        sock = open_socket(address, timeout_s)
        super().__init__(
            sock if tls is None else tls.wrap_socket(sock, server_hostname=address[0]), HELPERS
        )


class Client:
    """The helpers' connections to a cluster. Errors: KafkaError, ConnectionError, TimeoutError."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        self.bootstrap = [address_of(each) for each in bootstrap.split(",")]
        self._tls = tls
        self._connections: dict[tuple[str, int], Connection] = {}
        self._coordinators: dict[str, tuple[str, int]] = {}
        self._apis: frozenset[int] | None = None

    def close(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()
        self._coordinators.clear()

    def leave(self) -> None:
        """Close only this process's copies of the connections."""
        for each in self._connections.values():
            each.leave()

    def ask(self, request: object, version: int, address: tuple[str, int] | None = None) -> Any:
        """Send a request to a broker, by default to any that answers."""
        failed: OSError | None = None
        for each in self.bootstrap if address is None else [address]:
            try:
                if each not in self._connections:
                    self._connections[each] = Connection(each, self._tls)
                return self._connections[each].ask(request, version)
            except BaseException as error:
                # Also when a signal's handler ends the wait, as pytest-timeout's does: the answer that still comes
                # must not be taken for that of the next request.
                if each in self._connections:
                    self._connections.pop(each).close()
                if not isinstance(error, OSError):
                    raise
                failed = error
        assert failed is not None
        raise failed

    def create(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, Any]
    ) -> None:
        """Create a topic, and return when its partitions can be used."""
        rows = [
            CreatableTopicConfig(name=key, value=_text(value)) for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=rows,
        )
        answer = self._ask_controller(
            CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CREATE_TOPICS
        )
        row = answer.topics[0]
        if row.error_code:
            said = row.error_message
            if row.error_code == ErrorCode.INVALID_CONFIG:
                said = f"{said}{nearest_config(configs)}"
            raise KafkaError(f"cannot create topic {name!r}", row.error_code, said)
        self.leaders(name)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; topics that do not exist are no error."""
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
        self._ask_controller(request, DELETE_TOPICS)

    def topics(self) -> list[str]:
        """The names of all topics but internal ones."""
        answer = self.ask(metadata_of(None), METADATA)
        return sorted(each.name for each in answer.topics if not each.is_internal)

    def partitions(self, topic: str) -> list[Any]:
        """The partitions of a topic as Metadata has them; none if there is no such topic."""
        return list(self.ask(metadata_of([topic]), METADATA).topics[0].partitions)

    def controller_id(self) -> int:
        """The id of the controller; -1 if there is none."""
        return int(self.ask(metadata_of([]), METADATA).controller_id)

    def _ask_controller(self, request: object, version: int) -> Any:
        """Send a request to the controller; one that has just been killed is named until there is another."""
        end = time.monotonic() + to_ms(PATIENCE) / 1000
        while True:
            try:
                return self.ask(request, version, self._controller())
            except ConnectionRefusedError:
                if time.monotonic() >= end:
                    raise
            time.sleep(LOOK_AGAIN_S)

    def forget(self, address: tuple[str, int]) -> None:
        """Close the connection to a broker that has been killed."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _controller(self) -> tuple[str, int] | None:
        answer = self.ask(metadata_of([]), METADATA)
        address: tuple[str, int] | None = addresses_in(answer).get(answer.controller_id)
        return address

    def leaders(self, topic: str) -> dict[int, tuple[str, int]]:
        """The addresses of the leaders of a topic's partitions, once all have one."""

        def look() -> dict[int, tuple[str, int]]:
            answer = self.ask(metadata_of([topic]), METADATA)
            row, brokers = answer.topics[0], addresses_in(answer)
            codes = [row.error_code, *(each.error_code for each in row.partitions)]
            for code in codes:
                if code:
                    raise KafkaError(f"metadata of topic {topic!r}", code)
            return {partition: brokers[leader] for partition, leader in leaders_of(row).items()}

        try:
            return self.patiently(look)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            absent = f"there is no topic {topic!r}{nearest(topic, self.topics())}"
            raise KafkaError(absent, error.code) from None

    def leader(self, topic: str, partition: int) -> tuple[str, int]:
        """The address of a partition's leader. Errors: ValueError if there is no such partition."""
        leaders = self.leaders(topic)
        if partition not in leaders:
            raise ValueError(f"topic {topic!r} has no partition {partition}; it has {len(leaders)}")
        return leaders[partition]

    def patiently(self, look: Callable[[], T], timeout: Duration = PATIENCE) -> T:
        """Call until there is no transient error any more. Errors: the last one."""
        end = time.monotonic() + to_ms(timeout) / 1000
        while True:
            try:
                return look()
            except KafkaError as error:
                if error.code not in TRANSIENT or time.monotonic() >= end:
                    raise
            except ConnectionError:
                if time.monotonic() >= end:
                    raise
            time.sleep(LOOK_AGAIN_S)

    def produce(self, topic: str, partition: int, batch: bytes) -> int:
        """Append a batch and return the offset of its first record."""

        def send() -> int:
            address = self.leader(topic, partition)
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            )
            row = self.ask(request, PRODUCE, address).responses[0].partition_responses[0]
            if row.error_code:
                raise KafkaError(
                    f"cannot produce to {topic}-{partition}", row.error_code, row.error_message
                )
            return int(row.base_offset)

        return self.patiently(send)

    def offset(self, topic: str, partition: int, timestamp: int) -> int:
        """The offset for a time, or LATEST or EARLIEST."""

        def look() -> int:
            address = self.leader(topic, partition)
            request = offsets_request([(topic, partition)], timestamp)
            found, errors = offsets_in(self.ask(request, LIST_OFFSETS, address))
            for code in errors.values():
                raise KafkaError(f"offsets of {topic}-{partition}", code)
            return int(found[topic, partition])

        return self.patiently(look)

    def fetch(
        self, topic: str, offsets: Mapping[int, int], wait_ms: int, isolation_level: int
    ) -> tuple[dict[int, int], list[Record]]:
        """Read from these offsets; return the next ones, and what was read."""
        from kwire.server.client.visibility import aborted_in, batches_of, visible

        ends, records = dict(offsets), []
        by_leader: dict[tuple[str, int], list[int]] = {}
        for partition, address in self.leaders(topic).items():
            if partition in offsets:
                by_leader.setdefault(address, []).append(partition)
        for address, partitions in by_leader.items():
            request = fetch_request(
                {(topic, each): offsets[each] for each in partitions},
                Limits(max_wait_ms=wait_ms // len(by_leader)),
                isolation_level,
            )
            answer = self.ask(request, FETCH, address)
            for row in answer.responses[0].partitions if answer.responses else ():
                partition = row.partition_index
                if row.error_code:
                    raise KafkaError(f"cannot read {topic}-{partition}", row.error_code)
                batches = batches_of(row)
                if batches:
                    ends[partition] = batches[-1].header.next_offset
                records += [
                    Record(
                        topic,
                        partition,
                        each.offset,
                        each.key,
                        each.value,
                        tuple(each.headers),
                        each.timestamp,
                    )
                    for batch in visible(batches, aborted_in(row))
                    for each in batch.records()
                    if each.offset >= offsets[partition]
                ]
        return ends, records

    def coordinator(self, key: str, kind: int = 0) -> tuple[str, int]:
        """The address of the coordinator of a group (kind 0) or of a transactional id (kind 1)."""
        what = "transactional id" if kind else "group"

        def look() -> tuple[str, int]:
            answer = self.ask(coordinator_request(kind, key), FIND_COORDINATOR)
            if answer.error_code:
                raise KafkaError(f"coordinator of {what} {key!r}", answer.error_code)
            return answer.host, answer.port

        return self.patiently(look)

    def prefer(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Put a partition's replicas in another order: the first one is the preferred leader."""
        row = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[row])]
        )
        answer = self._ask_controller(request, ALTER_PARTITION_REASSIGNMENTS)
        rows = [each for answered in answer.responses for each in answered.partitions]
        for code in (answer.error_code, *(each.error_code for each in rows)):
            if code:
                raise KafkaError(f"replicas of {topic}-{partition}", code)

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Let the preferred leader lead, if it can."""
        request = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
        )
        self._ask_controller(request, ELECT_LEADERS)

    def fence_producer(self, transactional_id: str) -> None:
        """Give a transactional id a new epoch, as another producer with it would."""

        def init() -> None:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000
            )
            address = self.coordinator(transactional_id, 1)
            answer = self.ask(request, INIT_PRODUCER_ID, address)
            if answer.error_code:
                raise KafkaError(f"transactional id {transactional_id!r}", answer.error_code)

        self.patiently(init)

    def remove_members(self, group: str) -> int:
        """Remove all members of a group; return how many there were."""
        members = self.group(group).members
        if members and self.serves(ApiKey.CONSUMER_GROUP_DESCRIBE) and self._consumer_group(group):
            for each in members:
                self._leave(group, each)
        elif members:
            request = LeaveGroupRequest(
                group_id=group, members=[MemberIdentity(member_id=each) for each in members]
            )
            answer = self.ask(request, LEAVE_GROUP, self.coordinator(group))
            for code in (answer.error_code, *(each.error_code for each in answer.members)):
                if code:
                    raise KafkaError(f"members of group {group!r}", code)
        return len(members)

    def _leave(self, group: str, member: str) -> None:
        """Let a member of a group of the consumer protocol leave."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=LEAVES
        )
        answer = self.ask(request, CONSUMER_GROUP_HEARTBEAT, self.coordinator(group))
        if answer.error_code:
            raise KafkaError(f"member {member!r} of group {group!r}", answer.error_code)

    def group(self, name: str) -> Group:
        """The state of a group; Dead without members if there is none."""

        def look() -> Group:
            request = DescribeGroupsRequest(groups=[name])
            row = self.ask(request, DESCRIBE_GROUPS, self.coordinator(name)).groups[0]
            if row.group_state == "Dead" and self.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
                other = self._consumer_group(name)
                row = row if other is None else other
            if row.error_code:
                raise KafkaError(f"group {name!r}", row.error_code)
            return Group(name, row.group_state, tuple(each.member_id for each in row.members))

        return self.patiently(look)

    def _consumer_group(self, name: str) -> Any:
        """A group of the consumer protocol (KIP-848); None if there is no such."""
        request = ConsumerGroupDescribeRequest(group_ids=[name])
        answer = self.ask(request, CONSUMER_GROUP_DESCRIBE, self.coordinator(name))
        row = answer.groups[0]
        # Apache Kafka 3.9 lists the API, but does not have it with ZooKeeper.
        has_none = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
        return None if row.error_code in has_none else row

    def serves(self, key: ApiKey) -> bool:
        """Whether the cluster answers an API."""
        if self._apis is None:
            answer = self.ask(ApiVersionsRequest(), API_VERSIONS)
            self._apis = frozenset(each.api_key for each in answer.api_keys)
        return key in self._apis

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset of a group; None if there is none."""

        def look() -> int | None:
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
            request = OffsetFetchRequest(group_id=group, topics=topics)
            answer = self.ask(request, OFFSET_FETCH, self.coordinator(group))
            row = answer.topics[0].partitions[0]
            for code in (answer.error_code, row.error_code):
                if code:
                    raise KafkaError(f"offsets of group {group!r}", code)
            return int(row.committed_offset) if row.committed_offset >= 0 else None

        return self.patiently(look)


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
        return self._owner.client.offset(self, partition, LATEST)

    def start_offset(self, partition: int = 0) -> int:
        """The offset of the oldest record that is kept."""
        return self._owner.client.offset(self, partition, EARLIEST)


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
        self.client.create(made, partitions, factor, configs or {})
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
            count = len(self.client.leaders(topic))
            partition = 0 if key_bytes is None else zlib.crc32(key_bytes) % count
        builder = BatchBuilder()
        for value in values:
            builder.append(now, key_bytes, _bytes(value), packed)
        base = self.client.produce(topic, partition, builder.build())
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
        partitions = sorted(client.leaders(topic)) if partition is None else [partition]
        offsets = {
            each: client.offset(topic, each, EARLIEST) if offset is None else offset
            for each in partitions
        }
        ends = {each: client.offset(topic, each, LATEST) for each in partitions}
        level = 1 if read_committed else 0
        found: list[Record] = []
        deadline = time.monotonic() + to_ms(timeout) / 1000
        while True:
            if count is None:
                behind = {each: at for each, at in offsets.items() if at < ends[each]}
                if not behind:
                    return found
                before = dict(offsets)
                moved, records = client.fetch(topic, behind, 0, level)
                offsets.update(moved)
                found += records
                if offsets == before and read_committed:
                    return found  # the rest belongs to open transactions
            else:
                if len(found) >= count:
                    return found[:count]
                offsets, records = client.fetch(topic, offsets, FETCH_WAIT_MS, level)
                found += records
            if time.monotonic() > deadline:
                if count is not None and len(found) >= count:
                    continue
                raise TimeoutError(f"{len(found)} of {count} records of {topic!r} have arrived")

    def group(self, name: str) -> Group:
        """The state of a consumer group; "Dead", without members, if there is none."""
        return self.client.group(name)

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """The offset that a group has committed; None if it has none."""
        return self.client.committed(group, topic, partition)

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
            self.client.fence_producer(transactional_id)
        elif group is not None and not self.client.remove_members(group):
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


def nearest_config(names: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the first of these names that no topic setting has, or ""."""
    from kwire.server.config.tables import TOPIC

    for name in names:
        if name not in TOPIC:
            return nearest(name, TOPIC)
    return ""


def waited(timeout: Duration) -> str:
    """A timeout as messages show it. Shape: a number gets its unit: 1 is `1s`."""
    return f"{timeout}s" if isinstance(timeout, int | float) else str(timeout)


def address_of(text: str) -> tuple[str, int]:
    """Read HOST:PORT."""
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


def _bytes(value: Value) -> bytes | None:
    if value is not None and not isinstance(value, str | bytes):
        raise TypeError(f"keys and values are bytes, strings or None, not {value!r}")
    return value.encode() if isinstance(value, str) else value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
