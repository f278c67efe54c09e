"""Writes whose answer was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from server.coordination.cluster import ClusterStore
from server.coordination.commit import commit
from server.coordination.embedded import EmbeddedStore
from server.coordination.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    Op,
    OpResult,
    SetData,
    Stat,
)
from tests.support.clock import ManualClock


class LossyStore(EmbeddedStore):
    """Loses the answers of transactions, before or after they are applied."""

    losses: list[str]
    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        loss = self.losses.pop(0) if self.losses else "none"
        if loss == "before":
            await self.interfere()
            raise ConnectionLost(message="the connection broke")
        results = await super().multi(ops)
        if loss == "after":
            await self.interfere()
            raise ConnectionLost(message="the connection broke")
        return results

    async def interfere(self) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()


def with_store(*losses: str) -> Callable[[Callable[[LossyStore], Awaitable[None]]], None]:
    def runner(body: Callable[[LossyStore], Awaitable[None]]) -> None:
        async def main() -> None:
            store = await LossyStore.open(None, ManualClock())
            lossy = LossyStore(store._shared)
            lossy.losses = []
            await lossy.multi([Create("/a", b"0"), Create("/gone"), Create("/q")])
            lossy.losses = list(losses)
            await body(lossy)

        asyncio.run(main())

    return runner


OPS: list[Op] = [
    Check("/a", 0),
    SetData("/a", b"1", 0),
    Create("/e", None, ephemeral=True),
    SetData("/e", b"mine", 0),
    Create("/b", b"2"),
    Delete("/gone"),
    Create("/q/n_", sequential=True),
]


@pytest.mark.parametrize(
    "losses", [(), ("before",), ("after",), ("before", "before", "after"), ("before", "none")]
)
def test_transaction_is_applied_once_wherever_the_connection_breaks(
    losses: tuple[str, ...],
) -> None:
    async def body(store: LossyStore) -> None:
        results = await commit(store, OPS)
        assert results[0] is None
        assert isinstance(results[1], Stat)
        assert results[1].version == 1
        assert isinstance(results[3], Stat)
        assert results[3] == await store.exists("/e")
        assert results[4] == "/b"
        assert results[5] is None
        assert (await store.get("/a"))[0] == b"1"
        assert len(await store.children("/q")) == 1

    with_store(*losses)(body)


def test_other_write_in_between_is_seen_as_such() -> None:
    async def body(store: LossyStore) -> None:
        async def other() -> None:
            store.losses.insert(0, "none")
            await store.set("/a", b"theirs")

        store.meanwhile = other
        with pytest.raises(BadVersion):
            await commit(store, [SetData("/a", b"mine", 0)])
        assert (await store.get("/a"))[0] == b"theirs"

    with_store("before")(body)


def test_equal_ephemeral_node_of_another_session_is_not_taken_for_ours() -> None:
    async def body(store: LossyStore) -> None:
        other = LossyStore(store._shared)
        other.losses = []

        async def create() -> None:
            await other.create("/e", b"x", ephemeral=True)

        store.meanwhile = create
        with pytest.raises(NodeExists):
            await commit(store, [Create("/e", b"x", ephemeral=True)])

    with_store("before")(body)


@pytest.mark.parametrize("loss", ["before", "after"])
def test_lost_answer_does_not_lose_the_election(loss: str) -> None:
    async def body(store: LossyStore) -> None:
        store.losses = []
        cluster = ClusterStore(store, ManualClock())
        await cluster.ensure_paths()
        assert await cluster.elect_controller(1) is not None
        await store.delete("/controller")
        store.losses = [loss]
        elected = await cluster.elect_controller(1)
        assert elected is not None
        assert (elected.epoch, elected.version) == (2, 2)
        assert (await store.get("/controller_epoch"))[0] == b"2"

    with_store()(body)


@pytest.mark.parametrize("loss", ["before", "after"])
def test_lost_answer_takes_one_block_of_producer_ids_only(loss: str) -> None:
    async def body(store: LossyStore) -> None:
        store.losses = []
        cluster = ClusterStore(store, ManualClock())
        await cluster.ensure_paths()
        store.losses = [loss]
        blocks = [await cluster.allocate_producer_ids(1) for _ in range(3)]
        assert [tuple(block) for block in blocks] == [(0, 999), (1000, 1999), (2000, 2999)]

    with_store()(body)
