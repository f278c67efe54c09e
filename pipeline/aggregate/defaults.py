"""The defaults of aggregate's options; known without Spark."""

from __future__ import annotations

#: Kind -> default schema.
SCHEMAS = {
    "logs": "time TIMESTAMP, service STRING, level STRING, message STRING",
    "metrics": "time TIMESTAMP, name STRING, value DOUBLE",
    "sessions": "time TIMESTAMP, user STRING",
}
#: Kind -> default group columns; for logs, the first one also partitions the store.
GROUPS = {"logs": ("service", "level"), "metrics": ("name",), "sessions": ("user",)}
#: Unit of a time that is a whole number -> microseconds.
TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
