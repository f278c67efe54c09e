"""Copies a cluster's metadata from one store to another.

The document is a stream of JSON lines: first `{"format":"kwire-coordination","version":1}`, then one line for each
node, parents first: `path`, `data` (text or null; `base64` instead if it is not UTF-8) and `version`. Omitted are
ephemeral nodes, queues of notifications (their numbers start again in another store, where readers would take them for
old ones), and ZooKeeper's own `/zookeeper`. A node's version also starts again, unless it must not decrease
(`KEPT_VERSIONS`). Access control lists of the nodes are not copied; the copy is open to everyone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from ..json_text import parse_json
from . import paths
from .commit import commit
from .store import NoNode, SetData, Store, StoreError, parent_of

FORMAT = "kwire-coordination"
VERSION = 1
#: The first line.
HEADER = json.dumps({"format": FORMAT, "version": VERSION}) + "\n"
#: Nodes whose version matters: the next generated broker id, the epoch of the features.
KEPT_VERSIONS = frozenset({paths.BROKER_SEQUENCE, paths.FEATURE})
SKIPPED = frozenset({"/zookeeper"})
#: An import with `replace` deletes all other nodes below these paths only, since other programs may share the tree.
REPLACED = (
    f"{paths.TOPICS}/",
    f"{paths.CONFIG}/",
    "/admin/",
    "/kafka-acl/",
    "/kafka-acl-extended/",
    "/delegation_token/",
)
#: The number of nodes that are read at once.
BATCH = 1000


class BadDocument(Exception):
    """The input of an import is not an export, or cannot be imported here."""


async def export_tree(store: Store, write: Callable[[str], object]) -> int:
    """Pass every persistent node as a line to `write`; returns the number of nodes.

    The store should be idle: nodes that change during the export may be exported in either form.
    """
    write(HEADER)
    count = 0
    async for path, data, version in walk(store):
        write(line_of(path, data, version))
        count += 1
    return count


def line_of(path: str, data: bytes | None, version: int = 0) -> str:
    """The line of a node."""
    node: dict[str, Any] = {"path": path}
    try:
        node["data"] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        node["base64"] = base64.b64encode(data).decode()
    if version:
        node["version"] = version
    return json.dumps(node, ensure_ascii=False) + "\n"


async def walk(store: Store) -> AsyncIterator[tuple[str, bytes | None, int]]:
    """Every persistent node with its data and version, parents first, in a fixed order."""
    level = ["/"]
    while level:
        below: list[str] = []
        for start in range(0, len(level), BATCH):
            batch = level[start : start + BATCH]
            for path, node in zip(batch, await store.get_many(batch), strict=True):
                if node is None or node[1].ephemeral_owner:
                    continue
                if path != "/":
                    yield path, node[0], node[1].version
                if node[1].num_children and path not in paths.NOTIFICATION_PATHS:
                    prefix = "" if path == "/" else path
                    children = [
                        f"{prefix}/{name}" for name in sorted(await children_of(store, path))
                    ]
                    below += [child for child in children if child not in SKIPPED]
        level = below


async def children_of(store: Store, path: str) -> list[str]:
    """The names below a node; none if it was deleted."""
    try:
        return await store.children(path)
    except NoNode:
        return []


async def import_tree(
    store: Store, lines: Iterable[str], *, replace: bool = False, cluster_id: str | None = None
) -> int:
    """Write the nodes of an export into a store; returns the number of nodes.

    Shape: only an export of `cluster_id` is accepted. With `replace`, the store may already describe topics: its nodes
    get the export's data, and nodes of topics, settings and access control that are not in the export are deleted at
    the end, so that an interrupted import can be repeated.
    Errors: BadDocument, also if brokers are registered in the store or it belongs to another cluster.
    """
    source = iter(lines)
    header = parse(next(source, ""))
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise BadDocument(f"not an export of version {VERSION}: {header}")
    if await children_of(store, paths.BROKER_IDS):
        raise BadDocument("brokers are registered in this store; stop them first")
    topics = await topics_in(store)
    if topics and not replace:
        raise BadDocument(
            f"the store already has {topics} topics; use --replace to replace them with the export"
        )
    imported: set[str] = set()
    for line in source:
        if not line.strip():
            continue
        node = parse(line)
        path = str(node.get("path", ""))
        data = data_of(node)
        if path == paths.CLUSTER_ID:
            await refuse_other_cluster(store, data, cluster_id)
        try:
            await put(store, path, data, int(node.get("version", 0)))
        except (StoreError, ValueError) as error:
            raise BadDocument(f"cannot import {path!r}: {error}") from error
        imported.add(path)
    if topics:
        await delete_others(store, imported)
    return len(imported)


async def topics_in(store: Store) -> int:
    """The number of topics that a store describes."""
    return len(await children_of(store, paths.TOPICS))


async def delete_others(store: Store, kept: set[str]) -> None:
    """Delete nodes of the cluster that are not in the export, children first."""
    found = [path async for path, _, _ in walk(store) if path not in kept]
    for path in reversed(found):
        if path.startswith(REPLACED):
            await store.delete(path)


async def refuse_other_cluster(store: Store, data: bytes | None, expected: str | None) -> None:
    """Prevent mixing two clusters. Errors: BadDocument."""
    theirs = paths.decode_cluster_id(data)
    found = (await store.get_many([paths.CLUSTER_ID]))[0]
    if found is not None and paths.decode_cluster_id(found[0]) != theirs:
        ours = paths.decode_cluster_id(found[0])
        raise BadDocument(f"the store belongs to cluster {ours}, but the export to {theirs}")
    if expected not in (None, theirs):
        raise BadDocument(
            f"the data directory belongs to cluster {expected}, but the export to {theirs}"
        )


async def put(store: Store, path: str, data: bytes | None, version: int) -> None:
    """Create a node or set its data, and raise its version if the version matters."""
    found = await store.exists(path)
    if found is None:
        if parent_of(path) != "/" and await store.exists(parent_of(path)) is None:
            raise BadDocument(f"{path} comes before its parent")
        await store.create(path, data)
        reached = 0
    else:
        reached = (await store.set(path, data)).version
    if path in KEPT_VERSIONS:
        while reached < version:
            steps = min(version - reached, BATCH)
            await commit(store, [SetData(path, data) for _ in range(steps)])
            reached += steps


def data_of(node: dict[str, Any]) -> bytes | None:
    """The data of a line. Errors: BadDocument."""
    try:
        if "base64" in node:
            return base64.b64decode(node["base64"], validate=True)
        data = node["data"]
        return None if data is None else data.encode()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadDocument(f"a line without data: {node}") from error


def parse(line: str) -> dict[str, Any]:
    """Parse one line. Errors: BadDocument."""
    try:
        document = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"not JSON: {line[:80]!r}") from error
    if not isinstance(document, dict):
        raise BadDocument(f"not an object: {line[:80]!r}")
    return document
