"""Fuzz target: the native module answers any Produce request as Python does, or leaves it to Python.

Run: python -m tests.fuzz.fuzz_native_produce [--inputs N] [--seed N]
Inputs are requests as clients send them, most of them damaged; each lies in memory of exactly its size. What the native module
answers is given to Python too, on a broker of its own, and at the end both have the same logs. With the sanitizers, as
fuzz_native.py says.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import tempfile
from pathlib import Path
from typing import Any

from server.handlers.context import NoReply
from server.handlers.produce import produce
from server.handlers.produce_plain import plain_produce_frame
from server.net.dispatcher import Plain
from tests.handlers.test_produce_plain import room_of, state, usual_request
from tests.support.forms import form
from tests.support.replicas import NOW, Replicas

INTERESTING = (0, 1, 2, 3, 0x10, 0x3E, 0x7F, 0x80, 0xFE, 0xFF)
HEADER = b"\0\1c\0"


def damaged(body: bytes, draw: random.Random) -> bytes:
    """A body in which some bytes, mostly of its structure, are changed, added or removed."""
    found = bytearray(body)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        if not found:
            break
        place = draw.choice((draw.randrange(min(len(found), 120)), draw.randrange(len(found))))
        change = draw.random()
        if change < 0.6:
            found[place] = draw.choice((*INTERESTING, draw.randrange(256)))
        elif change < 0.75:
            del found[place:]
        elif change < 0.85:
            del found[place : place + draw.randint(1, 4)]
        else:
            found[place:place] = bytes(draw.choice(INTERESTING) for _ in range(draw.randint(1, 6)))
    return bytes(found)


def exact(data: bytes) -> memoryview:
    """Writable memory of exactly this size."""
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data)).cast("B")


def compare(first: Replicas, second: Replicas, version: int, body: bytes, whole: bool) -> bool:
    """Pass a request to both forms; return whether the native one answered. Errors: AssertionError if they differ."""
    services = first.services
    with form("native"):
        done: Any
        if whole:
            header = version.to_bytes(4, "big") + b"\0\0\0\7" + HEADER
            done = plain_produce_frame(services, exact(header + body), version, NOW)
        else:
            done = produce.plain(first.context(version), exact(body), 0)  # type: ignore[misc]
            if not isinstance(done, Plain | NoReply):
                # Python has answered it, or it waits, or both leave it to message objects.
                with form("pure"):
                    expected = produce.plain(second.context(version), exact(body), 0)  # type: ignore[misc]
                assert type(expected) is type(done), (version, body.hex())
                return False
            told = b"" if isinstance(done, NoReply) else b"".join(done.parts)
    if whole:
        if done is None:
            return False
        told, rows = done
        assert rows > 0
        assert not told or told[:9] == len(told[4:]).to_bytes(4, "big") + b"\0\0\0\7\0"
        told = told[9:]
    with form("pure"):
        answer = produce.plain(second.context(version), memoryview(bytearray(body)), 0)  # type: ignore[misc]
    assert isinstance(answer, Plain | NoReply), (version, body.hex())
    expected = b"" if isinstance(answer, NoReply) else b"".join(answer.parts)
    assert told == expected, (version, body.hex(), told, expected)
    return True


def run(number: int, seed: int, folder: Path) -> int:
    """Compare this many requests; return the number that the native form has answered."""
    draw = random.Random(seed)
    rooms = []
    for name in ("native", "pure"):
        with form(name):
            rooms.append(room_of(folder / name, **{"kwire.produce.validation": "standard"}))
    answered = 0
    try:
        for _ in range(number):
            version, body = usual_request(draw, rooms[0], topics=("a", "e", "f", "i"))
            if draw.random() < 0.8:
                body = damaged(body, draw)
            answered += compare(rooms[0], rooms[1], version, body, draw.random() < 0.5)
        assert state(rooms[0]) == state(rooms[1])
    finally:
        for room in rooms:
            room.stop()
    return answered


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_native_produce")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answered = run(options.inputs, options.seed, Path(folder))
    print(f"{options.inputs} requests, {answered} of them answered natively: both forms agree")


if __name__ == "__main__":
    main()
