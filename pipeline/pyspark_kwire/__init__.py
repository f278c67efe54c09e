"""Spark searches modules named `pyspark_*` for data sources; this one provides `kwire-log`."""

from kwire.pipeline.segments.source import SegmentSource as DefaultSource

__all__ = ["DefaultSource"]
