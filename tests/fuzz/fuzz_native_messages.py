"""Fuzz target: the native module decodes any bytes as any message as Python does, or leaves them to it.

Run: python -m tests.fuzz.fuzz_native_messages [--inputs N] [--seed N]
Inputs are messages of all versions, damaged; each lies in memory of exactly its size. For the sanitizers of addresses and
undefined behavior, see fuzz_native.py.
"""

from __future__ import annotations

import argparse
import ctypes
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from kwire.codec import encode
from kwire.compiler import compile_decoder
from kwire.native_decoder import native_decoder
from tests.support.catalogue import all_versions
from tests.support.forms import form
from tests.wire.entropy import message_from

PAIRS = all_versions()
INTERESTING = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF)
#: More elements than this are left to Python.
MOST = 300


class LeftError(Exception):
    """The native decoder leaves the message to Python."""


def leave(*_: object) -> Any:
    raise LeftError


Decoder = Callable[[Any, int, int], tuple[Any, int]]


@cache
def decoders(cls: type, version: int) -> tuple[Decoder | None, Decoder]:
    """That of the native module, if it has one for the message, and that of Python."""
    with form("native"):
        natively = native_decoder(cls, version, MOST, leave)
    with form("pure"):
        return natively, compile_decoder(cls, version, True, MOST)


def compare(cls: type, version: int, body: bytes, offset: int = 0) -> bool:
    """Pass a body to both forms; return whether it is decoded natively. Errors: AssertionError if they differ."""
    natively, python = decoders(cls, version)
    if natively is None:
        return False
    exact = memoryview((ctypes.c_ubyte * len(body)).from_buffer_copy(body)).cast("B")
    try:
        message, pos = natively(exact, offset, len(body))
    except LeftError:
        return False
    expected = python(memoryview(body), offset, len(body))
    assert pos <= len(body)
    assert (message, pos) == expected, (cls, version, body.hex())
    assert encode(message, version) == encode(expected[0], version), (cls, version, body.hex())
    return True


def drawn(draw: random.Random) -> tuple[type, int, bytes]:
    """A message as bytes; half of them are damaged."""
    cls, version = draw.choice(PAIRS)
    body = bytearray(encode(message_from(cls, version, draw.randbytes(200)), version))
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        if not body:
            break
        place = draw.randrange(len(body))
        change = draw.random()
        if change < 0.6:
            body[place] = draw.choice((*INTERESTING, draw.randrange(256)))
        elif change < 0.8:
            del body[place:]
        elif change < 0.9:
            del body[place]
        else:
            body[place:place] = bytes(draw.choice(INTERESTING) for _ in range(draw.randint(1, 5)))
    return cls, version, bytes(body)


def inputs(number: int, seed: int) -> Iterator[tuple[type, int, bytes]]:
    """The given number of inputs, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(number):
        yield drawn(draw)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_native_messages")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    natively = sum(compare(*each) for each in inputs(options.inputs, options.seed))
    print(f"{options.inputs} inputs, {natively} of them decoded natively: both forms agree")


if __name__ == "__main__":
    main()
