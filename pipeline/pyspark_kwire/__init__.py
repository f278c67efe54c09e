"""Spark looks through modules named `pyspark_*` for data sources; this one is `kwire-log`."""

from kwire.pipeline.segments.source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
