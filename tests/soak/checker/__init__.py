"""What is wrong with a history, as Jepsen's analyses of Kafka and Redpanda define it: pure functions.

Source: jepsen.tests.kafka. Added to it: offsets without holes, groups that resume, and transforming
exactly once.
"""

from __future__ import annotations

from .analysis import Expectations
from .history import Line, read_lines
from .verdict import CHECKS, Verdict, check

__all__ = ["CHECKS", "Expectations", "Line", "Verdict", "check", "read_lines"]
