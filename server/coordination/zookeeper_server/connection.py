"""One client's connection as the machine sees it, and the effects of a call; pure."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any, NamedTuple

from ..acl import AclId
from ..tree import Applied


class Now(NamedTuple):
    """The current time: for Stats by the wall clock, for timeouts by a clock that never goes back."""

    wall_ms: int
    monotonic_ms: int


class AwaitedMessage(Enum):
    """The message that a connection expects next."""

    NEW = "a ConnectRequest"
    OPEN = "requests"
    ENDING = "nothing but the reply to the end of its session"
    CLOSED = "nothing"


class Unfinished(NamedTuple):
    """A request that is handled in several steps. Shape: `steps` takes the Call of each and returns the reply's body."""

    xid: int
    opcode: int
    steps: Generator[None, Any, bytes]


class ZookeeperConnection:
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
        "unfinished",
    )

    def __init__(self, address: str, port: int, now: Now) -> None:
        self.address = address
        self.port = port
        self.stage = AwaitedMessage.NEW
        self.session_id = 0
        self.ids = {AclId("ip", address): None}
        self.opened_ms = now.wall_ms
        self.received = 0
        self.sent = 0
        self.last_opcode = 0
        self.last_xid = 0
        self.last_zxid = 0
        #: A request of which a part remains to be handled; no other is received before.
        self.unfinished: Unfinished | None = None


class Effects:
    """The actions that follow a call.

    Shape: `frames` are (connection, one or more frames), None to close the connection; they are sent in order, and not
    before everything in `applied` is durable. `sent` is the number of frames.
    """

    __slots__ = ("applied", "frames", "sent")

    def __init__(self) -> None:
        self.applied: list[Applied] = []
        self.frames: list[tuple[ZookeeperConnection, bytes | None]] = []
        self.sent = 0

    def send(self, connection: ZookeeperConnection, message: bytes) -> None:
        """Send a message."""
        self.send_frames(connection, len(message).to_bytes(4, "big") + message, 1)

    def send_frames(self, connection: ZookeeperConnection, frames: bytes, count: int) -> None:
        """Send frames, of which there may be very many."""
        if connection.stage is not AwaitedMessage.CLOSED:
            connection.sent += count
            self.sent += count
            self.frames.append((connection, frames))

    def close(self, connection: ZookeeperConnection) -> None:
        """Close a connection after everything sent so far."""
        if connection.stage is not AwaitedMessage.CLOSED:
            connection.stage = AwaitedMessage.CLOSED
            self.frames.append((connection, None))
