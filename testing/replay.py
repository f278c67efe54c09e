"""Sends the requests of a recording to a broker again.

Requests are sent in the order of the recording, on as many connections, and each waits for the replies that preceded
it. Values that brokers choose are replaced: ids of members, producers, topics and fetch sessions, generations of
groups, and the offsets of partitions that were not empty.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.codec import encode_parts
from kwire.errors import ErrorCode, WireError
from kwire.messages.api_versions import ApiVersionsRequest
from kwire.messages.produce import ProduceRequest
from kwire.records.batch import iter_batch_headers, rewrite_crc
from kwire.records.layout import INT64, PRODUCER_EPOCH_AT, PRODUCER_ID_AT
from kwire.schema import schema_of
from kwire.server.client.answers import versions_in
from kwire.server.client.wire import ConnectionEnded, Wire, open_socket

from . import rows
from .client import topics
from .client.connections import Client, address_of
from .client.records import LATEST, offset_at
from .exchange import Exchange
from .real_time import time
from .recording import Recording

#: How long a reply is waited for; a rebalance takes a few seconds. Unit: seconds.
PATIENCE_S = 15.0
#: Values that brokers choose, by the names of the fields.
MEMBER, PRODUCER, TOPIC, SESSION = "member_id", "producer_id", "topic_id", "session_id"
CHOSEN = (MEMBER, PRODUCER, TOPIC, SESSION)
GENERATION = ("generation_id", "generation_id_or_member_epoch")
#: Offsets in requests, which count from where a partition ended when the replay began.
OFFSETS = ("fetch_offset", "committed_offset")


#: Temporary errors while the topics of a broker's coordinators are created and loaded, and the retry interval. Unit:
#: seconds.
COMING_UP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
ASK_AGAIN_S = 0.1


class Played(NamedTuple):
    """A request that was sent again, and its outcome.

    Shape: `response` is None if there is none, and `failure` says why.
    """

    exchange: Exchange
    response: Any
    failure: str | None = None


class Chosen:
    """The values that one broker has chosen, by those of another.

    Shape: keys are (kind of id, the other's value).
    """

    def __init__(self) -> None:
        self._by_other: dict[tuple[Any, ...], Any] = {}
        self.shifts: dict[tuple[str, int], int] = {}

    def learn(self, request: Any, other: Any, own: Any) -> None:
        """Pair the values in the answers of both brokers."""
        for name in GENERATION:
            if hasattr(other, name) and hasattr(request, "group_id"):
                generation = getattr(other, name)
                self._by_other[name, request.group_id, generation] = getattr(own, name)
        self._learn(other, own)

    def _learn(self, other: Any, own: Any) -> None:
        for field in schema_of(type(other)).fields:
            theirs, ours = getattr(other, field.name), getattr(own, field.name, None)
            if field.name in CHOSEN and theirs not in (None, "", -1, 0, bytes(16)):
                self._by_other[field.name, theirs] = ours
                if field.name == PRODUCER and hasattr(other, "producer_epoch"):
                    self._by_other["producer_epoch", theirs, other.producer_epoch] = (
                        own.producer_epoch
                    )
            elif isinstance(theirs, list) and isinstance(ours, list):
                for left, right in zip(theirs, ours, strict=False):
                    if rows.is_struct(left) and rows.is_struct(right):
                        self._learn(left, right)
            elif rows.is_struct(theirs) and rows.is_struct(ours):
                self._learn(theirs, ours)

    def own(self, *key: Any) -> Any:
        """This broker's value for a value of the other broker; the same if none is known."""
        return self._by_other.get(key, key[-1])

    def put_in(self, message: Any, names: dict[bytes, str]) -> None:
        """Replace the chosen values in a request, which is modified."""
        group = getattr(message, "group_id", None)
        for name in GENERATION:
            if group is not None and hasattr(message, name):
                setattr(message, name, self.own(name, group, getattr(message, name)))
        self._put_in(message, names, None)

    def _put_in(self, struct: Any, names: dict[bytes, str], topic: str | None) -> None:
        topic = rows.name_of(struct, names) or topic
        partition = rows.partition_of(struct)
        shift = self.shifts.get((topic or "", -1 if partition is None else partition), 0)
        producer_id = getattr(struct, PRODUCER, None)
        for field in schema_of(type(struct)).fields:
            value = getattr(struct, field.name)
            if field.name in CHOSEN:
                setattr(struct, field.name, self.own(field.name, value))
            elif field.name == "producer_epoch":
                setattr(struct, field.name, self.own("producer_epoch", producer_id, value))
            elif field.name in OFFSETS and value >= 0:
                setattr(struct, field.name, value + shift)
            elif field.name == "records" and value is not None:
                struct.records = self.records(value)
            elif isinstance(value, list):
                for each in value:
                    if rows.is_struct(each):
                        self._put_in(each, names, topic)
            elif rows.is_struct(value):
                self._put_in(value, names, topic)

    def records(self, records: Any) -> bytes:
        """Batches with the producer ids that this broker has assigned."""
        buffer = bytearray(records)
        try:
            found = list(iter_batch_headers(bytes(buffer)))
        except WireError:
            return bytes(buffer)  # they were not meant to be understood
        for position, header in found:
            if header.magic == 2 and header.producer_id >= 0:
                own_id = self.own(PRODUCER, header.producer_id)
                epoch = self.own("producer_epoch", header.producer_id, header.producer_epoch)
                INT64.pack_into(buffer, position + PRODUCER_ID_AT, own_id)
                buffer[position + PRODUCER_EPOCH_AT : position + PRODUCER_EPOCH_AT + 2] = (
                    epoch.to_bytes(2, "big", signed=True)
                )
                rewrite_crc(buffer, position)
        return bytes(buffer)


class ReplayedConnection:
    """One connection of the replay."""

    def __init__(self, address: tuple[str, int], client_id: str | None) -> None:
        self.wire = Wire(open_socket(address, PATIENCE_S), client_id)
        self.asked: deque[Exchange] = deque()
        self.messages: dict[int, Any] = {}
        self.closed = False

    def send(self, exchange: Exchange, message: Any) -> None:
        """Send a request. Errors: OSError."""
        self.messages[id(exchange)] = message
        answered = getattr(message, "acks", 1) != 0
        body = encode_parts(message, exchange.version)
        self.wire.connection.client_id = exchange.client_id
        self.wire.send_body(exchange.api_key, exchange.version, body, answered=answered)
        if answered:
            self.asked.append(exchange)

    def receive(self, timeout_s: float) -> Iterator[tuple[Exchange, Any]]:
        """Wait for bytes, and yield the replies that are complete. Errors: OSError, WireError."""
        readable, _, _ = select.select([self.wire.sock], [], [], timeout_s)
        if not readable:
            return
        try:
            self.wire.read_some()
        except ConnectionEnded:
            self.closed = True
            return
        while (response := self.wire.connection.next_response()) is not None:
            yield self.asked.popleft(), response.message()


class Player:
    """Plays a recording to one broker. Shape: the first of the given addresses gets all requests."""

    def __init__(
        self, recording: Recording, bootstrap: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._recording = recording
        self._address = address_of(bootstrap.split(",")[0])
        self._patience_s = patience_s
        self._names = recording.names
        self._chosen = Chosen()
        self._lines: dict[int, ReplayedConnection] = {}
        self._played: dict[int, Played] = {}

    def play(self) -> list[Played]:
        """Send all requests, and return their outcomes.

        Errors: OSError, KafkaError if the broker cannot be prepared.
        """
        self._prepare()
        events: list[tuple[int, bool, Exchange]] = []
        for exchange in self._recording.exchanges:
            events.append((exchange.order, False, exchange))
            if exchange.replied_order is not None:
                events.append((exchange.replied_order, True, exchange))
        events.sort(key=lambda event: event[:2])
        try:
            for _, is_reply, exchange in events:
                if is_reply:
                    self._await(exchange)
                else:
                    self._send(exchange)
        finally:
            for line in self._lines.values():
                line.wire.close()
        return [
            self._played.get(id(exchange), Played(exchange, None, "no reply"))
            for exchange in self._recording.exchanges
        ]

    def _prepare(self) -> None:
        """Get the broker's API versions, and create the topics of the beginning of the recording."""
        client = Client(f"{self._address[0]}:{self._address[1]}")
        try:
            served = versions_in(client.ask(ApiVersionsRequest(), 0))
            self._served = {key: range(low, high + 1) for key, (low, high) in served.items()}
            there = set(topics.names(client))
            for topic in self._recording.topics:
                if topic.name.startswith("__"):
                    continue  # the brokers make those themselves
                if topic.name not in there:
                    topics.create(client, topic.name, topic.partitions, -1, topic.configs)
                for partition in range(topic.partitions):
                    end = offset_at(client, topic.name, partition, LATEST)
                    self._chosen.shifts[topic.name, partition] = end
        finally:
            client.close()

    def _send(self, exchange: Exchange) -> None:
        message = exchange.decoded()
        if message is None or exchange.has_secrets:
            secret = not exchange.frame or exchange.has_secrets
            why = "it has secrets, which are not recorded" if secret else "it cannot be decoded"
            self._played[id(exchange)] = Played(exchange, None, f"not sent: {why}")
            return
        if exchange.version not in self._served.get(exchange.api_key, ()):
            self._played[id(exchange)] = Played(
                exchange, None, f"not sent: version {exchange.version} is not served"
            )
            return
        self._chosen.put_in(message, self._names)
        try:
            line = self._lines.get(exchange.connection)
            if line is None or line.closed:
                line = self._lines[exchange.connection] = ReplayedConnection(
                    self._address, exchange.client_id
                )
            line.send(exchange, message)
        except OSError as error:
            self._played[id(exchange)] = Played(exchange, None, f"not sent: {error}")

    def _await(self, exchange: Exchange) -> None:
        line = self._lines.get(exchange.connection)
        end = time.monotonic() + self._patience_s
        while line is not None and exchange in line.asked and time.monotonic() < end:
            try:
                for answered, response in line.receive(end - time.monotonic()):
                    if self._is_too_early(answered, response) and time.monotonic() < end:
                        time.sleep(ASK_AGAIN_S)
                        line.send(answered, line.messages[id(answered)])
                    else:
                        self._answered(answered, response)
            except (OSError, WireError) as error:
                line.closed = True
                self._played[id(exchange)] = Played(exchange, None, f"no reply: {error}")
            if line.closed:
                failed = Played(exchange, None, "no reply: the broker has closed the connection")
                self._played.setdefault(id(exchange), failed)
                return

    @staticmethod
    def _is_too_early(exchange: Exchange, response: Any) -> bool:
        """Whether a coordinator that was ready in the recording is not ready yet: clients then retry."""
        recorded = exchange.decoded_reply()
        return recorded is not None and bool(
            COMING_UP & (set(errors_of(response)) - set(errors_of(recorded)))
        )

    def _answered(self, exchange: Exchange, response: Any) -> None:
        self._played[id(exchange)] = Played(exchange, response)
        recorded = exchange.decoded_reply()
        request = exchange.message
        if recorded is None:
            return
        self._chosen.learn(request, recorded, response)
        if exchange.api_key == ApiKey.METADATA:
            for topic in recorded.topics:
                if getattr(topic, "topic_id", bytes(16)) != bytes(16) and topic.name:
                    self._names[topic.topic_id] = topic.name
        if isinstance(request, ProduceRequest):
            self._note_offsets(recorded, response)

    def _note_offsets(self, recorded: Any, response: Any) -> None:
        """How far offsets are ahead of the recorded ones."""
        for theirs, ours in zip(recorded.responses, response.responses, strict=False):
            name = rows.name_of(theirs, self._names)
            for left, right in zip(
                theirs.partition_responses, ours.partition_responses, strict=False
            ):
                if left.base_offset >= 0 and right.base_offset >= 0:
                    self._chosen.shifts[name, left.index] = right.base_offset - left.base_offset


def errors_of(message: Any) -> Iterator[int]:
    """The error codes in a reply."""
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for each in value:
                if rows.is_struct(each):
                    yield from errors_of(each)


def play(recording: Recording, bootstrap: str, *, patience_s: float = PATIENCE_S) -> list[Played]:
    """Send the requests of a recording to a broker. Errors: OSError, KafkaError."""
    return Player(recording, bootstrap, patience_s=patience_s).play()
