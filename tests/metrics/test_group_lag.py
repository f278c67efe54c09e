"""The lags of groups in metrics, where the coordinator leads a partition, follows it, or has no replica."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from server.metadata.topic_partition import TopicPartition
from server.metrics.table import group_lags, group_sums

ME = 1


def view(*rows: tuple[int, Any]) -> Any:
    """A group with offsets in partitions of one topic, each with the replica there."""
    committed, replicas = {}, {}
    for number, (offset, replica) in enumerate(rows):
        tp = TopicPartition("t", number)
        committed[tp] = SimpleNamespace(value=SimpleNamespace(offset=offset))
        if replica is not None:
            replicas[tp] = replica
    group = SimpleNamespace(group_id="g", offsets=SimpleNamespace(committed=committed))
    sources = SimpleNamespace(node_id=ME, replicas=SimpleNamespace(partitions=replicas))
    return cast(Any, SimpleNamespace(limit=100, sources=sources, groups=[group]))


def replica(
    high_watermark: int, end: int, *, leads: bool = True, isr: tuple[int, ...] = (ME,)
) -> Any:
    log = SimpleNamespace(high_watermark=high_watermark, log_end_offset=end)
    return SimpleNamespace(is_leader=leads, log=log, state=SimpleNamespace(isr=isr))


@pytest.mark.parametrize(
    ("offset", "there", "lag"),
    [
        (5, replica(8, 9), 3),
        (500, replica(1, 1), -499),
        (5, replica(8, 9, leads=False), 3),
        (9, replica(8, 9, leads=False), 0),  # it has not heard of the high watermark yet
        (500, replica(1, 1, leads=False), -499),
        (9, replica(8, 8, leads=False, isr=(2,)), None),
        (5, None, None),
    ],
)
def test_lag_is_negative_only_beyond_the_end(offset: int, there: Any, lag: int | None) -> None:
    expected = [] if lag is None else [(("g", "t", "0"), lag)]
    assert list(group_lags(view((offset, there)))) == expected


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        ([(5, replica(8, 8)), (500, replica(1, 1))], 3),
        ([(8, replica(8, 8)), (500, replica(1, 1))], -499),
        ([(5, replica(8, 8)), (4, replica(8, 8))], 7),
    ],
)
def test_offset_beyond_the_end_does_not_make_up_for_a_lag(rows: Any, total: int) -> None:
    assert list(group_sums(True)(view(*rows))) == [(("g", "t"), total)]
