"""One side of a comparison: a broker, the calls made on it and the answers in comparable form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.api import ApiKey
from kwire.records.batch import iter_batches

from ...support.broker_process import BrokerProcess
from ...support.wire_client import Exchange, WireClient

ZERO_ID = bytes(16)
NODE_ID = 1  # of either broker

# Arrays of structs have no defined order; they are sorted by the first of these fields that they
# have.
_SORT_KEYS = (
    "metadata",
    "member_metadata",
    "name",
    "topic",
    "partition_index",
    "partition",
    "index",
    "group_id",
    "member_id",
    "resource_name",
    "api_key",
    "node_id",
    "broker_id",
    "key",
    "producer_id",
)
_SYMBOLS = {
    "producer_id": "PRODUCER",
    "previous_producer_id": "PRODUCER",
    "next_producer_id": "PRODUCER",
    "session_id": "SESSION",
    "member_id": "MEMBER",
    "leader": "MEMBER",
    "cluster_id": "CLUSTER",
    "host": "HOST",
    "port": "PORT",
    "log_dir": "DIRECTORY",
}
_NOTHING: frozenset[Any] = frozenset((None, "", -1, ZERO_ID))


class Answer(NamedTuple):
    """The answer to one call, comparable; None when the connection was closed."""

    label: str
    content: Any


class Peer:
    """A broker under comparison, during one scenario."""

    def __init__(self, broker: BrokerProcess, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.answers: list[Answer] = []
        self.exchanges: list[tuple[str, ApiKey, int, Exchange]] = []
        self._client: WireClient | None = None
        self._others: list[WireClient] = []
        self._symbols: dict[str, dict[Any, str]] = {}

    def name(self, stem: str) -> str:
        """Return a name that only this scenario uses, the same on both brokers."""
        return f"{self.prefix}-{stem}"

    @property
    def client(self) -> WireClient:
        """Return the connection; open one if needed."""
        if self._client is None:
            self._client = WireClient(self.broker.host, self.broker.port)
        return self._client

    def another(self) -> WireClient:
        """Open one more connection."""
        client = WireClient(self.broker.host, self.broker.port)
        self._others.append(client)
        return client

    def close(self) -> None:
        """Close all connections."""
        for client in (self._client, *self._others):
            if client is not None:
                client.close()

    def call(
        self, label: str, api: ApiKey, version: int, values: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Make a call whose answer is compared; return the original answer."""
        try:
            answer = self.client.call(api, version, values)
        except TimeoutError:
            self._lost(label, "no answer")
            return None
        self.note(label, api, version, answer)
        return answer

    def call_bytes(self, label: str, api: ApiKey, version: int, body: bytes) -> None:
        """Make a call with a body in bytes, to be compared."""
        self.note(label, api, version, self.client.call_bytes(api, version, body))

    def note(self, label: str, api: ApiKey, version: int, answer: dict[str, Any] | None) -> None:
        """Keep an answer for comparison."""
        if answer is None:
            self._lost(label, "connection closed")
            return
        self.keep(label, api, version)
        self.answers.append(Answer(label, self._comparable(answer, "")))

    def keep(self, label: str, api: ApiKey, version: int) -> None:
        """Keep the last exchange, for golden frames."""
        if self.client.last is not None:
            self.exchanges.append((label, api, version, self.client.last))

    def note_values(self, label: str, values: dict[str, Any]) -> None:
        """Keep values derived from an answer, for comparison."""
        self.answers.append(Answer(label, self._comparable(values, "")))

    def _lost(self, label: str, how: str) -> None:
        self.client.close()
        self._client = None
        self.answers.append(Answer(label, how))

    def ask(self, api: ApiKey, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Make a call that only prepares; its answer is not compared."""
        answer = self.client.call(api, version, values)
        assert answer is not None, f"{self.broker.kind} closed the connection on {api.name}"
        return answer

    def until(
        self,
        condition: Callable[[dict[str, Any]], bool],
        api: ApiKey,
        version: int,
        values: dict[str, Any],
    ) -> dict[str, Any]:
        """Repeat a preparing call until the condition holds. Errors: fails after 20 s."""
        deadline = time.monotonic() + 20
        while True:
            answer = self.ask(api, version, values)
            if condition(answer):
                return answer
            assert time.monotonic() < deadline, (self.broker.kind, api.name, answer)
            time.sleep(0.02)

    # Common preparations of scenarios

    def create_topic(self, stem: str, partitions: int = 1, **config: str) -> str:
        """Create a topic, wait until it has leaders, and return its name."""
        name = self.name(stem)
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        answer = self.ask(
            ApiKey.CREATE_TOPICS, 5, {"topics": [{**topic, "assignments": [], "configs": configs}]}
        )
        assert answer["topics"][0]["error_code"] == 0, answer
        self.topic_id(name)
        for partition in range(partitions):  # a leader is notified later than the others
            row = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
            self.until(
                lambda answer: answer["topics"][0]["partitions"][0]["error_code"] == 0,
                ApiKey.LIST_OFFSETS,
                4,
                {"replica_id": -1, "topics": [{"name": name, "partitions": [row]}]},
            )
        return name

    def topic_id(self, name: str) -> bytes:
        """Return a topic's id."""
        answer = self.until(
            lambda answer: all(
                topic["error_code"] == 0
                and all(part["error_code"] == 0 for part in topic["partitions"])
                for topic in answer["topics"]
            ),
            ApiKey.METADATA,
            12,
            {"topics": [{"name": name}], "allow_auto_topic_creation": False},
        )
        topic_id: bytes = answer["topics"][0]["topic_id"]
        return topic_id

    def produce(self, topic: str, records: bytes, partition: int = 0) -> int:
        """Append a batch and return its base offset."""
        rows = [{"index": partition, "records": records}]
        answer = self.ask(
            ApiKey.PRODUCE,
            9,
            {
                "acks": -1,
                "timeout_ms": 10000,
                "topic_data": [{"name": topic, "partition_data": rows}],
            },
        )
        row = answer["responses"][0]["partition_responses"][0]
        assert row["error_code"] == 0, (self.broker.kind, row)
        base_offset: int = row["base_offset"]
        return base_offset

    # Comparable form

    def _symbol(self, kind: str, value: Any) -> str:
        known = self._symbols.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known)}")

    def _comparable(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            return {key: self._comparable(one, key) for key, one in value.items()}
        if isinstance(value, list):
            if value and isinstance(value[0], dict):
                value = sorted(value, key=_sort_key)
            elif field in ("partitions", "partition_ids"):  # numbers, of a set on the other side
                value = sorted(value)
            return [self._comparable(one, field) for one in value]
        if field == "topic_id" and value != ZERO_ID:
            return "TOPIC-ID"
        if (
            field in _SYMBOLS
            and value not in _NOTHING
            and (value != 0 or field.endswith("producer_id"))
        ):
            return self._symbol(_SYMBOLS[field], value)
        if field == "throttle_time_ms":
            return 0
        if field in ("error_message", "batch_index_error_message", "documentation"):
            return value if value in (None, "") else "TEXT"
        if field == "records" and value is not None:
            return [self._comparable_batch(batch) for batch in iter_batches(value)]
        if isinstance(value, int) and abs(value - time.time() * 1000) < 600_000:
            return "NOW"
        return value

    def _comparable_batch(self, batch: Any) -> dict[str, Any]:
        """Omit values that compression may change: length, CRC and position."""
        header = batch.header
        batch.verify_crc()
        now_ms = time.time() * 1000
        times = (header.base_timestamp, header.max_timestamp) if batch.magic == 2 else ()
        return {
            "base_offset": header.base_offset,
            "leader_epoch": header.partition_leader_epoch if batch.magic == 2 else None,
            "magic": batch.magic,
            "codec": int(batch.codec),
            "timestamp_type": int(batch.timestamp_type),
            "times": ["NOW" if abs(one - now_ms) < 600_000 else one for one in times],
            "producer": (
                producer_id
                if (producer_id := header.producer_id) < 0
                else self._symbol("PRODUCER", producer_id),
                header.producer_epoch,
                header.base_sequence,
            )
            if batch.magic == 2
            else None,
            "records": [
                (
                    record.offset,
                    "NOW" if abs(record.timestamp - now_ms) < 600_000 else record.timestamp,
                    None if record.key is None else bytes(record.key),
                    None if record.value is None else bytes(record.value),
                    [(key, None if text is None else bytes(text)) for key, text in record.headers],
                )
                for record in batch.records()
            ],
        }


def _sort_key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[key]).zfill(12) for key in _SORT_KEYS if key in row)
