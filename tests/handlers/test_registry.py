"""Declaring and finding handlers, and the table of all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kwire.api import ApiKey
from kwire.messages.heartbeat import HeartbeatRequest
from kwire.messages.produce import ProduceRequest
from kwire.schema import schema_of
from server.handlers.ceilings import CEILING_3_9, CEILINGS, WITHOUT_OTHERS, Ceiling
from server.handlers.context import Handler, RequestContext, parse_versions
from server.handlers.registry import HandlerTable, Late, handles
from server.handlers.table import HANDLERS, SERVED, WITHOUT_TELEMETRY


@handles(HeartbeatRequest, versions="0-4", authorize=None)
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> str:
    return "beat"


def test_declared_handler_carries_key_versions_and_function() -> None:
    assert (heartbeat.api_key, heartbeat.min_version, heartbeat.max_version) == (12, 0, 4)
    assert heartbeat.name == "Heartbeat"
    assert heartbeat.flexible_from == 4
    assert not heartbeat.overlap
    assert heartbeat(None, HeartbeatRequest()) == "beat"  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "pair"), [("0-11", (0, 11)), ("3", (3, 3)), ("2-2", (2, 2))])
def test_version_ranges_are_read(text: str, pair: tuple[int, int]) -> None:
    assert parse_versions(text) == pair


@pytest.mark.parametrize("text", ["3-1", "-1", "", "a-b", "1+"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_versions(text)


def test_served_range_begins_with_the_handler_and_ends_with_the_lower_end() -> None:
    @handles(ProduceRequest, versions="3-13", authorize=None)
    def produce(ctx: RequestContext, request: ProduceRequest) -> None: ...

    table = HandlerTable([produce, heartbeat], Ceiling("x", {0: (0, 11), 12: (2, 9)}))
    assert table.ranges == {0: (0, 3, 11), 12: (12, 0, 4)}
    assert table.find(0, 3) is produce
    assert table.find(0, 11) is produce
    assert table.find(12, 0) is heartbeat
    assert table.find(0, 2) is table.find(0, 12) is table.find(1, 0) is table.find(12, -1) is None


def test_api_outside_the_ceiling_is_not_served() -> None:
    assert len(HandlerTable([heartbeat], Ceiling("x", {0: (0, 11)}))) == 0


def test_api_whose_handler_begins_above_the_ceiling_is_not_served() -> None:
    @handles(ProduceRequest, versions="12-13", authorize=None)
    def produce(ctx: RequestContext, request: ProduceRequest) -> None: ...

    assert len(HandlerTable([produce], Ceiling("x", {0: (0, 11)}))) == 0


def test_two_handlers_for_one_api_are_refused() -> None:
    with pytest.raises(ValueError, match="Heartbeat"):
        HandlerTable([heartbeat, heartbeat], CEILING_3_9)


def test_every_handler_of_the_table_is_served_under_some_ceiling() -> None:
    served = {key for each in CEILINGS.values() for key in HandlerTable(HANDLERS, each).by_key}
    assert {handler.api_key for handler in HANDLERS} == served


def test_every_handler_serves_versions_that_can_be_decoded() -> None:
    for handler in HANDLERS:
        declared = schema_of(handler.request_class).versions
        assert handler.min_version in declared, handler
        assert handler.max_version in declared, handler


def test_table_is_ordered_by_key() -> None:
    keys = [handler.api_key for handler in HANDLERS]
    assert keys == sorted(keys)
    assert all(isinstance(handler, Handler) for handler in HANDLERS)


def test_handler_of_a_class_that_is_no_request_is_refused() -> None:
    from kwire.messages.api_versions import ApiVersion

    with pytest.raises(TypeError, match="ApiVersion"):
        handles(ApiVersion, versions="0", authorize=None)(lambda ctx, request: None)


def test_raised_versions_bring_apis_that_the_ceiling_does_not_have() -> None:
    """With ZooKeeper, as soon as all brokers are found to be kwire."""
    table = HandlerTable(HANDLERS, CEILING_3_9)
    assert table.find(ApiKey.SHARE_FETCH, 1) is None
    assert table.ranges[ApiKey.CONSUMER_GROUP_HEARTBEAT].max_version == 0
    table.raise_versions(WITHOUT_OTHERS)
    for key, (low, high) in WITHOUT_OTHERS.items():
        assert table.ranges[key] == (key, low, high)
        assert table.find(key, high) is not None
    table.raise_versions(WITHOUT_OTHERS)
    assert len(table) == len(table.ranges)


LATE = [each for each in SERVED if isinstance(each, Late)]


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.function)
def test_handlers_that_are_loaded_late_are_named_with_their_own_versions(late: Late) -> None:
    found = late.load()
    assert isinstance(found, Handler)
    assert late[:3] == (found.api_key, found.min_version, found.max_version)


def test_late_handler_is_served_like_any_other() -> None:
    late = next(each for each in LATE if each.function == "describe_acls")
    table = HandlerTable([heartbeat, late], CEILING_3_9)
    assert table.ranges == HandlerTable([heartbeat, late.load()], CEILING_3_9).ranges
    assert len(table) == 2
    assert list(table.by_key) == [12]
    assert table.find(29, 4) is None
    assert list(table.by_key) == [12]
    assert table.find(29, 3) is late.load()
    assert set(table) == {heartbeat, late.load()}


def test_late_handler_above_the_ceiling_is_served_once_its_versions_are_raised() -> None:
    late = next(each for each in LATE if each.function == "share_group_heartbeat")
    table = HandlerTable([heartbeat, late], CEILING_3_9)
    assert table.find(late.api_key, late.max_version) is None
    table.raise_versions({late.api_key: (late.min_version, late.max_version)})
    assert table.find(late.api_key, late.max_version) is late.load()


def test_a_broker_that_shows_nobody_what_clients_push_has_all_other_handlers() -> None:
    left_out = [each for each in SERVED if each not in WITHOUT_TELEMETRY]
    assert [each.api_key for each in left_out] == [71, 72]
    assert len(SERVED) == len(HANDLERS)


def test_broker_loads_nothing_that_nobody_has_asked_for(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from server.broker import Broker\n"
        "from server.config import BrokerConfig\n"
        "async def main():\n"
        "    broker = Broker(BrokerConfig({'log.dirs': sys.argv[1], 'listeners': 'PLAINTEXT://localhost:0'}))\n"
        "    await broker.start()\n"
        "    print(*sys.modules)\n"
        "    await broker.stop()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"server.handlers.produce", "server.composition.serving"} <= loaded
    assert not {f"server.handlers.{each.module}" for each in LATE} & loaded
    unwanted = {"server.share.manager", "server.share.partition", "uuid", "unicodedata", "lzma"}
    assert not unwanted & loaded
