"""The interface between a listener and the code that has its clients log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .session import Session


class Logins(Protocol):
    """Has the clients of one listener log in."""

    def begin(self, session: Session) -> None:
        """A connection has been accepted: answer its requests until the client has logged in."""
        ...

    def gone(self, session: Session) -> None:
        """A connection has ended, whether its client had logged in or not."""
        ...

    def tick(self, now_ms: int) -> None:
        """Time has passed: end logins that take too long."""
        ...
