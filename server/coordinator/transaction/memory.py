"""The memory of a broker's transactional ids, and its limit; pure."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from sys import getsizeof
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ...shares import LARGE, SMALL, Shares
from ..write_pace import WritePace

if TYPE_CHECKING:
    from .config import TransactionConfig
    from .state import TransactionMetadata

logger = logging.getLogger(__name__)

#: A transactional id: the object, its stored state and its entry in the shard.
TRANSACTION_BYTES = 1000
#: A partition of a transaction.
PARTITION_BYTES = 400

#: A request that needs no more is small.
SMALL_BYTES = 4096


class TransactionMemory:
    """The account of all transactional ids of a broker. Unit: bytes, estimated.

    Stored ids are always loaded from the log; the limit applies to new ids and to additional partitions. An id belongs to
    the client that uses it first after it was made or loaded; server/shares.py says how much each client may hold.
    `pace` is the account of what was written for clients.
    """

    __slots__ = ("_full", "pace", "shares")

    def __init__(self) -> None:
        self.pace = WritePace()
        self.shares = Shares()
        self._full = False

    @property
    def used(self) -> int:
        """The memory of all ids."""
        return self.shares.used

    def refuses(self, config: TransactionConfig, client: Hashable, more: int) -> ErrorCode:
        """The error if a client may not have this many more bytes: COORDINATOR_LOAD_IN_PROGRESS, upon which clients try
        again.
        """
        times = SMALL if more <= SMALL_BYTES else LARGE
        if more <= 0 or not self.shares.refuses(client, more, config.state_max_bytes, times):
            if self._full and self.used < config.state_max_bytes // 2:
                self._full = False
            return ErrorCode.NONE
        if not self._full:
            self._full = True
            logger.warning(
                "transactional ids have reached kwire.transaction.state.max.bytes=%d, or one client's share of it: new"
                " ones of %s are refused, and clients try again",
                config.state_max_bytes,
                client,
            )
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def state_bytes(transactional_id: str, stored: TransactionMetadata | None) -> int:
    """The memory that a transactional id takes."""
    partitions = 0 if stored is None else len(stored.partitions)
    return TRANSACTION_BYTES + getsizeof(transactional_id) + PARTITION_BYTES * partitions
