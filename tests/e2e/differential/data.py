"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId."""

from __future__ import annotations

import struct
from typing import Any

from kwire.api import ApiKey
from kwire.codec import encode
from kwire.messages.init_producer_id import InitProducerIdRequest

from .peer import Peer
from .scenario import OLD_MS, batch, scenario, scenario_of_4

UNKNOWN_ID = bytes(range(16))


# Produce


def produce_request(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> dict[str, Any]:
    """Return a request for one partition."""
    rows = [{"index": partition, "records": records}]
    return {
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": rows}],
    }


def magic_of(version: int) -> int:
    """Return the record format of a Produce version."""
    return 2 if version >= 3 else min(version, 1)


@scenario(ApiKey.PRODUCE, 0, 11)
def good_records(peer: Peer, version: int) -> None:
    """Each codec, acks 1 and -1, twice in a row; several partitions at once."""
    topic = peer.create_topic("good", 2)
    magic = magic_of(version)
    for codec in (0, 1, 2, 3, *((4,) if version >= 7 else ())):
        for acks in (1, -1):
            records = batch(b"a", b"b", None, magic=magic, codec=codec)
            request = produce_request(topic, records, acks=acks)
            peer.call(f"codec {codec} acks {acks}", ApiKey.PRODUCE, version, request)
    request = produce_request(topic, batch(b"x", magic=magic))
    request["topic_data"][0]["partition_data"].append(
        {"index": 1, "records": batch(b"y", b"z", magic=magic)}
    )
    peer.call("two partitions", ApiKey.PRODUCE, version, request)
    request["topic_data"].append(
        {
            "name": peer.name("none"),
            "partition_data": [{"index": 0, "records": batch(b"x", magic=magic)}],
        }
    )
    peer.call("one topic unknown", ApiKey.PRODUCE, version, request)
    peer.call("no topics", ApiKey.PRODUCE, version, {"acks": 1, "timeout_ms": 1000})


@scenario(ApiKey.PRODUCE, 0, 11)
def refused_partitions_and_acks(peer: Peer, version: int) -> None:
    """Unknown topic and partition, and invalid acks."""
    topic = peer.create_topic("refused")
    records = batch(b"a", magic=magic_of(version))
    for label, name, partition in (
        ("unknown topic", peer.name("nowhere"), 0),
        ("unknown partition", topic, 7),
        ("negative partition", topic, -1),
        ("bad name", "a/b", 0),
        ("empty name", "", 0),
    ):
        request = produce_request(name, records, partition=partition)
        peer.call(label, ApiKey.PRODUCE, version, request)
    for acks in (2, -2):
        peer.call(
            f"acks {acks}", ApiKey.PRODUCE, version, produce_request(topic, records, acks=acks)
        )


@scenario(ApiKey.PRODUCE, 0, 11)
def refused_records(peer: Peer, version: int) -> None:
    """Damage, sizes, formats and counts."""
    topic = peer.create_topic("bad", max_message_bytes="2000")
    magic = magic_of(version)
    good = batch(b"a" * 50, b"b" * 50, magic=magic)

    def send(label: str, records: bytes | None, topic: str = topic) -> None:
        peer.call(label, ApiKey.PRODUCE, version, produce_request(topic, records))

    send("empty", b"")  # null is not sent: Apache Kafka never answers it
    send("too large", batch(b"x" * 3000, magic=magic))
    send("damaged", good[:-1] + bytes([good[-1] ^ 1]))
    send("cut short", good[:-1])
    send("cut in the header", good[:10])
    send("unknown magic", good[:16] + b"\x05" + good[17:])
    send("two batches", good + good)
    if version >= 3:
        send("old magic", batch(b"a", magic=1))
    else:
        send("new magic", batch(b"a", magic=2))
    if version >= 3:
        send("control batch", batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", is_control=True))
        send(
            "transactional without a transaction",
            batch(b"a", producer=(4_000_000, 0, 0), is_transactional=True),
        )
        send("zstd", batch(b"a", codec=4))
    send("good after all", good)


def with_header(records: bytes, offset: int, form: str, value: int) -> bytes:
    """Return a batch with one header field changed and a CRC that agrees."""
    from kwire.records.batch import rewrite_crc

    changed = bytearray(records)
    struct.pack_into(form, changed, offset, value)
    rewrite_crc(changed)
    return bytes(changed)


@scenario(ApiKey.PRODUCE, 3, 11)
def refused_headers(peer: Peer, version: int) -> None:
    """Headers that contradict themselves, with a right CRC."""
    topic = peer.create_topic("headers")
    good = batch(b"a", b"b")
    for label, offset, form, value in (
        ("last offset delta 5", 23, ">i", 5),
        ("last offset delta 0", 23, ">i", 0),
        ("count 0", 57, ">i", 0),
        ("count -1", 57, ">i", -1),
        ("count 3", 57, ">i", 3),
        ("codec 5", 21, ">h", 5),
        ("base offset 77", 0, ">q", 77),
        ("producer id without sequence", 43, ">q", 12),
        ("unused attribute bit", 21, ">h", 128),
    ):
        request = produce_request(topic, with_header(good, offset, form, value))
        peer.call(label, ApiKey.PRODUCE, version, request)


@scenario(ApiKey.PRODUCE, 3, 11)
def topic_rules(peer: Peer, version: int) -> None:
    """Compacted topics need keys; timestamps have bounds; the broker may set timestamp or codec."""
    compacted = peer.create_topic("compacted", cleanup_policy="compact")
    for label, key in (("with key", b"k"), ("without key", None)):
        request = produce_request(compacted, batch(b"a", b"b", key=key))
        peer.call(label, ApiKey.PRODUCE, version, request)
    bounded = peer.create_topic(
        "bounded", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    for label, timestamp in (("old", OLD_MS), ("no time", -1)):
        request = produce_request(bounded, batch(b"a", timestamp=timestamp))
        peer.call(label, ApiKey.PRODUCE, version, request)
    appended = peer.create_topic("appended", message_timestamp_type="LogAppendTime")
    peer.call("append time", ApiKey.PRODUCE, version, produce_request(appended, batch(b"a", b"b")))
    fetch_all(peer, "append time fetched", appended)
    for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        topic = peer.create_topic(codec, compression_type=codec)
        for number in (0, 1, 2, 3):
            request = produce_request(topic, batch(b"a" * 100, b"b" * 100, codec=number))
            peer.call(f"{number} to {codec}", ApiKey.PRODUCE, version, request)
        fetch_all(peer, f"{codec} fetched", topic)


@scenario(ApiKey.PRODUCE, 3, 11)
def idempotent_sequences(peer: Peer, version: int) -> None:
    """In order, again, out of order, an old epoch, a new one, and a wrap-around."""
    topic = peer.create_topic("idempotent")

    def send(label: str, producer_id: int, epoch: int, sequence: int, count: int = 2) -> None:
        records = batch(*[b"v"] * count, producer=(producer_id, epoch, sequence))
        peer.call(label, ApiKey.PRODUCE, version, produce_request(topic, records))

    first, second = 5_000_000, 5_000_001
    send("first not at zero", second, 0, 3)
    send("first", first, 0, 0)
    send("next", first, 0, 2)
    send("again", first, 0, 2)
    send("the one before again", first, 0, 0)
    send("gap", first, 0, 6)
    send("overlap", first, 0, 3)
    for turn in range(6):
        send(f"turn {turn}", first, 0, 4 + 2 * turn)
    send("forgotten duplicate", first, 0, 0)
    send("remembered duplicate", first, 0, 10)
    send("new epoch not at zero", first, 1, 5)
    send("new epoch", first, 1, 0)
    send("old epoch", first, 0, 16)
    send("wrap", second, 0, 2**31 - 1, 1)
    records = batch(b"a", producer=(first, 1, 2)) + batch(b"b", producer=(first, 1, 3))
    peer.call("two batches", ApiKey.PRODUCE, version, produce_request(topic, records))
    fetch_all(peer, "fetched", topic)


# Fetch


def fetch_request(
    topic: str, offset: int, topic_id: bytes = bytes(16), **settings: Any
) -> dict[str, Any]:
    """Return a request for partition 0; settings of the partition and of the request."""
    row = {
        "partition": settings.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": settings.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": settings.pop("current_leader_epoch", -1),
        "last_fetched_epoch": settings.pop("last_fetched_epoch", -1),
    }
    request = {
        "max_wait_ms": 50,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "replica_id": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [row]}],
    }
    return request | settings


def fetch_all(peer: Peer, label: str, topic: str) -> None:
    """Compare the stored data of partition 0."""
    peer.call(label, ApiKey.FETCH, 12, fetch_request(topic, 0))


@scenario(ApiKey.FETCH, 0, 17)
@scenario_of_4(ApiKey.FETCH, 17, 18)
def offsets_and_sizes(peer: Peer, version: int) -> None:
    """From each place in the log, with bounds on size, and where nothing is."""
    topic = peer.create_topic("sizes")
    topic_id = peer.topic_id(topic)
    # The converted data for older fetch versions is also compared.
    for values in ((b"a", b"b"), (b"c" * 500,), (b"d", b"e", b"f")):
        peer.produce(topic, batch(*values, magic=2))

    def fetch(label: str, offset: int, **settings: Any) -> None:
        request = fetch_request(topic, offset, topic_id, **settings)
        peer.call(label, ApiKey.FETCH, version, request)

    for offset in (0, 1, 2, 3, 5, 6):
        fetch(f"offset {offset}", offset)
    for offset in (7, 1000, -1, -5):
        fetch(f"out of range {offset}", offset)
    if version >= 3:
        fetch("one byte", 0, max_bytes=1, partition_max_bytes=1)
    fetch("few bytes for the partition", 0, partition_max_bytes=100)
    fetch("nothing wanted", 0, min_bytes=0, max_wait_ms=0)
    fetch("unknown partition", 0, partition=9)
    if version >= 4:
        fetch("read committed", 0, isolation_level=1)


@scenario(ApiKey.FETCH, 4, 17)
@scenario_of_4(ApiKey.FETCH, 18, 18)
def compressed_batches(peer: Peer, version: int) -> None:
    """Batches come back unchanged; zstd not below version 10."""
    for codec in (1, 2, 3, 4):
        topic = peer.create_topic(f"codec{codec}")
        peer.produce(topic, batch(b"a" * 100, b"b" * 100, codec=codec))
        request = fetch_request(topic, 0, peer.topic_id(topic))
        peer.call(f"codec {codec}", ApiKey.FETCH, version, request)


@scenario(ApiKey.FETCH, 0, 17)
@scenario_of_4(ApiKey.FETCH, 17, 18)
def unknown_topics(peer: Peer, version: int) -> None:
    """By name or by id."""
    for label, name, topic_id in (
        ("unknown", peer.name("nowhere"), UNKNOWN_ID),
        ("zero id", peer.name("nowhere"), bytes(16)),
    ):
        peer.call(label, ApiKey.FETCH, version, fetch_request(name, 0, topic_id))
    peer.call("no topics", ApiKey.FETCH, version, fetch_request("", 0) | {"topics": []})


@scenario(ApiKey.FETCH, 9, 17)
@scenario_of_4(ApiKey.FETCH, 18, 18)
def leader_epochs(peer: Peer, version: int) -> None:
    """Fencing by the current epoch, and divergence by the last fetched one."""
    topic = peer.create_topic("epochs")
    topic_id = peer.topic_id(topic)
    peer.produce(topic, batch(b"a", b"b"))
    for epoch in (0, 1, 99, -1):
        request = fetch_request(topic, 0, topic_id, current_leader_epoch=epoch)
        peer.call(f"current epoch {epoch}", ApiKey.FETCH, version, request)
    if version >= 12:
        for offset, epoch in ((1, 0), (2, 0), (3, 0), (1, 5)):
            request = fetch_request(topic, offset, topic_id, last_fetched_epoch=epoch)
            peer.call(f"offset {offset} of epoch {epoch}", ApiKey.FETCH, version, request)


@scenario(ApiKey.FETCH, 7, 17)
@scenario_of_4(ApiKey.FETCH, 18, 18)
def sessions(peer: Peer, version: int) -> None:
    """A new session, increments, forgotten topics, wrong ids and epochs, and the end."""
    one, two = peer.create_topic("one"), peer.create_topic("two")
    ids = {name: peer.topic_id(name) for name in (one, two)}
    peer.produce(one, batch(b"a"))

    def rows(*topics: str, offset: int = 0) -> list[Any]:
        return [fetch_request(name, offset, ids[name])["topics"][0] for name in topics]

    def fetch(label: str, session: int, epoch: int, topics: list[Any], **settings: Any) -> Any:
        request = fetch_request("", 0, session_id=session, session_epoch=epoch, **settings)
        return peer.call(label, ApiKey.FETCH, version, request | {"topics": topics})

    answer = fetch("new", 0, 0, rows(one, two))
    session = answer["session_id"] if answer else 0
    fetch("same offsets again", session, 1, [])
    fetch("moved on", session, 2, rows(one, offset=1))
    fetch("nothing new", session, 3, [])
    peer.produce(two, batch(b"b"))
    fetch("news of the other", session, 4, [])
    fetch("wrong epoch", session, 9, [])
    fetch("unknown session", 123_456_789, 1, [])
    forgotten = [{"topic": two, "topic_id": ids[two], "partitions": [0]}]
    fetch("forget one", session, 5, [], forgotten_topics_data=forgotten)
    fetch("after forgetting", session, 6, rows(one))
    fetch("end", session, -1, rows(one))
    fetch("after the end", session, 7, [])


# ListOffsets and OffsetForLeaderEpoch


@scenario(ApiKey.LIST_OFFSETS, 0, 9)
@scenario_of_4(ApiKey.LIST_OFFSETS, 9, 11)
def times_and_ends(peer: Peer, version: int) -> None:
    """Ends, special times, times before, within and after; unknown partitions; epochs."""
    topic = peer.create_topic("times")
    for number, timestamp in enumerate((OLD_MS, OLD_MS + 1000, OLD_MS + 500)):
        peer.produce(topic, batch(b"a", b"b", timestamp=timestamp, key=b"%d" % number))

    def ask(label: str, timestamp: int, **row: Any) -> None:
        part = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": 3} | row
        topics = [{"name": row.pop("topic", topic), "partitions": [part]}]
        part.pop("topic", None)
        request = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        peer.call(label, ApiKey.LIST_OFFSETS, version, request)

    for timestamp in (-1, -2, -3, -4, -5, -6):
        ask(f"special {timestamp}", timestamp)
    for shift in (-1, 0, 1, 2, 500, 999, 1000, 1001, 1002, 10_000):
        ask(f"time +{shift}", OLD_MS + shift)
    ask("time 0", 0)
    ask("unknown partition", -1, partition_index=5)
    ask("unknown topic", -1, topic=peer.name("nowhere"))
    if version >= 4:
        for epoch in (0, 7):
            ask(f"current epoch {epoch}", -1, current_leader_epoch=epoch)
    if version >= 2:
        row = {"partition_index": 0, "timestamp": -1}
        request = {
            "replica_id": -1,
            "isolation_level": 1,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        peer.call("read committed", ApiKey.LIST_OFFSETS, version, request)
    twice = [{"partition_index": 0, "timestamp": -1, "max_num_offsets": 1}] * 2
    request = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": twice}],
    }
    peer.call("twice", ApiKey.LIST_OFFSETS, version, request)


@scenario(ApiKey.LIST_OFFSETS, 1, 9)
@scenario_of_4(ApiKey.LIST_OFFSETS, 9, 11)
def empty_log(peer: Peer, version: int) -> None:
    """A log that never had a record."""
    topic = peer.create_topic("empty")
    for timestamp in (-1, -2, OLD_MS, *((-3,) if version >= 7 else ())):
        row = {"partition_index": 0, "timestamp": timestamp}
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        peer.call(f"time {timestamp}", ApiKey.LIST_OFFSETS, version, request)


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4)
def ends_of_epochs(peer: Peer, version: int) -> None:
    """The current epoch, later ones, none; fenced and unknown."""
    topic = peer.create_topic("epochs")
    peer.produce(topic, batch(b"a", b"b"))
    for partition, current, epoch in (
        *((0, -1, -1), (0, -1, 0), (0, -1, 1), (0, -1, 99)),
        *((0, 0, 0), (0, 5, 0), (3, -1, 0)),
    ):
        row = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        request = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [row]}]}
        label = f"partition {partition} current {current} epoch {epoch}"
        peer.call(label, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    row = {"partition": 0, "leader_epoch": 0}
    request = {"replica_id": -1, "topics": [{"topic": peer.name("nowhere"), "partitions": [row]}]}
    peer.call("unknown topic", ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)


# DeleteRecords and InitProducerId


@scenario(ApiKey.DELETE_RECORDS, 0, 2)
def start_of_the_log(peer: Peer, version: int) -> None:
    """Forwards, backwards, to the end, beyond it; compacted topics are refused."""
    topic = peer.create_topic("deleted")
    for _ in range(5):
        peer.produce(topic, batch(b"a", b"b"))

    def delete(label: str, offset: int, name: str = topic, partition: int = 0) -> None:
        row = {"partition_index": partition, "offset": offset}
        request = {"timeout_ms": 5000, "topics": [{"name": name, "partitions": [row]}]}
        peer.call(label, ApiKey.DELETE_RECORDS, version, request)

    delete("to 3", 3)
    delete("back to 1", 1)
    delete("same", 3)
    delete("beyond the end", 11)
    delete("negative", -2)
    fetch_all(peer, "fetch before the start", topic)
    peer.call("fetch at the start", ApiKey.FETCH, 12, fetch_request(topic, 3))
    delete("to the end", -1)
    delete("unknown partition", 0, partition=4)
    delete("unknown topic", 0, name=peer.name("nowhere"))
    compacted = peer.create_topic("compacted", cleanup_policy="compact")
    peer.produce(compacted, batch(b"a"))
    delete("compacted", 1, name=compacted)
    delete("internal", 0, name="__consumer_offsets")


@scenario(ApiKey.INIT_PRODUCER_ID, 0, 5)
def idempotent_producers(peer: Peer, version: int) -> None:
    """A new id each time; an empty transactional id counts as none."""
    for turn in range(2):
        request: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        peer.call(f"new {turn}", ApiKey.INIT_PRODUCER_ID, version, request)
    request = {"transactional_id": "", "transaction_timeout_ms": 60_000}
    peer.call("empty transactional id", ApiKey.INIT_PRODUCER_ID, version, request)
    if version >= 3:
        request = {
            "transactional_id": None,
            "transaction_timeout_ms": 0,
            "producer_id": 7,
            "producer_epoch": 3,
        }
        peer.call("with an id", ApiKey.INIT_PRODUCER_ID, version, request)
    # Apache Kafka reads a request without checking whether bytes are left over.
    body = encode(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), version)
    peer.call_bytes("bytes left over", ApiKey.INIT_PRODUCER_ID, version, body + b"\0\0\0")
