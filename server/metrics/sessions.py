"""Counts changes of the session in the store. Source: ZooKeeperClient, SessionExpireListener."""

from __future__ import annotations

from ..coordination.store import SessionState, Store


class StoreSessions:
    """Counts changes of the session; `changed` is called for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.on_session(self.changed)
        self.connects = 0
        self.disconnects = 0
        self.expires = 0

    @property
    def auth_failures(self) -> int:
        """The number of refused logins."""
        return self._store.refused_logins

    def changed(self, state: SessionState) -> None:
        """Handle a new state of the session."""
        if state is SessionState.CONNECTED:
            self.connects += 1
        elif state is SessionState.SUSPENDED:
            self.disconnects += 1
        else:
            self.expires += 1
