"""From the rows of any place to facts, on Spark: one shuffle of narrow rows, however large keys and values are.

Each record becomes a 64-bit hash of its key, value, headers and timestamp (xxHash64; null and empty differ). All places use
the same expressions, so equal records have equal hashes wherever they are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as F

from .facts import ClaimedRange, Digest, OffsetSpan, PartitionFacts, Stretch, Where, gather

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Number of parts in which a partition is measured, and of points in a plot.
BUCKETS = 64

_LOW = 0xFFFFFFFF
_BOUNDS = pa.schema(
    [
        ("place", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("start", "end", "low", "high")),
    ]
)


class MeasuredRows:
    """The narrow rows of all places, kept by Spark until `close`.

    Columns: place, topic, partition, offset, ms, size, hash, rank, before (offset), before_ms.
    """

    def __init__(
        self,
        spark: SparkSession,
        sources: Sequence[tuple[int, DataFrame]],
        ignored: Collection[str] = (),
    ) -> None:
        """`sources` are (number of the place, its records with the columns of Spark's kafka source)."""
        self._spark = spark
        narrow = [_narrow(frame, place, ignored) for place, frame in sources]
        whole = narrow[0]
        for frame in narrow[1:]:
            whole = whole.unionByName(frame)
        own = Window.partitionBy("place", "topic", "partition").orderBy("offset", "hash")
        self.frame = whole.select(
            "*",
            F.row_number().over(own).alias("rank"),
            F.lag("offset").over(own).alias("before"),
            F.lag("ms").over(own).alias("before_ms"),
        ).persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        """Have Spark drop the cached rows."""
        self.frame.unpersist()

    def measure(
        self,
        empty: Mapping[tuple[int, Where], PartitionFacts],
        common: Mapping[tuple[int, Where], ClaimedRange],
    ) -> None:
        """Fill in the facts, given for each place and partition with their range; common is the range that is compared."""
        bounds = [
            (place, *where, *facts.range, *common.get((place, where), facts.range))
            for (place, where), facts in empty.items()
        ]
        # Collected as Arrow, which needs no Python process.
        table = pa.table(list(zip(*bounds, strict=True)), schema=_BOUNDS)
        frame = self.frame.join(
            F.broadcast(self._spark.createDataFrame(table)),
            ["place", "topic", "partition"],
        )
        width = F.greatest(F.col("end") - F.col("start"), F.lit(1))
        bucket = F.floor((F.col("offset") - F.col("start")) * BUCKETS / width).cast("int")
        shared = (F.col("offset") >= F.col("low")) & (F.col("offset") < F.col("high"))
        ordered = F.xxhash64("rank", "hash")
        placed = F.xxhash64("offset", "hash")
        step = F.col("offset") - F.col("before")
        late = F.col("before_ms") - F.col("ms")
        parts = frame.groupBy("place", "topic", "partition", bucket.alias("bucket")).agg(
            F.count("*"),
            F.min("offset"),
            F.max("offset"),
            F.sum("size"),
            F.min("ms"),
            F.max("ms"),
            F.count_if(step > 1),
            F.sum(F.when(step > 1, step - 1).otherwise(0)),
            F.count_if(step == 0),
            F.count_if(late > 0),
            F.max(F.when(late > 0, late).otherwise(0)),
            F.sum("append_time"),
            F.min(F.when(step == 0, F.col("offset"))),
            F.max_by("offset", F.when(late > 0, late)),
            *_sums(F.col("hash")),
            *_sums(ordered),
            *_sums(F.when(shared, placed)),
            F.count_if(shared),
        )
        found: dict[tuple[int, Where], list[Stretch]] = {}
        for row in parts.collect():
            place, topic, partition, *numbers = row
            found.setdefault((place, (topic, partition)), []).append(_stretch(numbers))
        for key, facts in empty.items():
            gather(facts, found.get(key, ()))

    def gaps(
        self, wanted: Collection[tuple[int, Where]]
    ) -> dict[tuple[int, Where], list[OffsetSpan]]:
        """The gaps (runs of offsets without a record between two with one) of some partitions, in order."""
        found: dict[tuple[int, Where], list[OffsetSpan]] = {}
        if wanted:
            topics = F.col("topic").isin(sorted({where[0] for _, where in wanted}))
            rows = self.frame.where(topics & (F.col("offset") > F.col("before") + 1))
            columns = rows.select("place", "topic", "partition", "before", "offset")
            for place, topic, partition, before, offset in columns.collect():
                found.setdefault((place, (topic, partition)), []).append(
                    OffsetSpan(before + 1, offset - 1)
                )
        return {key: sorted(found.get(key, ())) for key in wanted}

    def differences(
        self,
        one: tuple[int, Where],
        other: tuple[int, Where],
        key: str,
        within: ClaimedRange,
        most: int,
    ) -> list[tuple[int, int | None, int | None, str]]:
        """Where two partitions differ: (key, offset in one, offset in the other, what differs).

        Shape: key is `offset` or `rank` (the record's position among all of them); `within` limits the keys.
        """
        sides = []
        for name, (place, where) in (("a", one), ("b", other)):
            rows = self._of(place, where).where(F.col(key).between(within.start, within.end - 1))
            columns = [F.max(column).alias(f"{name}_{column}") for column in _COMPARED]
            sides.append(rows.groupBy(F.col(key).alias("at")).agg(*columns))
        joined = sides[0].join(sides[1], "at", "full_outer")
        unequal = joined.where("a_hash IS NULL OR b_hash IS NULL OR a_hash <> b_hash")
        names = [f"{side}_{column}" for side in "ab" for column in _COMPARED]
        rows = unequal.orderBy("at").limit(most).select("at", *names)
        found = []
        for at, *values in rows.collect():
            half = len(_COMPARED)
            found.append((at, values[0], values[half], _what(values[:half], values[half:])))
        return found

    def _of(self, place: int, where: Where) -> DataFrame:
        mine = (F.col("place") == place) & (F.col("topic") == where[0])
        return self.frame.where(mine & (F.col("partition") == where[1]))


#: Where two records differ, these are compared, in this order.
_COMPARED = ("offset", "hash", "ms", "key_hash", "value_hash", "headers_hash")


def _what(one: Sequence[int | None], other: Sequence[int | None]) -> str:
    if one[0] is None or other[0] is None:
        return "missing"
    names = ("timestamp", "key", "value", "headers")
    unequal = [n for n, a, b in zip(names, one[2:], other[2:], strict=True) if a != b]
    return " and ".join(unequal) or "content"


def _narrow(frame: DataFrame, place: int, ignored: Collection[str]) -> DataFrame:
    """One small row for each record."""
    ms = F.unix_millis("timestamp")
    headers = F.transform(
        F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>")),
        lambda header: F.struct(header["key"], header["value"].isNull(), header["value"]),
    )
    key = F.xxhash64(F.isnull("key"), "key")
    value = F.xxhash64(F.isnull("value"), "value")
    head = F.lit(0).cast("long") if "headers" in ignored else F.xxhash64(F.size(headers), headers)
    time = F.lit(0).cast("long") if "timestamp" in ignored else ms
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(
        F.octet_length("value"), F.lit(0)
    )
    rows = frame.select(
        F.lit(place).alias("place"),
        "topic",
        "partition",
        "offset",
        ms.alias("ms"),
        size.cast("long").alias("size"),
        (F.col("timestampType") == 1).cast("int").alias("append_time"),
        key.alias("key_hash"),
        value.alias("value_hash"),
        head.alias("headers_hash"),
        time.alias("hashed_ms"),
    )
    hashed = F.xxhash64("key_hash", "value_hash", "headers_hash", "hashed_ms")
    return rows.withColumn("hash", hashed).drop("hashed_ms")


def _sums(hashes: Column) -> list[Column]:
    # In halves, because a sum of whole hashes overflows; a sum of halves holds 2^31 records.
    halves = (hashes.bitwiseAND(F.lit(_LOW)), F.shiftrightunsigned(hashes, 32))
    return [F.coalesce(F.sum(half), F.lit(0).cast("long")) for half in halves]


def _stretch(numbers: Sequence[int]) -> Stretch:
    counts, sums, shared = numbers[:15], numbers[15:21], numbers[21]
    bucket, rows, first, last, size, earliest, latest, *irregular = counts
    stretch = Stretch(bucket, rows, first, last, size, earliest, latest)
    stretch.gaps, stretch.missing, stretch.duplicates = irregular[:3]
    stretch.backwards, stretch.worst_backwards_ms, stretch.append_time = irregular[3:6]
    stretch.first_duplicate, stretch.worst_backwards_offset = irregular[6:]
    stretch.content = Digest(*sums[0:2])
    stretch.ordered = Digest(*sums[2:4])
    stretch.placed = Digest(*sums[4:6])
    stretch.common_rows = shared
    return stretch
