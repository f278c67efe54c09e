"""What the options of aggregate offer; known without Spark."""

from __future__ import annotations

#: Kind -> schema where none is given.
SCHEMAS = {
    "logs": "time TIMESTAMP, service STRING, level STRING, message STRING",
    "metrics": "time TIMESTAMP, name STRING, value DOUBLE",
    "sessions": "time TIMESTAMP, user STRING",
}
#: Kind -> group columns where none are given; for logs the first one also partitions the store.
GROUPS = {"logs": ("service", "level"), "metrics": ("name",), "sessions": ("user",)}
#: Unit of a time that is a whole number -> microseconds.
TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
