"""The combinations of settings for producing; `python -m bench.suite.cells` writes cells.json.

The default cells are the initial settings of users. The others are chosen greedily so that every possible pair of
values of any two factors is in some cell; the choice is fixed in cells.json, so that figures of different days are for
the same cells.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("cells.json")
MAX_CELLS = 40

#: Sizes in bytes; java is kafka-producer-perf-test, rdkafka confluent-kafka, go franz-go.
FACTORS: dict[str, tuple[Any, ...]] = {
    "client": ("java", "rdkafka", "go"),
    "record": (100, 1000, 10_000),
    "batch": (16_384, 131_072, 1_048_576),
    "compression": ("none", "lz4", "zstd"),
    "acks": ("0", "1", "all"),
    "partitions": (1, 6, 100),
    "connections": (1, 10, 100),
    "idempotent": (False, True),
}

Pair = tuple[str, Any, str, Any]


@dataclass(frozen=True)
class Cell:
    """One combination. Unit: record and batch in bytes."""

    client: str = "java"
    record: int = 1000
    batch: int = 16_384
    compression: str = "none"
    acks: str = "all"
    partitions: int = 6
    connections: int = 1
    idempotent: bool = True
    kind: str = "covering"  # default: always measured; short: also in the short form

    @property
    def name(self) -> str:
        """The cell's unique name in results and tables."""
        return " ".join(
            (
                self.client,
                f"{self.record} B",
                f"{self.batch // 1024} KiB",
                self.compression,
                f"acks={self.acks}",
                f"{self.partitions}p",
                f"{self.connections}c",
                "idempotent" if self.idempotent else "plain",
            )
        )


DEFAULT_CELLS = (
    Cell(kind="default"),
    Cell(batch=131_072, kind="default"),
    Cell(batch=1_048_576, kind="default"),
    Cell(client="rdkafka", kind="default"),
    Cell(client="go", kind="default"),
)
#: How many of the covering cells are also in the short form.
SHORT_OTHERS = 4


def is_possible(values: dict[str, Any]) -> bool:
    """Whether a client supports the combination: idempotence needs acks=all, the perf-test tool has one connection."""
    if values.get("idempotent") and values.get("acks", "all") != "all":
        return False
    return values.get("client") != "java" or values.get("connections", 1) == 1


def pairs_of(values: dict[str, Any]) -> set[Pair]:
    """The pairs of values that one cell covers."""
    names = [name for name in FACTORS if name in values]
    return {(a, values[a], b, values[b]) for a, b in itertools.combinations(names, 2)}


def all_pairs() -> set[Pair]:
    """Every pair of values that occurs in a possible cell."""
    found: set[Pair] = set()
    for a, b in itertools.combinations(FACTORS, 2):
        for one, other in itertools.product(FACTORS[a], FACTORS[b]):
            if is_possible({a: one, b: other}):
                found.add((a, one, b, other))
    return found


def factors_of(cell: Cell) -> dict[str, Any]:
    """A cell's values by factor."""
    return {name: getattr(cell, name) for name in FACTORS}


def covering(given: Iterable[Cell], seed: int = 1, tries: int = 60) -> list[Cell]:
    """Return cells that, together with the given ones, cover every possible pair."""
    draw = random.Random(seed)
    missing = all_pairs()
    for cell in given:
        missing -= pairs_of(factors_of(cell))
    chosen: list[Cell] = []
    while missing:
        best = max(
            (_candidate(draw, min(missing, key=repr), missing) for _ in range(tries)),
            key=lambda values: len(pairs_of(values) & missing),
        )
        missing -= pairs_of(best)
        chosen.append(Cell(**best))
    return chosen


def _candidate(draw: random.Random, pair: Pair, missing: set[Pair]) -> dict[str, Any]:
    """A possible cell around one missing pair; its other values are chosen for their coverage."""
    values = {pair[0]: pair[1], pair[2]: pair[3]}
    others = [name for name in FACTORS if name not in values]
    draw.shuffle(others)
    for name in others:
        options = [one for one in FACTORS[name] if is_possible({**values, name: one})]
        draw.shuffle(options)
        values[name] = max(
            options, key=lambda one: len(pairs_of({**values, name: one}) & missing), default=None
        )
    return values


def load(path: Path = PATH) -> list[Cell]:
    """The fixed cells, the default ones first."""
    names = {field.name for field in fields(Cell)}
    rows = json.loads(path.read_text())
    unknown = {key for row in rows for key in row} - names
    if unknown:
        raise ValueError(f"{path}: unknown {sorted(unknown)}")
    return [Cell(**row) for row in rows]


def generate() -> list[Cell]:
    """The default cells, and cells for the missing pairs, the first of which are in the short form."""
    others = covering(DEFAULT_CELLS)
    short = [Cell(**{**asdict(cell), "kind": "short"}) for cell in others[:SHORT_OTHERS]]
    return [*DEFAULT_CELLS, *short, *others[SHORT_OTHERS:]]


def text_of(cells: Iterable[Cell]) -> str:
    """The text of cells.json: one cell per line."""
    return "[\n" + ",\n".join("  " + json.dumps(asdict(cell)) for cell in cells) + "\n]\n"


if __name__ == "__main__":
    PATH.write_text(text_of(generate()))
    print(f"{PATH.name}: {len(load())} cells")
