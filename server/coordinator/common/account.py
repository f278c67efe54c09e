"""The memory that one kind of coordinators' state takes, by client, and its limit; pure.

What is stored is always loaded from the log; the limit applies to what is new. server/shares.py says how it is divided
between clients.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

from kwire.errors import ErrorCode

from ...shares import LARGE, SMALL, Shares

logger = logging.getLogger(__name__)


class Account(Shares):
    """What clients hold of one kind of state. Unit: bytes, estimated.

    Shape: `what` and `setting` name the state and its limit in log lines.
    """

    __slots__ = ("_reported", "_setting", "_what")

    def __init__(self, what: str, setting: str) -> None:
        super().__init__()
        self._what = what
        self._setting = setting
        self._reported = False

    def error(self, client: Hashable, more: int, limit: int, *, is_small: bool) -> ErrorCode:
        """The error if a client may not have this many more bytes: COORDINATOR_LOAD_IN_PROGRESS, upon which clients
        try again.

        Shape: that the limit is reached is logged once, until less than half of it is in use.
        """
        if more <= 0 or not self.refuses(client, more, limit, SMALL if is_small else LARGE):
            if self._reported and self.used < limit // 2:
                self._reported = False
            return ErrorCode.NONE
        if not self._reported:
            self._reported = True
            logger.warning(
                "%s have reached %s=%d, or one client's share of it: requests of %s that need more are refused, and"
                " clients retry",
                self._what,
                self._setting,
                limit,
                client,
            )
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
