"""Compares the replies of two brokers to the same requests, field by field.

Values that brokers choose are not compared but paired: an id of one broker always has to correspond to the same id of
the other. Offsets are compared after subtracting the difference between the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kwire.errors import WireError
from kwire.records.batch import iter_batches

from .exchange import Exchange
from .json_form import to_json
from .replay import Played

#: Values that brokers choose, by the kind of id, in JSON names.
PAIRED = {
    "memberId": "member",
    "leader": "member",
    "producerId": "producer",
    "topicId": "topic",
    "sessionId": "session",
    "clusterId": "cluster",
    "nodeId": "broker",
    "leaderId": "broker",
    "controllerId": "broker",
    "brokerId": "broker",
    "replicaNodes": "broker",
    "isrNodes": "broker",
    "offlineReplicas": "broker",
}
#: Addresses of brokers, and how long they ask clients to pause.
LEFT_OUT = frozenset({"host", "port", "throttleTimeMs", "rack"})
OFFSETS = frozenset(
    {"baseOffset", "highWatermark", "lastStableOffset", "offset", "committedOffset", "endOffset"}
)
#: When a broker stamped something with its own clock.
TIMES = frozenset(
    {"logAppendTimeMs", "transactionStartTimeMs", "lastTimestamp", "issueTimestampMs"}
)
#: The keys of the elements of lists whose order has no meaning.
KEYS = (
    "apiKey",
    "name",
    "topic",
    "topicName",
    "partitionIndex",
    "partition",
    "index",
    "groupId",
    "resourceName",
    "key",
    "transactionalId",
)
ABSENT = "(not there)"


class Difference(NamedTuple):
    """A field in which two replies differ. Shape: `number` counts the requests of the recording from 1."""

    number: int
    exchange: Exchange
    path: str
    one: Any
    other: Any

    @property
    def kind(self) -> tuple[str, str]:
        """The API, and the field without the elements of lists: what differences that repeat have in common."""
        path = "".join(
            part if index == 0 else part.partition("]")[2]
            for index, part in enumerate(self.path.split("["))
        )
        return self.exchange.api, path

    def __str__(self) -> str:
        return (
            f"#{self.number} {self.exchange.api} v{self.exchange.version}: {self.path}: "
            f"{shown(self.one)} | {shown(self.other)}"
        )


def shown(value: Any) -> str:
    """A value, shortened."""
    text = value if value == ABSENT else repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def recorded(exchanges: Sequence[Exchange]) -> list[Played]:
    """The recorded reply of the broker."""
    return [
        Played(each, each.decoded_reply(), None if each.response_bytes else "no reply")
        for each in exchanges
    ]


def compare(one: Sequence[Played], other: Sequence[Played]) -> list[Difference]:
    """Compare what two brokers have answered to the same requests, in this order."""
    comparison = IdComparison()
    found = []
    for number, (left, right) in enumerate(zip(one, other, strict=True), 1):
        for path, *values in comparison.of(left, right):
            found.append(Difference(number, left.exchange, path, *values))
    return found


Row = tuple[str, Any, Any]


class IdComparison:
    """Remembers which ids stand for which."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, Any], Any] = {}
        self._back: dict[tuple[str, Any], Any] = {}
        self._ahead: dict[str, int] = {}

    def of(self, one: Played, other: Played) -> Iterator[Row]:
        """The fields in which two replies differ."""
        exchange = one.exchange
        if one.response is None or other.response is None:
            left = one.failure if one.response is None else "a reply"
            right = other.failure if other.response is None else "a reply"
            if left != right:
                yield "reply", left, right
            return
        forms = [form_of(each.response, exchange) for each in (one, other)]
        yield from self._differ(forms[0], forms[1], "", "", "")

    def _differ(self, one: Any, other: Any, path: str, name: str, place: str) -> Iterator[Row]:
        if name in LEFT_OUT:
            return
        if isinstance(one, dict) and isinstance(other, dict):
            place = self._place(one, place)
            for key in [*one, *(key for key in other if key not in one)]:
                inner = f"{path}.{key}" if path else key
                if key not in one or key not in other:
                    yield inner, one.get(key, ABSENT), other.get(key, ABSENT)
                else:
                    yield from self._differ(one[key], other[key], inner, key, place)
        elif isinstance(one, list) and isinstance(other, list):
            yield from self._lists(one, other, path, name, place)
        elif not self._same(one, other, name, place):
            yield path, one, other

    def _place(self, struct: dict[str, Any], place: str) -> str:
        """Where a struct belongs: a topic, and a partition of it."""
        for key in ("name", "topic", "topicName", "partitionIndex", "partition", "index"):
            if isinstance(struct.get(key), str | int):
                return f"{place}/{struct[key]}"
        if struct.get("topicId"):
            return f"{place}/{struct['topicId']}"
        return place

    def _lists(self, one: Any, other: Any, path: str, name: str, place: str) -> Iterator[Row]:
        if all(isinstance(each, int) for each in (*one, *other)):
            if name in PAIRED and len(one) == len(other):
                for left, right in zip(sorted(one), sorted(other), strict=True):
                    yield from self._differ(left, right, path, name, place)
            elif sorted(one) != sorted(other):
                yield path, one, other
            return
        key = key_of(one, other)
        if key is None:
            left, right = dict(enumerate(one)), dict(enumerate(other))
        else:
            left, right = ({row[key]: row for row in rows} for rows in (one, other))
        for each in [*left, *(each for each in right if each not in left)]:
            inner = f"{path}[{each}]"
            if each not in left or each not in right:
                yield inner, left.get(each, ABSENT), right.get(each, ABSENT)
            else:
                yield from self._differ(left[each], right[each], inner, name, place)

    def _same(self, one: Any, other: Any, name: str, place: str) -> bool:
        if name in PAIRED and not (one in (None, "", -1, 0) and one == other):
            if name == "leader" and not isinstance(one, str):
                return bool(one == other)
            return self._paired(PAIRED[name], one, other)
        if isinstance(one, int) and isinstance(other, int):
            if name in OFFSETS and min(one, other) >= 0:
                if name == "baseOffset":  # of a Produce
                    self._ahead.setdefault(place, other - one)
                return other - one in (
                    0,
                    self._ahead.get(place, 0),
                )  # a log's start may be the same
            if name in TIMES:
                return (one < 0) == (other < 0)
        return bool(one == other)

    def _paired(self, kind: str, one: Any, other: Any) -> bool:
        # A broker of the one may have id 0 and that of the other 1.
        return self._pairs.setdefault((kind, one), other) == other and bool(
            self._back.setdefault((kind, other), one) == one
        )


