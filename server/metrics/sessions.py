"""Counts what happens to the session in the store. Source: ZooKeeperClient, SessionExpireListener."""

from __future__ import annotations

from ..coordination.store import SessionState


class StoreSessions:
    """Counts changes of the session; `changed` is for `Store.on_session`."""

    def __init__(self) -> None:
        self.connects = 0
        self.disconnects = 0
        self.expires = 0

    def changed(self, state: SessionState) -> None:
        """The session has a new state."""
        if state is SessionState.CONNECTED:
            self.connects += 1
        elif state is SessionState.SUSPENDED:
            self.disconnects += 1
        else:
            self.expires += 1
