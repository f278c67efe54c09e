"""The memory of a broker's transactional ids, and its limit; pure."""

from __future__ import annotations

import logging
from sys import getsizeof
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

if TYPE_CHECKING:
    from .config import TransactionConfig
    from .state import TransactionMetadata

logger = logging.getLogger(__name__)

#: A transactional id: the object, its stored state and its entry in the shard.
TRANSACTION_BYTES = 1000
#: A partition of a transaction.
PARTITION_BYTES = 400


class TransactionMemory:
    """The account of all transactional ids of a broker. Unit: bytes, estimated.

    Stored ids are always loaded from the log; the limit applies to new ids and to additional partitions.
    """

    __slots__ = ("_full", "used")

    def __init__(self) -> None:
        self.used = 0
        self._full = False

    def refuses(self, config: TransactionConfig, more: int) -> ErrorCode:
        """The error if this many more bytes exceed the limit: COORDINATOR_LOAD_IN_PROGRESS, upon which clients try
        again.
        """
        if self.used + more <= config.state_max_bytes:
            self._full = False
            return ErrorCode.NONE
        if not self._full:
            self._full = True
            logger.warning(
                "transactional ids have reached kwire.transaction.state.max.bytes=%d: new ones are"
                " refused, and clients try again",
                config.state_max_bytes,
            )
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def state_bytes(transactional_id: str, stored: TransactionMetadata | None) -> int:
    """The memory that a transactional id takes."""
    partitions = 0 if stored is None else len(stored.partitions)
    return TRANSACTION_BYTES + getsizeof(transactional_id) + PARTITION_BYTES * partitions
