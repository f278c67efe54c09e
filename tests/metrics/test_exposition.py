"""The text of a scrape: escapes, and pieces that are small for any content."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.metadata.image import MetadataImage
from server.metadata.topic_partition import TopicPartition
from server.metrics.exposition import head, labels_text, text_of
from server.metrics.requests import RequestMetrics
from server.metrics.table import ROWS, own
from server.metrics.view import CounterSources, View, look_at_partitions
from server.replication.membership import ReplicaCounts
from server.replication.purgatory import Waiters
from tests.support.cpu_time import cpu_time

MANY = 10_000


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "\\n", 'a\\"b', "日本"])
def test_label_is_read_back_as_it_was(name: str) -> None:
    text = head("m", 'a "doc" with \\ and \n', False) + f"m{labels_text(('topic',), (name,))} 1\n"
    (family,) = text_string_to_metric_families(text)
    assert [sample.labels for sample in family.samples] == [{"topic": name}]


def test_labels_without_a_value_are_left_away() -> None:
    assert labels_text(("topic",), ()) == ""
    assert labels_text(("a", "b"), ("1",)) == '{a="1"}'


def partition(number: int) -> Any:
    log = SimpleNamespace(
        size_bytes=1,
        segments=[1],
        log_start_offset=0,
        log_end_offset=5,
        high_watermark=5,
        last_stable_offset=5,
    )
    return SimpleNamespace(
        tp=TopicPartition(f"topic-{number // 100}", number % 100),
        log=log,
        is_leader=True,
        isr=SimpleNamespace(isr=(1,)),
        state=SimpleNamespace(replicas=(1,), leader=1),
        min_insync_replicas=1,
        appends=2,
        bytes_in=10,
        messages_in=1,
        waiters=Waiters(),
    )


def view_of(count: int, limit: int) -> View:
    partitions = {TopicPartition("t", number): partition(number) for number in range(count)}
    replicas = SimpleNamespace(
        partitions=partitions, offline=set(), membership=SimpleNamespace(counts=ReplicaCounts())
    )
    requests = RequestMetrics(lambda: 1)
    sources = SimpleNamespace(replicas=replicas, requests=requests, node_id=1)
    return View(cast(CounterSources, sources), 3, MetadataImage(), 0, 0, limit)


def test_no_step_of_a_scrape_of_many_partitions_takes_long_or_much_memory() -> None:
    view = view_of(MANY, MANY)
    largest = lines = 0
    rows = [row for row in ROWS if row.each is not None]
    steps = [look_at_partitions(view), text_of(rows, view)]
    with cpu_time(time.thread_time) as taken:
        for generator in steps:
            before = time.thread_time()
            for piece in generator:
                taken.add(time.thread_time() - before)
                largest = max(largest, len(piece or ""))
                lines += (piece or "").count("\n")
                before = time.thread_time()
    assert lines >= len(rows) * MANY
    assert taken.longest_s < 0.02  # measured at some tenths of a millisecond
    assert largest < 32 * 1024


def test_values_of_partitions_are_whole_numbers() -> None:
    row = own("m", "doc", labels=("topic", "partition"), each=lambda p: p.is_leader)
    view = view_of(1, 1)
    view.partitions = list(view.sources.replicas.partitions.values())
    assert "".join(text_of([row], view)).splitlines()[-1] == 'm{topic="topic-0",partition="0"} 1'


def test_followers_are_left_out_where_leaders_tell() -> None:
    row = own("m", "doc", labels=("topic", "partition"), each=lambda _: 1)
    view = view_of(2, 2)
    view.partitions = list(view.sources.replicas.partitions.values())
    cast(Any, view.partitions[0]).is_leader = False
    assert "".join(text_of([row], view)).count("\nm{") == 1
