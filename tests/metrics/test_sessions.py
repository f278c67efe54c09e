"""The counters of the session in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.coordination.store import SessionState
from server.metrics.sessions import StoreSessions


class Store:
    """A store that reports changes of its session."""

    refused_logins = 0

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self.tell = callback


def test_changes_of_the_session_and_refused_logins_are_counted() -> None:
    store: Any = Store()
    sessions = StoreSessions(store)
    for state in (SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED):
        store.tell(state)
    store.tell(SessionState.EXPIRED)
    store.refused_logins = 2
    assert (sessions.connects, sessions.disconnects, sessions.expires) == (2, 1, 1)
    assert sessions.auth_failures == 2
