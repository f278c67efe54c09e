"""A data directory is moved between Apache Kafka 3.9.2 and kwire, after clean stops and kill -9."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...support.kafka_tools import ToolServer
from .content import (
    Content,
    create_old_topics,
    create_topics,
    forget_old_formats,
)
from .dumped import faults, written
from .moving import EMBEDDED, KAFKA, KWIRE, Home, complaints
from .stays import Stay

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def stay(tmp_path: Path) -> Iterator[Stay]:
    home = Home(tmp_path)
    stay = Stay(home, Content(seed=1))
    yield stay
    stay.close()
    home.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


STOPPED, KILLED = False, True

#: Which broker serves, and how each one ends.
SHORT = {
    "kafka-first": (
        (KAFKA, STOPPED),
        (KWIRE, STOPPED),
        (KAFKA, KILLED),
        (KWIRE, KILLED),
        (KAFKA, STOPPED),
    ),
    "embedded": ((KAFKA, STOPPED), (EMBEDDED, STOPPED), (KAFKA, STOPPED)),
}
LONG = {
    "kwire-first": ((KWIRE, STOPPED), (KAFKA, STOPPED), (KWIRE, STOPPED)),
    "kwire-first-killed": ((KWIRE, KILLED), (KAFKA, KILLED), (KWIRE, KILLED)),
    "kafka-first-stopped": ((KAFKA, STOPPED), (KWIRE, STOPPED)) * 3,
    "kafka-first-killed": ((KAFKA, KILLED), (KWIRE, KILLED)) * 3,
    "embedded-first-killed": ((EMBEDDED, KILLED), (KAFKA, KILLED), (EMBEDDED, KILLED)),
}
ROUTES = SHORT | (LONG if os.environ.get("KWIRE_LONG", "0") not in ("", "0") else {})


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_directory_is_whole_after_each_move(
    stay: Stay,
    tools: ToolServer,
    request: pytest.FixtureRequest,
    route: tuple[tuple[str, bool], ...],
) -> None:
    """Records, offsets, transactions, groups: equal each time, and Apache Kafka finds no fault."""
    home = stay.home
    if "kafka-first" in request.node.callspec.id:
        home.start(KAFKA, inter_broker_protocol_version="2.8")
        create_old_topics(home.address)
        stay.content.write_old(home.address)
        forget_old_formats(home.address)
        home.leave(killed=False)
        stay.old_formats = True
    for number, (kind, killed) in enumerate(route):
        before = written(home.data)
        home.carry(route[max(number - 1, 0)][0], kind)
        home.start(kind)
        if number == 0:
            create_topics(home.address)
        else:
            stay.arrive()
        if number + 1 == len(route):
            stay.close()
        else:
            stay.work()
        assert complaints(kind, stay.leave(killed=killed)) == []
        if kind != KAFKA:
            assert faults(tools, home.data, before) == []
