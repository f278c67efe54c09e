"""The common part of all intrusion attempts."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from kwire.api import ApiKey

from ..doors import Door
from ..wire import body_of, frame

#: The attempt, and whether it succeeded.
Tried = Iterator[tuple[str, bool]]

ALICE, MALLORY = "alice", "mallory"
METADATA = frame(ApiKey.METADATA, 1, body_of(ApiKey.METADATA, 1, topics=[]))


def refused(attempt: Callable[[], Any]) -> bool:
    """Whether an attempt ends with an error of the connection, of TLS or of the login."""
    try:
        return attempt() is not True
    except (OSError, ssl.SSLError):
        return True


def sent_is_served(door: Door, frames: list[bytes]) -> bool:
    """Whether a request is answered after these frames, sent in one piece: with as many answers as a regular request
    has.
    """
    door.raw(b"".join(frames) + METADATA)
    answers = []
    try:
        while True:
            size = door._exactly(4)
            answers.append(door._exactly(struct.unpack(">i", size)[0]))
    except OSError:
        # The answer to Metadata contains the brokers' host.
        return any(b"127.0.0.1" in answer for answer in answers)
