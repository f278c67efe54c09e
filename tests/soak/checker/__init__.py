"""Finds anomalies in a history, as defined by Jepsen's analyses of Kafka and Redpanda: pure functions.

Source: jepsen.tests.kafka. In addition: offsets without holes, groups that resume, and exactly-once transforms.
"""

from __future__ import annotations

from .analysis import Expectations
from .history import Line, read_lines
from .verdict import CHECKS, Verdict, check

__all__ = ["CHECKS", "Expectations", "Line", "Verdict", "check", "read_lines"]
