"""Groups, transactions, connections, segments, the coordination tree and the log, by HTTP."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from kwire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from server.console import facts
from server.console.inside import SECRET_NODES, is_secret, natural, node_text
from server.console.log_lines import LINES, LogLines
from server.explain.facts import GroupPartition, total_lag
from tests.console.browsing import Browser, console, create_topic, local, produce
from tests.support.requests import commit_request

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


async def commit(browser: Browser, group: str, topic: str, partition: int, offset: int) -> None:
    """Commit an offset as a consumer without a group's membership does; wait for the coordinator."""
    for _ in range(200):
        response = await local(browser).ask(
            commit_request((topic, partition, offset), group_id=group), 8
        )
        error = response.topics[0].partitions[0].error_code
        if not error:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(error)


async def coordinators(browser: Browser, *keys: tuple[str, int]) -> None:
    """Have the topics of the coordinators created."""
    from kwire.messages.find_coordinator import FindCoordinatorRequest

    for key, kind in keys:
        await local(browser).ask(FindCoordinatorRequest(key=key, key_type=kind), 3)


def test_group_page_shows_the_lag_of_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT_MS", 0)
    name = "a group/with <odd> name"

    async def main() -> None:
        async with console(tmp_path) as browser:
            assert "No groups yet" in (await browser.get("/console/groups")).text
            await create_topic(browser, "orders", 2)
            await produce(browser, "orders", 0, [(b"k", b"v")] * 7)
            await coordinators(browser, (name, 0))
            await commit(browser, name, "orders", 0, 506)
            page = await browser.get(f"/console/group?id={quote(name)}")
            assert '<span class="lag">-499</span> <span class="muted">beyond the end' in page.text
            assert '<span class="lag">-499</span>' in (await browser.get("/console/groups")).text
            assert "-499" in (await browser.get("/console/topics")).text
            await commit(browser, name, "orders", 0, 3)
            page = await browser.get("/console/groups?q=orders")
            assert "a group/with &lt;odd&gt; name" in page.text
            page = await browser.get(f"/console/group?id={quote(name)}")
            assert page.status == 200
            assert '<span class="lag">4</span>' in page.text
            assert "The group has no members" in page.text
            page = await browser.get("/console/topics")
            assert "a group/with &lt;odd&gt; name" in page.text
            assert (await browser.get("/console/group?id=missing")).status == 404

    asyncio.run(main())


def test_groups_of_the_newer_types_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "KEPT_MS", 0)

    async def join(browser: Browser, request: Any) -> None:
        for _ in range(200):
            response = await local(browser).ask(request)
            if not response.error_code:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(response)

    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "orders", 2)
            await coordinators(browser, ("newer", 0))
            names = {"subscribed_topic_names": ["orders"], "member_id": str(uuid4())}
            await join(
                browser,
                ConsumerGroupHeartbeatRequest(
                    group_id="newer", rebalance_timeout_ms=60_000, topic_partitions=[], **names
                ),
            )
            await join(browser, ShareGroupHeartbeatRequest(group_id="queue", **names))
            page = await browser.get("/console/groups")
            assert "consumer protocol</span>" in page.text and "share</span>" in page.text
            for group, kind in (("newer", "consumer"), ("queue", "share")):
                page = await browser.get(f"/console/group?id={group}")
                assert page.status == 200
                tile = page.text.partition("<dt>Type</dt>")[2][:200]
                assert kind in tile
                assert "/console/topics/orders" in page.text

    asyncio.run(main())


