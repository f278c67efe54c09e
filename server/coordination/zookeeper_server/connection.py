"""One client's connection as the machine sees it, and the effects of a call; pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..acl import AclId
from ..tree import Applied


class Now(NamedTuple):
    """The current time: for Stats by the wall clock, for timeouts by a clock that never goes back."""

    wall_ms: int
    monotonic_ms: int


class Stage(Enum):
    """The message that a connection expects next."""

    NEW = "a ConnectRequest"
    OPEN = "requests"
    CLOSED = "nothing"


class Connection:
    """One client's connection, as the machine sees it."""

    __slots__ = (
        "address",
        "ids",
        "last_opcode",
        "last_xid",
        "last_zxid",
        "opened_ms",
        "port",
        "received",
        "sent",
        "session_id",
        "stage",
    )

    def __init__(self, address: str, port: int, now: Now) -> None:
        self.address = address
        self.port = port
        self.stage = Stage.NEW
        self.session_id = 0
        self.ids = {AclId("ip", address): None}
        self.opened_ms = now.wall_ms
        self.received = 0
        self.sent = 0
        self.last_opcode = 0
        self.last_xid = 0
        self.last_zxid = 0


class Effects:
    """The actions that follow a call.

    Shape: `frames` are (connection, message without its length), None to close the connection; they are sent in order,
    and not before everything in `applied` is durable.
    """

    __slots__ = ("applied", "frames")

    def __init__(self) -> None:
        self.applied: list[Applied] = []
        self.frames: list[tuple[Connection, bytes | None]] = []

    def send(self, connection: Connection, message: bytes) -> None:
        """Send a message."""
        if connection.stage is not Stage.CLOSED:
            connection.sent += 1
            self.frames.append((connection, message))

    def close(self, connection: Connection) -> None:
        """Close a connection after everything sent so far."""
        if connection.stage is not Stage.CLOSED:
            connection.stage = Stage.CLOSED
            self.frames.append((connection, None))
