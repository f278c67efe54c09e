"""Offsets of partitions, and Spark's text form of a kafka source's offsets."""

from __future__ import annotations

import json

#: (topic, partition) -> offset.
Offsets = dict[tuple[str, int], int]


def kafka_offsets(text: str | None) -> Offsets:
    """Offsets of topics, `{"topic": {"0": 5}}`, of the sources `kafka` and `kwire-log`; empty for None and for any other text."""
    tree = json.loads(text) if text else None
    if not isinstance(tree, dict) or not all(isinstance(each, dict) for each in tree.values()):
        return {}
    return {
        (topic, int(number)): offset
        for topic, partitions in tree.items()
        for number, offset in partitions.items()
    }


def tree_of(offsets: Offsets) -> dict[str, dict[str, int]]:
    """What Spark writes as JSON, sorted."""
    tree: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        tree.setdefault(topic, {})[str(number)] = offset
    return tree