def key_of(one: list[Any], other: list[Any]) -> str | None:
    """The field that identifies the elements of two lists; None if only their order does."""
    if not (one or other) or not all(isinstance(each, dict) for each in (*one, *other)):
        return None
    for key in KEYS:
        values = [[each.get(key) for each in rows] for rows in (one, other)]
        if all(
            len(set(rows)) == len(rows)
            and all(isinstance(value, str | int) and value != "" for value in rows)
            for rows in values
        ):
            return key
    return None


def form_of(response: Any, exchange: Exchange) -> dict[str, Any]:
    """A reply in JSON, with its records."""
    version = exchange.reply_version(response)
    return to_json(response, version, records=records_of)


def records_of(records: Any) -> list[dict[str, Any]]:
    """Records as a consumer sees them."""
    found: list[dict[str, Any]] = []
    try:
        for batch in iter_batches(bytes(records)):
            shared = {
                "producerId": batch.header.producer_id,
                "isTransactional": batch.is_transactional,
                "isControl": batch.is_control,
                "compression": batch.codec.name,
            }
            found += [
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _shown(record.key),
                    "value": _shown(record.value),
                    "headers": [[name, _shown(value)] for name, value in record.headers],
                    **shared,
                }
                for record in batch.records()
            ]
    except WireError as error:
        found.append({"undecodable": str(error)})
    return found


def _shown(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")
