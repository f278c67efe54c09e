"""Transactional producers: InitProducerId to EndTxn, requests between brokers, and the views.

The same requests for both protocols. Up to EndTxn 4, Produce 11 and TxnOffsetCommit 4, a producer adds its partitions
itself; after that the second protocol does it (KIP-890), which only 4.3 has. After an end, a scenario waits until the
transaction is complete, since the duration is not compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kwire.api import ApiKey
from kwire.codec import decode
from kwire.messages.internal.transaction_log import TransactionLogKey, TransactionLogValue
from kwire.records.batch import iter_batches

from ...support.wire_client import plain
from . import groups
from .data import fetch_request
from .peer import Peer
from .scenario import batch, scenario, scenario_of_4

Producer = tuple[int, int]
COMPLETE = ("Empty", "CompleteCommit", "CompleteAbort")
ADDING_PRODUCE = 12
ADDING_COMMIT = 5
BUMPING_END = 5


class Transactional:
    """One transactional id on one broker: the requests of its producer, compared or not."""

    def __init__(self, peer: Peer, stem: str = "id", produce: int = 11, end: int = 4) -> None:
        self.peer = peer
        self.name = peer.name(stem)
        self.produce_version = produce
        self.end_version = end
        peer.until(
            lambda answer: answer["error_code"] == 0,
            ApiKey.FIND_COORDINATOR,
            2,
            {"key": self.name, "key_type": 1},
        )
        peer.until(
            lambda answer: answer["transaction_states"][0]["error_code"] not in (14, 15, 16),
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": [self.name]},
        )

    def init_request(self, **more: Any) -> dict[str, Any]:
        return {"transactional_id": self.name, "transaction_timeout_ms": 60_000} | more

    def init(self, **more: Any) -> Producer:
        """Begin as a new producer, after all transactions that are still ending."""
        answer = self.peer.until(
            lambda answer: answer["error_code"] not in (14, 15, 16, 51),
            ApiKey.INIT_PRODUCER_ID,
            5,
            self.init_request(**more),
        )
        assert answer["error_code"] == 0, answer
        return answer["producer_id"], answer["producer_epoch"]

    def add(self, producer: Producer, *tps: tuple[str, int]) -> None:
        answer = self.peer.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, self.add_request(producer, *tps))
        rows = answer["results_by_topic_v3_and_below"]
        errors = [p["partition_error_code"] for t in rows for p in t["results_by_partition"]]
        assert not any(errors), answer

    def add_request(self, producer: Producer, *tps: tuple[str, int]) -> dict[str, Any]:
        return {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers} for name, numbers in by_topic(tps)
            ],
        }

    def begin(self, producer: Producer, *tps: tuple[str, int]) -> None:
        """Add partitions, if the protocol requires it."""
        if self.produce_version < ADDING_PRODUCE:
            self.add(producer, *tps)

    def send(
        self,
        label: str,
        producer: Producer,
        sequence: int,
        topic: str,
        partition: int = 0,
        version: int | None = None,
        **more: Any,
    ) -> None:
        """Produce one transactional batch of two records."""
        version = version or self.produce_version
        records = batch(b"a", b"b", producer=(*producer, sequence), is_transactional=True)
        by_name = {"name": topic} if version < 13 else {"topic_id": self.peer.topic_id(topic)}
        row = by_name | {"partition_data": [{"index": partition, "records": records}]}
        request = {"transactional_id": self.name, "acks": -1, "timeout_ms": 5_000} | more
        self.peer.call(label, ApiKey.PRODUCE, version, request | {"topic_data": [row]})

    def end_request(self, producer: Producer, committed: bool, **more: Any) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": committed,
        } | more

    def end(self, label: str, producer: Producer, committed: bool, **more: Any) -> Producer:
        """End a transaction; return the producer of the next one."""
        request = self.end_request(producer, committed, **more)
        answer = self.peer.call(label, ApiKey.END_TXN, self.end_version, request)
        self.settle()
        if answer is not None and answer["error_code"] == 0 and self.end_version >= BUMPING_END:
            return answer["producer_id"], answer["producer_epoch"]
        return producer

    def settle(self) -> None:
        """Wait until a transaction that is ending has ended."""
        self.peer.until(
            lambda answer: "Prepare" not in answer["transaction_states"][0]["transaction_state"],
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": [self.name]},
        )

    def describe(self, label: str) -> None:
        request = {"transactional_ids": [self.name]}
        self.peer.call(label, ApiKey.DESCRIBE_TRANSACTIONS, 0, request)

    def stored(self, label: str) -> None:
        """Compare all that __transaction_state has of the id, with the version of each value."""
        rows = []
        for partition in range(5):
            offset = 0
            while True:
                request = fetch_request("__transaction_state", offset) | {"max_wait_ms": 0}
                request["topics"][0]["partitions"][0]["partition"] = partition
                answer = self.peer.ask(ApiKey.FETCH, 11, request)
                row = answer["responses"][0]["partitions"][0]
                if row["error_code"] or not row["records"]:
                    break
                for one in iter_batches(row["records"]):
                    offset = one.header.base_offset + one.header.last_offset_delta + 1
                    rows += [r for r in one.records() if r.key and self._is_own(bytes(r.key))]
        content = [self._decoded(row.value) for row in rows]
        self.peer.note_values(label, {"values": content})

    def _is_own(self, key: bytes) -> bool:
        return decode(TransactionLogKey, key, 0, 2).transactional_id == self.name

    def _decoded(self, value: Any) -> Any:
        if value is None:
            return None
        version = int.from_bytes(bytes(value[:2]), "big")
        found = plain(decode(TransactionLogValue, bytes(value), version, 2), version)
        rows = found["transaction_partitions"]
        if rows is not None:
            found["transaction_partitions"] = sorted(
                (row["topic"], sorted(row["partition_ids"])) for row in rows
            )
        return {"version": version} | found

    def committed(self, label: str, topic: str, partition: int = 0) -> None:
        """Fetch what read_committed returns."""
        request = fetch_request(topic, 0) | {"isolation_level": 1}
        request["topics"][0]["partitions"][0]["partition"] = partition
        self.peer.call(label, ApiKey.FETCH, 11, request)


def by_topic(tps: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """Group partitions by topic, in order of the first of each."""
    topics: dict[str, list[int]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def protocol(version: int, bumping: int) -> tuple[int, int]:
    """Return the versions of Produce and EndTxn that go with the version of an API."""
    return (ADDING_PRODUCE, BUMPING_END) if version >= bumping else (11, 4)


# InitProducerId


@scenario(ApiKey.INIT_PRODUCER_ID, 0, 5)
@scenario_of_4(ApiKey.INIT_PRODUCER_ID, 0, 5)
def transactional_producers(peer: Peer, version: int) -> None:
    """New, repeated, with an open transaction, with invalid timeouts; since version 3 also continuing."""
    txn = Transactional(peer)
    topic = peer.create_topic("topic")

    def init(label: str, **more: Any) -> None:
        peer.call(label, ApiKey.INIT_PRODUCER_ID, version, txn.init_request(**more))
        txn.settle()

    init("new")
    init("again")
    init("no timeout", transaction_timeout_ms=0)
    init("negative timeout", transaction_timeout_ms=-1)
    init("long timeout", transaction_timeout_ms=900_001)
    init("longest timeout", transaction_timeout_ms=900_000)
    init("empty id", transactional_id="")
    producer = txn.init()
    txn.add(producer, (topic, 0))
    init("while one is open")
    init("after it was aborted")
    txn.describe("described")
    if version >= 3:
        producer = txn.init()
        named = {"producer_id": producer[0], "producer_epoch": producer[1]}
        init("goes on", **named)
        init("goes on again", **named)
        init("and again", **named)
        init("goes on with the next", **named | {"producer_epoch": producer[1] + 1})
        init("retry of an older", **named)
        init("epoch to come", **named | {"producer_epoch": producer[1] + 9})
        init("another producer", **named | {"producer_id": producer[0] + 7_000})
        init("only an id", producer_id=producer[0])
        init("only an epoch", producer_epoch=0)
        init("new id by name", transactional_id=peer.name("unknown"), **named)
    txn.stored("stored")


@scenario_of_4(ApiKey.INIT_PRODUCER_ID, 3, 5)
def producers_that_go_on(peer: Peer, version: int) -> None:
    """With their id and epoch while their transaction is open: older and newer clients."""
    topic = peer.create_topic("topic")
    for stem, produce in (("older", 11), ("newer", 12)):
        txn = Transactional(peer, stem, produce=produce)
        producer = txn.init()
        txn.begin(producer, (topic, 0))
        txn.send(f"{stem}, sent", producer, 0, topic)
        named = {"producer_id": producer[0], "producer_epoch": producer[1]}
        for label in ("goes on", "goes on again", "and again"):
            request = txn.init_request(**named)
            peer.call(f"{stem} {label}", ApiKey.INIT_PRODUCER_ID, version, request)
            txn.settle()
        peer.call(f"{stem} anew", ApiKey.INIT_PRODUCER_ID, version, txn.init_request())
        txn.describe(f"{stem}, described")
        txn.stored(f"{stem}, stored")


# AddPartitionsToTxn


@scenario(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3)
@scenario_of_4(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3)
def partitions_of_a_client(peer: Peer, version: int) -> None:
    """Once, again, none, unknown and internal topics, and other producers."""
    txn = Transactional(peer)
    topic = peer.create_topic("topic", partitions=2)
    producer = txn.init()

    def add(label: str, producer: Producer, *tps: tuple[str, int], name: str | None = None) -> None:
        request = txn.add_request(producer, *tps)
        if name is not None:
            request["v3_and_below_transactional_id"] = name
        peer.call(label, ApiKey.ADD_PARTITIONS_TO_TXN, version, request)

    add("one", producer, (topic, 0))
    add("again", producer, (topic, 0))
    add("another", producer, (topic, 1))
    add("none", producer)
    add("unknown partition", producer, (topic, 0), (topic, 7))
    add("unknown topic", producer, (peer.name("nowhere"), 0))
    add("internal", producer, ("__consumer_offsets", 0), (topic, 0))
    add("older epoch", (producer[0], producer[1] - 1), (topic, 0))
    add("later epoch", (producer[0], producer[1] + 1), (topic, 0))
    add("another producer", (producer[0] + 7_000, 0), (topic, 0))
    add("unknown id", producer, (topic, 0), name=peer.name("unknown"))
    add("empty id", producer, (topic, 0), name="")
    txn.describe("described")
    txn.end("end", producer, True)
    add("after the end", producer, (topic, 0))
    txn.describe("described after the end")
    txn.end("end of the second", producer, False)
    txn.stored("stored")


@scenario(ApiKey.ADD_PARTITIONS_TO_TXN, 4, 5)
@scenario_of_4(ApiKey.ADD_PARTITIONS_TO_TXN, 4, 5)
def partitions_of_brokers(peer: Peer, version: int) -> None:
    """Several transactions at once, to be added or only verified."""
    one, two = Transactional(peer, "one"), Transactional(peer, "two")
    topic = peer.create_topic("topic", partitions=2)
    producers = one.init(), two.init()

    def add(label: str, *asked: tuple[Transactional, Producer, bool, tuple[str, int]]) -> None:
        rows = [
            {
                "transactional_id": txn.name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": verify,
                "topics": [{"name": tp[0], "partitions": [tp[1]]}],
            }
            for txn, producer, verify, tp in asked
        ]
        peer.call(label, ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": rows})

    first, second = producers
    add("verify before", (one, first, True, (topic, 0)))
    add("add and verify", (one, first, False, (topic, 0)), (two, second, True, (topic, 0)))
    add("verify after", (one, first, True, (topic, 0)), (two, second, False, (topic, 1)))
    add("verify another", (one, first, True, (topic, 1)))
    add("unknown partition", (one, first, False, (topic, 5)), (two, second, True, (topic, 1)))
    add("verify an unknown one", (one, first, True, (topic, 5)))
    add("internal", (one, first, False, ("__consumer_offsets", 0)))
    add("older epoch", (one, (first[0], first[1] - 1), True, (topic, 0)))
    add("another producer", (one, (first[0] + 7_000, 0), False, (topic, 0)))
    one.describe("one")
    two.describe("two")
    one.end("end of one", first, True)
    add("verify after the end", (one, first, True, (topic, 0)))
    one.stored("stored of one")


# Produce


@scenario(ApiKey.PRODUCE, 3, 11)
@scenario_of_4(ApiKey.PRODUCE, 3, 13)
def transactional_batches(peer: Peer, version: int) -> None:
    """Added or not, of other producers, after the end; two in one request."""
    txn = Transactional(peer, produce=version, end=protocol(version, ADDING_PRODUCE)[1])
    topic = peer.create_topic("topic", partitions=2)
    txn.init()
    producer = txn.init()  # so that there is an older epoch
    txn.begin(producer, (topic, 0))
    if version < ADDING_PRODUCE:
        txn.send("not added", producer, 0, topic, partition=1)
    txn.send("older epoch", (producer[0], producer[1] - 1), 0, topic)
    txn.send("later epoch", (producer[0], producer[1] + 1), 0, topic)
    txn.send("another producer", (producer[0] + 7_000, 0), 0, topic)
    txn.send("unknown id", producer, 0, topic, transactional_id=peer.name("unknown"))
    txn.send("no id", producer, 0, topic, transactional_id=None)
    txn.send("first", producer, 0, topic)
    txn.send("first again", producer, 0, topic)
    txn.send("gap", producer, 5, topic)
    txn.send("second", producer, 2, topic)
    txn.send("older epoch while open", (producer[0], producer[1] - 1), 0, topic)
    plain_batch = batch(b"plain", producer=(*producer, 4))
    by_name = {"name": topic} if version < 13 else {"topic_id": peer.topic_id(topic)}
    row = by_name | {"partition_data": [{"index": 0, "records": plain_batch}]}
    request = {"transactional_id": txn.name, "acks": -1, "timeout_ms": 5_000, "topic_data": [row]}
    peer.call("plain in between", ApiKey.PRODUCE, version, request)
    txn.describe("described")
    txn.committed("fetch while open", topic)
    after = txn.end("commit", producer, True)
    txn.send("late", producer, 4, topic)
    txn.committed("fetch committed", topic)
    if version >= ADDING_PRODUCE:
        txn.send("overtakes the first of the next", after, 1, topic)
    txn.begin(after, (topic, 0))
    sequence = 4 if version < ADDING_PRODUCE else 0
    txn.send("next", after, sequence, topic)
    txn.end("abort", after, False)
    txn.committed("fetch aborted", topic)
    request = {"topics": [{"name": topic, "partition_indexes": [0, 1, 9]}]}
    peer.call("producers", ApiKey.DESCRIBE_PRODUCERS, 0, request)
    txn.stored("stored")


# EndTxn


@scenario(ApiKey.END_TXN, 0, 4)
@scenario_of_4(ApiKey.END_TXN, 0, 5)
def every_end(peer: Peer, version: int) -> None:
    """Either way, once more, the other way, with nothing begun, and of other producers."""
    txn = Transactional(peer, produce=protocol(version, BUMPING_END)[0], end=version)
    topic = peer.create_topic("topic", partitions=2)
    producer = txn.init()
    txn.end("unknown id", producer, True, transactional_id=peer.name("unknown"))
    txn.end("empty id", producer, True, transactional_id="")
    txn.end("commit of nothing", producer, True)
    producer = txn.end("abort of nothing", producer, False)
    txn.describe("after the abort of nothing")
    producer = txn.end("and once more", producer, False)
    for committed in (True, False):
        for turn in range(2):
            producer = one_end(txn, producer, topic, committed, f"{committed} {turn}")
    txn.describe("described")
    txn.stored("stored")
    txn.committed("fetch", topic)
    txn.committed("fetch the other", topic, 1)
    txn.init()
    txn.end("of an older producer", producer, True)


def one_end(
    txn: Transactional, producer: Producer, topic: str, committed: bool, label: str
) -> Producer:
    """A whole transaction, and every way to request its end after that."""
    how, other = ("commit", "abort") if committed else ("abort", "commit")
    txn.begin(producer, (topic, 0), (topic, 1))
    sequence = 0 if txn.end_version >= BUMPING_END else 2 * int(label[-1]) + 4 * (not committed)
    for partition in (0, 1):
        txn.send(f"{label} batch {partition}", producer, sequence, topic, partition)
    txn.describe(f"{label} open")
    txn.end(f"{label} of a later epoch", (producer[0], producer[1] + 1), committed)
    txn.end(f"{label} of an older epoch", (producer[0], producer[1] - 1), committed)
    txn.end(f"{label} of another producer", (producer[0] + 7_000, producer[1]), committed)
    after = txn.end(f"{label} {how}", producer, committed)
    txn.describe(f"{label} ended")
    txn.end(f"{label} {how} again", producer, committed)
    txn.end(f"{label} {other} after it", producer, not committed)
    if txn.end_version >= BUMPING_END:
        txn.end(f"{label} commit of the next, not begun", after, True)
        after = txn.end(f"{label} abort of the next, not begun", after, False)
    return after


@scenario(ApiKey.END_TXN, 1, 1)
@scenario_of_4(ApiKey.END_TXN, 4, 5)
def takes_too_long(peer: Peer, version: int) -> None:
    """The coordinator aborts, and the producer then requests the outcome."""
    txn = Transactional(peer, produce=protocol(version, BUMPING_END)[0], end=version)
    topic = peer.create_topic("topic")
    producer = txn.init(transaction_timeout_ms=1_000)
    txn.begin(producer, (topic, 0))
    txn.send("open", producer, 0, topic)
    peer.until(
        lambda answer: answer["transaction_states"][0]["transaction_state"] == "CompleteAbort",
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": [txn.name]},
    )
    txn.describe("aborted")
    txn.send("late", producer, 2, topic)
    request = txn.end_request(producer, True)
    peer.call("late commit", ApiKey.END_TXN, version, request)
    peer.call("late abort", ApiKey.END_TXN, version, txn.end_request(producer, False))
    txn.committed("fetch", topic)
    named = txn.init_request(producer_id=producer[0], producer_epoch=producer[1])
    peer.call("goes on", ApiKey.INIT_PRODUCER_ID, 5, named)
    txn.describe("described")
    txn.stored("stored")


@scenario_of_4(ApiKey.END_TXN, 5, 5)
def clients_of_both_protocols(peer: Peer, version: int) -> None:
    """An id that is used alternately by an older and a newer client."""
    topic = peer.create_topic("topic")
    old, new = Transactional(peer, produce=11, end=4), Transactional(peer, produce=12, end=5)
    producer = old.init()
    old.begin(producer, (topic, 0))
    old.send("older", producer, 0, topic)
    producer = old.end("older commits", producer, True)
    new.send("newer, which goes on with the epoch", producer, 2, topic)
    producer = new.end("newer aborts", producer, False)
    old.begin(producer, (topic, 0))
    old.send("older again", producer, 0, topic)
    producer = new.end("newer ends what the older began", producer, True)
    new.send("newer again", producer, 0, topic)
    producer = old.end("older ends what the newer began", producer, True)
    new.describe("described")
    new.stored("stored")
    new.committed("fetch", topic)


# Offsets


@scenario(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4)
@scenario_of_4(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4)
def groups_of_a_transaction(peer: Peer, version: int) -> None:
    """Added, again, for other producers."""
    txn = Transactional(peer)
    producer = txn.init()

    def add(label: str, producer: Producer, **more: Any) -> None:
        request = {
            "transactional_id": txn.name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "group_id": peer.name("group"),
        } | more
        peer.call(label, ApiKey.ADD_OFFSETS_TO_TXN, version, request)

    add("once", producer)
    add("again", producer)
    add("older epoch", (producer[0], producer[1] - 1))
    add("another producer", (producer[0] + 7_000, 0))
    add("unknown id", producer, transactional_id=peer.name("unknown"))
    add("empty id", producer, transactional_id="")
    txn.describe("described")
    txn.end("end", producer, True)
    txn.stored("stored")


@scenario(ApiKey.TXN_OFFSET_COMMIT, 0, 4)
@scenario_of_4(ApiKey.TXN_OFFSET_COMMIT, 0, 5)
def offsets_in_a_transaction(peer: Peer, version: int) -> None:
    """Pending, committed, aborted; members and generations (KIP-447); stable reads."""
    produce, end = protocol(version, ADDING_COMMIT)
    txn = Transactional(peer, produce=produce, end=end)
    topic = peer.create_topic("topic", partitions=2)
    group, member, generation = groups.stable(peer)
    producer = txn.init()

    def begin(producer: Producer) -> None:
        if version < ADDING_COMMIT:
            request = {
                "transactional_id": txn.name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "group_id": group,
            }
            assert peer.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, request)["error_code"] == 0

    def commit(
        label: str, producer: Producer, offset: int, *tps: tuple[str, int], **more: Any
    ) -> None:
        rows = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "m",
                    }
                    for number in numbers
                ],
            }
            for name, numbers in by_topic(tps or ((topic, 0),))
        ]
        request = {
            "transactional_id": txn.name,
            "group_id": group,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "topics": rows,
        } | more
        peer.call(label, ApiKey.TXN_OFFSET_COMMIT, version, request)

    def fetch(label: str) -> None:
        for stable in (False, True):
            request = {
                "group_id": group,
                "topics": [{"name": topic, "partition_indexes": [0, 1]}],
                "require_stable": stable,
            }
            peer.call(f"{label}, stable {stable}", ApiKey.OFFSET_FETCH, 7, request)

    if version < ADDING_COMMIT:
        commit("not added", producer, 1)
    commit("older epoch", (producer[0], producer[1] - 1), 1)
    commit("another producer", (producer[0] + 7_000, 0), 1)
    commit("unknown id", producer, 1, transactional_id=peer.name("unknown"))
    for turn, committed in enumerate([True, False]):
        begin(producer)
        commit(f"in transaction {turn}", producer, 10 + turn)
        commit(f"unknown in {turn}", producer, 1, (topic, 9), (peer.name("nowhere"), 0), (topic, 1))
        fetch(f"while {turn} is open")
        if version >= 3:
            identity = {"member_id": member, "generation_id": generation}
            commit(f"member in {turn}", producer, 20 + turn, **identity)
            commit(f"generation in {turn}", producer, 1, **identity | {"generation_id": 99})
            commit(f"stranger in {turn}", producer, 1, **identity | {"member_id": "nobody"})
            static = identity | {"group_instance_id": "nobody"}
            commit(f"static stranger in {turn}", producer, 1, **static)
        txn.describe(f"described in {turn}")
        old, producer = producer, txn.end(f"end of {turn}", producer, committed)
        fetch(f"after {turn}")
        commit(f"late in {turn}", old, 99)
        if version >= ADDING_COMMIT:
            producer = txn.end(f"nothing new in {turn}", producer, False)
    fetch("in the end")
    begin(producer)
    commit("empty group", producer, 1, group_id="")
    txn.end("last end", producer, False)


# Markers and views


@scenario(ApiKey.WRITE_TXN_MARKERS, 0, 1)
@scenario_of_4(ApiKey.WRITE_TXN_MARKERS, 1, 2)
def markers_of_a_coordinator(peer: Peer, version: int) -> None:
    """For open transactions, for none, with older epochs; several in one request."""
    txn = Transactional(peer)
    topic = peer.create_topic("topic", partitions=2)
    producer = txn.init()
    producer = txn.init()
    txn.add(producer, (topic, 0), (topic, 1))
    for partition in (0, 1):
        txn.send(f"open {partition}", producer, 0, topic, partition)

    def mark(
        label: str, producer: Producer, *tps: tuple[str, int], epoch: int = 5, of: int = 0
    ) -> None:
        row = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transaction_result": False,
            "topics": [
                {"name": name, "partition_indexes": numbers} for name, numbers in by_topic(tps)
            ],
            "coordinator_epoch": epoch,
            "transaction_version": of,
        }
        peer.call(label, ApiKey.WRITE_TXN_MARKERS, version, {"markers": [row]})

    producer_id, epoch = producer
    mark("older epoch", (producer_id, epoch - 1), (topic, 0))
    if version >= 2:
        mark("epoch of the batches", producer, (topic, 0), of=2)
    mark("ends one", producer, (topic, 0), (topic, 9))
    mark("ends nothing", producer, (topic, 0))
    mark("older coordinator", producer, (topic, 0), epoch=4)
    mark("unknown topic", producer, (peer.name("nowhere"), 0))
    if version >= 2:
        mark("next epoch", (producer_id, epoch + 1), (topic, 1), of=2)
        mark("the same again", (producer_id, epoch + 1), (topic, 1), of=2)
        mark("of the older version", (producer_id, epoch + 1), (topic, 1), of=1)
        mark("the one before", producer, (topic, 1), of=2)
    mark("unknown producer", (producer_id + 7_000, 3), (topic, 0))
    mark("unknown producer of version 2", (producer_id + 7_001, 3), (topic, 0), of=2)
    txn.committed("fetch", topic)
    txn.committed("fetch the other", topic, 1)
    request = {"topics": [{"name": topic, "partition_indexes": [0, 1]}]}
    peer.call("producers", ApiKey.DESCRIBE_PRODUCERS, 0, request)


@scenario(ApiKey.LIST_TRANSACTIONS, 0, 1)
@scenario_of_4(ApiKey.LIST_TRANSACTIONS, 0, 2)
def lists_of_transactions(peer: Peer, version: int) -> None:
    """By state, producer and duration; from version 2 on by pattern."""
    topic = peer.create_topic("topic")
    idle, opened, ended = (Transactional(peer, stem) for stem in ("idle", "open", "ended"))
    idle.init()
    producer = opened.init()
    opened.add(producer, (topic, 0))
    other = ended.init()
    ended.add(other, (topic, 0))
    ended.end("end", other, True)
    opened.describe("described")
    names = {"transactional_ids": [peer.name("unknown"), ""]}
    peer.call("unknown and empty", ApiKey.DESCRIBE_TRANSACTIONS, 0, names)

    def listed(label: str, **filters: Any) -> None:
        request = {"state_filters": [], "producer_id_filters": []} | filters
        answer = peer.ask(ApiKey.LIST_TRANSACTIONS, version, request)
        peer.keep(label, ApiKey.LIST_TRANSACTIONS, version)
        rows = answer["transaction_states"]
        own = [row for row in rows if row["transactional_id"].startswith(peer.prefix)]
        own.sort(key=lambda row: str(row["transactional_id"]))
        answer["unknown_state_filters"].sort()
        peer.note_values(label, answer | {"transaction_states": own})

    listed("all")
    listed("empty", state_filters=["Empty"])
    listed("open or complete", state_filters=["Ongoing", "CompleteCommit"])
    listed("unknown states", state_filters=["Nonsense", "empty", "Ongoing"])
    listed("of a producer", producer_id_filters=[producer[0]])
    listed("of a producer and state", producer_id_filters=[producer[0]], state_filters=["Empty"])
    listed("long", duration_filter=60_000)
    listed("short", duration_filter=0)
    for pattern in (
        "",
        ".*open",
        ".*(idle|ended)",
        "open",
        "(",
        "[",
        "a**",
        ".*[^d]$",
        "^x|.*-id.{2}",
    ):
        listed(f"pattern {pattern}", transactional_id_pattern=pattern)
    opened.end("last end", producer, False)


@scenario(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
@scenario_of_4(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0)
def descriptions(peer: Peer, version: int) -> None:
    """Of several ids, one twice, and of none."""
    txn = Transactional(peer)
    topic = peer.create_topic("topic")
    txn.add(txn.init(), (topic, 0))
    for label, names in [
        ("open", [txn.name]),
        ("several", [peer.name("unknown"), txn.name, "", txn.name]),
        ("none", []),
    ]:
        peer.call(label, ApiKey.DESCRIBE_TRANSACTIONS, version, {"transactional_ids": names})


@scenario(ApiKey.DESCRIBE_PRODUCERS, 0, 0)
@scenario_of_4(ApiKey.DESCRIBE_PRODUCERS, 0, 0)
def producers_of_partitions(peer: Peer, version: int) -> None:
    """Transactional and idempotent ones; of partitions and topics that are not there."""
    topic = peer.create_topic("topic", partitions=2)
    txn = Transactional(peer)
    producer = txn.init()
    txn.begin(producer, (topic, 0))
    txn.send("open", producer, 0, topic)
    peer.produce(topic, batch(b"a", b"b", producer=(producer[0] + 7_000, 3, 0)), 1)
    for label, asked in [
        ("known", [(topic, [0, 1])]),
        ("unknown", [(topic, [0, 9]), (peer.name("nowhere"), [0])]),
        ("none", []),
    ]:
        rows = [{"name": name, "partition_indexes": numbers} for name, numbers in asked]
        peer.call(label, ApiKey.DESCRIBE_PRODUCERS, version, {"topics": rows})


if os.environ.get("KWIRE_LONG"):

    @scenario_of_4(ApiKey.END_TXN, 5, 5)
    def last_epoch(peer: Peer, version: int) -> None:
        """Use up all epochs but one, which takes half a minute on either broker, and the last."""
        topic = peer.create_topic("topic")
        for stem in ("commit", "abort", "fence", "timeout", "init"):
            txn = Transactional(peer, stem, produce=12, end=5)
            timeout_ms = 1_000 if stem == "timeout" else 60_000
            producer = txn.init(transaction_timeout_ms=timeout_ms)
            while producer[1] < 32766:
                producer = txn.init(transaction_timeout_ms=timeout_ms)
            if stem == "init":
                named = {"producer_id": producer[0], "producer_epoch": producer[1]}
                for label in ("goes on", "goes on again"):
                    request = txn.init_request(**named)
                    peer.call(f"{stem} {label}", ApiKey.INIT_PRODUCER_ID, 5, request)
                txn.describe(f"{stem} described")
                continue
            txn.send(f"{stem} open", producer, 0, topic)
            if stem == "timeout":
                peer.until(
                    lambda answer: (
                        answer["transaction_states"][0]["transaction_state"] == "CompleteAbort"
                    ),
                    ApiKey.DESCRIBE_TRANSACTIONS,
                    0,
                    {"transactional_ids": [txn.name]},
                )
            elif stem == "fence":
                peer.call(f"{stem} init", ApiKey.INIT_PRODUCER_ID, 5, txn.init_request())
                txn.settle()
            else:
                after = txn.end(f"{stem} last", producer, stem == "commit")
                txn.end(f"{stem} again", producer, stem == "commit")
                txn.end(f"{stem} other way", producer, stem != "commit")
                txn.send(f"{stem} next", after, 0, topic)
                txn.end(f"{stem} the old one", producer, stem == "commit")
                txn.end(f"{stem} end of the next", after, True)
            txn.describe(f"{stem} described")
            txn.send(f"{stem} late", producer, 2, topic)
            request = txn.init_request(producer_id=producer[0], producer_epoch=producer[1])
            peer.call(f"{stem} goes on", ApiKey.INIT_PRODUCER_ID, 5, request)
            txn.describe(f"{stem} described in the end")
        txn.committed("fetch", topic)
