"""Export and import between stores, on both of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.coordination import paths
from server.coordination.cluster import ClusterStore
from server.coordination.store import Create, Store
from server.coordination.transfer import BadDocument, export_tree, import_tree
from tests.support.clock import ManualClock

from .conftest import StoreMaker, stores
from .test_contract import Run


async def dump(store: Store) -> list[dict[str, Any]]:
    lines: list[str] = []
    count = await export_tree(store, lines.append)
    assert count == len(lines) - 1
    return [json.loads(line) for line in lines]


async def fill(store: Store) -> None:
    cluster = ClusterStore(store, ManualClock())
    await cluster.ensure_paths()
    await cluster.cluster_id("the-cluster-id")
    assert await cluster.next_broker_id() == 1001
    assert await cluster.next_broker_id() == 1002
    await cluster.alter_config("topics", "tøpic", lambda _: {"a": "ü"})
    await store.multi([Create("/brokers/topics/t", b"{}"), Create("/brokers/topics/t/partitions")])
    await store.create("/binary", b"\xff\x00")
    await store.create("/empty", b"")
    await store.create("/controller", b"{}", ephemeral=True)


def test_export_of_an_import_is_the_export(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await fill(store)
        document = await dump(store)
        assert document[0] == {"format": "kwire-coordination", "version": 1}
        by_path = {node["path"]: node for node in document[1:]}
        assert by_path["/binary"]["base64"] == "/wA="
        assert by_path["/empty"]["data"] == ""
        assert by_path["/brokers/topics/t/partitions"]["data"] is None
        assert json.loads(by_path["/config/topics/tøpic"]["data"])["config"] == {"a": "ü"}
        assert "/controller" not in by_path
        assert not [path for path in by_path if path.startswith(paths.CONFIG_CHANGES + "/")]
        lines = [json.dumps(node) for node in document]
        async with stores("embedded", None) as other_maker:
            other = await other_maker.session()
            assert await import_tree(other, lines) == len(lines) - 1
            again = {node["path"]: node for node in (await dump(other))[1:]}
            assert again == by_path
            # A generated broker id is not assigned twice.
            assert await ClusterStore(other, ManualClock()).next_broker_id() == 1003

    run(body)


def test_import_into_the_other_store_and_again_changes_nothing(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        async with stores("embedded", None) as source_maker:
            source = await source_maker.session()
            await fill(source)
            document = await dump(source)
        lines = [json.dumps(node) + "\n" for node in document]
        store = await maker.session()
        await import_tree(store, lines)
        assert [n for n in await dump(store) if "path" in n] == document[1:]
        with pytest.raises(BadDocument, match="already has 1 topics; use --replace"):
            await import_tree(store, lines)
        await import_tree(store, [*lines, "\n"], replace=True)
        data = {n["path"]: n.get("data", n.get("base64")) for n in (await dump(store))[1:]}
        assert data == {n["path"]: n.get("data", n.get("base64")) for n in document[1:]}

    run(body)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["nonsense"],
        ["[1]"],
        ['{"format":"other","version":1}'],
        ['{"format":"kwire-coordination","version":2}'],
        ['{"format":"kwire-coordination","version":1}', '{"path":"/a"}'],
        ['{"format":"kwire-coordination","version":1}', '{"path":"/a","data":5}'],
        ['{"format":"kwire-coordination","version":1}', '{"path":"/a/b","data":null}'],
        ['{"format":"kwire-coordination","version":1}', '{"path":"a","data":null}'],
        ['{"format":"kwire-coordination","version":1}', '{"path":"/a","base64":"*"}'],
    ],
)
def test_document_that_is_no_export_is_refused(run: Run, lines: list[str]) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        with pytest.raises(BadDocument):
            await import_tree(store, lines)

    run(body)


def test_import_that_replaces_leaves_no_other_topic_and_what_is_not_of_the_cluster(
    run: Run,
) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await fill(store)
        lines = [json.dumps(node) for node in await dump(store)]
        await store.multi(
            [Create("/brokers/topics/other", b"{}"), Create("/brokers/topics/other/partitions")]
        )
        await ClusterStore(store, ManualClock()).alter_config(
            "topics", "other", lambda _: {"a": "b"}
        )
        await store.set("/brokers/topics/t", b"changed")
        await store.create("/of-another-program", b"")
        await store.create("/of-another-program/below", b"")
        await import_tree(store, lines, replace=True)
        before = {node["path"]: node.get("data") for node in map(json.loads, lines[1:])}
        after = {node["path"]: node.get("data") for node in (await dump(store))[1:]}
        assert after.pop("/of-another-program") == after.pop("/of-another-program/below") == ""
        assert after == before

    run(body)


def test_export_of_another_cluster_than_the_directorys_is_refused(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        async with stores("embedded", None) as source_maker:
            source = await source_maker.session()
            await fill(source)
            lines = [json.dumps(node) for node in await dump(source)]
        store = await maker.session()
        with pytest.raises(
            BadDocument, match=r"directory belongs to cluster else, .* the-cluster-id"
        ):
            await import_tree(store, lines, cluster_id="else")

    run(body)


def test_import_beside_live_brokers_or_another_cluster_is_refused(run: Run) -> None:
    async def body(maker: StoreMaker) -> None:
        store = await maker.session()
        await fill(store)
        lines = [json.dumps(node) for node in await dump(store)]
        cluster_line = next(i for i, line in enumerate(lines) if "/cluster/id" in line)
        other = list(lines)
        other[cluster_line] = lines[cluster_line].replace("the-cluster-id", "another-id")
        with pytest.raises(BadDocument, match="another-id"):
            await import_tree(store, other, replace=True)
        await store.create("/brokers/ids/1", b"{}", ephemeral=True)
        with pytest.raises(BadDocument, match="registered"):
            await import_tree(store, lines, replace=True)

    run(body)
