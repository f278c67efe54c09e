"""What the three kinds of aggregate group by and compute; each turns rows of records into rows of results.

A record is late if the window it belongs to is closed: Spark has emitted its result and dropped its state. `first_end`
says when the first window of a record closes; comparing it with the watermark shows whether the record is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from ..problems import WrongCall

#: Kind -> name of its results, as a folder.
RESULTS = {"logs": "windows", "metrics": "windows", "sessions": "sessions"}
#: The folder of the records themselves (logs).
STORE = "records"
#: Columns that the store has besides the schema's.
STORE_COLUMNS = ("event_time", "source", "date", "batch")


@dataclass(frozen=True)
class Grouping:
    """How records become results; times in milliseconds.

    `value` and `percentiles` (0 to 100) are for metrics only, `gap_ms` for sessions only.
    """

    kind: str
    groups: tuple[str, ...]
    window_ms: int = 60_000
    slide_ms: int = 60_000
    gap_ms: int = 1_800_000
    watermark_ms: int = 600_000
    value: str | None = None
    percentiles: tuple[float, ...] = field(default=())
    exact: bool = False
    accuracy: int = 10_000

    def definition(self) -> dict[str, str]:
        """The properties that may not change on a checkpoint, because Spark's state depends on them."""
        tree: dict[str, object] = {"kind": self.kind, "groups": ",".join(self.groups)}
        if self.kind == "sessions":
            tree |= {"gap_ms": self.gap_ms}
        else:
            tree |= {"window_ms": self.window_ms, "slide_ms": self.slide_ms}
        if self.value is not None:
            ranks = ",".join(f"{number:g}" for number in self.percentiles)
            accuracy = "exact" if self.exact else self.accuracy
            tree |= {"value": self.value, "percentiles": ranks, "accuracy": accuracy}
        return {key: str(value) for key, value in tree.items()}

    def results(self, records: DataFrame) -> DataFrame:
        """Rows of `event_time` and the schema's columns -> one row for each closed window or session of each group.

        Raises WrongCall for a group column with the name of a result column.
        """
        marked = records.withWatermark("event_time", spark_time(self.watermark_ms))
        if self.kind == "sessions":
            over = F.session_window("event_time", spark_time(self.gap_ms))
        else:
            over = F.window("event_time", spark_time(self.window_ms), spark_time(self.slide_ms))
        groups = [F.col(f"`{name}`").alias(f"_{number}") for number, name in enumerate(self.groups)]
        wanted = [name for name, _ in self._columns()]
        both = sorted({name.lower() for name in self.groups} & set(wanted))
        if both:
            raise WrongCall(f"--group-by {both[0]}: results have a column of this name")
        found = marked.groupBy(over.alias("_over"), *groups).agg(
            *(column.alias(f"_{name}") for name, column in self._aggregates())
        )
        return found.select(
            *(F.col(f"_{number}").alias(name) for number, name in enumerate(self.groups)),
            *(column.alias(name) for name, column in self._columns()),
        )

    def _aggregates(self) -> list[tuple[str, Column]]:
        if self.kind == "sessions":
            return [("count", F.count("*")), ("end", F.max("event_time"))]
        found = [("count", F.count("*"))]
        if self.value is not None:
            value = F.col(f"`{self.value}`").cast("double")
            found += [("min", F.min(value)), ("max", F.max(value)), ("mean", F.avg(value))]
            if self.percentiles:
                parts = [percentile / 100 for percentile in self.percentiles]
                ranks = (
                    F.percentile(value, parts)
                    if self.exact
                    else F.percentile_approx(value, parts, self.accuracy)
                )
                found.append(("ranks", ranks))
        return found

    def _columns(self) -> list[tuple[str, Column]]:
        """Name and column of each result, besides the group's."""
        if self.kind == "sessions":
            start, end = F.col("_over.start"), F.col("_end")
            length = F.unix_millis(end) - F.unix_millis(start)
            return [
                ("session_start", start),
                ("session_end", end),
                ("duration_ms", length),
                ("count", F.col("_count")),
            ]
        columns = [
            ("window_start", F.col("_over.start")),
            ("window_end", F.col("_over.end")),
            ("count", F.col("_count")),
        ]
        if self.value is not None:
            columns += [(name, F.col(f"_{name}")) for name in ("min", "max", "mean")]
            columns += [
                (percentile_name(percentile), F.col("_ranks")[number])
                for number, percentile in enumerate(self.percentiles)
            ]
        return columns

    @property
    def result_time(self) -> str:
        """The column of a result whose day is its partition."""
        return "session_start" if self.kind == "sessions" else "window_start"

    def first_end(self) -> Column:
        """When the first window of a record closes, in microseconds; once the watermark has reached that, Spark drops
        the record from the window."""
        time = F.unix_micros("event_time")
        if self.kind == "sessions":
            return time + self.gap_ms * 1000
        # Windows end at multiples of the slide plus the window's length; the first end after the event is meant.
        slide = self.slide_ms * 1000
        return time + slide - F.pmod(time - self.window_ms * 1000, F.lit(slide))


def spark_time(length_ms: int) -> str:
    """A duration as Spark reads it."""
    return f"{length_ms} milliseconds"


def percentile_name(percentile: float) -> str:
    """`p50`, `p99_9`: dots need quotes in SQL."""
    return f"p{percentile:g}".replace(".", "_")


def check_grouping(
    grouping: Grouping, fields: Sequence[StructField], value: StructField | None
) -> None:
    """Raises WrongCall for columns of types that cannot be grouped or computed."""
    for item in fields:
        if isinstance(item.dataType, StructType | ArrayType | MapType | VariantType | BinaryType):
            said = item.dataType.simpleString().upper()
            raise WrongCall(f"--group-by {item.name} is {said}: a group needs a plain type")
    if value is not None and not isinstance(
        value.dataType, IntegralType | DoubleType | FloatType | DecimalType
    ):
        said = value.dataType.simpleString().upper()
        raise WrongCall(f"--value-column {value.name} is {said}, not a number")
    if grouping.slide_ms > grouping.window_ms:
        raise WrongCall(
            "--slide is longer than --window: records between two windows would be lost"
        )


def check_store(schema: StructType) -> None:
    """Raises WrongCall for columns named like those the store adds."""
    for name in schema.fieldNames():
        if name.lower() in STORE_COLUMNS:
            raise WrongCall(f"column {name}: the store adds a column of this name")