def test_transactional_ids_are_listed_with_their_state(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            assert "No transactional ids yet" in (await browser.get("/console/transactions")).text
            await coordinators(browser, ("billing", 1))
            for _ in range(200):
                response = await local(browser).ask(
                    InitProducerIdRequest(transactional_id="billing", transaction_timeout_ms=60_000)
                )
                if not response.error_code:
                    break
                await asyncio.sleep(0.02)
            page = await browser.get("/console/transactions")
            assert "billing" in page.text and "Empty" in page.text

    asyncio.run(main())


def test_segments_connections_tree_and_log_are_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            await create_topic(browser, "orders", 1)
            for number in range(3):
                await produce(browser, "orders", 0, [(b"k", b"v")] * (number + 1))
            page = await browser.get("/console/topics/orders/segments?segment=0")
            assert "00000000000000000000.log" in page.text
            assert "3 to 5" in page.text and page.text.count("<td>none</td>") == 3
            assert (await browser.get("/console/topics/orders/segments?segment=9")).status == 404
            page = await browser.get("/console/topics/orders/producers")
            assert "No producer is remembered" in page.text
            assert (await browser.get("/console/topics/orders/producers?partition=9")).status == 404
            opened = browser.broker.opened
            assert opened is not None
            _, writer = await asyncio.open_connection("127.0.0.1", opened.endpoints[0].port)
            page = await browser.get("/console/connections")
            assert "User:ANONYMOUS" in page.text
            writer.close()
            await writer.wait_closed()
            page = await browser.get("/console/tree?path=/brokers/topics")
            assert "path=/brokers/topics/orders" in page.text
            assert (await browser.get("/console/tree?path=/nothing")).status == 404
            assert (await browser.get("/console/tree?path=../x")).status == 404
            logging.getLogger("server.test").warning("seen by the <console>")
            page = await browser.get("/console/log?level=WARNING&q=seen")
            assert "seen by the &lt;console&gt;" in page.text

    asyncio.run(main())


def test_what_is_the_brokers_own_needs_a_permission(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path, authorizer__class__name=AUTHORIZER) as browser:
            for path in ("connections", "tree", "log"):
                page = await browser.get(f"/console/{path}")
                assert page.status == 403 and "may not DESCRIBE the cluster" in page.text

    asyncio.run(main())


def test_nodes_with_credentials_are_hidden() -> None:
    assert all(is_secret(path) and is_secret(f"{path}/x") for path in SECRET_NODES)
    assert not is_secret("/config/usersx") and not is_secret("/brokers/ids/1")


def test_nodes_are_shown_as_what_they_are() -> None:
    assert node_text(b'{"a":1}') == '{\n  "a": 1\n}'
    assert node_text(b"\xffplain") == "\\xffplain"
    assert sorted(["b", "10", "9"], key=natural) == ["9", "10", "b"]


def test_lag_is_not_known_without_both_offsets() -> None:
    assert GroupPartition("t", 0, 5, end=9).lag == 4
    assert GroupPartition("t", 0, 9, end=5).lag == -4
    assert facts.Lag("g", "t", 0, 500, "", end=1).lag == -499
    assert GroupPartition("t", 0, end=9).lag is None
    assert GroupPartition("t", 0, 5, end=9, unacknowledged=1).lag == 1


@pytest.mark.parametrize(
    ("lags", "total"),
    [
        ([4, None, 3], 7),
        ([-499], -499),
        ([-499, 0, -1], -500),
        ([-499, 500], 500),  # the one is not made up for by the other
        ([0, 0], 0),
        ([None], None),
        ([], None),
    ],
)
def test_offset_beyond_the_end_does_not_make_up_for_a_lag(
    lags: list[int | None], total: int | None
) -> None:
    assert total_lag(lags) == total
    rows = [
        facts.Lag("g", "t", n, 1000, "", None if lag is None else 1000 + lag)
        for n, lag in enumerate(lags)
    ]
    assert facts.total_lag(rows) == total


def test_last_lines_of_the_log_are_kept() -> None:
    lines = LogLines()
    for number in range(LINES + 5):
        lines.emit(logging.LogRecord("server.x", logging.INFO, "", 0, "line %d", (number,), None))
    assert len(lines.lines) == LINES
    assert lines.lines[-1].text == f"line {LINES + 4}" and lines.lines[-1].logger == "x"


def test_record_and_group_are_explained(tmp_path: Path) -> None:
    async def main() -> None:
        async with console(tmp_path) as browser:
            assert "Ask about a record" in (await browser.get("/console/explain")).text
            await create_topic(browser, "orders", 1)
            await produce(browser, "orders", 0, [(b"k", b"v")] * 3)
            await coordinators(browser, ("readers", 0))
            await commit(browser, "readers", "orders", 0, 1)
            path = "/console/explain?topic=orders&partition=0&offset="
            assert "never_written" in (await browser.get(f"{path}99")).text
            page = await browser.get(f"{path}1")
            assert page.status == 200 and "<strong>" in page.text
            page = await browser.get("/console/explain?group=readers")
            assert page.status == 200 and "readers" in page.text
            page = await browser.get("/console/explain?transactional_id=nobody")
            assert page.status == 200 and "nobody" in page.text

    asyncio.run(main())
