"""The cost of encoding and decoding, compared with kio and kafka-python. python -m bench.codec

Each library decodes the same bytes, and encodes the decoded message, at the latest version that all of them know. The
libraries take turns within one run, in slices of a few milliseconds; each library's figure is that of its best slice,
in microseconds per message. Ratios above 1 are in kwire's favor. kio's decoder is native code (Rust) since 0.6; its
encoder, and all of 0.5, are Python.
"""

from __future__ import annotations

import gc
import importlib
import io
import re
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from kwire import native
from kwire.codec import decode, encode
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kwire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kwire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kwire.schema import schema_of

SLICES = 75
SLICE_S = 0.002
#: kio also decodes in native code.
GOALS = {
    "encode": {"kio": 5.0, "kafka-python": 2.0},
    "decode": {"kio": 1.0, "kafka-python": 5.0},
}

Turn = Callable[[], object]


def messages() -> list[tuple[str, Any]]:
    """The messages measured, with sizes that a busy client and broker exchange."""
    ids = [bytes([number]) * 16 for number in range(1, 11)]
    metadata_partitions = [
        MetadataResponsePartition(
            partition_index=number,
            leader_id=number % 3,
            leader_epoch=4,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for number in range(6)
    ]
    subscription = b"\x00\x03\x00\x00\x00\x01\x00\x06orders" + bytes(24)
    return [
        (
            "ProduceRequest, 6 batches of 1 KiB",
            ProduceRequest(
                acks=-1,
                timeout_ms=30000,
                topic_data=[
                    TopicProduceData(
                        name="orders",
                        topic_id=ids[0],
                        partition_data=[
                            PartitionProduceData(index=number, records=bytes(1024))
                            for number in range(6)
                        ],
                    )
                ],
            ),
        ),
        (
            "ProduceResponse, 6 partitions",
            ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name="orders",
                        topic_id=ids[0],
                        partition_responses=[
                            PartitionProduceResponse(index=number, base_offset=123456)
                            for number in range(6)
                        ],
                    )
                ]
            ),
        ),
        (
            "FetchRequest, 3 topics of 6 partitions",
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=52428800,
                topics=[
                    FetchTopic(
                        topic="orders",
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(
                                partition=number,
                                fetch_offset=123456,
                                partition_max_bytes=1048576,
                            )
                            for number in range(6)
                        ],
                    )
                    for topic_id in ids[:3]
                ],
            ),
        ),
        (
            "FetchResponse, 6 batches of 1 KiB",
            FetchResponse(
                session_id=77,
                responses=[
                    FetchableTopicResponse(
                        topic="orders",
                        topic_id=ids[0],
                        partitions=[
                            PartitionData(
                                partition_index=number,
                                high_watermark=123456,
                                last_stable_offset=123456,
                                log_start_offset=0,
                                records=bytes(1024),
                            )
                            for number in range(6)
                        ],
                    )
                ],
            ),
        ),
        (
            "MetadataRequest, 3 topics",
            MetadataRequest(
                topics=[
                    MetadataRequestTopic(name=name) for name in ("orders", "payments", "shipments")
                ]
            ),
        ),
        (
            "MetadataResponse, 10 topics of 6 partitions",
            MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=number, host="broker.example.org", port=9092)
                    for number in range(3)
                ],
                cluster_id="b8xeyfVHQUOeNwyQcwt7tA",
                controller_id=1,
                topics=[
                    MetadataResponseTopic(
                        name=f"orders-{number}", topic_id=topic_id, partitions=metadata_partitions
                    )
                    for number, topic_id in enumerate(ids)
                ],
            ),
        ),
        (
            "JoinGroupRequest, 2 protocols",
            JoinGroupRequest(
                group_id="billing",
                session_timeout_ms=45000,
                rebalance_timeout_ms=300000,
                member_id="consumer-1-6d9a1a0c-31f6-4d3b-9a57-7b6f3c0a2f11",
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name="range", metadata=subscription),
                    JoinGroupRequestProtocol(name="cooperative-sticky", metadata=subscription),
                ],
            ),
        ),
        (
            "JoinGroupResponse, 10 members",
            JoinGroupResponse(
                generation_id=12,
                protocol_type="consumer",
                protocol_name="range",
                leader="consumer-1-6d9a1a0c-31f6-4d3b-9a57-7b6f3c0a2f11",
                member_id="consumer-1-6d9a1a0c-31f6-4d3b-9a57-7b6f3c0a2f11",
                members=[
                    JoinGroupResponseMember(
                        member_id=f"consumer-{number}-6d9a1a0c-31f6-4d3b-9a57-7b6f3c0a2f11",
                        metadata=subscription,
                    )
                    for number in range(10)
                ],
            ),
        ),
    ]


