"""The contract of both stores; behaviour that is not tested here must not be relied upon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from server.coordination.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionExpired,
    SetData,
    Stat,
    Store,
    StoreClosed,
    StoreError,
    WatchEvent,
)

from .conftest import StoreMaker

Run = Callable[[Callable[[StoreMaker], Any]], None]


class Seen:
    """Collects the events of a watch."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self._more = asyncio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._more.set()

    async def wait(self, count: int) -> list[WatchEvent]:
        """All events, once there are `count`."""
        while len(self.events) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)
        return self.events


def test_created_node_gives_back_data_and_stat(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        assert await store.create("/a", b"one") == "/a"
        data, stat = await store.get("/a")
        assert data == b"one"
        assert (
            stat.version,
            stat.cversion,
            stat.ephemeral_owner,
            stat.num_children,
        ) == (0, 0, 0, 0)
        assert stat.czxid == stat.mzxid == stat.pzxid > 0
        assert stat == await store.exists("/a")

    run(body)


def test_null_and_empty_data_stay_apart(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/null")
        await store.create("/empty", b"")
        await store.multi([Create("/multi_null"), Create("/multi_empty", b"")])
        found = await store.get_many(["/null", "/empty", "/multi_null", "/multi_empty"])
        assert [entry and entry[0] for entry in found] == [None, b"", None, b""]
        await store.set("/empty", None)
        assert (await store.get("/empty"))[0] is None

    run(body)


def test_create_twice_is_refused(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a")
        with pytest.raises(NodeExists) as caught:
            await store.create("/a", b"x")
        assert caught.value.path == "/a"

    run(body)


def test_create_without_parent_is_refused(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        with pytest.raises(NoNode):
            await store.create("/a/b")

    run(body)


@pytest.mark.parametrize("path", ["a", "/a/", "//a", ""])
def test_path_that_is_none_is_refused(run: Run, path: str) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        with pytest.raises(ValueError, match="not a node path"):
            await store.create(path)

    run(body)


def test_set_counts_versions_and_transactions(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a", b"0")
        first = await store.set("/a", b"1")
        second = await store.set("/a", b"2", first.version)
        assert (first.version, second.version) == (1, 2)
        assert first.czxid == second.czxid
        assert first.czxid < first.mzxid < second.mzxid
        assert (b"2", second) == await store.get("/a")

    run(body)


def test_set_with_another_version_is_refused_and_changes_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a", b"0")
        before = await store.get("/a")
        with pytest.raises(BadVersion):
            await store.set("/a", b"1", 7)
        with pytest.raises(NoNode):
            await store.set("/b", b"1")
        assert before == await store.get("/a")

    run(body)


def test_delete_heeds_version_children_and_absence(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.delete("/a/b", 3)
        await store.delete("/a/b", 0)
        await store.delete("/a")
        assert await store.exists("/a") is None
        with pytest.raises(NoNode):
            await store.delete("/a")
        with pytest.raises(NoNode):
            await store.get("/a")
        with pytest.raises(NoNode):
            await store.children("/a")

    run(body)


def test_children_are_listed_and_counted(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/p")
        made = await store.exists("/p")
        for name in ("x", "y", "z"):
            await store.create(f"/p/{name}")
        await store.delete("/p/y")
        assert {"x", "z"} == set(await store.children("/p"))
        stat = await store.exists("/p")
        assert made is not None
        assert stat is not None
        assert (stat.num_children, stat.cversion, stat.version) == (2, 4, 0)
        assert stat.pzxid > made.pzxid
        assert "p" in await store.children("/")

    run(body)


def test_many_nodes_are_read_at_once(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.multi([Create("/p"), *(Create(f"/p/{n}", b"%d" % n) for n in range(1100))])
        found = await store.get_many([f"/p/{n}" for n in range(1101)])
        assert [b"%d" % n for n in range(1100)] == [entry[0] for entry in found if entry]
        assert found[-1] is None

    run(body)


def test_sequential_numbers_never_come_back(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/q")
        assert await store.create("/q/n_", sequential=True) == "/q/n_0000000000"
        assert await store.create("/q/n_", sequential=True) == "/q/n_0000000001"
        await store.delete("/q/n_0000000000")
        await store.delete("/q/n_0000000001")
        assert await store.create("/q/n_", sequential=True) == "/q/n_0000000002"
        await store.create("/q/plain")
        made = await store.create("/q/m_", b"x", ephemeral=True, sequential=True)
        assert made == "/q/m_0000000004"

    run(body)


def test_multi_applies_all_and_reports_each(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a", b"0")
        await store.create("/gone")
        results = await store.multi(
            [
                Check("/a", 0),
                Create("/b", b"1"),
                Create("/b/c"),
                SetData("/b", b"2", 0),
                SetData("/a", b"3", 0),
                Delete("/gone", 0),
                Create("/b/n_", sequential=True),
            ]
        )
        assert results[6] == "/b/n_0000000001"
        assert results[:3] == [None, "/b", "/b/c"]
        assert isinstance(results[3], Stat)
        assert results[3].version == 1
        # One transaction, one number.
        assert results[3].mzxid == results[3].czxid
        assert results[5] is None
        assert (b"3", results[4]) == await store.get("/a")
        assert (await store.get("/b"))[0] == b"2"

    run(body)


def test_multi_that_fails_changes_nothing_and_names_the_op(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a", b"0")
        await store.create("/d")
        before = await store.get("/a")
        cases: list[tuple[list[Op], type[StoreError], int]] = [
            ([SetData("/a", b"1", 0), Check("/a", 5)], BadVersion, 1),
            ([Check("/a", 1), Create("/x")], BadVersion, 0),
            ([Create("/x"), Delete("/d"), Create("/a")], NodeExists, 2),
            ([Create("/x"), Create("/y/z")], NoNode, 1),
            ([Create("/d/e"), SetData("/a", b"2"), Delete("/d")], NotEmpty, 2),
        ]
        for ops, error, index in cases:
            with pytest.raises(error) as caught:
                await store.multi(ops)
            assert index == caught.value.index
            assert ops[index].path == caught.value.path
        assert before == await store.get("/a")
        assert {"a", "d"} <= set(await store.children("/"))
        assert await store.exists("/x") is None
        assert await store.children("/d") == []

    run(body)


def test_empty_multi_does_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        assert await store.multi([]) == []

    run(body)


def test_another_session_sees_what_was_written(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await maker.session(), await maker.session()
        assert one.session_id != two.session_id
        await one.create("/a", b"1")
        assert (await two.get("/a"))[0] == b"1"
        with pytest.raises(BadVersion):
            await two.set("/a", b"2", 4)
        await two.set("/a", b"2", 0)
        assert (await one.get("/a"))[0] == b"2"

    run(body)


def test_ephemeral_node_goes_with_its_session(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await maker.session(), await maker.session()
        await one.create("/mine", b"x", ephemeral=True)
        await one.multi([Create("/too", ephemeral=True), SetData("/too", b"y")])
        await two.create("/other", ephemeral=True)
        stat = await two.exists("/mine")
        assert stat is not None
        assert one.session_id == stat.ephemeral_owner
        with pytest.raises(NoChildrenForEphemerals):
            await one.create("/mine/child")
        seen = Seen()
        await two.exists("/mine", seen)
        await one.close()
        assert [WatchEvent(EventKind.DELETED, "/mine")] == await seen.wait(1)
        assert await two.exists("/too") is None
        assert await two.exists("/other") is not None

    run(body)


def test_data_watch_fires_once_for_set_and_delete(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await maker.session(), await maker.session()
        await one.create("/a", b"0")
        seen, deleted = Seen(), Seen()
        await two.get("/a", seen)
        await one.set("/a", b"1")
        assert [WatchEvent(EventKind.CHANGED, "/a")] == await seen.wait(1)
        await two.get("/a", deleted)
        await one.create("/a/child")
        await one.delete("/a/child")
        await one.delete("/a")
        assert [WatchEvent(EventKind.DELETED, "/a")] == await deleted.wait(1)
        assert len(seen.events) == 1

    run(body)


def test_existence_watch_fires_for_a_node_that_comes(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await maker.session(), await maker.session()
        seen = Seen()
        assert await two.exists("/a", seen) is None
        await one.create("/a")
        assert [WatchEvent(EventKind.CREATED, "/a")] == await seen.wait(1)

    run(body)


def test_child_watch_fires_for_children_and_the_end_of_the_parent(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        one, two = await maker.session(), await maker.session()
        await one.create("/p")
        seen = Seen()
        await two.children("/p", seen)
        await one.set("/p", b"no child of it")
        await one.create("/p/a")
        assert [WatchEvent(EventKind.CHILDREN, "/p")] == await seen.wait(1)
        await two.children("/p", seen)
        await one.delete("/p/a")
        assert WatchEvent(EventKind.CHILDREN, "/p") == (await seen.wait(2))[1]
        await two.children("/p", seen)
        await one.delete("/p")
        assert WatchEvent(EventKind.DELETED, "/p") == (await seen.wait(3))[2]

    run(body)


def test_same_watch_left_twice_fires_once(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/p")
        seen, other = Seen(), Seen()
        await store.children("/p", seen)
        await store.children("/p", seen)
        await store.children("/p", other)
        await store.create("/p/a")
        await seen.wait(1)
        await other.wait(1)
        await store.children("/p")
        assert len(seen.events) == 1

    run(body)


def test_many_watch_leaves_a_watch_on_each_node_there_is(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a")
        await store.create("/b")
        seen = Seen()
        await store.get_many(["/a", "/none", "/b"], seen)
        await store.create("/none")
        await store.set("/b", b"1")
        await store.set("/a", b"1")
        assert [event.path for event in await seen.wait(2)] == ["/b", "/a"]

    run(body)


def test_failed_multi_fires_no_watch(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a")
        seen = Seen()
        await store.get("/a", seen)
        with pytest.raises(NoNode):
            await store.multi([SetData("/a", b"1"), Delete("/none")])
        await store.set("/a", b"2")
        assert len(await seen.wait(1)) == 1
        assert (await store.get("/a"))[0] == b"2"

    run(body)


def test_expired_session_loses_its_nodes_and_fires_its_watches(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store, other = await maker.session(), await maker.session()
        await store.create("/mine", ephemeral=True)
        await store.create("/kept")
        old = store.session_id
        seen, gone = Seen(), Seen()
        await store.children("/kept", seen)
        await other.exists("/mine", gone)
        await maker.expire(store)
        assert [WatchEvent(EventKind.SESSION, "/kept")] == await seen.wait(1)
        assert [WatchEvent(EventKind.DELETED, "/mine")] == await gone.wait(1)
        assert old != store.session_id
        assert await store.exists("/mine") is None

    run(body)


def test_expired_session_cannot_write_until_adopted(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a", b"0")
        await maker.expire(store)
        for attempt in (
            store.create("/b"),
            store.set("/a", b"1"),
            store.delete("/a"),
            store.multi([Create("/b")]),
        ):
            with pytest.raises(SessionExpired):
                await attempt
        assert (await store.get("/a"))[0] == b"0"
        store.adopt_session()
        await store.create("/b", ephemeral=True)
        stat = await store.exists("/b")
        assert stat is not None
        assert store.session_id == stat.ephemeral_owner

    run(body)


def test_closed_session_refuses_everything(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await store.create("/a")
        await store.close()
        await store.close()
        for attempt in (
            store.get("/a"),
            store.children("/"),
            store.create("/b"),
            store.connected(),
        ):
            with pytest.raises(StoreClosed):
                await attempt

    run(body)


def test_writes_at_once_all_count(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store: Store = await maker.session()
        await store.create("/q")
        made = await asyncio.gather(
            *(store.create("/q/n_", sequential=True) for _ in range(200)),
        )
        assert 200 == len(set(made)) == len(await store.children("/q"))

    run(body)
