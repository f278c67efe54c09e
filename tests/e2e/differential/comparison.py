"""Runs a scenario on two brokers and reports where their answers differ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from ...support.broker_process import REPOSITORY, BrokerProcess
from .peer import Answer, Peer
from .scenario import Scenario

FRAMES = REPOSITORY / "tests" / "golden" / "frames"


def play(
    request: pytest.FixtureRequest,
    brokers: tuple[BrokerProcess, BrokerProcess],
    entry: Scenario,
    version: int,
) -> list[Peer]:
    """Run a scenario on both brokers, one after the other; return their answers."""
    prefix = f"{entry.name.replace('/', '.').replace('_', '-')}.v{version}"
    tries = getattr(request.node, "execution_count", 1)
    if tries > 1:  # the brokers still have the objects of an earlier attempt
        prefix += f".try{tries}"
    peers = [Peer(broker, prefix) for broker in brokers]
    try:
        for peer in peers:
            entry.body(peer, version)
    finally:
        for peer in peers:
            peer.close()
    if os.environ.get("KWIRE_RECORD_FRAMES"):
        record(peers[0], entry)
    return peers


def compare(where: str, expected: list[Answer], found: list[Answer]) -> list[str]:
    """Return a line for each field that differs: where/label: path: expected | found."""
    assert [answer.label for answer in expected] == [answer.label for answer in found]
    lines = []
    for want, have in zip(expected, found, strict=True):
        for path, one, other in differing(want.content, have.content, ""):
            lines.append(f"{where}/{want.label}: {path}: {one!r:.300} | {other!r:.300}")
    return lines


def differing(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield path and both values of each leaf that differs."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differing(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differing(left, right, f"{path}[{number}]")
    elif one != other:
        yield path, one, other


def record(peer: Peer, entry: Scenario) -> None:
    """Keep the first exchange of each API and version as a golden frame (KWIRE_RECORD_FRAMES=1)."""
    FRAMES.mkdir(parents=True, exist_ok=True)
    own, case = entry.name.split("/")
    for label, api, version, exchange in peer.exchanges:
        stem = f"{api.name.lower()}_v{version}"
        if own == api.name.lower() and not any(FRAMES.glob(f"{stem}_*.hex")):
            lines = (f"# {case}: {label}", exchange.request.hex(), exchange.response.hex())
            (FRAMES / f"{stem}_{case}.hex").write_text("\n".join(lines) + "\n")
