"""Transactions that end together: by a timeout that they have in common, or by requests sent without waiting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kwire.api import ApiKey

from .stages import create, topic
from .wire import Wire, body_of, frame

if TYPE_CHECKING:
    from .rows import Scene

#: The topic of their partitions.
MARKED = "marked"
MARKED_PARTITIONS = 512

#: Transactions that time out at one moment: their number, and the partitions of each.
TIMED, TIMED_PARTITIONS = 4_000, 64
#: Transactions that are ended by requests: their number, and the partitions of each.
ENDED, ENDED_PARTITIONS = 500, MARKED_PARTITIONS
#: How long after the first all time out; until then, all are open.
TIMEOUT_S = 40.0

LIMIT_S = 300.0
IN_FLIGHT = 50

Producers = list[tuple[str, int, int]]


def marked_topic(wire: Wire) -> None:
    """The topic that gets the markers."""
    create(wire, topic(MARKED, MARKED_PARTITIONS))


def opened(wire: Wire, number: int, partitions: int, timeout_s: float) -> Producers:
    """Open transactions that time out at one moment; returns their ids, producer ids and epochs."""
    end = time.monotonic() + timeout_s
    producers: Producers = []
    for begin in range(0, number, IN_FLIGHT):
        names = [f"together-{index:05}" for index in range(begin, min(begin + IN_FLIGHT, number))]
        timeout_ms = max(int(1000 * (end - time.monotonic())), 1)
        for name in names:
            body = body_of(
                ApiKey.INIT_PRODUCER_ID, 1, transactional_id=name, transaction_timeout_ms=timeout_ms
            )
            wire.send(ApiKey.INIT_PRODUCER_ID, 1, body)
        answers = [wire.receive(ApiKey.INIT_PRODUCER_ID, 1) for _ in names]
        some = [
            (name, answer["producer_id"], answer["producer_epoch"])
            for name, answer in zip(names, answers, strict=True)
        ]
        if any(answer["error_code"] for answer in answers):
            raise RuntimeError(f"no producer id: {answers!r:.500}")
        bodies = [
            body_of(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                2,
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[{"name": MARKED, "partitions": list(range(partitions))}],
            )
            for name, producer_id, epoch in some
        ]
        wire.pipeline([frame(ApiKey.ADD_PARTITIONS_TO_TXN, 2, body) for body in bodies], IN_FLIGHT)
        producers += some
    return producers


def until_ended(wire: Wire) -> None:
    """Wait until no transaction is open or being ended. Errors: TimeoutError."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        answer = wire.call(
            ApiKey.LIST_TRANSACTIONS,
            0,
            state_filters=["Ongoing", "PrepareAbort", "PrepareCommit"],
            producer_id_filters=[],
        )
        if not answer["error_code"] and not answer["transaction_states"]:
            return
        time.sleep(0.5)
    raise TimeoutError(f"transactions are open after {LIMIT_S:.0f} s")


def time_out_together(scene: Scene) -> str:
    """Open transactions that time out at one moment, and wait until they have ended."""
    wire = scene.wire()
    began = time.monotonic()
    opened(wire, TIMED, TIMED_PARTITIONS, TIMEOUT_S)
    opening_s = time.monotonic() - began
    until_ended(wire)
    wire.close()
    took_s = time.monotonic() - began
    return f"{TIMED} opened in {opening_s:.1f} s, ended {took_s - TIMEOUT_S:.1f} s after they timed out"


def end_together(scene: Scene) -> str:
    """Open transactions, and end all of them by requests that do not wait for each other."""
    wire = scene.wire()
    producers = opened(wire, ENDED, ENDED_PARTITIONS, 900.0)
    bodies = [
        body_of(
            ApiKey.END_TXN,
            1,
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        for name, producer_id, epoch in producers
    ]
    began = time.monotonic()
    wire.pipeline([frame(ApiKey.END_TXN, 1, body) for body in bodies], len(bodies))
    answered_s = time.monotonic() - began
    until_ended(wire)
    wire.close()
    return f"answered in {answered_s:.1f} s, ended after {time.monotonic() - began:.1f} s"
