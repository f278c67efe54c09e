"""The memory of a broker's transactional ids, and its limit; pure."""

from __future__ import annotations

from collections.abc import Hashable
from sys import getsizeof
from typing import TYPE_CHECKING

from kwire.errors import ErrorCode

from ..common.account import Account
from ..common.write_pace import WritePace

if TYPE_CHECKING:
    from .config import TransactionConfig
    from .state import TransactionMetadata

#: A transactional id: the object, its stored state and its entry in the shard.
TRANSACTION_BYTES = 1000
#: A partition of a transaction.
PARTITION_BYTES = 400

#: A request that needs no more is small.
SMALL_BYTES = 4096


class TransactionMemory:
    """The account of all transactional ids of a broker.

    An id belongs to the client that uses it first after it was made or loaded. `pace` is the account of what was written
    for clients.
    """

    __slots__ = ("account", "pace")

    def __init__(self) -> None:
        self.pace = WritePace()
        self.account = Account("transactional ids", "kwire.transaction.state.max.bytes")

    @property
    def used(self) -> int:
        """The memory of all ids."""
        return self.account.used

    def refuses(self, config: TransactionConfig, client: Hashable, more: int) -> ErrorCode:
        """The error if a client may not have this many more bytes; see Account."""
        return self.account.error(
            client, more, config.state_max_bytes, is_small=more <= SMALL_BYTES
        )


def state_bytes(transactional_id: str, stored: TransactionMetadata | None) -> int:
    """The memory that a transactional id takes."""
    partitions = 0 if stored is None else len(stored.partitions)
    return TRANSACTION_BYTES + getsizeof(transactional_id) + PARTITION_BYTES * partitions
