"""Makes requests by the schemas, at random: well encoded, and meaning nothing good."""

from __future__ import annotations

import random
from typing import Any

from kwire.schema import Field, schema_of
from kwire.types import Array, WireType

from ..log.logs import batch

NAMES = (
    *("t1", "t1", "t2", "compacted", "g1", "g1", "g2", "__consumer_offsets", "__transaction_state"),
    *(
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a,b",
        " ",
        "%s%d{}",
        "x\0y",
        "é",
        "\U0001f600",
        "\ud7ff",
        "-1",
    ),
    *("a" * 249, "a" * 250, "n" * 32767, "0", "1", "9999999999999999999999", "consumer", "range"),
    *("cleanup.policy", "compact", "retention.ms", "segment.bytes", "compression.type", "gzip"),
    *("max.message.bytes", "message.timestamp.type", "LogAppendTime", "min.insync.replicas"),
)
TIMES_MS = (0, 1, -1, 10, 6000, -(2**31), 2**31 - 1)
MANY = {"num_partitions", "count"}


class Weird:
    """Makes requests by the schema, at random."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd

    def message(self, cls: type, version: int) -> Any:
        values = {}
        for declared in schema_of(cls).fields:
            if version in declared.versions and self.rnd.random() < 0.9:
                values[declared.name] = self.field(declared, version)
        return cls(**values)

    def field(self, declared: Field, version: int) -> Any:
        if version in declared.nullable and self.rnd.random() < 0.15:
            return None
        return self.value(declared.type, declared.name, version)

    def value(self, kind: WireType, name: str, version: int) -> Any:
        rnd = self.rnd
        if isinstance(kind, Array):
            elements = [self.value(kind.element, name, version) for _ in range(rnd.randrange(4))]
            return elements + elements[: rnd.random() < 0.2]
        if isinstance(kind, type):
            return self.message(kind, version)
        if kind.name == "bool":
            return rnd.random() < 0.5
        if kind.name == "uuid":
            return rnd.choice((bytes(16), rnd.randbytes(16), b"\xff" * 16))
        if kind.name == "float64":
            return rnd.choice((0.0, float("nan"), float("inf")))
        if kind.name == "string":
            return rnd.choice(NAMES)
        if kind.name == "bytes":
            return rnd.choice((b"", b"x", rnd.randbytes(50)))
        if kind.name == "records":
            return self.records()
        bits = 8 * int(getattr(kind, "size", 0))
        if kind.name.startswith("u"):
            return rnd.choice((0, 1, 2**bits - 1))
        if name.endswith("timeout_ms") or name == "max_wait_ms":
            # A late answer would look like a hang; separate tests cover slow answers.
            return rnd.choice(TIMES_MS) if name != "max_wait_ms" else rnd.choice((0, 1, -1, 10))
        if name in MANY:
            return rnd.choice((-1, 0, 1, 2, 3, -2, -(2**31), 2**31 - 1))
        return rnd.choice((0, 0, 1, -1, 2, 100, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))

    def records(self) -> bytes:
        rnd = self.rnd
        data = bytearray(batch(*(b"v%d" % n for n in range(rnd.randrange(1, 4)))))
        for _ in range(rnd.choice((0, 0, 1, 3))):
            data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
        return bytes(data[: rnd.choice((len(data), len(data), rnd.randrange(len(data)), 0))])
