"""Fuzz target: the native module takes from the bytes of a Fetch what Python takes from them, or leaves them to it.

Run: python -m tests.fuzz.fuzz_native_fetch [--inputs N] [--seed N]
Inputs are requests of the versions from 10 on, damaged, without a session or in one; each lies in memory of exactly its size.
For the sanitizers of addresses and undefined behavior, see fuzz_native.py.
"""

from __future__ import annotations

import argparse
import ctypes
import random
from collections.abc import Iterator
from typing import Any

from kwire.codec import decode_at_once, encode
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from server.handlers.fetch import fetch
from server.replication.fetch_session import FetchContext, FetchedPartition, FetchSessionCache
from tests.support.forms import NATIVE
from tests.support.versions import versions

VERSIONS = versions(fetch, first=10)
INTERESTING = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF)
NOW_MS = 1_700_000_000_000
SESSION = 5


def request(draw: random.Random, version: int) -> FetchRequest:
    """A consumer's request, sometimes with something that is not plain."""
    in_session = draw.random() < 0.4
    return FetchRequest(
        replica_id=-1 if version > 14 or draw.random() < 0.97 else draw.choice((1, -2)),
        max_wait_ms=draw.choice((0, 500)),
        min_bytes=1,
        max_bytes=draw.choice((1 << 20, 0)),
        isolation_level=draw.choice((0, 0, 1)),
        session_id=SESSION if in_session else 0,
        session_epoch=draw.choice((3, 3, 3, 2, 0)) if in_session else draw.choice((-1, -1, 0)),
        topics=[
            FetchTopic(
                topic=f"topic-{number}",
                topic_id=bytes((number,)) * 16,
                partitions=[
                    FetchPartition(
                        partition=each,
                        current_leader_epoch=draw.choice((-1, 0, 7)),
                        fetch_offset=draw.choice((0, 1 << 40, -1)),
                        last_fetched_epoch=draw.choice((-1, 0)) if version > 11 else -1,
                        log_start_offset=draw.choice((-1, 9)),
                        partition_max_bytes=1 << 20,
                        high_watermark=5 if draw.random() < 0.02 else (1 << 63) - 1,
                    )
                    for each in draw.sample(range(4), draw.randrange(4))
                ],
            )
            for number in draw.sample(range(3), draw.randrange(3))
        ],
        forgotten_topics_data=[ForgottenTopic(topic="topic-0", topic_id=bytes(16), partitions=[0])]
        if draw.random() < 0.03
        else [],
        rack_id="" if version < 11 or draw.random() < 0.97 else "rack",
    )


def sessions(version: int) -> FetchSessionCache:
    """With one session of all partitions that requests name, at epoch 3."""
    cache = FetchSessionCache(10)
    named = FetchRequest(
        session_epoch=0,
        topics=[
            FetchTopic(
                topic="" if version > 12 else f"topic-{number}",
                topic_id=bytes((number,)) * 16 if version > 12 else bytes(16),
                partitions=[FetchPartition(partition=each) for each in range(3)],
            )
            for number in range(3)
        ],
    )
    context = cache.context(named, version, NOW_MS)
    assert context.session is not None
    del cache.sessions[context.session.id]
    context.session.id, context.session.epoch = SESSION, 3
    cache.sessions[SESSION] = context.session
    return cache


def shown(context: FetchContext, of: Any) -> Any:
    """The complete content of a request."""
    session = context.session
    return (
        of,
        None if session is None else (session.id, session.epoch),
        context.incremental,
        [
            (key, *(getattr(each, name) for name in FetchedPartition.__slots__))
            for key, each in context
        ],
    )


def compare(body: bytes, version: int) -> bool:
    """Pass a body to both forms; return whether it is plain. Errors: AssertionError if they differ."""
    take = NATIVE["take_fetch"]
    assert take is not None
    mine, other = sessions(version), sessions(version)
    before = shown(FetchContext(mine.sessions[SESSION].partitions), None)
    exact = (ctypes.c_ubyte * len(body)).from_buffer_copy(body)
    taken = take(memoryview(exact).cast("B"), 0, version, mine.sessions, FetchedPartition)
    if taken is None:
        assert shown(FetchContext(mine.sessions[SESSION].partitions), None) == before
        return False
    max_wait_ms, min_bytes, max_bytes, read_committed, partitions, session = taken
    message = decode_at_once(FetchRequest, body, version)
    assert message is not None, (version, body.hex())
    context = other.context(message, version, NOW_MS)
    assert not context.error
    assert (message.replica_id, message.replica_state, message.rack_id) == (-1, None, "")
    asked = message.max_wait_ms, message.min_bytes, message.max_bytes, message.isolation_level == 1
    found = FetchContext(partitions) if session is None else mine.go_on(session, NOW_MS)
    assert shown(found, (max_wait_ms, min_bytes, max_bytes, read_committed)) == shown(
        context, asked
    ), (version, body.hex())
    return True


def drawn(draw: random.Random) -> tuple[bytes, int]:
    """A request and its version; half of them are damaged."""
    version = draw.choice(VERSIONS)
    body = bytearray(encode(request(draw, version), version))
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        place = draw.randrange(len(body)) if body else 0
        change = draw.random()
        if not body:
            break
        if change < 0.6:
            body[place] = draw.choice((*INTERESTING, draw.randrange(256)))
        elif change < 0.8:
            del body[place:]
        elif change < 0.9:
            del body[place]
        else:
            body[place:place] = bytes(draw.choice(INTERESTING) for _ in range(draw.randint(1, 5)))
    return bytes(body), version


def inputs(number: int, seed: int) -> Iterator[tuple[bytes, int]]:
    """The given number of inputs, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(number):
        yield drawn(draw)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_native_fetch")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plain = sum(compare(*each) for each in inputs(options.inputs, options.seed))
    print(f"{options.inputs} inputs, {plain} of them plain: both forms agree")


if __name__ == "__main__":
    main()
