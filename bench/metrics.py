"""What metrics cost a request: CPU time of Produce and Fetch on a broker with --http and on one without.

Either broker has a process of its own. They take turns, a block of requests at a time, so that whatever else the machine does
is felt by both alike. `python -m bench.metrics`; the figures are in docs/metrics.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from server.broker import Broker
from server.config import BrokerConfig
from tests.test_hot_path import Wire, batch_of, fetch_frame, produce_frame

BATCH_BYTES = 16_000
#: Requests in a block.
BLOCK = 50
#: Blocks before those that count: at first, more requests are timed (`server/metrics/requests.py`).
WARM_UP = 60


def frames() -> dict[str, bytes]:
    """The requests that are measured: one batch each."""
    return {
        "Produce": produce_frame(batch_of(BATCH_BYTES), 1),
        "Fetch": fetch_frame(BATCH_BYTES + 1000),
    }


async def wire_of(folder: Path, *, http: bool) -> Wire:
    """A broker and a connection to it, over which one request at a time is handled."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "broker.id": "1",
        "socket.receive.buffer.bytes": str(4 << 20),
        "socket.send.buffer.bytes": str(4 << 20),
    }
    if http:
        config["kwire.http.listener"] = "127.0.0.1:0"
    broker = Broker(BrokerConfig(config))
    await broker.start()
    assert broker.rooms is not None
    assert await broker.rooms.services.topics.auto_create(["hot"]) == {}
    patch = pytest.MonkeyPatch()
    wire = Wire(broker, patch)
    patch.undo()  # nothing is counted here
    await wire.connect()
    wire.transport._sock = wire.transport._sock._sock
    return wire


def block_us(wire: Wire, frame: bytes) -> float:
    """CPU microseconds of one request, measured over a block; the client's part is not in it."""
    used_ns = 0
    for _ in range(BLOCK):
        wire.handled = wire.session.requests
        wire.client.setblocking(False)
        wire.client.send(frame)
        began_ns = time.thread_time_ns()
        wire.read_once()
        used_ns += time.thread_time_ns() - began_ns
        assert wire.session.requests == wire.handled + 1
        wire.response()
    return used_ns / BLOCK / 1000


def serve(orders: Connection, folder: Path, http: bool) -> None:
    """One broker: measures a block for each name of a request that it is sent, until it is sent None."""

    async def main() -> None:
        wire = await wire_of(folder, http=http)
        wanted = frames()
        gc.collect()
        gc.disable()
        while (name := orders.recv()) is not None:
            orders.send(block_us(wire, wanted[name]))
        wire.client.close()
        await wire.broker.stop()

    asyncio.run(main())


def pairs_of(folder: Path, blocks: int) -> dict[str, list[tuple[float, float]]]:
    """For each request: blocks of a new broker without --http, and of a new one with it, in turn."""
    context = get_context("spawn")
    brokers = []
    for name, http in (("without", False), ("with", True)):
        ours, theirs = context.Pipe()
        place = folder / name
        place.mkdir(parents=True)
        process = context.Process(target=serve, args=(theirs, place, http), daemon=True)
        process.start()
        brokers.append((ours, process))

    def block(which: int, name: str) -> float:
        pipe = brokers[which][0]
        pipe.send(name)
        return float(pipe.recv())

    pairs: dict[str, list[tuple[float, float]]] = {}
    for name in frames():
        for which in (0, 1) * WARM_UP:
            block(which, name)
        for number in range(blocks):
            if number % 2:
                pair = block(0, name), block(1, name)
            else:
                pair = block(1, name), block(0, name)
                pair = pair[1], pair[0]
            pairs.setdefault(name, []).append(pair)
    for pipe, process in brokers:
        pipe.send(None)
        process.join()
    return pairs


def measure(folder: Path, rounds: int, blocks: int) -> None:
    """Print the table. Where a process has its memory makes a difference of some percent, so there are many."""
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for number in range(rounds):
        for name, pairs in pairs_of(folder / str(number), blocks).items():
            found.setdefault(name, []).append(pairs)
    version = sys.version.split()[0]
    print(
        f"Python {version}; {rounds} processes of either kind, {blocks} blocks of {BLOCK} requests"
    )
    print(
        "| CPU of a request | without --http, us | with it, us | more | lowest and highest pair |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, processes in found.items():
        middles = [
            [statistics.median(each) for each in zip(*pairs, strict=True)] for pairs in processes
        ]
        without, with_ = (statistics.median(each) for each in zip(*middles, strict=True))
        ratios = sorted(statistics.median(b / a for a, b in pairs) - 1 for pairs in processes)
        more = statistics.median(ratios)
        print(
            f"| {name} | {without:.1f} | {with_:.1f} | {more:+.1%} |"
            f" {ratios[0]:+.1%} to {ratios[-1]:+.1%} |"
        )


def main() -> None:
    """Measure in a directory that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        measure(Path(folder), options.rounds, options.blocks)


if __name__ == "__main__":
    main()
