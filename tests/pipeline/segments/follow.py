"""A stream of `kwire-log` to Parquet, as a program that can be killed: python -m tests.pipeline.segments.follow."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from kwire.pipeline import segments
from kwire.pipeline.options import add_spark
from kwire.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def writer(spark: SparkSession, logs: str, topic: str, out: str, most: int) -> DataStreamWriter:
    """The query, not yet started; its checkpoint is next to its output."""
    stream = segments.read_stream(
        spark, logs, topics=topic, includeHeaders=True, maxOffsetsPerTrigger=most
    )
    to = stream.writeStream.format("parquet").option("path", out)
    return to.option("checkpointLocation", f"{out}-checkpoint")


def until_started(query: DataStreamWriter, work: Callable[[StreamingQuery], object]) -> None:
    """Start a query and work with it; again if its Python process did not start.

    Spark gives a Python process ten seconds to start, which is too little on a very busy machine.
    """
    while True:
        started = query.start()
        try:
            work(started)
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
            print("its Python process did not start in time", flush=True)
        finally:
            with suppress(StreamingQueryException):
                started.stop()


def main() -> None:
    """Follow until killed."""
    parser = ArgumentParser()
    parser.add_argument("logs")
    parser.add_argument("topic")
    parser.add_argument("out")
    parser.add_argument("most", type=int)
    add_spark(parser)
    options = parser.parse_args()
    spark = start_session(options, "follow")
    query = writer(spark, options.logs, options.topic, options.out, options.most)
    query = query.trigger(processingTime="100 milliseconds")
    while True:
        until_started(query, lambda started: started.awaitTermination())


if __name__ == "__main__":
    main()
