"""Numbers of SCRAM in the protocol and in stored credentials; without the hashes that `scram.py` needs."""

from __future__ import annotations

#: Mechanisms as DescribeUserScramCredentials numbers them. Source: ScramMechanism (Java).
TYPES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MIN_ITERATIONS = 4096
#: Apache Kafka stores no more. A server that asked for millions would keep a broker that logs in there busy.
MAX_ITERATIONS = 16384
