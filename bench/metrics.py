"""The cost of metrics for a request: CPU time of Produce and Fetch on a broker with --http and on one without.

Each broker runs in its own process. The brokers take turns, one block of requests at a time, so that other load on the machine
affects both alike. `python -m bench.metrics`; docs/results/metrics.md shows the figures.
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
#: Blocks that do not count: at first, more requests are timed (`server/metrics/requests.py`).
WARM_UP = 60


def frames() -> dict[str, bytes]:
    """The measured requests: one batch each."""
    return {
        "Produce": produce_frame(batch_of(BATCH_BYTES), 1),
        "Fetch": fetch_frame(BATCH_BYTES + 1000),
    }


async def wire_of(folder: Path, *, http: bool) -> Wire:
    """A broker and a connection to it that handles one request at a time."""
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


def block_us(wire: Wire, frame: bytes) -> list[float]:
    """CPU microseconds of each request of a block, without the client's part."""
    used_us = []
    for _ in range(BLOCK):
        wire.handled = wire.session.requests
        wire.client.setblocking(False)
        wire.client.send(frame)
        began_ns = time.thread_time_ns()
        wire.read_once()
        used_us.append((time.thread_time_ns() - began_ns) / 1000)
        assert wire.session.requests == wire.handled + 1
        wire.response()
    return used_us


def serve(orders: Connection, folder: Path, http: bool) -> None:
    """One broker: measures a block for each request name that it receives, until it receives None."""

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


def middle(times: list[float]) -> float:
    """The mean of the quicker nine tenths: the others were interrupted, or, one in 128, timed."""
    times = sorted(times)
    return statistics.fmean(times[: len(times) * 9 // 10])


def pair_of(folder: Path, blocks: int) -> dict[str, tuple[float, float]]:
    """For each request: its cost on a new broker without --http, and on a new one with it, in turn."""
    context = get_context("spawn")
    brokers = []
    for name, http in (("without", False), ("with", True)):
        ours, theirs = context.Pipe()
        place = folder / name
        place.mkdir(parents=True)
        process = context.Process(target=serve, args=(theirs, place, http), daemon=True)
        process.start()
        brokers.append((ours, process))

    def block(which: int, name: str) -> list[float]:
        pipe = brokers[which][0]
        pipe.send(name)
        return list(pipe.recv())

    found: dict[str, tuple[float, float]] = {}
    for name in frames():
        for which in (0, 1) * WARM_UP:
            block(which, name)
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(blocks):
            for which in (0, 1) if number % 2 else (1, 0):
                times[which].extend(block(which, name))
        found[name] = middle(times[0]), middle(times[1])
    for pipe, process in brokers:
        pipe.send(None)
        process.join()
    return found


def measure(folder: Path, rounds: int, blocks: int) -> None:
    """Print the table. A process's memory layout makes a difference of some percent, so there are many processes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        for name, pair in pair_of(folder / str(number), blocks).items():
            found.setdefault(name, []).append(pair)
    version = sys.version.split()[0]
    print(f"Python {version}; {rounds} processes of either kind, {blocks * BLOCK} requests each")
    print(
        "| CPU of a request | without --http, us | with it, us | more | lowest and highest pair |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, pairs in found.items():
        without, with_ = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratios = sorted(b / a - 1 for a, b in pairs)
        print(
            f"| {name} | {without:.1f} | {with_:.1f} | {statistics.median(ratios):+.1%} |"
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
