"""What all attempts to get in have in common."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from kwire.api import ApiKey

from ..doors import Door
from ..wire import body_of, frame

#: What was tried, and whether it got in.
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
    """Whether after these frames in one piece, a request is answered: as many answers as an own request has."""
    door.raw(b"".join(frames) + METADATA)
    answers = []
    try:
        while True:
            size = door._exactly(4)
            answers.append(door._exactly(struct.unpack(">i", size)[0]))
    except OSError:
        # The answer to Metadata names the brokers, with their host.
        return any(b"127.0.0.1" in answer for answer in answers)
