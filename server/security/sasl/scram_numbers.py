"""Numbers of SCRAM in the protocol and in stored credentials; without the hashes that `scram.py` needs."""

from __future__ import annotations

#: Mechanisms by their numbers in DescribeUserScramCredentials. Source: ScramMechanism (Java).
TYPES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MIN_ITERATIONS = 4096
#: Apache Kafka's maximum. A server that requested millions would keep a broker busy that logs in there.
MAX_ITERATIONS = 16384
