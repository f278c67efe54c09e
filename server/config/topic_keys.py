"""Apache Kafka's topic configs and, for each, the broker configs that give its default.

Columns as in broker_keys.py; a key without a description is accepted and shown but has no effect in kwire.
"""

from __future__ import annotations

from .definitions import (
    GZIP_LEVEL,
    THROTTLED_REPLICAS,
    VERSION,
    ConfigKey,
    ConfigType,
    at_least,
    between,
    one_of,
)

key = ConfigKey
BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
MEDIUM, LOW = "MEDIUM", "LOW"

# fmt: off
TOPIC_KEYS: tuple[ConfigKey, ...] = (
    key("cleanup.policy", LIST, "delete", MEDIUM, valid=one_of("compact", "delete"),
        doc="What to do with old segments: delete, compact or both."),
    key("compression.gzip.level", INT, "-1", MEDIUM, valid=GZIP_LEVEL,
        doc="Compression level of gzip for batches that the broker compresses."),
    key("compression.lz4.level", INT, "9", MEDIUM, valid=between(1, 17),
        doc="Compression level of lz4 for batches that the broker compresses."),
    key("compression.type", STRING, "producer", MEDIUM, valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="Codec of stored batches; with producer, batches keep the codec they were sent with."),
    key("compression.zstd.level", INT, "3", MEDIUM, valid=between(-131072, 22),
        doc="Compression level of zstd for batches that the broker compresses."),
    key("delete.retention.ms", LONG, "86400000", MEDIUM, valid=at_least(0),
        doc="How long a tombstone stays visible in a compacted topic."),
    key("file.delete.delay.ms", LONG, "60000", MEDIUM, valid=at_least(0),
        doc="Time between removing a segment from the log and deleting its file."),
    key("flush.messages", LONG, "9223372036854775807", MEDIUM, valid=at_least(1),
        doc="Number of records after which a partition is flushed to disk."),
    key("flush.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(0),
        doc="Time after which a partition is flushed to disk."),
    key("follower.replication.throttled.replicas", LIST, "", MEDIUM, valid=THROTTLED_REPLICAS,
        doc="Replicas that are throttled as followers while they are not in sync, as partition:broker,... or *."),
    key("index.interval.bytes", INT, "4096", MEDIUM, valid=at_least(0),
        doc="Bytes of records between two index entries."),
    key("leader.replication.throttled.replicas", LIST, "", MEDIUM, valid=THROTTLED_REPLICAS,
        doc="Replicas that are throttled as leaders, when they send to replicas that are not in sync, as partition:broker,... or *."),
    key("local.retention.bytes", LONG, "-2", MEDIUM, valid=at_least(-2)),
    key("local.retention.ms", LONG, "-2", MEDIUM, valid=at_least(-2)),
    key("max.compaction.lag.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(1),
        doc="Age after which a record must be compacted."),
    key("max.message.bytes", INT, "1048588", MEDIUM, valid=at_least(0),
        doc="Maximum size of a record batch, as sent (compressed)."),
    key("message.downconversion.enable", BOOLEAN, "true", LOW,
        doc="Whether records are converted for consumers that support only older formats."),
    key("message.format.version", STRING, "3.0-IV1", MEDIUM, valid=VERSION),
    key("message.timestamp.after.max.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(0),
        doc="Maximum time by which a record's timestamp may be later than the broker's time."),
    key("message.timestamp.before.max.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(0),
        doc="Maximum time by which a record's timestamp may be earlier than the broker's time."),
    key("message.timestamp.difference.max.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(0),
        doc="Maximum difference between a record's timestamp and the broker's time; older form of the keys ending in before.max.ms and after.max.ms."),
    key("message.timestamp.type", STRING, "CreateTime", MEDIUM, valid=one_of("CreateTime", "LogAppendTime"),
        doc="Whether a record's timestamp is the time when it was created or the time when it was appended."),
    key("min.cleanable.dirty.ratio", DOUBLE, "0.5", MEDIUM, valid=between(0, 1),
        doc="Minimum share of a log that must be new since the last compaction before it is compacted again."),
    key("min.compaction.lag.ms", LONG, "0", MEDIUM, valid=at_least(0),
        doc="Minimum age of a record before it can be compacted."),
    key("min.insync.replicas", INT, "1", MEDIUM, valid=at_least(1),
        doc="Minimum number of in-sync replicas for writes with acks=all; with fewer, these writes are rejected."),
    key("preallocate", BOOLEAN, "false", MEDIUM, idle=True,
        doc="Whether a segment file gets its full size when it is created."),
    key("remote.log.copy.disable", BOOLEAN, "false", MEDIUM),
    key("remote.log.delete.on.disable", BOOLEAN, "false", MEDIUM),
    key("remote.storage.enable", BOOLEAN, "false", MEDIUM),
    key("retention.bytes", LONG, "-1", MEDIUM,
        doc="Size of a partition above which its oldest segments are deleted; -1 means no limit."),
    key("retention.ms", LONG, "604800000", MEDIUM, valid=at_least(-1),
        doc="Age after which records are deleted; -1 keeps them."),
    key("segment.bytes", INT, "1073741824", MEDIUM, valid=at_least(14),
        doc="Size at which a segment is closed and the next one started."),
    key("segment.index.bytes", INT, "10485760", MEDIUM, valid=at_least(4),
        doc="Maximum size of an offset or time index; a full one closes the segment."),
    key("segment.jitter.ms", LONG, "0", MEDIUM, valid=at_least(0),
        doc="Maximum random amount subtracted from segment.ms, so that partitions do not roll together."),
    key("segment.ms", LONG, "604800000", MEDIUM, valid=at_least(1),
        doc="Age at which a segment is closed even if it is not full."),
    key("unclean.leader.election.enable", BOOLEAN, "false", MEDIUM,
        doc="Whether a replica that was not in sync may become leader if no other is left. Records can be lost."),
)
# fmt: on

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

#: Topic config -> broker configs in order of precedence, each with the factor to the topic's unit.
SERVER_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (
        ("log.flush.interval.ms", 1),
        ("log.flush.scheduler.interval.ms", 1),
    ),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.downconversion.enable": (("log.message.downconversion.enable", 1),),
    "message.format.version": (("log.message.format.version", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (
        ("log.roll.jitter.ms", 1),
        ("log.roll.jitter.hours", HOUR_MS),
    ),
    "segment.ms": (
        ("log.roll.ms", 1),
        ("log.roll.hours", HOUR_MS),
    ),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