def kio_class(name: str, version: int) -> Any:
    """kio's class for a message in a version."""
    stem, kind = re.fullmatch(r"(\w+)(Request|Response)", name).groups()  # type: ignore[union-attr]
    package = re.sub(r"(?<!^)([A-Z])", r"_\1", stem).lower()
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind.lower()}")
    return getattr(module, name)


def kafka_python_class(name: str) -> Any:
    """kafka-python's class for a message."""
    for module_name in (
        "kafka.protocol.producer",
        "kafka.protocol.consumer",
        "kafka.protocol.metadata",
    ):
        module = importlib.import_module(module_name)
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def latest_shared_version(name: str, cls: type) -> int:
    """The latest version that all three libraries know."""
    version = min(schema_of(cls).versions.highest, kafka_python_class(name).max_version)
    while True:
        try:
            kio_class(name, version)
        except ModuleNotFoundError:
            version -= 1
        else:
            return version


def turns(message: Any, version: int) -> tuple[dict[str, Turn], dict[str, Turn]]:
    """Each library's call to encode and to decode the message, after checking that all give equal bytes."""
    import kio.serial

    cls = type(message)
    data = encode(message, version)
    ours = decode(cls, data, version)
    kio_cls = kio_class(cls.__name__, version)
    kio_read, kio_write = kio.serial.entity_reader(kio_cls), kio.serial.entity_writer(kio_cls)
    theirs = kio_read(data, 0)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs.value
    kafka_python_cls = kafka_python_class(cls.__name__)
    other = kafka_python_cls.decode(data, version=version)
    other._header = None  # its decoder leaves the slot empty, but its encoder reads it

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        kio_write(buffer, theirs)
        return buffer.getvalue()

    encoders: dict[str, Turn] = {
        "kwire": lambda: encode(ours, version),
        "kio": kio_encode,
        "kafka-python": lambda: other.encode(version=version),
    }
    for library, encoder in encoders.items():
        if encoder() != data:
            raise AssertionError(f"{library} encodes {cls.__name__} v{version} differently")
    decoders: dict[str, Turn] = {
        "kwire": lambda: decode(cls, data, version),
        "kio": lambda: kio_read(data, 0),
        "kafka-python": lambda: kafka_python_cls.decode(data, version=version),
    }
    return encoders, decoders


def measure(competitors: dict[str, Turn]) -> dict[str, float]:
    """Microseconds per call for each library, taking turns."""
    loops = {}
    for name, turn in competitors.items():
        start = time.perf_counter()
        for _ in range(100):
            turn()
        loops[name] = max(1, int(SLICE_S / ((time.perf_counter() - start) / 100)))
    taken: dict[str, list[float]] = {name: [] for name in competitors}
    gc.collect()
    for _ in range(SLICES):
        for name, turn in competitors.items():
            repeat = range(loops[name])
            start = time.perf_counter()
            for _ in repeat:
                turn()
            taken[name].append((time.perf_counter() - start) / loops[name] * 1e6)
    return {name: min(times) for name, times in taken.items()}


def main() -> None:
    """Print the table, and the goals that are missed."""
    missed = []
    kio_version, kafka_version = metadata.version("kio"), metadata.version("kafka-python")
    print(
        f"Python {sys.version.split()[0]}, {native.form()}, kio {kio_version} (decoder in Rust), "
        f"kafka-python {kafka_version}; microseconds per message, best of {SLICES} slices\n"
    )
    print("| message | | kwire | kio | kafka-python | x kio | x kafka-python |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for title, message in messages():
        name = type(message).__name__
        version = latest_shared_version(name, type(message))
        encoders, decoders = turns(message, version)
        title = title.replace(name, f"{name} v{version}")
        for verb, competitors in (("encode", encoders), ("decode", decoders)):
            us = measure(competitors)
            ratios = {peer: us[peer] / us["kwire"] for peer in GOALS[verb]}
            figures = " | ".join(f"{us[peer]:.1f}" for peer in ("kwire", "kio", "kafka-python"))
            times = " | ".join(f"{ratios[peer]:.1f}" for peer in GOALS[verb])
            print(f"| {title} | {verb} | {figures} | {times} |", flush=True)
            missed += [
                f"{title} {verb}: {ratios[peer]:.1f} x {peer}, goal {goal:.0f}"
                for peer, goal in GOALS[verb].items()
                if ratios[peer] < goal
            ]
    print("\n" + ("\n".join(["Goals missed:", *missed]) if missed else "All goals reached."))


if __name__ == "__main__":
    main()
