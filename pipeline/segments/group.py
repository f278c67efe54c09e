"""Commits the progress of a stream to a consumer group, so that Kafka's own tools show its lag.

The stream itself never asks a broker, and does not depend on the group: Spark stores its position.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from .options import Options

if TYPE_CHECKING:
    from ..committer import OffsetCommitter
    from .plan import Offsets

#: Seconds for a coordinator to answer.
PATIENCE_S = 5.0


class GroupProgress:
    """Commits the offsets of finished batches to the option `group`; without that option it does nothing."""

    def __init__(self, options: Options) -> None:
        self._group = options.group
        self._settings = dict(options.client)
        self._committer: OffsetCommitter | None = None
        self._is_failing = False

    def commit(self, ends: Offsets) -> None:
        """Commit them. A failure is reported once, and does not end the query."""
        if self._group is None or not ends:
            return
        from confluent_kafka import KafkaException

        from ..committer import OffsetCommitter

        try:
            if self._committer is None:
                self._committer = OffsetCommitter(self._settings, self._group, _silent())
            self._committer.commit(ends, PATIENCE_S)
        except KafkaException as error:
            if not self._is_failing:
                reason = error.args[0].str() if hasattr(error.args[0], "str") else error
                sys.stderr.write(
                    f"kwire-log: cannot commit offsets of group {self._group}: {reason}; the stream continues\n"
                )
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        """End the client."""
        if self._committer is not None:
            self._committer.close()
            self._committer = None


def _silent() -> logging.Logger:
    """Discard librdkafka's own lines."""
    logger = logging.getLogger("kwire.pipeline.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
