"""Counts what happens to the session in the store. Source: ZooKeeperClient, SessionExpireListener."""

from __future__ import annotations

from ..coordination.store import SessionState, Store


class StoreSessions:
    """Counts changes of the session; `changed` is called with each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.on_session(self.changed)
        self.connects = 0
        self.disconnects = 0
        self.expires = 0

    @property
    def auth_failures(self) -> int:
        """Logins that were refused."""
        return self._store.refused_logins

    def changed(self, state: SessionState) -> None:
        """The session has a new state."""
        if state is SessionState.CONNECTED:
            self.connects += 1
        elif state is SessionState.SUSPENDED:
            self.disconnects += 1
        else:
            self.expires += 1
