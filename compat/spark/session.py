"""A Spark session that follows instructions on standard input, one JSON object per line.

Run by the Python that has pyspark: `session.py BOOTSTRAP JARS_FOLDER`. A line is {"do": NAME, ...arguments}; the answer
is one line of JSON on standard output. Starting a session costs seconds, so all tests share one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

HEADERS = (
    "array(named_struct('key', 'h', 'value', cast('1' as binary)),"
    " named_struct('key', 'n', 'value', cast(null as binary)))"
)
SHOWN = ("partition", "offset", "cast(key as string) as key", "cast(value as string) as value")
WRITTEN = "partition int, offset bigint, key string, value string"
SHOWN_HEADERS = (
    "transform(headers, h -> concat(h.key, '=', coalesce(cast(h.value as string), 'NULL')))"
)


class Session:
    """The verbs."""

    def __init__(self, bootstrap: str, jars: Path) -> None:
        self.bootstrap = bootstrap
        # Spark brings its own Scala.
        wanted = (path for path in sorted(jars.glob("*.jar")) if "scala-library" not in path.name)
        paths = ",".join(map(str, wanted))
        self.spark = (
            SparkSession.builder.master("local[2]")
            .appName("kwire")
            .config("spark.jars", paths)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "700m")
            # Thousands of rows, not millions: code generation would cost more than it gains.
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("ERROR")
        self.queries: dict[str, StreamingQuery] = {}

    def _source(self, reader: Any, options: dict[str, str]) -> DataFrame:
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        frame: DataFrame = reader.load()
        return frame

    def write(
        self,
        topic: str,
        first: int,
        count: int,
        partitions: int,
        options: dict[str, str] | None = None,
    ) -> int:
        """Write numbered records with keys and headers."""
        frame = self.spark.range(first, first + count).selectExpr(
            "cast(id as string) as key",
            "concat('value ', id) as value",
            f"cast(id % {partitions} as int) as partition",
            f"{HEADERS} as headers",
        )
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in (options or {}).items():
            writer = writer.option(name, value)
        writer.option("topic", topic).option("includeHeaders", "true").save()
        return count

    def read(self, options: dict[str, str], headers: bool = False) -> list[Any]:
        """Read a batch and return its rows, sorted by partition and offset."""
        more = {"includeHeaders": "true"} if headers else {}
        frame = self._source(self.spark.read, options | more)
        rows = frame.selectExpr(*SHOWN, *([SHOWN_HEADERS] if headers else [])).collect()
        return [list(row) for row in sorted(rows, key=lambda row: (row[0], row[1]))]

    def tasks(self, options: dict[str, str]) -> int:
        """Return how many tasks a batch read is split into."""
        return self._source(self.spark.read, options).rdd.getNumPartitions()

    def start(self, name: str, options: dict[str, str], checkpoint: str, output: str) -> bool:
        """Start a query that writes its input as JSON files."""
        frame = self._source(self.spark.readStream, options).selectExpr(*SHOWN)
        self.queries[name] = (
            frame.writeStream.format("json")
            .option("checkpointLocation", checkpoint)
            .option("path", output)
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        return True

    def forward(self, options: dict[str, str], topic: str, checkpoint: str) -> bool:
        """Copy a topic into another as a stream, up to the current end.

        Shape: options that begin with `kafka.` are also the sink's.
        """
        frame = self._source(self.spark.readStream, options).selectExpr("key", "value", "partition")
        query = (
            frame.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .options(**{key: text for key, text in options.items() if key.startswith("kafka.")})
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        return bool(query.awaitTermination(240))

    def wait(self, output: str, count: int) -> list[Any]:
        """Wait until a query's files contain this many rows; return them sorted."""
        deadline = time.monotonic() + 240
        rows: list[Any] = []
        seen: set[str] = set()
        while True:
            # The folder's log of finished batches lists the files that count. Reading them costs much more than this look.
            finished = {path.name for path in Path(output).glob("_spark_metadata/[0-9]*")}
            if finished != seen:
                seen = finished
                frame = self.spark.read.schema(WRITTEN).json(output)
                rows = [list(row) for row in frame.collect()]
            failed = [
                str(query.exception()) for query in self.queries.values() if query.exception()
            ]
            if len(rows) >= count or failed or time.monotonic() > deadline:
                return [*failed, *sorted(rows)]
            time.sleep(0.2)

    def stop(self, name: str) -> bool:
        """Stop a query."""
        self.queries.pop(name).stop()
        return True


def main() -> None:
    """Answer line by line until standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    session = Session(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps({"result": session.spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"result": getattr(session, call.pop("do"))(**call)}
        except Exception as failure:  # noqa: BLE001 - the caller is told
            answer = {"error": f"{type(failure).__name__}: {failure}"[:30_000]}
        print(json.dumps(answer), file=answers, flush=True)
    session.spark.stop()


if __name__ == "__main__":
    main()
