"""Fetch requests and their results, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from server.handlers.fetch import fetch
from server.replication.fetch_session import TOPIC_IDS_SINCE
from tests.support.forms import form
from tests.support.replicas import Replicas, stored

LATEST = fetch.max_version
BY_NAME = TOPIC_IDS_SINCE - 1

Asked = tuple[str, int, int]


def fetch_request(*asked: Asked | tuple[str, int, int, int], **options: Any) -> FetchRequest:
    """A fetch of (topic, partition, offset[, most bytes]); by default it does not wait."""
    topics: dict[str, FetchTopic] = {}
    epochs = {name: options.pop(name) for name in EPOCHS if name in options}
    for name, number, offset, *most in asked:
        topic = topics.setdefault(name, FetchTopic(topic=name, partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition=number,
                fetch_offset=offset,
                partition_max_bytes=most[0] if most else 1 << 20,
                **epochs,
            )
        )
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    return FetchRequest(topics=list(topics.values()), **options)


EPOCHS = ("current_leader_epoch", "last_fetched_epoch")


def rows(response: FetchResponse) -> dict[tuple[str, int], Any]:
    """The partitions of an answer in order, with their records as bytes; ids as `topic_id` makes."""
    found = {}
    for topic in response.responses:
        for row in topic.partitions:
            row.records = stored(row.records)
            name = topic.topic or topic.topic_id.rstrip(b"\1").decode()
            found[name, row.partition_index] = row
    return found


def only(response: FetchResponse) -> Any:
    """The one partition of an answer."""
    (row,) = rows(response).values()
    return row


@pytest.fixture(params=["few", "plain", "native", "many"], autouse=True)
def partitions_at_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let each test answer its fetches immediately, in the plain form if possible, natively, and in steps of one
    partition.
    """
    if request.param in ("plain", "native"):
        monkeypatch.setattr(Replicas, "plain", True)
    if request.param == "many":
        monkeypatch.setattr("server.handlers.fetch.MANY_PARTITIONS", 0)
        monkeypatch.setattr("server.handlers.fetch.STEP", 1)
        monkeypatch.setattr("server.replication.read.STEP", 1)
        monkeypatch.setattr("server.replication.fetch_session.STEP", 1)
        monkeypatch.setattr(fetch, "function", whole_fetch_in_steps)
    with form("native" if request.param == "native" else "pure"):
        yield


def whole_fetch_in_steps(ctx: Any, request: Any, context: Any = None) -> Any:
    return fetch_function(ctx, request, context) if context else fetch.in_steps(ctx, request)


fetch_function: Any = fetch.function
