"""A cluster that runs elsewhere, with the helpers of a test."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from .client import topics
from .helpers import Helpers, Topic


class RemoteCluster(Helpers):
    """A Kafka cluster that does not belong to the test; it has the helpers, but neither a clock nor faults.

    Shape: `topic` makes unique names; topics that the test names in other ways are shared with other runs.
    """

    replication_factor = -1

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self.bootstrap_servers = bootstrap_servers
        self._made: list[str] = []

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, Any] | None = None,
    ) -> Topic:
        """Create a topic whose name begins with `name` and ends with something of its own."""
        own = f"{name or 'topic'}-{random.getrandbits(40):010x}"
        made = super().topic(
            own, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        self._made.append(own)
        return made

    def become_copy(self) -> None:
        super().become_copy()
        self._made = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the topics that were made."""
        try:
            if self._made:
                topics.delete(self.client, self._made)
        finally:
            self._close_client()

    def __getattr__(self, name: str) -> NoReturn:
        if name in ONLY_KWIRE:
            raise AttributeError(
                f"{name!r} is for kwire's own brokers, and --kafka-bootstrap names another cluster; "
                "mark the test with @pytest.mark.kafka_kwire_only"
            )
        raise AttributeError(name)


ONLY_KWIRE = ("clock", "fault", "disk_fault", "faults", "log", "last_requests", "record")
